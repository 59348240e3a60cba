# SPDX-License-Identifier: Apache-2.0
"""Say which difference a claim's intervals could have seen, and what would decide the claim."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from parsers.base import intervals, power
from parsers.base.intervals import Estimate
from parsers.base.metric_units import two_digits

Verdict = Literal["held", "not held", "not decidable"]
HELD: Final[Verdict] = "held"
NOT_HELD: Final[Verdict] = "not held"
NOT_DECIDABLE: Final[Verdict] = "not decidable"

# From fewer repeats, a mean that happens to lie near a limit does not show that the value does.
LEAST_TO_TELL: Final = 5


@dataclass(frozen=True)
class Decider:
    """What would decide a claim. `by_repeats`: more repeats of the same cells; `unknown`: how many
    cannot be said yet; `needed`: about how many in all, 0 if there is no estimate."""

    text: str
    by_repeats: bool = False
    unknown: bool = False
    needed: int = 0


def logarithm(found: Estimate) -> Estimate:
    """Return the estimate of the logarithm of a ratio."""
    low, mean, high = (math.log(max(v, 1e-300)) for v in (found.low, found.mean, found.high))
    return replace(found, mean=mean, low=low, high=high, values=tuple(map(math.log, found.values)))


def sees_ratio(steps: Iterable[Estimate]) -> str:
    """Return the change that the least precise of some ratios' intervals can see."""
    seen = [power.visible(logarithm(step)) for step in steps]
    found = [s for s in seen if s is not None]
    if not found or len(found) < len(seen):
        return ""
    return f"sees a change of {two_digits(100 * math.expm1(max(found)))} % or more"


def sees_share(found: Estimate, scale: float) -> str:
    """Return the difference that an interval can see, as a share of `scale`."""
    seen = power.visible(found)
    if seen is None or not scale:
        return ""
    return f"sees a difference of {two_digits(100 * seen / abs(scale))} % or more"


def sees_value(found: Estimate, scale: float, unit: str) -> str:
    """Return the difference that an interval can see, in a unit."""
    seen = power.visible(found)
    if seen is None:
        return ""
    return f"sees a difference of {two_digits(seen / scale)} {unit}".rstrip() + " or more"


def repeats(found: Estimate, distance: float) -> Decider:
    """Return what would decide on which side of a limit a value lies that is `distance` away."""
    if not found.has_interval:
        return Decider("two or more repeats of each cell would give an interval", by_repeats=True)
    if len(found.values) > 1:
        have = len(found.values)
        needed = power.repeats_for(distance, power.spread_of(found))
        if needed is None and have < LEAST_TO_TELL:
            text = f"more repeats would; {have} are too few to say how many"
            return Decider(text, by_repeats=True, unknown=True)
        if needed is None:
            return Decider(
                f"more than {power.MOST_REPEATS} repeats would: the value lies too near the limit"
            )
        return _about(max(needed, have + 1), have)
    seen = power.visible(found)
    if seen is None or distance == 0:
        return Decider("no length of run would: the value lies on the limit")
    longer = (seen / distance) ** 2
    if longer > power.MOST_REPEATS:
        return Decider(f"a run more than {power.MOST_REPEATS} times as long would")
    return Decider(f"repeats, or a run {two_digits(max(longer, 1.1))} times as long, would", True)


def repeats_by_sign(found: Estimate, distance: float) -> Decider:
    """Return what would decide a comparison that the sign test suits: as many repeats as it needs
    if all so far agree, else what `repeats` returns."""
    have = len(found.values)
    if have < 2 or not (min(found.values) > 0 or max(found.values) < 0):
        return repeats(found, distance)
    return _about(max(intervals.least_ranked(), have + 1), have)


def repeats_of_signs(above: int, have: int) -> Decider:
    """Return what would show by the sign test on which side most of the pairs are."""
    few = have < LEAST_TO_TELL
    needed = intervals.least_ranked() if few else power.signs_for(above / have)
    if needed is None:
        return Decider(f"more than {power.MOST_REPEATS} repeats would: no side has most of them")
    return _about(max(needed, have + 1), have)


def _about(needed: int, have: int) -> Decider:
    text = f"about {needed} repeats would ({have} here)"
    return Decider(text, by_repeats=True, needed=needed if have >= LEAST_TO_TELL else 0)


def most(deciders: Iterable[Decider]) -> Decider:
    """Return the most demanding one: one that no repeats decide, else one that may need any number
    of them, else the one with the highest number in its text."""
    found = list(deciders)
    never = [d for d in found if not d.by_repeats]
    return (never or sorted(found, key=lambda d: (d.unknown, _number(d.text))))[-1]


def _number(text: str) -> float:
    numbers = [float(word) for word in text.split() if word.replace(".", "", 1).isdigit()]
    return numbers[0] if numbers else 0.0
