# SPDX-License-Identifier: Apache-2.0
"""What the user sees while cells run: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from common.quantities import minutes_text
from virtual.guest import Times

PLAIN_EVERY_S: Final = 10.0
PACE_FROM: Final = 0.1
FINISH_S: Final = 5.0  # counters, digests, teardown


class Reporter(Protocol):
    """Told by the runner what happens. `estimate_s`: how long the cell, all cells, will take in
    real time; `part`: how much of its replay a cell has done (above 1 while it drains)."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def total(self, cells: int, estimate_s: float, jobs: int) -> None: ...
    def cell(self, name: str, number: int, estimate_s: float) -> None: ...
    def event(
        self, name: str, event: Mapping[str, Any], part: float | None, times: Times | None
    ) -> None: ...
    def tick(self, name: str, times: Times | None) -> None: ...
    def done(self, name: str, *, failed: bool = False) -> None: ...
    def note(self, text: str) -> None: ...


def describe(event: Mapping[str, Any]) -> str:
    """The text of an event of the cell's process."""
    if event.get("event") == "progress":
        n, of = event["inserted"], event["products"]
        text = "draining" if event["draining"] else "replaying"
        if "subscriptions" in event:
            return f"{text}: {n}/{of} inserted, {event['subscriptions']} subscriptions"
        return f"{text}: {n}/{of} inserted, {event['delivered']} at all receivers"
    return str(event.get("text", ""))


def virtual_text(times: Times | None) -> str:
    """What is shown of a guest's clock; nothing for a cell of this machine."""
    if times is None:
        return ""
    return f"; virtual {minutes_text(times.virtual_s)}, {times.ratio:.2f} of real time"


@dataclass
class CellTimes:
    """One cell's time. Its own pace replaces the estimate once a tenth of the replay is done."""

    number: int
    estimate_s: float
    begin: float
    text: str = "starting"
    replay_begin: float | None = None
    part: float = 0.0

    def remaining_s(self, now: float) -> float:
        if self.replay_begin is not None and self.part >= PACE_FROM:
            return max(0.0, (now - self.replay_begin) * (1 - self.part) / self.part) + FINISH_S
        return max(0.0, self.estimate_s - (now - self.begin))


class RunTimes:
    """Elapsed and remaining time of the running cells and of all."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.cells = 0
        self.jobs = 1
        self.total_s = self._waiting_s = 0.0
        self.running: dict[str, CellTimes] = {}
        self.done_count = self.failed_count = 0
        self._numbers: set[int] = set()

    def start(self, cells: int, estimate_s: float, jobs: int) -> None:
        self.cells, self.jobs = cells, jobs
        self.total_s = estimate_s / max(1, min(jobs, cells))
        self._waiting_s = estimate_s

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self.running[name] = CellTimes(number, estimate_s, time.monotonic())
        if number not in self._numbers:  # not a cell that is run again
            self._numbers.add(number)
            self._waiting_s = max(0.0, self._waiting_s - estimate_s)

    def event(self, name: str, event: Mapping[str, Any], part: float | None) -> None:
        cell = self.running[name]
        cell.text = describe(event).partition("\n")[0]
        if part is not None:
            if cell.replay_begin is None:
                cell.replay_begin = time.monotonic()
            cell.part = min(1.0, part)

    def done(self, name: str, *, failed: bool = False) -> None:
        self.running.pop(name, None)
        if failed:
            self.failed_count += 1
        else:
            self.done_count += 1

    @property
    def counts(self) -> str:
        """12 of 48 done, 1 failed"""
        failed = f", {self.failed_count} FAILED" if self.failed_count else ""
        return f"{self.done_count} of {self.cells} done{failed}"

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begin

    def remaining_s(self) -> float:
        """Of all: what waits is shared out, and the slowest running cell must end."""
        now = time.monotonic()
        rest = [cell.remaining_s(now) for cell in self.running.values()]
        return max([(self._waiting_s + sum(rest)) / max(1, self.jobs), *rest])


class PlainReporter:
    """A line when a cell's phase changes, and about every 10 s within one."""

    def __init__(self) -> None:
        self._times = RunTimes()
        self._said: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def total(self, cells: int, estimate_s: float, jobs: int) -> None:
        self._times.start(cells, estimate_s, jobs)
        at_once = f", {jobs} at once" if jobs > 1 else ""
        self.note(f"{cells} cells{at_once}, about {minutes_text(self._times.total_s)} min")

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self._times.cell(name, number, estimate_s)
        self._said[name] = 0.0

    def event(
        self, name: str, event: Mapping[str, Any], part: float | None, times: Times | None
    ) -> None:
        self._times.event(name, event, part)
        if event.get("event") == "phase":
            self._say(name, times)

    def tick(self, name: str, times: Times | None) -> None:
        if time.monotonic() - self._said.get(name, 0.0) >= PLAIN_EVERY_S:
            self._say(name, times)

    def done(self, name: str, *, failed: bool = False) -> None:
        self._times.done(name, failed=failed)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def _say(self, name: str, times: Times | None) -> None:
        all_times = self._times
        cell = all_times.running.get(name)
        if cell is None:
            return
        self._said[name] = time.monotonic()
        self.note(
            f"[{minutes_text(all_times.elapsed_s)}, "
            f"about {minutes_text(all_times.remaining_s())} left, {all_times.counts}] "
            f"{name} ({cell.number}/{all_times.cells}): {cell.text}{virtual_text(times)}"
        )


