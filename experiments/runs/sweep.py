# SPDX-License-Identifier: Apache-2.0
"""Run the cells of a sweep, several at once; run a cell once more if it fails or has an invalid
verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common import looking
from common.contracts import INVALID
from common.shell import interrupts_deferred
from experiments.cells.captures import Captures
from experiments.cells.events import Event
from experiments.cells.run_directory import FAILED, RunDirectory
from experiments.runs.cell_process import Clock
from experiments.runs.estimates import Estimates
from experiments.runs.preparation import Planned
from experiments.runs.progress import Reporter
from experiments.runs.resume import run_of
from experiments.runs.running_cell import Failed, Finished, RunningCell
from virtual.turns import TELL_EVERY_S, Turn

TICK_S: Final = 0.2
MOST_RUNS: Final = 2  # of a cell


@dataclass(frozen=True)
class CellResult:
    """A complete cell. `runs`: more than one if others failed or had an invalid verdict."""

    cell: str
    verdict: str
    identical: bool
    resumed: bool = False
    runs: int = 1


@dataclass
class Outcome:
    """The outcome of the cells: each has a result, or problems, or both."""

    results: dict[str, CellResult] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)  # of each run that failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the cells without a result."""
        return tuple(cell for cell in self.problems if cell not in self.results)


class Supply:
    """The source of further cells once the planned ones have started: here, none."""

    @property
    def is_over(self) -> bool:
        """Return whether no further cell may begin."""
        return False

    def more(self, _outcome: Outcome) -> Sequence[Planned]:
        """Return further cells, depending on the outcome so far. Called when a processor is free,
        and again only when another cell has ended."""
        return ()


