# SPDX-License-Identifier: Apache-2.0
"""Decide whether values rise or fall over ordered levels: at each step, or over their range.

*At each step*: every step must do so by its own interval. Where the quantity saturates, the last
steps change nothing, and no number of repeats decides such a claim.

*Over the range* (`steps: trend`), for all claims whose words do not name each step: windows of one
trace differ in how much a level changes, so that intervals of a few repeats are wide even where
each repeat shows the same order. So two tests are made, each at half the error: of the fitted
change (`intervals.fitted_change`), and Kendall's (`intervals.trend_over_repeats`). Held if one
finds the claim's side, and no step goes the opposite way. Not held if one finds the other side, or
if a step goes the opposite way, by intervals that are wider by Bonferroni's rule: of level lines,
2.5 % have such a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parsers.base import intervals, power
from parsers.base.intervals import Estimate
from parsers.base.metric_units import two_digits
from parsers.measure import undecided
from parsers.measure.undecided import HELD, NOT_DECIDABLE, NOT_HELD, Decider, Verdict
from parsers.read.published import Claim


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    reason: str
    sees: str = ""  # the difference that the intervals could have seen, if any
    decider: Decider | None = None


@dataclass(frozen=True)
class _Steps:
    """The steps from each value to the next, as logarithms of the ratios or as differences."""

    of: tuple[Estimate, ...]
    sees: str
    by_sign: bool  # differences that only the sign test suits


def judge(claim: Claim, values: Sequence[Estimate]) -> Decision:
    """Judge a claim that two or more values, in order of their levels, increase or decrease."""
    steps = _steps(claim, values)
    if all(not s.has_interval for s in steps.of):
        return _by_trend(claim, values, steps)
    each = _at_each(claim, values, steps)
    if claim.steps == "each" or each.verdict == HELD or len(values) == 2:
        return each
    return _over_range(claim, values) or each


@dataclass(frozen=True)
class _Change:
    """The fitted change: of logarithms or, for values that are not all above 0, of the values."""

    of: Estimate
    of_logarithms: bool

    @property
    def text(self) -> str:
        ends, unit = [self.of.mean, self.of.low, self.of.high], ""
        if self.of_logarithms:
            ends, unit = [100 * math.expm1(v) for v in ends], " %"
        mean, low, high = (f"{v:+.3g}" for v in ends)
        return f"fitted change over the range {mean} [{low}, {high}]{unit} ({self.of.method})"

    @property
    def sees(self) -> str:
        seen = power.visible(self.of) if self.of_logarithms else None
        if seen is None:
            return ""
        return f"sees a change of {two_digits(100 * math.expm1(seen))} % or more"


def _fitted(claim: Claim, values: Sequence[Estimate]) -> _Change | None:
    of_logarithms = claim.compared_by == "ratio" and all(min(*e.values, e.mean) > 0 for e in values)
    logs = [
        intervals.over_repeats([math.log(v) for v in e.values], e.repeats)
        for e in values
        if of_logarithms
    ]
    found = intervals.fitted_change(logs or values)
    return None if found is None else _Change(found, of_logarithms)


@dataclass(frozen=True)
class _Trend:
    side: int
    text: str


def _trend(values: Sequence[Estimate], error: float) -> _Trend | None:
    """Return what Kendall's test over the repeats finds with a p below `error`, if anything."""
    found = intervals.trend_over_repeats(values)
    if found is None or found[1] >= error:
        return None
    return _Trend(found[0], f"Kendall's trend test over the repeats, p = {found[1]:.2g}")


