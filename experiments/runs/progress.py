# SPDX-License-Identifier: Apache-2.0
"""What the user sees while cells run: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from common.counting import counted
from common.quantities import duration_text, minutes_text
from experiments.cells.events import Event
from virtual.guest import Times

PLAIN_EVERY_S: Final = 10.0
PACE_FROM: Final = 0.1
FINISH_S: Final = 5.0  # counters, digests, teardown
PACES: Final = (0.5, 4.0)  # how much slower than expected a cell may seem, for its pace to be used
NO_REST: Final[Mapping[str, float]] = {}
OVERDUE: Final = "longer than usual"


class Reporter(Protocol):
    """Gets the runner's events. `estimate_s`: the real time that the cell, or all cells, will take.
    `rest`: what share of it is left when a phase begins, if known. `part`: how much of its replay a
    cell has done (above 1 while it drains)."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def total(self, cells: int, estimate_s: float, jobs: int) -> None:
        """Take the number of cells and how long all take."""

    def more(self, cells: int, estimate_s: float) -> None:
        """Take the number of further cells, and how long these take."""

    def cell(
        self, name: str, number: int, estimate_s: float, rest: Mapping[str, float] = NO_REST
    ) -> None:
        """A cell begins."""

    def event(self, name: str, event: Event, part: float | None, times: Times | None) -> None:
        """Take what a cell's process reports."""

    def tick(self, name: str, times: Times | None) -> None:
        """Time passes."""

    def done(self, name: str, *, failed: bool = False) -> None:
        """A cell has ended."""

    def note(self, text: str) -> None:
        """Print a line."""


def describe(event: Event) -> str:
    """Return the text of an event of the cell's process."""
    if event.get("event") == "progress":
        n, of = event["inserted"], event["products"]
        text = "draining" if event["draining"] else "replaying"
        if "subscriptions" in event:
            return f"{text}: {n}/{of} inserted, {counted(event['subscriptions'], 'subscription')}"
        return f"{text}: {n}/{of} inserted, {event['delivered']} at all receivers"
    return str(event.get("text", ""))


def virtual_text(times: Times | None) -> str:
    """Return how to show a guest's clock; nothing for a native cell."""
    if times is None:
        return ""
    return f"; virtual {minutes_text(times.virtual_s)}, {times.ratio:.2f} of real time"


def left_text(seconds: float) -> str:
    """Return the remaining time, in words."""
    return f"about {duration_text(seconds)} left" if seconds >= 1 else OVERDUE


@dataclass
class CellTimes:
    """One cell's time. From each phase on, the times of earlier cells replace the estimate. Once a
    tenth of the replay is done, the cell's own pace replaces both."""

    number: int
    estimate_s: float
    begin: float
    rest: Mapping[str, float] = field(
        default_factory=dict
    )  # phase -> share of the time that is left when it begins
    text: str = "starting"
    replay_begin: float | None = None
    part: float = 0.0
    known_at: float | None = None  # when `known_s` were left
    known_s: float = 0.0
    current: str = ""  # phase

    def phase(self, text: str, now: float) -> None:
        """Note that a phase begins."""
        self.current = text
        if (share := self.rest.get(text)) is not None:
            expected_s = (1 - share) * self.estimate_s
            pace = (now - self.begin) / expected_s if expected_s > 0 else 1.0
            slow = min(max(pace, PACES[0]), PACES[1])
            self._know(share * self.estimate_s * slow, now)
        elif self.replay_begin is not None and self.part < 1:
            self._know(FINISH_S, now)
        if self.replay_begin is not None:
            self.part = 1.0

    def replayed(self, part: float, now: float) -> None:
        """Note how much of the replay is done."""
        if self.replay_begin is None:
            self.replay_begin = now
        if part >= 1 > self.part:
            self._know(self._finish_s, now)
        self.part = min(1.0, part)

    @property
    def _finish_s(self) -> float:
        """Return what the phases after the current one take."""
        now = self.rest.get(self.current, 0.0)
        later = [share for share in self.rest.values() if share < now]
        return max(later) * self.estimate_s if later else FINISH_S

    def _know(self, seconds: float, now: float) -> None:
        self.known_s, self.known_at = seconds, now

    def remaining_s(self, now: float) -> float:
        """Return the seconds left; 0: the estimate is exceeded."""
        if self.replay_begin is not None and PACE_FROM <= self.part < 1:
            return (now - self.replay_begin) * (1 - self.part) / self.part + self._finish_s
        if self.known_at is not None:
            return max(0.0, self.known_s - (now - self.known_at))
        return max(0.0, self.estimate_s - (now - self.begin))


