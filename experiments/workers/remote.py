# SPDX-License-Identifier: Apache-2.0
"""What cells at workers have in common, whichever engine started them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cells.events import Event
from experiments.design.expansion import CellSpec, virtual_seconds_estimated
from experiments.runs.cell_process import (
    DISK_GUEST_BYTES,
    CellProblem,
    host_memory_bytes,
    parse_events,
)
from experiments.runs.records import ClockRecord
from experiments.workers import environment, parcel
from experiments.workers.parcel import Ended, ParcelError
from virtual.guest import Times


def memory_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Return the memory that a worker needs for a cell: larger queues are on its disk."""
    return min(host_memory_bytes(cell, trace_bytes), DISK_GUEST_BYTES)


class Told:
    """What a cell has reported so far, over all attempts of its engine."""

    def __init__(self) -> None:
        self.times = Times(0.0, 0.0)
        self._attempt, self._seen = "", 0
        self._said = ""

    def events(self, attempt: str, first: int, lines: Sequence[str]) -> list[Event]:
        """Return the events among the lines of an attempt, which begin at line `first`, without
        events that were returned before."""
        if attempt != self._attempt:
            self._attempt, self._seen = attempt, 0
            self.times = Times(0.0, 0.0)
        new = lines[max(0, self._seen - first) :]
        self._seen = max(self._seen, first + len(lines))
        for line in new:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                raw = json.loads(line)
                self.times = Times(float(raw["virtual_s"]), float(raw["real_s"]))
        return parse_events(new)

    def waits(self, text: str) -> list[Event]:
        """Return the event that the cell waits, unless it was the last event."""
        if text == self._said:
            return []
        self._said = text
        return [{"event": "phase", "text": text}]


class Workers:
    """The environment of a run's workers. The first worker that ends a cell sets it for all, unless
    `mixed` accepts others."""

    def __init__(self, at: object, *, mixed: bool, known: Mapping[str, str] | None = None) -> None:
        self._at, self._mixed, self._known = str(at), mixed, known
        self._hosts: set[str] = set()

    @property
    def demanded(self) -> Mapping[str, str] | None:
        """Return the environment that a worker must have; None: not set yet, or any."""
        return None if self._mixed else self._known

    def check(self, ended: Ended, out: Path) -> None:
        """Check how a cell ended, and the files that arrived. Raises CellProblem."""
        if ended.problem:
            raise CellProblem(ended.problem)
        self._known = self._known or ended.environment
        differs = environment.difference(self._known, ended.environment)
        if differs and not self._mixed:
            raise CellProblem(
                f"worker {ended.host} differs from the first worker ({differs}); "
                "valid: the same checkout, kernel and packages everywhere, or --mixed"
            )
        self._hosts.add(ended.host)
        try:
            parcel.check(out, ended.files)
        except (ParcelError, OSError) as error:
            raise CellProblem(f"worker {ended.host}: {error}") from None

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the workers."""
        known = dict(self._known or {})
        return {
            "clock": "virtual",
            "workers": {
                "at": self._at,
                "hosts": sorted(self._hosts),
                "environment": known,
                "digest": environment.digest(known) if known else "",
                "mixed": self._mixed,
            },
        }


def estimate_s(cell: CellSpec, trace_bytes: int) -> float:
    """Return the seconds of real time that a cell takes, by formula."""
    return virtual_seconds_estimated(cell, trace_bytes)
