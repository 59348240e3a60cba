# SPDX-License-Identifier: Apache-2.0
"""Run the checks again, for the instructor, on the work directories that students handed in.

A student can write any result file. Only what the checks find here is the instructor's own finding,
and a receipt signed with the instructor's key says so. The files are copied first, regular ones
only; the checks run in their own process with limits, so that the worst that hostile files can do
is to end that process.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.places import ROOT
from labs.checking import CheckProblem, CheckResult, Status, run_checks
from labs.spec import Lab, find_lab
from labs.submissions import Submission, shown
from labs.workdir import STATE, is_aside

MAX_FILES: Final = 20_000
MAX_BYTES: Final = 1_000_000_000
MAX_DEPTH: Final = 20
LEFT_OUT: Final = (".check",)  # measured by the check of lab 6 on the student's machine
LIMIT_S: Final = {"files": 300, "guest": 1800}
LIMIT_BYTES: Final = 4 << 30  # of memory; a guest has its own limit
WRITES_BYTES: Final = {"files": 2 << 30, "guest": 64 << 30}  # a guest's memory is a file
MAX_TEXT: Final = 1000  # characters of a check's text


class CannotRerun(Exception):
    """The checks cannot be run again; the text says why."""


@dataclass(frozen=True)
class Rerun:
    """What the checks found. `files_sha256`: the digest of all files that they read, including
    names."""

    results: tuple[CheckResult, ...]
    files_sha256: str

    @property
    def score(self) -> int:
        """Return the points of the checks that passed."""
        return sum(result.score for result in self.results)


def rerun(submission: Submission, lab: Lab) -> Rerun:
    """Run the lab's checks on a copy of the work directory beside the result file.

    Raises CannotRerun.
    """
    if lab.spec.rerun == "no":
        raise CannotRerun(f"lab {lab.number} cannot be checked again")
    source = Path(os.fsdecode(submission.path)).parent
    if not _is_regular(source / STATE):
        raise CannotRerun(f"not checked again: no work directory (no {STATE} beside the file)")
    with tempfile.TemporaryDirectory(prefix="downpour-grade-") as place:
        copy = Path(place) / "work"
        try:
            digest = _copy(source, copy)
        except OSError as error:
            raise CannotRerun(f"not checked again: {error.strerror}") from None
        _check_owner(copy, submission)
        return Rerun(tuple(_checked(lab, submission.student, copy)), digest)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


# -- the copy ---------------------------------------------------------------------------------
def _copy(source: Path, target: Path) -> str:
    """Copy regular files with their times; return the digest of names and contents.

    Links, FIFOs and devices are left out. Raises OSError, CannotRerun if there is too much.
    """
    target.mkdir(mode=0o700)
    total = hashlib.sha256()
    files = size_bytes = 0
    for relative in _files_below(source):
        files += 1
        if files > MAX_FILES:
            raise CannotRerun(f"not checked again: more than {MAX_FILES:,} files")
        to = target / relative
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        one = hashlib.sha256()
        with os.fdopen(os.open(source / relative, flags), "rb") as read:
            status = os.fstat(read.fileno())
            if not stat.S_ISREG(status.st_mode):
                continue  # replaced in the meantime
            with to.open("xb") as write:
                while data := read.read(1 << 20):
                    size_bytes += len(data)
                    if size_bytes > MAX_BYTES:
                        raise CannotRerun(f"not checked again: more than {MAX_BYTES:,} bytes")
                    one.update(data)
                    write.write(data)
        os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))
        name = os.fsencode(relative)
        total.update(len(name).to_bytes(8, "big") + name + one.digest())
    return total.hexdigest()


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield regular files, relative to the folder, in a fixed order; not recursive."""
    waiting = [Path()]
    while waiting:
        below = waiting.pop()
        if len(below.parts) > MAX_DEPTH:
            raise CannotRerun(f"not checked again: directories more than {MAX_DEPTH} deep")
        with os.scandir(folder / below) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                is_old = not below.parts and is_aside(os.fsencode(entry.name))
                if entry.name not in LEFT_OUT and not is_old:
                    waiting.append(below / entry.name)
            elif entry.is_file(follow_symlinks=False):
                yield below / entry.name


def _check_owner(copy: Path, submission: Submission) -> None:
    """Raise CannotRerun unless the work directory belongs to the result file."""
    try:
        raw = json.loads((copy / STATE).read_bytes())
        found = (raw["lab"], raw["student"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise CannotRerun(f"not checked again: {STATE} is not as the lab made it") from None
    if found != (submission.values["lab"], submission.student):
        raise CannotRerun(
            f"not checked again: the work directory is of lab {shown(found[0])} of "
            f"'{shown(found[1])}'"
        )


# -- the checks -------------------------------------------------------------------------------
def _checked(lab: Lab, student: str, work: Path) -> list[CheckResult]:
    """Run the checks in a process with limits. Raises CannotRerun."""
    argv = [sys.executable, "-m", "labs.rerun", str(lab.number), student, str(work)]
    limit_s = LIMIT_S[lab.spec.rerun]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise CannotRerun(f"not checked again: no end within {limit_s} s") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if code != 0:
            raise CannotRerun(f"not checked again: the checks ended with status {code}")
        out.seek(0)
        return [CheckResult.from_dict(raw) for raw in json.loads(out.read())]


def _limit(lab: Lab) -> None:
    if lab.spec.rerun == "files":
        limit_s = LIMIT_S["files"]
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    writes_bytes = WRITES_BYTES[lab.spec.rerun]
    resource.setrlimit(resource.RLIMIT_FSIZE, (writes_bytes, writes_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def results_of(lab: Lab, student: str, work: Path) -> list[CheckResult]:
    """Run all checks; a check that cannot handle the files has failed."""
    found = []
    for check in lab.spec.checks:
        try:
            found += run_checks(lab, work, student, only=check.name)
        except CheckProblem:
            raise  # the lab is at fault
        except Exception as error:  # whatever hostile files may cause
            said = f"{type(error).__name__}: {shown(error)}"
            found.append(
                CheckResult(
                    check.name,
                    check.title,
                    check.points,
                    Status.FAILED,
                    "running the check",
                    "files that it can read",
                    said,
                    "",
                )  # fmt: skip
            )
    return found


def _as_raw(result: CheckResult) -> dict[str, Any]:
    """Return the result with texts that are safe to write anywhere."""
    return {k: _text(v) if isinstance(v, str) else v for k, v in result.to_dict().items()}


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT]


def main(words: Sequence[str]) -> int:
    """Print the results of LAB STUDENT DIRECTORY as JSON. Only `_checked` calls this."""
    number, student, work = words
    lab = find_lab(int(number))
    _limit(lab)
    print(json.dumps([_as_raw(result) for result in results_of(lab, student, Path(work))]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
