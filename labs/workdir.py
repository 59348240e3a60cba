# SPDX-License-Identifier: Apache-2.0
"""The student's work directory: its owner, its start state, and how to restore that."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import string
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from common.files import os_error_text, write_json
from labs.spec import Lab, Value, as_words

DIRECTORY: Final = "downpour-labs"  # in a home directory; contains a work directory for each lab
STATE: Final = ".lab.json"
TEMPLATE: Final = ".template"
ASIDE: Final = re.compile(rb"before-\d{8}-\d{6}(-\d+)?")
STUDENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}")


class LabError(Exception):
    """A user's mistake, or a lab that cannot continue; the text is for the user."""


@dataclass(frozen=True)
class Work:
    """A work directory as its `.lab.json` says. `identity`: random, created with the directory.
    Each result contains it, so that a copied result file is noticed."""

    directory: Path
    lab: int
    student: str
    identity: str
    made: float  # epoch, seconds


def default_directory(number: int) -> Path:
    """Return the work directory to use if none is given."""
    return Path.home() / DIRECTORY / str(number)


def default_student() -> str:
    """Return the student's name to use if none is given: the login."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"user-{os.getuid()}"


def read_work(directory: Path) -> Work | None:
    """Return the work directory; None if there is none. Raises LabError if its file cannot be
    read."""
    path = directory / STATE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Work(directory, int(raw["lab"]), str(raw["student"]), str(raw["identity"]),
                    float(raw["made"]))  # fmt: skip
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise LabError(
            f"{path}: found no description of a lab's work directory; valid: the file as the lab "
            "made it. Move the directory away and start the lab again"
        ) from None


def open_work(lab: Lab, directory: Path, student: str | None) -> tuple[Work, bool]:
    """Return (the lab's work directory, whether it is new). If it does not exist, create it in the
    start state. Raises LabError if it is another lab's or another student's."""
    if student is not None and not STUDENT.fullmatch(student):
        raise LabError(f"found STUDENT '{student}'; valid: 1 to 64 letters, digits, ' ._@+-'")
    if any(c.isspace() or c == "," for c in str(directory)):
        raise LabError(f"found DIR '{directory}'; valid: a path without white space and commas")
    work = read_work(directory)
    if work is not None:
        if work.lab != lab.number:
            raise LabError(f"{directory} is the work directory of lab {work.lab}; valid: another")
        if student is not None and work.student != student:
            raise LabError(
                f"found STUDENT '{student}', but {directory} is of '{work.student}'; "
                "valid: the same name, or another DIR"
            )
        return work, False
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise LabError(f"found DIR '{directory}'; valid: an empty directory, or one of this lab")
    there = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        work = Work(
            directory, lab.number, student or default_student(), secrets.token_hex(16), time.time()
        )
        put_start(lab, work)
        _write(work)
    except BaseException as error:
        _take_back(directory, there)  # so that the next attempt finds it empty
        if isinstance(error, OSError):
            raise LabError(os_error_text(error)) from None
        raise
    return work, True


def _take_back(directory: Path, there: bool) -> None:
    """Remove what a failed start put into the directory, which was empty or absent before."""
    for path in directory.glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not there:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _write(work: Work) -> None:
    values = {k: v for k, v in asdict(work).items() if k != "directory"}
    write_json(work.directory / STATE, values)


def put_start(lab: Lab, work: Work) -> None:
    """Create the files of the start state, and parameters.yaml. In files named X.template, ${name}
    is replaced by the student's parameter of this name, and $$ by a dollar sign."""
    parameters = lab.parameters(work.student)
    write_parameters(lab, work.directory, work.student, parameters)
    start = lab.folder / "start"
    if not start.is_dir():
        return
    for source in sorted(start.rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        target = work.directory / source.relative_to(start)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name.endswith(TEMPLATE):
            text = filled(source.read_text(encoding="utf-8"), parameters, str(source))
            target.with_name(target.name.removesuffix(TEMPLATE)).write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def filled(text: str, parameters: dict[str, Value], file: str) -> str:
    """Fill in a template. Raises LabError for a ${name} that is not a parameter."""
    try:
        return string.Template(text).substitute(as_words(parameters))
    except (KeyError, ValueError) as error:
        valid = ", ".join(parameters) or "no parameter"
        raise LabError(f"{file}: found {error}; valid: {valid}") from None


def write_parameters(lab: Lab, directory: Path, student: str, parameters: dict[str, Value]) -> None:
    """Write parameters.yaml, for people and programs."""
    lines = [f"# Lab {lab.number}: your own values. Changing them here has no effect.",
             f'student: "{student}"']  # fmt: skip
    for name, value in parameters.items():
        text = " ".join(lab.spec.parameters[name].text.split())
        shown = f"[{', '.join(value)}]" if isinstance(value, list) else json.dumps(value)
        lines.append(f"{name}: {shown}  # {text}")
    (directory / "parameters.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def set_aside(work: Work) -> Path | None:
    """Move all of the student's files into `before-TIME` of the work directory, where earlier ones
    stay. Return that directory; None if there were no files."""
    keep = {STATE}
    mine = [p for p in work.directory.iterdir() if p.name not in keep and not _is_aside(p)]
    if not mine:
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        aside = work.directory / (f"before-{stamp}" + (f"-{number}" if number > 1 else ""))
        if not aside.exists():
            break
    aside.mkdir()
    for path in mine:
        path.rename(aside / path.name)
    return aside


def _is_aside(path: Path) -> bool:
    return path.is_dir() and is_aside(os.fsencode(path.name))


def is_aside(name: bytes) -> bool:
    """Return whether a directory of that name is one into which a reset has put files aside."""
    return ASIDE.fullmatch(name) is not None


def reset_files(lab: Lab, work: Work) -> Path | None:
    """Restore the start state. No file of the student's is deleted: return the directory of the old
    files."""
    try:
        aside = set_aside(work)
        put_start(lab, work)
    except OSError as error:
        raise LabError(os_error_text(error)) from None
    return aside
