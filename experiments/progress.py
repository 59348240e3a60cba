# SPDX-License-Identifier: Apache-2.0
"""What the user sees while cells run: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
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

PLAIN_EVERY_S: Final = 10.0


class Reporter(Protocol):
    """Told by the runner what happens. `estimate_s`: how long the cell, all cells, will take."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def total(self, cells: int, estimate_s: float) -> None: ...
    def cell(self, name: str, number: int, estimate_s: float) -> None: ...
    def event(self, event: Mapping[str, Any]) -> None: ...
    def tick(self) -> None: ...
    def note(self, text: str) -> None: ...


def describe(event: Mapping[str, Any]) -> str:
    """The text of an event of the cell's process."""
    if event.get("event") == "progress":
        n, of = event["inserted"], event["products"]
        text = "draining" if event["draining"] else "replaying"
        return f"{text}: {n}/{of} inserted, {event['delivered']} at all receivers"
    return str(event.get("text", ""))


def clock(seconds: float) -> str:
    """m:ss"""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class _Times:
    """Elapsed and remaining time, of the cell and of all."""

    def __init__(self) -> None:
        self.begin = self.cell_begin = time.monotonic()
        self.total_s = self.cell_s = self.rest_s = 0.0
        self.cells = self.number = 0
        self.name = ""

    def start(self, cells: int, estimate_s: float) -> None:
        self.cells, self.total_s, self.rest_s = cells, estimate_s, estimate_s

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self.name, self.number, self.cell_s = name, number, estimate_s
        self.cell_begin = time.monotonic()
        self.rest_s = max(0.0, self.rest_s - estimate_s)  # of the cells after this one

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begin

    @property
    def cell_elapsed(self) -> float:
        return time.monotonic() - self.cell_begin

    @property
    def cell_remaining(self) -> float:
        return max(0.0, self.cell_s - self.cell_elapsed)

    @property
    def remaining(self) -> float:
        return self.rest_s + self.cell_remaining


class PlainReporter:
    """A line when the phase changes, and about every 10 s within one."""

    def __init__(self) -> None:
        self._times = _Times()
        self._said = 0.0
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def total(self, cells: int, estimate_s: float) -> None:
        self._times.start(cells, estimate_s)
        self.note(f"{cells} cells, about {clock(estimate_s)} min")

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self._times.cell(name, number, estimate_s)

    def event(self, event: Mapping[str, Any]) -> None:
        self._text = describe(event)
        if event.get("event") == "phase":
            self._say()
        else:
            self.tick()

    def tick(self) -> None:
        if time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._say()

    def note(self, text: str) -> None:
        print(text, flush=True)

    def _say(self) -> None:
        times = self._times
        self._said = time.monotonic()
        self.note(
            f"[{clock(times.elapsed)}, about {clock(times.remaining)} left] "
            f"{times.name} ({times.number}/{times.cells}): {self._text}"
        )


class TerminalReporter:
    """Two bars: this cell and all cells; estimated, hence capped below their ends."""

    def __init__(self, console: Console) -> None:
        self._times = _Times()
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
        self._cell: TaskID | None = None
        self._text = ""

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

    def total(self, cells: int, estimate_s: float) -> None:
        self._times.start(cells, estimate_s)
        self._all = self._progress.add_task(
            "", total=max(1.0, estimate_s), label=f"all {cells} cells", left="", text=""
        )

    def cell(self, name: str, number: int, estimate_s: float) -> None:
        self._times.cell(name, number, estimate_s)
        if self._cell is not None:
            self._progress.remove_task(self._cell)
        label = f"{name} ({number}/{self._times.cells})"
        self._cell = self._progress.add_task(
            "", total=max(1.0, estimate_s), label=label, left="", text="starting"
        )

    def event(self, event: Mapping[str, Any]) -> None:
        self._text = describe(event).partition("\n")[0]
        self.tick()

    def tick(self) -> None:
        times = self._times
        if self._cell is not None:
            self._progress.update(
                self._cell,
                completed=min(times.cell_elapsed, 0.99 * times.cell_s),
                left=f"~{clock(times.cell_remaining)} left",
                text=self._text,
            )
        if self._all is not None:
            done = max(0.0, times.total_s - times.remaining)
            self._progress.update(
                self._all,
                completed=min(done, 0.99 * times.total_s),
                left=f"~{clock(times.remaining)} left",
            )

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


def make_reporter() -> Reporter:
    """Bars on a terminal, lines elsewhere (a file, a pipe, CI)."""
    if sys.stdout.isatty():
        return TerminalReporter(Console())
    return PlainReporter()
