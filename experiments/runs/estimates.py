# SPDX-License-Identifier: Apache-2.0
"""Estimate how long cells will take: from earlier runs on this machine, else by formula.

The formula scales to another duration, m and number of bytes; earlier cells correct it.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.counting import counted
from experiments.design.expansion import CellSpec
from experiments.design.join_leave_expansion import JoinLeaveCell
from experiments.runs.cell_process import Clock
from experiments.runs.preparation import Planned
from experiments.runs.records import Machine
from experiments.runs.resume import run_of

MOST_RUNS: Final = 30  # the newest
MOST_CELLS: Final = 20  # on which an estimate is based


@dataclass(frozen=True)
class Measured:
    """An earlier cell. `ratio`: its real time divided by the formula's."""

    run: str
    kind: str
    cell: str
    ratio: float
    duration_s: float
    directory: Path


def kind_of(cell: CellSpec) -> str:
    """Return what cells must have in common for their times to be compared."""
    return "join-leave" if isinstance(cell, JoinLeaveCell) else cell.protocol


class Estimates:
    """`measured`: cells that this machine ran with this clock, the newest first."""

    def __init__(self, clock: Clock, measured: Sequence[Measured] = ()) -> None:
        self._clock, self._measured = clock, measured
        self._rests_on: set[Measured] = set()

    def of(self, planned: Planned) -> float:
        """Return the estimate in seconds of real time."""
        formula = self._clock.estimate_s(planned.cell, planned.trace.size_bytes)
        found = self._like(planned.cell)
        self._rests_on |= set(found)
        return formula * (statistics.median(m.ratio for m in found) if found else 1.0)

    def _like(self, cell: CellSpec) -> list[Measured]:
        """Return earlier runs of the same cell, else those of its kind."""
        kind = [m for m in self._measured if m.kind == kind_of(cell)]
        return ([m for m in kind if m.cell == cell.cell] or kind)[:MOST_CELLS]

    def rest_of(self, planned: Planned) -> dict[str, float]:
        """Return by phase what share of a cell's time is left when the phase begins: the median of
        earlier cells of the same duration. Empty if none reported its phases."""
        shares: dict[str, list[float]] = {}
        for measured in self._like(planned.cell):
            if measured.duration_s == planned.cell.duration_s:
                for text, share in _rest(measured.directory).items():
                    shares.setdefault(text, []).append(share)
        return {text: statistics.median(found) for text, found in shares.items()}

    @property
    def basis(self) -> str:
        """Return in words the basis of the estimates given so far."""
        if not self._rests_on:
            return "by formula: no earlier run of such cells on this machine"
        runs = sorted({m.run for m in self._rests_on}, key=lambda r: r.rpartition("/")[2])
        more = f" and {len(runs) - 1} earlier" if len(runs) > 1 else ""
        cells, of = counted(len(self._rests_on), "cell"), counted(len(runs), "run")
        return f"from {cells} of {of} on this machine ({runs[-1]}{more})"


@functools.cache
def _rest(cell: Path) -> dict[str, float]:
    """Return by phase what share of a complete cell's time was left when the phase began."""
    ran = run_of(cell)
    try:
        total_s = float(ran["real_s"])
        found: dict[str, float] = {}
        for phase in ran["phases"]:
            found.setdefault(str(phase["text"]), 1 - float(phase["real_s"]) / total_s)
        return found
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return {}


def read(runs: Path, clock: Clock, machine: Machine) -> Estimates:
    """Learn from the newest complete runs below `runs`; leave out incomplete manifests."""
    newest = sorted(
        (p for p in runs.glob("*/[!.]*/manifest.json") if not p.parent.is_symlink()),
        key=lambda p: p.parent.name,
        reverse=True,
    )
    measured = [m for path in newest[:MOST_RUNS] for m in _of_run(path, clock, machine)]
    return Estimates(clock, measured)


def _of_run(path: Path, clock: Clock, machine: Machine) -> list[Measured]:
    try:
        manifest = json.loads(path.read_text())
        there = manifest["machine"]
        if (
            "workers" in manifest
            or manifest["clock"] != clock.name
            or any(there.get(name) != machine.get(name) for name in ("cpu", "cores"))
        ):
            return []
        seconds, traces = manifest["cell_seconds"], manifest["traces"]
        run = f"{path.parent.parent.name}/{path.parent.name}"
        found = []
        for raw in manifest["cells"]:
            kind = JoinLeaveCell if "script" in raw else CellSpec
            cell = kind.from_dict(raw)
            if cell.cell in seconds:
                formula = clock.estimate_s(cell, int(traces[cell.trace_key]["bytes"]))
                ratio = float(seconds[cell.cell]) / formula
                directory = path.parent / "cells" / cell.cell
                found.append(
                    Measured(run, kind_of(cell), cell.cell, ratio, cell.duration_s, directory)
                )
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return []