class RunTimes:
    """Elapsed and remaining time, of each running cell and of all cells."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.cells = 0
        self.jobs = 1
        self.total_s = self._waiting_s = 0.0
        self.running: dict[str, CellTimes] = {}
        self.done_count = self.failed_count = 0
        self._numbers: set[int] = set()

    def start(self, cells: int, estimate_s: float, jobs: int) -> None:
        """Record how many cells run, and how long all take."""
        self.cells, self.jobs = cells, jobs
        self.total_s = estimate_s / max(1, min(jobs, cells))
        self._waiting_s = estimate_s

    def more(self, cells: int, estimate_s: float) -> None:
        """Record that more cells run."""
        self.cells += cells
        self.total_s += estimate_s / self.jobs
        self._waiting_s += estimate_s

    def cell(
        self, name: str, number: int, estimate_s: float, rest: Mapping[str, float] = NO_REST
    ) -> None:
        """Record that a cell begins."""
        self.running[name] = CellTimes(number, estimate_s, time.monotonic(), rest)
        if number not in self._numbers:  # this is not a cell that runs again
            self._numbers.add(number)
            self._waiting_s = max(0.0, self._waiting_s - estimate_s)

    def event(self, name: str, event: Event, part: float | None) -> None:
        """Record what a cell's process reports."""
        cell = self.running[name]
        cell.text = describe(event).partition("\n")[0]
        if part is not None:
            cell.replayed(part, time.monotonic())
        elif event.get("event") == "phase":
            cell.phase(cell.text, time.monotonic())

    def done(self, name: str, *, failed: bool = False) -> None:
        """Record that a cell has ended."""
        self.running.pop(name, None)
        if failed:
            self.failed_count += 1
        else:
            self.done_count += 1

    @property
    def counts(self) -> str:
        """Return, for example, "12 of 48 done, 1 failed"."""
        failed = f", {self.failed_count} FAILED" if self.failed_count else ""
        return f"{self.done_count} of {self.cells} done{failed}"

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the first cell began."""
        return time.monotonic() - self.begin

    @property
    def left_text(self) -> str:
        """Return the remaining time of all cells, in words."""
        return left_text(self.remaining_s())

    def remaining_s(self) -> float:
        """Return the seconds left for all cells. Waiting cells are divided among the jobs, and the
        slowest running cell must end. 0: the estimate is exceeded."""
        now = time.monotonic()
        rest = [cell.remaining_s(now) for cell in self.running.values()]
        return max([(self._waiting_s + sum(rest)) / max(1, self.jobs), *rest])


class PlainReporter:
    """Prints a line when a cell's phase changes, and about every 10 s within one."""

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
        """Print how many cells run and how long all take."""
        self._times.start(cells, estimate_s, jobs)
        at_once = f", {jobs} at once" if jobs > 1 else ""
        self.note(f"{counted(cells, 'cell')}{at_once}, about {duration_text(self._times.total_s)}")

    def more(self, cells: int, estimate_s: float) -> None:
        """Record that more cells run; their lines show it."""
        self._times.more(cells, estimate_s)

    def cell(
        self, name: str, number: int, estimate_s: float, rest: Mapping[str, float] = NO_REST
    ) -> None:
        """Begin a cell; its first event prints a line."""
        self._times.cell(name, number, estimate_s, rest)
        self._said[name] = 0.0

    def event(self, name: str, event: Event, part: float | None, times: Times | None) -> None:
        """Print a line if a phase begins."""
        self._times.event(name, event, part)
        if event.get("event") == "phase":
            self._say(name, times)

    def tick(self, name: str, times: Times | None) -> None:
        """Print a line if the cell has had none for a while."""
        if time.monotonic() - self._said.get(name, 0.0) >= PLAIN_EVERY_S:
            self._say(name, times)

    def done(self, name: str, *, failed: bool = False) -> None:
        """End a cell."""
        self._times.done(name, failed=failed)

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def _say(self, name: str, times: Times | None) -> None:
        all_times = self._times
        cell = all_times.running.get(name)
        if cell is None:
            return
        self._said[name] = time.monotonic()
        self.note(
            f"[{minutes_text(all_times.elapsed_s)}, "
            f"{all_times.left_text}, {all_times.counts}] "
            f"{name} ({cell.number}/{all_times.cells}): {cell.text}{virtual_text(times)}"
        )


class TerminalReporter:
    """Draws a bar for each running cell and one for all. The bars are estimates, so they stop short
    of their ends."""

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
        """Draw the bar of all cells."""
        self._times.start(cells, estimate_s, jobs)
        self._all = self._progress.add_task(
            "", total=max(1.0, self._times.total_s), label=f"all {cells} cells", left="", text=""
        )

    def more(self, cells: int, estimate_s: float) -> None:
        """Lengthen the bar of all cells."""
        self._times.more(cells, estimate_s)
        if self._all is not None:
            self._progress.update(self._all, label=f"all {self._times.cells} cells")

    def cell(
        self, name: str, number: int, estimate_s: float, rest: Mapping[str, float] = NO_REST
    ) -> None:
        """Draw the bar of a cell."""
        self._times.cell(name, number, estimate_s, rest)
        self._remove(name)
        label = f"{name} ({number}/{self._times.cells})"
        self._bars[name] = self._progress.add_task(
            "", total=1.0, label=label, left="", text="starting"
        )

    def event(self, name: str, event: Event, part: float | None, times: Times | None) -> None:
        """Show the reports of a cell's process beside its bar."""
        self._times.event(name, event, part)
        self.tick(name, times)

    def tick(self, name: str, times: Times | None) -> None:
        """Move the bars."""
        cell = self._times.running.get(name)
        if cell is not None and name in self._bars:
            now = time.monotonic()
            elapsed, left = now - cell.begin, cell.remaining_s(now)
            self._progress.update(
                self._bars[name],
                completed=min(elapsed / max(0.1, elapsed + left), 0.99),
                left=left_text(left),
                text=cell.text + virtual_text(times),
            )
        if self._all is not None:
            elapsed, left = self._times.elapsed_s, self._times.remaining_s()
            total = max(1.0, elapsed + left)
            self._progress.update(
                self._all,
                total=total,
                completed=min(elapsed, 0.99 * total),
                left=left_text(left),
            )

    def done(self, name: str, *, failed: bool = False) -> None:
        """Remove the bar of a cell."""
        self._times.done(name, failed=failed)
        self._remove(name)
        if self._all is not None:
            self._progress.update(self._all, text=self._times.counts)

    def _remove(self, name: str) -> None:
        bar = self._bars.pop(name, None)
        if bar is not None:
            self._progress.remove_task(bar)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(text, markup=False, highlight=False)


def make_reporter() -> Reporter:
    """Return bars on a terminal, lines elsewhere (a file, a pipe, CI)."""
    if sys.stdout.isatty():
        return TerminalReporter(Console())
    return PlainReporter()
