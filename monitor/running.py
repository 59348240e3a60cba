# SPDX-License-Identifier: Apache-2.0
"""A running cell, from its growing logs; and runs, finished or not, in the form that the page
requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from common.files import Tail, whole_name
from monitor.growing import Deliveries
from monitor.recording import GONE, Recording
from monitor.samples import Reader
from parsers.base.jsonfiles import BadFile
from parsers.read.ldm_log import parse_ldm_log
from parsers.report.board_page import cell_json, metrics_json

MOST_BYTES: Final = 4 << 20  # of a log at one look, and of one line
RUNNING: Final = "RUNNING: no verdict yet; figures may still change."


class Shown(Protocol):
    """What a server shows. `version` grows when anything changes."""

    version: int

    def look(self) -> None:
        """Record what is new."""

    def board(self) -> Mapping[str, object]:
        """Return what the page shows."""

    def deliveries(self, cell: str) -> bytes | None:
        """Return deliveries.bin of a cell; None if it has none."""

    def added(self, cell: str, *, whole: bool) -> tuple[int, bytes] | None:
        """Return the first product that changed since the last call, and a deliveries.bin of it and
        those after it; None if none changed. `whole`: all products."""

    def recordings(self) -> Mapping[str, Recording]:
        """Return the newest samples of counters, by cell."""


class FinishedRun:
    """A run directory that is complete."""

    def __init__(self, run_dir: Path) -> None:
        # Here, so that a server that waits for a run starts at once.
        from parsers.measure.evaluate import evaluate
        from parsers.measure.summary import CellMetrics
        from parsers.report.board import board_of
        from parsers.report.document import brief_of
        from parsers.report.publish import make_report

        found = evaluate(run_dir)
        run = f"{found.experiment}/{run_dir.resolve().name}"
        board, _ = board_of(found, brief_of(make_report(found, run)), run, run_dir)
        self._blobs = {c.cell.cell: c.delivered for c in found.cells if isinstance(c, CellMetrics)}
        cells: Any = board["cells"]
        self._board = board | {
            "cells": [c | {"blob": True, "why_no_blob": ""} if c["name"] in self._blobs else c
                      for c in cells]
        }  # fmt: skip
        self.version = 1

    @property
    def cells(self) -> list[str]:
        """Return the cells whose deliveries are known."""
        return [name for name, blob in self._blobs.items() if blob]

    def look(self) -> None:
        """Do nothing: nothing changes."""

    def board(self) -> Mapping[str, object]:
        """Return what the page shows."""
        return self._board

    def deliveries(self, cell: str) -> bytes | None:
        """Return deliveries.bin of a cell."""
        return self._blobs.get(cell)

    def added(self, cell: str, *, whole: bool) -> tuple[int, bytes] | None:
        """Return all deliveries of a cell to a viewer that has none."""
        blob = self._blobs.get(cell)
        return (0, blob) if whole and blob else None

    def recordings(self) -> Mapping[str, Recording]:
        """Return no samples: a finished run keeps none here."""
        return {}


class RunningCell:
    """A running cell, from its logs so far."""

    def __init__(self, folder: Path, work: Path, name: str) -> None:
        self.name, self._folder, self._work = name, folder, work
        self._tails: dict[str, Tail] = {}
        self._samples = Reader(newest=True)  # what /metrics shows
        self.deliveries = Deliveries(self._subscribers())

    def _subscribers(self) -> list[str]:
        try:
            raw = json.loads((self._work / "network.json").read_text(encoding="utf-8"))
            return [str(h["name"]) for h in raw["hosts"] if h["role"] == "subscriber"]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def has_ended_at(self, folder: Path) -> None:
        """Read that folder from now on, if it is the cell's final one."""
        if not self._folder.is_dir():
            self._folder = self._work = folder

    def look(self) -> bool:
        """Record what is new; return whether anything was."""
        logs, changed = self._folder / "logs", False
        for file in sorted(logs.glob("*.log")):
            host, _, kind = file.name.partition(".")
            if kind in ("ldmd.log", "inbox.log") or file.name in ("pqinsert.log", "feed.log"):
                changed |= self._take(host, self._new(file))
        lines = self._new(logs / "counters.jsonl")
        self._samples.take(lines)
        return changed or bool(lines)

    def _new(self, file: Path) -> list[str]:
        tail = self._tails.setdefault(file.name, Tail(file, MOST_BYTES))
        return [line.decode(errors="replace") for line in tail.lines()]

    def _take(self, host: str, lines: list[str]) -> bool:
        if not lines:
            return False
        log = parse_ldm_log([line + "\n" for line in lines], host)
        self.deliveries.take(host, log)
        return bool(log.records)

    @property
    def recording(self) -> Recording:
        """Return the newest samples of counters."""
        return self._samples.recording

    def board(self) -> dict[str, object]:
        """Return what the page shows of the cell."""
        why = "" if self.deliveries else "No product yet."
        cell = cell_json(self._work, self.name, blob=not why, why=why)
        return cell | {"blob": not why}