class TerminalReporter:
    """A bar for each running cell and one for all; estimated, hence capped below their ends."""

    def __init__(self, console: Console) -> None:
        self._times = RunTimes()
        self._progress = Progress(
            TextColumn("{task.fields[label]}", table_column=Column(no_wrap=True, min_width=14)),
            BarColumn(bar_width=12),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, min_width=10)),
            TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
        )
        self._all: TaskID | None = None
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def total(self, cells: int, estimate_s: float, jobs: int) -> None:
        self._times.start(cells, estimate_s, jobs)
        self._all = self._progress.add_task(
            "", total=max(1.0, self._times.total_s), label=f"all {cells} cells", left="", text=""
        )

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self._times.cell(name, number, estimate_s)
        self._remove(name)
        label = f"{name} ({number}/{self._times.cells})"
        self._bars[name] = self._progress.add_task(
            "", total=1.0, label=label, left="", text="starting"
        )

    def event(
        self, name: str, event: Mapping[str, Any], part: float | None, times: Times | None
    ) -> None:
        self._times.event(name, event, part)
        self.tick(name, times)

    def tick(self, name: str, times: Times | None) -> None:
        cell = self._times.running.get(name)
        if cell is not None and name in self._bars:
            now = time.monotonic()
            elapsed, left = now - cell.begin, cell.remaining_s(now)
            self._progress.update(
                self._bars[name],
                completed=min(elapsed / max(0.1, elapsed + left), 0.99),
                left=f"~{minutes_text(left)} left",
                text=cell.text + virtual_text(times),
            )
        if self._all is not None:
            elapsed, left = self._times.elapsed_s, self._times.remaining_s()
            total = max(1.0, elapsed + left)
            self._progress.update(
                self._all,
                total=total,
                completed=min(elapsed, 0.99 * total),
                left=f"~{minutes_text(left)} left",
            )

    def done(self, name: str, *, failed: bool = False) -> None:
        self._times.done(name, failed=failed)
        self._remove(name)
        if self._all is not None:
            self._progress.update(self._all, text=self._times.counts)

    def _remove(self, name: str) -> None:
        bar = self._bars.pop(name, None)
        if bar is not None:
            self._progress.remove_task(bar)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


def make_reporter() -> Reporter:
    """Bars on a terminal, lines elsewhere (a file, a pipe, CI)."""
    if sys.stdout.isatty():
        return TerminalReporter(Console())
    return PlainReporter()
