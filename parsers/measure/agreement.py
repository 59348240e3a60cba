# SPDX-License-Identifier: Apache-2.0
"""Decide whether two runs of the same experiment agree: to the last digit, or within their error
bars.

Agreement within error bars is decided over all points together: if n differences are all truly 0,
one in twenty of their intervals still misses 0. The runs disagree only if more intervals miss 0
than in 99 of 100 pairs of equal runs. Metrics that nearly repeat another one do not count
(`DECISIVE`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from parsers.base import intervals
from parsers.base.factors import Scalar, same
from parsers.base.intervals import CONFIDENCE, Estimate
from parsers.measure.sweep import APART, Point

DECISIVE = (
    "throughput",
    "ffdr",
    "mplr",
    "nic_bandwidth",
    "cpu",
    "latency_p50",
    "latency_p99",
    "loss_measured",
)
SURE = 0.99
Verdict = Literal["agree", "differ", "not decidable"]


@dataclass(frozen=True)
class Compared:
    """A metric at one point in both runs. `covers`: the interval of the difference includes 0; None
    if there is one run each."""

    label: str
    metric: str
    then: Estimate
    now: Estimate
    difference: Estimate  # now - then
    covers: bool | None


@dataclass(frozen=True)
class Agreement:
    compared: tuple[Compared, ...]
    only_then: tuple[str, ...]  # points, or values, that the other run lacks
    only_now: tuple[str, ...]

    @property
    def decided(self) -> tuple[Compared, ...]:
        """Return the decisive comparisons that have an interval."""
        return tuple(c for c in self.compared if c.metric in DECISIVE and c.covers is not None)

    @property
    def outside(self) -> tuple[Compared, ...]:
        """Return the decided comparisons whose interval does not include 0."""
        return tuple(c for c in self.decided if not c.covers)

    @property
    def allowed(self) -> int:
        """Return how many intervals may miss 0 by chance."""
        return int(stats.binom.ppf(SURE, len(self.decided), 1 - CONFIDENCE))

    @property
    def verdict(self) -> Verdict:
        """Return whether the runs agree, or that error bars cannot decide."""
        if self.only_then or self.only_now:
            return "differ"
        if not self.decided:
            return "not decidable"
        return "agree" if len(self.outside) <= self.allowed else "differ"

    @property
    def reason(self) -> str:
        """Return the reason for the verdict, as a clause."""
        if self.only_then or self.only_now:
            missing = [f"{label} (then)" for label in self.only_then]
            missing += [f"{label} (now)" for label in self.only_now]
            return f"only one of the runs has: {'; '.join(missing)}"
        if not self.decided:
            return "one run of each point has no error bar"
        return (
            f"{len(self.outside)} of {len(self.decided)} intervals of the differences do not"
            f" include 0; up to {self.allowed} are chance"
        )


def matching(point: Point, points: Sequence[Point]) -> Point | None:
    """Return the point of `points` with the same levels of the same factors."""
    for other in points:
        if other.factors.keys() == point.factors.keys() and all(
            same(level, other.factors[name]) for name, level in point.factors.items()
        ):
            return other
    return None


def whole(points: Sequence[Point]) -> list[Point]:
    """Return the points of whole cells, not of single subscribers or sizes of file-sets."""
    return [p for p in points if not any(name in p.factors for name in APART)]


def agreement(then: Sequence[Point], now: Sequence[Point], *, same_seeds: bool = True) -> Agreement:
    """Compare the points of two runs. `same_seeds`: repeats with the same number have the same
    seed, and are paired."""
    before, after = whole(then), whole(now)
    compared: list[Compared] = []
    only_then: list[str] = []
    only_now = [p.label for p in after if matching(p, before) is None]
    for point in before:
        other = matching(point, after)
        if other is None:
            only_then.append(point.label)
            continue
        for metric in dict.fromkeys([*point.estimates, *other.estimates]):
            a, b = point.estimates.get(metric), other.estimates.get(metric)
            if a is None or b is None:
                (only_now if a is None else only_then).append(f"{metric} at {point.label}")
                continue
            # The pieces of one run do not show how much another run would differ.
            a, b = intervals.within_repeats(a), intervals.within_repeats(b)
            change = intervals.difference(b, a, same_seeds=same_seeds)
            covers = change.covers(0.0) if change.has_interval else None
            compared.append(Compared(point.label, metric, a, b, change, covers))
    return Agreement(tuple(compared), tuple(only_then), tuple(only_now))


# -- to the digit -----------------------------------------------------------------------------
MEASURED = ("values", "receivers", "file_sets", "file_sets_by", "series", "subscriptions", "feeds")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every number, text, flag and null of a JSON document with its place, and empty lists
    and objects, so that none can appear or vanish unnoticed."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


@dataclass(frozen=True)
class Identity:
    """A cell's figures in both runs."""

    cell: str
    values: int
    different: tuple[str, ...]  # places of values that differ in any digit

    @property
    def identical(self) -> bool:
        """Return whether no value differs in any digit."""
        return not self.different


def identity(
    then: Mapping[str, Mapping[str, object]], now: Mapping[str, Mapping[str, object]]
) -> tuple[Identity, ...]:
    """Compare the `cells` of two metrics.json, cell by cell."""
    found = []
    for cell in dict.fromkeys([*then, *now]):
        if cell not in then or cell not in now:
            found.append(Identity(cell, 0, (f"only {'now' if cell in now else 'then'}",)))
            continue
        a, b = (
            dict(leaves({n: run[cell][n] for n in MEASURED if n in run[cell]}))
            for run in (then, now)
        )
        places = dict.fromkeys([*a, *b])
        missing = object()
        different = tuple(p for p in places if a.get(p, missing) != b.get(p, missing))
        found.append(Identity(cell, len(places), different))
    return tuple(found)


def changed(
    then: Mapping[str, Scalar | None], now: Mapping[str, Scalar | None]
) -> dict[str, tuple[Scalar | None, Scalar | None]]:
    """Return name -> (then, now) for the values that differ."""
    names = dict.fromkeys([*then, *now])
    return {n: (then.get(n), now.get(n)) for n in names if then.get(n) != now.get(n)}
