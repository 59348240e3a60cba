# SPDX-License-Identifier: Apache-2.0
"""Report how far each student of a class has got and what is running, from home directories and the
machine's processes.

Students control both: files may be hostile, and a command line may say anything.
"""

from __future__ import annotations

import os
import pwd
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.terminal import DEFAULT_COLUMNS
from labs.submissions import Found, parsed_file, read, shown
from labs.workdir import DIRECTORY, STATE, LabError
from topologies.emulate import marks
from virtual.turns import Ticket, in_order

HEADINGS: Final = ("login", "student", "lab", "score", "checked", "now")
VERBS: Final = ("start", "shell", "run", "check", "measure", "case")
MAX_LABS: Final = 99  # of one home directory
MOST_CELL: Final = 14  # characters of a cell, except in the last column
LEAST_LAST: Final = 20  # columns of the last column
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class Process:
    """A process: its user, its command line, and for how long it has run."""

    uid: int
    argv: tuple[str, ...]
    age_s: float


@dataclass(frozen=True)
class Activity:
    """What a process does for a work directory (None: for none)."""

    directory: Path | None
    what: str


def processes() -> Iterator[Process]:
    """Yield the machine's processes, as far as they are visible."""
    now_s, ticks_per_s = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            uid, text = entry.stat().st_uid, (entry / "cmdline").read_bytes()
        except OSError:
            continue
        ticks = marks.start_time_ticks(int(entry.name))
        if text and ticks is not None:
            argv = tuple(text.rstrip(b"\0").decode("utf-8", "replace").split("\0"))
            yield Process(uid, argv, max(0.0, now_s - ticks / ticks_per_s))


def activity(process: Process) -> Activity | None:
    """Return what a process does; None: it is none of Downpour's that a student started."""
    argv = process.argv
    words = _words_after(argv, "labs")
    if words[:1] == ("_hold",) and len(words) >= 5:  # and the number of a descriptor
        return Activity(Path(words[3]), f"network up ({shown(words[4])} time)")
    words = _words_after(argv, "downpour")
    if words[:1] == ("run",) and len(words) > 1:
        return Activity(None, f"run {shown(words[1])}")
    if words[:1] != ("lab",) or len(words) < 3 or words[1] not in VERBS:
        return None
    if not (words[2].isdecimal() and words[2].isascii()):
        return None
    directory = _home(process.uid) / DIRECTORY / words[2]
    if "--dir" in words[:-1]:
        given = Path(words[words.index("--dir") + 1])
        directory = given if given.is_absolute() else directory
    file = words[3] if words[1] in ("measure", "case") and len(words) > 3 else ""
    return Activity(directory, shown(f"{words[1]} {file}".rstrip()))


def _words_after(argv: Sequence[str], program: str) -> tuple[str, ...]:
    """Return the words after `-m PROGRAM`, or after a script of that name; otherwise ()."""
    for i, word in enumerate(argv[:6]):
        if (word == program and i and argv[i - 1] == "-m") or (
            word.endswith(f"/bin/{program}") and i <= 1
        ):
            return tuple(argv[i + 1 :])
    return ()


def _home(uid: int) -> Path:
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user-{uid}"


