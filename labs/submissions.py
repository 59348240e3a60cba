# SPDX-License-Identifier: Apache-2.0
"""Read what students hand in: files that may be hostile. A bad file gets a remark, never an
exception.

Names become printable text: bytes that are not UTF-8 and control characters are escaped.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from labs.results import FORMAT
from labs.workdir import LabError, is_aside

NAME: Final = re.compile(r"result-\d+\.json", re.ASCII)
# Archives that were handed in: reported, not unpacked, as one may hold a thousand times its size.
ARCHIVES: Final = (b".zip", b".tar", b".tar.gz", b".tgz", b".tar.xz", b".tar.bz2", b".7z", b".rar")
MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 20  # a result file is 4 deep
MAX_DIGITS: Final = 20
MAX_SHOWN: Final = 80  # characters of a student's text, in a remark or a field
# From a result file; bool is not an int here.
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "student": (str,), "lab": (int,), "score": (int,), "points": (int,), "identity": (str,),
    "clock": (str,), "checked": (int, float), "checks": (list,), "parameters": (dict,),
    "parameters_digest": (str,),
}  # fmt: skip
_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass
class Submission:
    """A result file. `values` is empty if it could not be read, `remarks` if nothing is wrong."""

    file: str
    path: bytes = b""
    student: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    digest: str = "none"  # "ok", "ok with key", "no key", "not verified", "wrong"
    score: int = 0  # of the checks that count
    points: int = 0  # that the lab gives
    passed: int = 0  # checks that count
    rerun: str = ""  # the points when the checks ran again, or "no"
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Found:
    """A file that may be a submission. `problem`: why it cannot be one."""

    path: bytes
    name: str  # relative to the folder, for display
    problem: str = ""


def shown(text: object) -> str:
    """Return a student's text on one line, truncated, with unprintable characters escaped."""
    escaped = "".join(map(_escaped, str(text)[: MAX_SHOWN + 1]))
    return escaped if len(escaped) <= MAX_SHOWN else f"{escaped[: MAX_SHOWN - 3]}..."


def _escaped(character: str) -> str:
    """Escape line ends, control and formatting characters, lone surrogates and unassigned
    characters."""
    if unicodedata.category(character)[0] != "C" and character not in "\u2028\u2029":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def name_text(name: bytes) -> str:
    """Return a file's whole name in printable form."""
    return "".join(map(_escaped, name.decode("utf-8", "backslashreplace")))


# -- finding ----------------------------------------------------------------------------------
def find_files(folder: Path) -> list[Found]:
    """Return all result-N.json below `folder`, other .json directly in it (submission systems
    rename files), of any file type, and directories that cannot be listed. Raises LabError."""
    if not _can_be_listed(folder):
        raise LabError(f"found '{name_text(os.fsencode(folder))}'; valid: a directory with "
                       "result files that you may read")  # fmt: skip
    return sorted(_walk(os.fsencode(folder)), key=lambda f: f.path)


def _can_be_listed(folder: Path) -> bool:
    try:
        with os.scandir(folder):
            return True
    except (OSError, ValueError):  # ValueError: NUL in the name
        return False


def _walk(folder: bytes) -> Iterator[Found]:
    """Yield candidates without following links. Not recursive, as directories may be nested a
    thousand deep."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                inside = list(entries)
        except OSError as error:
            name = name_text(os.path.relpath(directory, folder))
            yield Found(directory, name, f"a directory that cannot be listed: {error.strerror}")
            continue
        for entry in inside:
            if _is_directory(entry) and not is_aside(entry.name):
                waiting.append(entry.path)
            if _is_named(entry.name, top=directory == folder):
                yield Found(entry.path, name_text(os.path.relpath(entry.path, folder)))
            elif entry.name.lower().endswith(ARCHIVES) and _depth(directory, folder) <= 1:
                name = name_text(os.path.relpath(entry.path, folder))
                yield Found(entry.path, name, "an archive; valid: its files, unpacked")


def _depth(directory: bytes, folder: bytes) -> int:
    return 0 if directory == folder else os.path.relpath(directory, folder).count(b"/") + 1


def _is_directory(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_named(name: bytes, *, top: bool) -> bool:
    text = name.decode("utf-8", "replace")
    return NAME.fullmatch(text) is not None or (top and text.endswith(".json"))


# -- reading ----------------------------------------------------------------------------------
def read(found: Found) -> Submission:
    """Read a file; one that no check has written gets a remark."""
    submission = Submission(found.name, found.path)
    try:
        if found.problem:
            raise ValueError(found.problem)
        values = _parsed(_bytes_of(found.path))
        if not isinstance(values, dict):
            raise ValueError("no result file of this version")
        submission.student = values["student"] if isinstance(values.get("student"), str) else ""
        _look_through(values)
        _check_fields(values)
        submission.values = values
    except OSError as error:
        submission.remarks.append(f"cannot be read: {error.strerror}")
    except RecursionError:
        submission.remarks.append(f"cannot be read: nested more than {MAX_DEPTH} deep")
    except ValueError as error:
        submission.remarks.append(f"cannot be read: {' '.join(str(error).split())[:300]}")
    return submission


def parsed_file(path: bytes) -> object:
    """Return the JSON in a file that may be hostile. Raises OSError, ValueError, RecursionError."""
    values = _parsed(_bytes_of(path))
    _look_through(values)
    return values


def _bytes_of(path: bytes) -> bytes:
    """Read a file without ever waiting. Raises OSError or ValueError, also if it is not a regular
    file."""
    _check_kind(os.lstat(path).st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        _check_kind(os.fstat(descriptor).st_mode)  # it may have been replaced in the meantime
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("more than 1 MB")
    return data


def _check_kind(mode: int) -> None:
    for is_kind, text in _KINDS:
        if is_kind(mode):
            raise ValueError(f"found {text}; valid: a regular file")


def _parsed(data: bytes) -> Any:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from None
    return json.loads(
        text,
        parse_int=_integer,
        parse_float=_finite,
        parse_constant=_no_constant,
        object_pairs_hook=_object,
    )


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is not a finite number")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key '{shown(twice)}' more than once")
    return made


def _look_through(value: object) -> None:
    """Refuse deep nesting, and text that is not Unicode. Raises ValueError."""
    level = [value]
    for _ in range(MAX_DEPTH):
        following: list[object] = []
        for one in level:
            if isinstance(one, str):
                _check_text(one)
            elif isinstance(one, dict):
                for key in one:
                    _check_text(key)
                following.extend(one.values())
            elif isinstance(one, list):
                following.extend(one)
        if not following:
            return
        level = following
    raise ValueError(f"nested more than {MAX_DEPTH} deep")


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"lone surrogate in '{shown(text)}'")


def _check_fields(values: dict[str, Any]) -> None:
    if values.get("format") != FORMAT or not isinstance(values["format"], int):
        raise ValueError("no result file of this version")
    for key, kinds in _FIELDS.items():
        value = values.get(key)
        negative = isinstance(value, (int, float)) and value < 0
        if not isinstance(value, kinds) or isinstance(value, bool) or negative:
            raise ValueError(f"no valid '{key}'")