class RunningRun:
    """A run whose directory is not complete: cells that have ended, and cells that run."""

    def __init__(self, partial: Path) -> None:
        self._path = partial
        self._run = f"{partial.parent.name}/{whole_name(partial)}"
        self._cells: dict[str, RunningCell] = {}
        self.version = 1

    @property
    def ended(self) -> Path | None:
        """Return the run's directory once it is complete."""
        whole = self._path.parent / whole_name(self._path)
        return whole if not self._path.is_dir() and (whole / "manifest.json").is_file() else None

    def look(self) -> None:
        """Record what is new."""
        changed = False
        for folder in sorted((self._path / "cells").glob("*")):
            name = whole_name(folder)
            cell = self._cells.get(name)
            if cell is None:
                work = self._path / "work" / name
                work = work if work.is_dir() else folder
                cell = self._cells[name] = RunningCell(folder, work, name)
                changed = True
            cell.has_ended_at(folder)
            changed |= cell.look()
        self.version += changed

    def board(self) -> Mapping[str, object]:
        """Return what the page shows."""
        cells = []
        for cell in self._cells.values():
            try:
                cells.append(cell.board())
            except (BadFile, OSError):
                continue
        with_data = [c["name"] for c in cells if c["blob"]]
        newest = with_data[-1] if with_data else None
        return _board(self._run, "running", RUNNING) | {"cells": cells, "newest": newest}

    def deliveries(self, cell: str) -> bytes | None:
        """Return deliveries.bin of a cell."""
        return self._cells[cell].deliveries.blob() if cell in self._cells else None

    def added(self, cell: str, *, whole: bool) -> tuple[int, bytes] | None:
        """Return what changed of a cell's deliveries."""
        return self._cells[cell].deliveries.added(whole=whole) if cell in self._cells else None

    def recordings(self) -> Mapping[str, Recording]:
        """Return the newest samples of counters, by cell."""
        return {name: cell.recording for name, cell in self._cells.items()}


class Waiting:
    """The current run below a folder of runs: the newest incomplete run; once that is complete, the
    finished run; before there is one, nothing."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._now: RunningRun | FinishedRun | None = None
        self._told: RunningRun | FinishedRun | None = None
        self._told_cells: set[str] = set()  # cells whose deliveries of `_told` were requested
        self.version = 0
        self._of = 0

    def look(self) -> None:
        """Find the current run, and record its news."""
        newest = self._newest()
        if newest is not None and (
            not isinstance(self._now, RunningRun) or self._now._path != newest
        ):
            self._now, self._of = RunningRun(newest), 0
            self.version += 1
        if isinstance(self._now, RunningRun) and (whole := self._now.ended) is not None:
            self._now = FinishedRun(whole)
            self.version += 1
        if self._now is not None:
            self._now.look()
            if self._now.version != self._of:
                self._of = self._now.version
                self.version += 1

    def _newest(self) -> Path | None:
        found = [p for p in self._runs.glob("*/.*.partial") if (p / "cells").is_dir()]
        return max(found, key=lambda p: p.name, default=None)

    def board(self) -> Mapping[str, object]:
        """Return what the page shows."""
        if self._now is not None:
            return self._now.board()
        headline = f"Nothing runs below {self._runs}. This page shows a run as soon as it begins."
        return _board("Waiting", "no", headline) | {"commands": ["make experiment-lossy"]}

    def deliveries(self, cell: str) -> bytes | None:
        """Return deliveries.bin of a cell."""
        return self._now.deliveries(cell) if self._now is not None else None

    def added(self, cell: str, *, whole: bool) -> tuple[int, bytes] | None:
        """Return what changed of a cell's deliveries; all of them once another run is shown."""
        if self._now is None:
            return None
        if self._told is not self._now:
            self._told, self._told_cells = self._now, set()
        found = self._now.added(cell, whole=whole or cell not in self._told_cells)
        if found is not None:  # viewers may invent names
            self._told_cells.add(cell)
        return found

    def recordings(self) -> Mapping[str, Recording]:
        """Return the newest samples of counters, by cell."""
        return self._now.recordings() if self._now is not None else {}


def _board(run: str, clock: str, headline: str) -> dict[str, object]:
    """Return what the page shows of a run without a verdict, except its cells."""
    empty = ("doubts", "result", "shown_metrics", "beside", "claims", "points", "cells", "commands")
    return {
        "run": run, "clock": clock, "verdict": "running", "headline": headline,
        "metrics": metrics_json(), "newest": None, **{name: [] for name in empty},
    }  # fmt: skip


def latest(recording: Recording) -> dict[Any, int]:
    """Return the newest value of each series that is still there."""
    found = {s: p.values[-1] for s, p in recording.points.items() if len(p.values)}
    return {s: v for s, v in found.items() if v != GONE}