def _over_range(claim: Claim, values: Sequence[Estimate]) -> Decision | None:
    """Judge a claim about the range; None if neither test can be made."""
    sign, word = _direction(claim)
    error = 1 - intervals.confidence()
    steps = len(values) - 1
    with intervals.at_confidence(1 - error / 2):
        change = _fitted(claim, values)
    trend = _trend(values, error / 2)
    if change is None and trend is None:
        return None
    with intervals.at_confidence(1 - error / steps):
        against = sum(_side(s) == -sign for s in _steps(claim, values).of)
    reason = "; ".join(found.text for found in (change, trend) if found is not None)
    sees = change.sees if change is not None else ""
    if against:
        opposite = f"{against} of {steps} steps go the opposite way (Bonferroni)"
        return Decision(NOT_HELD, f"{opposite}; {reason}", sees)
    sides = {_side(change.of) if change else 0, trend.side if trend else 0} - {0}
    if sides == {sign}:
        return Decision(HELD, f"it {word}, against no step; {reason}", sees)
    if sides == {-sign}:
        return Decision(NOT_HELD, reason, sees)
    decider = None if change is None else undecided.repeats(change.of, change.of.mean)
    return Decision(NOT_DECIDABLE, reason, sees, decider)


def _direction(claim: Claim) -> tuple[int, str]:
    return (1, "rises") if claim.kind == "increases" else (-1, "falls")


def _at_each(claim: Claim, values: Sequence[Estimate], steps: _Steps) -> Decision:
    sign, word = _direction(claim)
    ordered = [
        found or (intervals.side(b, a) if steps.by_sign else 0)
        for found, a, b in zip(map(_side, steps.of), values, values[1:], strict=False)
    ]
    if against := ordered.count(-sign):
        reason = f"{against} of {len(steps.of)} steps go the opposite way"
        return Decision(NOT_HELD, reason, steps.sees)
    sure = sum(_side(s) == sign for s in steps.of)
    reason = f"{_count(claim, steps)}, by its interval at {sure}"
    if by_tests := ordered.count(sign) - sure:
        reason += f", by the sign test at {by_tests}"
    if ordered.count(sign) == len(steps.of):
        return Decision(HELD, reason, steps.sees)
    needed = undecided.repeats_by_sign if steps.by_sign else undecided.repeats
    unsure = [needed(s, s.mean) for s, found in zip(steps.of, ordered, strict=True) if not found]
    return Decision(NOT_DECIDABLE, reason, steps.sees, undecided.most(unsure))


def _count(claim: Claim, steps: _Steps) -> str:
    sign, word = _direction(claim)
    right = sum(sign * s.mean > 0 for s in steps.of)
    return f"it {word} at {right} of {len(steps.of)} steps"


def _side(found: Estimate) -> int:
    """Return the side of 0 on which an interval lies: 1, -1, or 0 if it includes 0."""
    return (found.low > 0) - (found.high < 0) if found.has_interval else 0


def _steps(claim: Claim, values: Sequence[Estimate]) -> _Steps:
    """Return the steps as logarithms of the ratios; for values that are not all above 0, or if the
    claim says so, as differences."""
    pairs = list(zip(values, values[1:], strict=False))
    ratios = [ratio for a, b in pairs if (ratio := intervals.ratio(b, a)) is not None]
    by_difference = claim.compared_by == "difference"
    if len(ratios) < len(pairs) or by_difference:
        differences = tuple(intervals.difference(b, a) for a, b in pairs)
        return _Steps(differences, "", not by_difference)
    logs = tuple(undecided.logarithm(ratio) for ratio in ratios)
    return _Steps(logs, undecided.sees_ratio(ratios), by_sign=False)


def _by_trend(claim: Claim, values: Sequence[Estimate], steps: _Steps) -> Decision:
    """Judge values of one run each. A claim about each step is held only if all agree; one about
    the range, if none goes the opposite way."""
    sign, _ = _direction(claim)
    means = [e.mean for e in intervals.comparable(values)]
    p, error = intervals.trend_p(means), 1 - intervals.confidence()
    test = f"one run each: Kendall's trend test, p = {p:.3g}"
    if p < error and sign * (means[-1] - means[0]) <= 0:
        return Decision(NOT_HELD, test)
    moves = [sign * (b - a) for a, b in zip(means, means[1:], strict=False)]
    if p < error and all(move > 0 for move in moves):
        return Decision(HELD, f"at every step; {test}")
    if p < error and claim.steps == "trend" and min(moves) == 0:
        return Decision(HELD, f"against no step; {test}")
    reason = f"{_count(claim, steps)}; {test}"
    return Decision(NOT_DECIDABLE, reason, "", undecided.repeats(values[0], 0.0))