def work_directories(home: Path) -> list[Path]:
    """Return the directories of labs in a home directory. Do not follow links. Raises OSError."""
    top = home / DIRECTORY
    if top.is_symlink():
        return []
    try:
        with os.scandir(top) as entries:
            found = [e for e in entries if e.name.isdecimal() and e.name.isascii()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = sorted(
        int(e.name) for e in found if len(e.name) <= 2 and e.is_dir(follow_symlinks=False)
    )
    return [top / str(number) for number in numbers[:MAX_LABS]]


def rows(homes: Iterable[Path], running: Iterable[Process], now: float) -> list[tuple[str, ...]]:
    """Return a row of HEADINGS for each work directory and for what runs outside them.

    `now`: epoch, seconds. A directory that cannot be read gets its own row.
    """
    doing: dict[Path, list[str]] = {}
    others: list[tuple[str, ...]] = []
    seen: dict[Path, str] = {}
    for process in running:
        found = activity(process)
        if found is None:
            continue
        text = f"{found.what}, {_span(process.age_s)}"
        if found.directory is None:
            others.append((_login(process.uid), "", "", "", "", text))
        else:
            doing.setdefault(found.directory, []).append(text)
            seen.setdefault(found.directory, _login(process.uid))
    table: list[tuple[str, ...]] = []
    for home in sorted(homes):
        try:
            directories = work_directories(home)
        except OSError as error:
            table.append((shown(home.name), "", "", "", "", f"cannot be read: {error.strerror}"))
            continue
        for directory in directories:
            now_text = "; ".join(doing.pop(directory, []))
            table.append((shown(home.name), *_of(directory, now), now_text))
    for directory, texts in sorted(doing.items()):
        table.append((seen[directory], *_of(directory, now), "; ".join(texts)))
    return table + sorted(others)


def _of(directory: Path, now: float) -> tuple[str, str, str, str]:
    """Return student, lab, score and the time of the check, as the files say."""
    described: Any = None
    try:
        described = parsed_file(os.fsencode(directory / STATE))
    except (OSError, ValueError, RecursionError):
        described = None
    described = described if isinstance(described, dict) else {}
    number = described.get("lab")
    lab = str(number) if isinstance(number, int) else shown(directory.name)
    name = f"result-{lab}.json"
    values = read(Found(os.fsencode(directory / name), name)).values
    if not values:
        return shown(described.get("student", "?")), lab, "", ""
    score = f"{values['score']}/{values['points']}"
    return shown(values["student"]), lab, score, f"{_span(now - values['checked'])} ago"


def queue_text(places: int, found: Sequence[Ticket], width: int = DEFAULT_COLUMNS) -> str:
    """Return a sentence about the guests of a machine that has turns: how many run, and whose
    wait."""
    waiting: dict[int, int] = {}
    for ticket in in_order(found):
        waiting[ticket.uid] = waiting.get(ticket.uid, 0) + 1
    running = sum(ticket.runs for ticket in found)
    names = ", ".join(f"{_login(uid)} ({n})" for uid, n in waiting.items())
    sentence = f"places for guests: {places}, taken: {running}; waiting: {names or 'none'}"
    return textwrap.fill(sentence, width, subsequent_indent="  ") + "\n"


def _span(seconds: float) -> str:
    """Return a time in its largest unit; "?" if it is not in the past."""
    if not 0 <= seconds < 1000 * _DAY:
        return "?"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def homes_in(folder: Path) -> list[Path]:
    """Return the directories in `folder`, without links. Raises LabError."""
    try:
        with os.scandir(folder) as entries:
            return [folder / e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise LabError(
            f"found '{shown(folder)}' ({error.strerror}); valid: the directory that has the "
            "students' home directories"
        ) from None


def text(table: Sequence[tuple[str, ...]], width: int = DEFAULT_COLUMNS) -> str:
    """Return the rows as a table, or a sentence if there are none. The last column wraps at
    `width`; long names are cut."""
    if not table:
        return "no student has begun a lab, and nothing runs\n"
    whole = [(*map(_cut, row[:-1]), row[-1]) for row in (HEADINGS, *table)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(HEADINGS) - 1)]
    indent = sum(widths) + 2 * len(widths)
    lines: list[str] = []
    for *row, last in whole:
        cells = "  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True))
        first, *rest = textwrap.wrap(last, max(LEAST_LAST, width - indent)) or [""]
        lines += [f"{cells}  {first}".rstrip(), *(" " * indent + line for line in rest)]
    return "\n".join(lines) + "\n"


def _cut(cell: str) -> str:
    return cell if len(cell) <= MOST_CELL else f"{cell[: MOST_CELL - 3]}..."