class Sweep:
    """The cells still to run, in their order. `described`: what each cell's run.json says about
    this run."""

    def __init__(
        self,
        run: RunDirectory,
        clock: Clock,
        reporter: Reporter,
        *,
        estimates: Estimates,
        described: Mapping[str, object],
        keep_work: bool,
        build: Path,
        captures: Captures,
    ) -> None:
        self._run, self._clock, self._reporter = run, clock, reporter
        self._estimates, self._described = estimates, described
        self._keep_work, self._build, self._captures = keep_work, build, captures
        self._running: dict[str, RunningCell] = {}
        self._numbers: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        self._before: dict[str, int] = {}  # attempts that a resumed run set aside
        self._aside: dict[str, Finished] = {}  # cells with an invalid verdict, set aside
        self._turns, self._tell_at = clock.turns(), 0.0
        self.outcome = Outcome()

    def cells(self, items: Sequence[Planned], supply: Supply | None = None) -> None:
        """Run these cells, and then those of `supply`. On any exception, no cell is left
        running."""
        supply = supply or Supply()
        waiting = list(items) or list(supply.more(self.outcome))
        if not waiting:
            self._reporter.note("no cell is left to run")
            return
        self._numbers = {item.cell.cell: n for n, item in enumerate(waiting, start=1)}
        try:
            with self._reporter:
                total_s = sum(self._estimates.of(p) for p in waiting)
                self._reporter.total(len(waiting), total_s, self._clock.jobs)
                self._keep_busy(waiting, supply)
        finally:
            with interrupts_deferred():  # a second Ctrl-C does not interrupt this
                if self._turns is not None:
                    self._turns.stop()
                for cell in self._running.values():
                    cell.stop()

    def _keep_busy(self, waiting: list[Planned], supply: Supply) -> None:
        """Keep the processors busy until nothing waits, nothing runs and nothing is supplied."""
        jobs, ended = self._clock.jobs, 0
        while waiting or self._running:
            if supply.is_over:  # cells that have begun may still run again
                waiting[:] = [item for item in waiting if item.cell.cell in self._runs]
            while waiting and len(self._running) < jobs and (turn := self._turn()) is not None:
                self._start(waiting.pop(0), turn)
            if self._turns is not None and not waiting:
                self._turns.stop()
            time.sleep(looking.every_s(TICK_S))
            ended += self._step(waiting)
            if not waiting and ended and len(self._running) < jobs:
                ended = 0
                waiting += self._added(supply.more(self.outcome))

    def _step(self, waiting: list[Planned]) -> int:
        """Check every running cell; cells that must run again wait again. Return how many have
        ended."""
        ended_count = 0
        for name, cell in list(self._running.items()):
            ended = cell.step(self._reporting(cell))
            if ended is None:
                self._reporter.tick(name, cell.times)
                continue
            del self._running[name]
            if self._settle(name, ended):
                waiting.insert(0, cell.planned)
            else:
                ended_count += 1
                self._reporter.done(name, failed=name not in self.outcome.results)
        return ended_count

    def _added(self, items: Sequence[Planned]) -> Sequence[Planned]:
        """Number further cells, and report them."""
        if items:
            for item in items:
                self._numbers.setdefault(item.cell.cell, len(self._numbers) + 1)
            self._reporter.more(len(items), sum(self._estimates.of(p) for p in items))
        return items

    def _turn(self) -> Turn | None:
        """Return a turn; None: guests of other users go first, as the user is told now and then."""
        if self._turns is None:
            return Turn()
        turn = self._turns.take()
        now = time.monotonic()
        if turn is None and not self._running and now >= self._tell_at:
            self._reporter.note(self._turns.text)
            self._tell_at = now + TELL_EVERY_S
        return turn

    def _start(self, item: Planned, turn: Turn) -> None:
        name = item.cell.cell
        self._before.setdefault(name, self._run.times_set_aside(name))
        self._runs[name] = self._runs.get(name, 0) + 1
        known = self._estimates
        self._reporter.cell(name, self._numbers[name], known.of(item), known.rest_of(item))
        with interrupts_deferred():
            self._running[name] = RunningCell(
                item,
                self._run,
                self._clock,
                keep_work=self._keep_work,
                build=self._build,
                captures=self._captures,
                described={"attempt": self._attempt(name), **self._described},
                turn=turn,
            )

    def _attempt(self, name: str) -> int:
        return self._before[name] + self._runs[name]

    def _reporting(self, cell: RunningCell) -> Callable[[Event], None]:
        duration_s = cell.planned.cell.duration_s

        def report(event: Event) -> None:
            replaying = event["event"] == "progress"
            part = event.get("elapsed_s", 0.0) / duration_s if replaying else None
            self._reporter.event(cell.name, event, part, cell.times)

        return report

    def _settle(self, name: str, ended: Finished | Failed) -> bool:
        """Record how a cell ended. Return whether it must run again: it failed, or the emulation's
        evidence shows that its figures cannot be trusted. The measured values play no part."""
        again = self._runs[name] < MOST_RUNS
        note = self._reporter.note
        if isinstance(ended, Failed):
            self.outcome.problems.setdefault(name, []).append(ended.problem)
            note(f"{name}: FAILED: {ended.problem}")
            if again:
                note(f"{name}: run once more")
                return True
            if name in self._aside:  # an invalid verdict is better than none
                self._run.take_back(name)
                self._complete(name, self._aside[name])
            else:
                logs = self._run.final / FAILED / name
                note(f"{name}: given up; once the run has ended, its logs are in {logs}")
            return False
        if ended.verdict == INVALID and again:
            note(f"{name}: verdict: invalid; run once more, this one set aside")
            self._run.set_aside(name)
            self._aside[name] = ended
            return True
        self._complete(name, ended)
        return False

    def _complete(self, name: str, ended: Finished) -> None:
        self.outcome.results[name] = CellResult(
            name, ended.verdict, ended.identical, runs=self._attempt(name)
        )
        same = "all products identical" if ended.identical else "PRODUCTS DIFFER"
        if ended.lacking and ended.identical:
            same = "products are missing, which is a finding"
        self._reporter.note(f"{name}: {same}; verdict: {ended.verdict}")


def resumed(run: RunDirectory, name: str) -> CellResult:
    """Return the result of a cell that was taken over."""
    raw = json.loads((run.cells / name / "verdict.json").read_text())
    same = any(c["name"] == "products identical" and c["status"] != "fail" for c in raw["checks"])
    runs = run_of(run.cells / name).get("attempt", 1)
    return CellResult(name, raw["verdict"], same, resumed=True, runs=runs)
