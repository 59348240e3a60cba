# SPDX-License-Identifier: Apache-2.0
"""Fill the cores with further repeats of the cells whose claims are open, until they are decided, a
budget of real time ends, or no repeats are left.

A rule that keeps testing intervals until one excludes a limit is wrong more often than the
intervals' level says. So there are few tests, each after 50 % more repeats, and a claim counts as
decided here only if its 99 % intervals decide it; reports use 95 %.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.counting import counted
from common.quantities import duration_text
from experiments.design.selection import Order, ordered
from experiments.design.spec import AnySpec
from experiments.runs.preparation import Planned
from experiments.runs.sweep import Outcome, Supply
from parsers.base.factors import Scalar, same

if TYPE_CHECKING:
    from parsers.measure.claims import ClaimResult, Part
    from parsers.measure.join_leave import JoinLeaveMetrics
    from parsers.measure.summary import CellMetrics

MOST_REPEATS: Final = 32  # unless the command line gives another number
LEAST_REPEATS: Final = 2  # a single one has no interval
GROWTH: Final = 1.5  # factor of the repeats from one test to the next
CONFIDENCE: Final = 0.99
BUDGET_S: Final = 7200.0  # unless the command line gives another time
# Estimates of the repeats that a claim needs are rough: half and twice as many are both likely.
OUT_OF_REACH: Final = 2  # times the repeats allowed

Judge = Callable[[Collection[str]], Sequence["ClaimResult"]]


@dataclass(frozen=True)
class Until:
    """`budget_s`: real time after which no cell begins; `repeats`: of each cell, at first."""

    budget_s: float
    repeats: int = LEAST_REPEATS


def first_of(planned: Sequence[Planned], until: Until) -> list[Planned]:
    """Return the cells that run before the first test."""
    return [p for p in planned if p.cell.repeat < max(until.repeats, LEAST_REPEATS)]


def repeat_by_repeat(planned: Sequence[Planned]) -> list[Planned]:
    """Return the cells ordered by repeat, so that a budget that ends leaves whole, comparable
    repeats."""
    return sorted(planned, key=lambda item: item.cell.repeat)


def is_about(levels: Mapping[str, Scalar], item: Planned) -> bool:
    """Return whether a cell has these levels, of the factors that it has."""
    own = item.cell.factors
    return all(same(own[name], level) for name, level in levels.items() if name in own)


class UntilDecided(Supply):
    """Chooses what runs next. `planned`: every cell of every repeat that may run; `judge`: returns
    the claims, judged by the cells with these names."""

    def __init__(
        self,
        planned: Sequence[Planned],
        until: Until,
        judge: Judge,
        *,
        order: tuple[Order, int],
        note: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned, self._until, self._judge = list(planned), until, judge
        self._order, self._note, self._now = order, note, now
        self._begun_s = now()
        self._repeats = max(until.repeats, LEAST_REPEATS)
        self._begun = {p.cell.cell for p in first_of(planned, until)}
        self.stopped = ""  # why no more cells run

    @property
    def is_over(self) -> bool:
        """Return whether the budget has ended."""
        over = self._now() - self._begun_s >= self._until.budget_s
        if over and not self.stopped:
            self.stopped = f"its budget of {duration_text(self._until.budget_s)} ended"
        return over

    def more(self, outcome: Outcome) -> list[Planned]:
        """Return further cells for the claims that the results so far leave open."""
        if self.is_over or not outcome.results:
            return []
        found = self._judge(sorted(outcome.results))
        parts = [part for claim in found for part in claim.open]
        levels = [at for part in parts if self._within_reach(part) for at in part.at]
        undecided = sum(not claim.is_decided for claim in found)
        told = f"{len(found) - undecided} of {len(found)} claims are decided"
        if not levels:
            self.stopped = self._why_no_more(len(parts)) if undecided else told
            self._note(told)
            return []
        chosen: list[Planned] = []
        while not chosen and self._repeats < self._most:
            self._repeats = min(self._most, math.ceil(GROWTH * self._repeats))
            chosen = [
                item
                for item in self._planned
                if item.cell.repeat < self._repeats
                and item.cell.cell not in self._begun
                and item.cell.cell not in outcome.results
                and any(is_about(at, item) for at in levels)
            ]
        self._begun |= {item.cell.cell for item in chosen}
        self.stopped = "" if chosen else f"it has all {counted(self._most, 'repeat')} allowed"
        self._note(f"{told}; {counted(len(chosen), 'more cell')}, up to repeat {self._repeats}")
        return repeat_by_repeat(ordered(chosen, *self._order))

    def _within_reach(self, part: Part) -> bool:
        needed = part.decider.needed if part.decider is not None else 0
        return needed <= OUT_OF_REACH * self._most

    def _why_no_more(self, by_repeats: int) -> str:
        """Return why no more cells run. `by_repeats`: open comparisons that repeats can decide."""
        if by_repeats:
            return f"the rest needs over {OUT_OF_REACH} times the {self._most} repeats allowed"
        return "more repeats would not decide the rest"

    @property
    def _most(self) -> int:
        return 1 + max(item.cell.repeat for item in self._planned)


def judge_of(spec: AnySpec, cells: Path) -> Judge:
    """Return a function that judges an experiment's claims by complete cells below `cells`; each
    cell's logs are read once."""
    # SciPy needs a second to load, and most runs do not look at their claims.
    from parsers.base import intervals
    from parsers.measure import sweep as measured
    from parsers.measure.claims import judge
    from parsers.measure.evaluate import cell_metrics
    from parsers.read.published import Published

    published = Published(paper=spec.paper, claims=spec.claims, figures=spec.figures)
    known: dict[str, CellMetrics | JoinLeaveMetrics] = {}

    def judged(names: Collection[str]) -> Sequence[ClaimResult]:
        for name in names:
            if name not in known:
                known[name] = cell_metrics(cells / name, published)
        points = measured.points([known[n] for n in names], by_length=published.by_length)
        with intervals.at_confidence(CONFIDENCE):
            return judge(published.claims, points)

    return judged
