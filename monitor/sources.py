# SPDX-License-Identifier: Apache-2.0
"""Which file is what: runs, cells, samples, OpenMetrics, CSV -> recordings with their names."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from monitor import openmetrics, samples, table
from monitor.recording import Recording

SAMPLES: Final = "logs/counters.jsonl"
CLOCKS: Final = ("native", "virtual")
MOST_BYTES: Final = 1 << 30  # of a file; anything but a regular one might never end


class SourceError(Exception):
    """A file that cannot be read as what it seems to be. One line."""


def _clock(cell: Path) -> str:
    """The clock of a cell; native where it does not say."""
    try:
        found = json.loads((cell / "cell.json").read_text(encoding="utf-8")).get("clock")
    except (OSError, ValueError, AttributeError, RecursionError):
        return CLOCKS[0]
    return found if found in CLOCKS else CLOCKS[0]


def _cells(path: Path) -> list[Path]:
    """The cells of a run, or the cell itself, that have samples."""
    folders = [path, *sorted(path.glob("cells/*"))]
    return [folder for folder in folders if (folder / SAMPLES).is_file()]


def _file(path: Path) -> Recording:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path}: found no regular file; valid: .jsonl, .csv or OpenMetrics")
    if status.st_size > MOST_BYTES:
        raise SourceError(f"{path}: found {status.st_size} bytes; valid: at most {MOST_BYTES}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return table.read(file)
            if path.suffix == ".jsonl":
                return samples.read(file.read())
            return openmetrics.read(file)
    except (table.TableError, openmetrics.TextError) as error:
        raise SourceError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path}: found bytes that are no text") from None


def recordings(path: Path) -> Iterator[tuple[str, str, Recording]]:
    """Yield (name, clock, recording) of a run, a cell or a file. SourceError, OSError."""
    if not path.is_dir():
        yield path.stem, CLOCKS[0], _file(path)
        return
    cells = _cells(path)
    if not cells:
        raise SourceError(
            f"{path}: found no {SAMPLES}; valid: a run made with --sample counters, one of its "
            "cells, or a file .jsonl, .csv or OpenMetrics"
        )
    for cell in cells:
        run = cell.parent.parent
        name = cell.name if cell == path else f"{run.parent.name}/{run.name}/{cell.name}"
        yield name, _clock(cell), _file(cell / SAMPLES)
