# SPDX-License-Identifier: Apache-2.0
"""Read runs, cells, samples, OpenMetrics, CSV and Parquet as recordings with names."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from monitor import openmetrics, parquet, samples, table
from monitor.recording import Recording
from monitor.records import MOST_LINE, Records

SAMPLES: Final = "logs/counters.jsonl"
MINUTES: Final = ("monitor/minutes.txt", "monitor/paths.txt")
CLOCKS: Final = ("native", "virtual")
_RTSTATS: Final = re.compile(r"\d{8}T\d{6}Z,|\d{14}\s+\d{14}\s", re.ASCII)
MOST_BYTES: Final = 1 << 30  # of a file; only regular files are sure to end


class SourceError(Exception):
    """A file whose content does not fit its type. The message is one line."""


def _clock(cell: Path) -> str:
    """Return the clock of a cell; native if it does not name one."""
    try:
        found = json.loads((cell / "cell.json").read_text(encoding="utf-8")).get("clock")
    except (OSError, ValueError, AttributeError, RecursionError):
        return CLOCKS[0]
    return found if found in CLOCKS else CLOCKS[0]


def _cells(path: Path) -> list[Path]:
    """Return the cells of a run, or the cell itself, that have samples."""
    folders = [path, *sorted(path.glob("cells/*"))]
    return [folder for folder in folders if (folder / SAMPLES).is_file()]


def regular(path: Path, valid: str = "a file of --qlog") -> Path:
    """Return `path` if it is a regular file of limited size. Raises SourceError, OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path}: found no regular file; valid: {valid}")
    if status.st_size > MOST_BYTES:
        raise SourceError(f"{path}: found {status.st_size} bytes; valid: at most {MOST_BYTES}")
    return path


def _file(path: Path) -> Recording:
    regular(path, ".jsonl, .csv, .parquet or OpenMetrics")
    try:
        if path.suffix == ".parquet":
            return parquet.read(path)
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return table.read(file)
            if path.suffix == ".jsonl":
                return samples.read(file.read())
            return openmetrics.read(file)
    except (table.TableError, openmetrics.TextError, parquet.ParquetError) as error:
        raise SourceError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path}: found bytes that are not text") from None


def records(path: Path) -> Iterator[tuple[str, str, Records]]:
    """Yield (name, clock, minute records) of a run, a cell or a file. Raises OSError."""
    if not path.is_dir():
        yield path.stem, CLOCKS[0], _records([path])
        return
    for folder in [path, *sorted(path.glob("cells/*"))]:
        if files := _minutes(folder):
            yield _name(path, folder), _clock(folder), _records(files)


def _minutes(cell: Path) -> list[Path]:
    """Return a cell's files of minute records."""
    files = [cell / name for name in MINUTES]
    return [file for file in files if file.is_file() and file.stat().st_size > 0]


def _records(files: Iterable[Path]) -> Records:
    found = Records()
    for file in files:
        if not is_records(file):
            raise SourceError(f"{file}: found no line of rtstats first; valid: rtstats(1)'s lines")
        with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            found.take(lines)
    return found


def is_records(path: Path) -> bool:
    """Return whether a file is from rtstats, by its first line."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        return _RTSTATS.match(lines.readline(MOST_LINE + 1)) is not None


def recordings(path: Path) -> Iterator[tuple[str, str, Recording]]:
    """Yield (name, clock, recording) of a run, a cell or a file. Raises SourceError, OSError."""
    if not path.is_dir():
        yield path.stem, CLOCKS[0], _file(path)
        return
    cells = _cells(path)
    if not cells and any(
        (folder / MINUTES[0]).is_file() for folder in (path, *path.glob("cells/*"))
    ):
        return
    if not cells:
        raise SourceError(
            f"{path}: found no {SAMPLES}; valid: a run made with --monitor, one of its "
            "cells, or a file .jsonl, .csv, .parquet or OpenMetrics"
        )
    for cell in cells:
        yield _name(path, cell), _clock(cell), _file(cell / SAMPLES)


def _name(path: Path, cell: Path) -> str:
    run = cell.parent.parent
    return cell.name if cell == path else f"{run.parent.name}/{run.name}/{cell.name}"
