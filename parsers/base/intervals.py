# SPDX-License-Identifier: Apache-2.0
"""Intervals, comparisons and regressions, each with the method that made it.

All intervals are two-sided 95 % confidence intervals. The whole run is repeated, with another seed:
over n repeats, the interval is Student's t with n - 1 degrees of freedom. Repeats with the same
number have the same seed (the same trace, the same losses), and comparisons use that: if two
quantities share repeats, the interval is that of their differences, repeat by repeat. Within one
run, the interval comes from a moving-block bootstrap over time; two runs of one trace draw the same
blocks. A run that is too short for a bootstrap has no interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from parsers.base import moving_block
from parsers.base.moving_block import Interval, OverTime

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
ONE_RUN = "one run: no interval"
APART = "ends of the intervals against each other (wider than 95 %)"


@dataclass(frozen=True)
class Estimate:
    """A quantity in its SI unit with its 95 % interval. n = 1: low = high = mean.

    `values` are those of the single runs, and `repeats` their numbers (empty: unknown, or no
    repeats). For a bootstrap, `mean` is the statistic of all values. `over_time`: the pieces of one
    run's metric, whose number is then n.
    """

    mean: float
    low: float
    high: float
    n: int
    method: str
    values: tuple[float, ...] = ()
    repeats: tuple[int, ...] = ()
    over_time: OverTime | None = field(default=None, compare=False, repr=False)

    @property
    def has_interval(self) -> bool:
        """Return whether there is an interval: there is more than one run."""
        return self.n > 1

    def covers(self, value: float) -> bool:
        """Return whether the value is within the interval, ends included; for one run, whether it
        is equal."""
        slack = 1e-12 * max(abs(self.low), abs(self.high))
        return self.low - slack <= value <= self.high + slack


def over_repeats(values: Sequence[float], repeats: Sequence[int] = ()) -> Estimate:
    """Return the mean over repeats with Student's t interval: mean +- t(n-1) s / sqrt(n).

    Raises ValueError without values, or if `repeats` has another length.
    """
    if not values or (repeats and len(repeats) != len(values)):
        raise ValueError(f"{len(values)} values of {len(repeats)} repeats")
    found = tuple(float(v) for v in values)
    mean = math.fsum(found) / len(found)
    if len(found) == 1:
        return Estimate(mean, mean, mean, 1, ONE_RUN, found, tuple(repeats))
    half = _half_width(found)
    method = f"Student t over {len(found)} repeats"
    return Estimate(mean, mean - half, mean + half, len(found), method, found, tuple(repeats))


def _half_width(values: Sequence[float]) -> float:
    n = len(values)
    deviation = float(np.std(values, ddof=1))
    return t_quantile(n - 1) * deviation / math.sqrt(n)


_confidence = ContextVar("confidence", default=CONFIDENCE)


@contextmanager
def at_confidence(share: float) -> Iterator[None]:
    """Make intervals over repeats with another confidence, for callers that test more than
    once."""
    token = _confidence.set(share)
    try:
        yield
    finally:
        _confidence.reset(token)


def confidence() -> float:
    """Return the confidence of intervals over repeats."""
    return _confidence.get()


def t_quantile(degrees: float) -> float:
    """Return the factor of a two-sided interval, by default of 95 %, with that many degrees of
    freedom."""
    return _t_quantile(degrees, _confidence.get())


@cache
def _t_quantile(degrees: float, confidence: float) -> float:
    return float(stats.t.ppf(0.5 + confidence / 2, degrees))


def of_run(value: float, repeat: int, over_time: OverTime) -> Estimate:
    """Return a metric of one run, with the interval from its pieces if they give one."""
    found = over_repeats([value], [repeat])
    interval = moving_block.interval_of(over_time)
    if interval is None:
        return replace(found, over_time=over_time)
    return replace(
        found,
        low=interval.low,
        high=interval.high,
        n=over_time.pieces,
        method=_blocks(interval, over_time.pieces),
        over_time=over_time,
    )


def _blocks(found: Interval, pieces: int) -> str:
    return f"moving-block bootstrap over time, {pieces} pieces in blocks of {found.block}"


def bootstrap(values: Sequence[float], statistic: Callable[..., Any], name: str) -> Estimate:
    """Return the interval of a statistic (`np.median`, `iqr`; must take `axis`) of values within
    one run, in order of time, by moving blocks. Raises ValueError without values."""
    if not len(values):
        raise ValueError("no values")
    data = np.asarray(values, dtype=float)
    point = float(statistic(data, axis=-1))
    n = len(data)
    if n > 1 and float(np.ptp(data)) == 0.0:
        return Estimate(point, point, point, n, f"{name} of {n} equal values")
    interval = moving_block.interval_of_statistic(data, statistic)
    if interval is None:
        few = "one value" if n == 1 else f"{n} values"
        return Estimate(point, point, point, 1, f"{name} of {few}: no interval")
    method = f"moving-block bootstrap (blocks of {interval.block}) of the {name} of {n} values"
    return Estimate(point, interval.low, interval.high, n, method)


def iqr(values: Any, axis: int = -1) -> Any:
    """Return the third minus the first quartile."""
    high, low = np.percentile(values, [75, 25], axis=axis)
    return high - low


def common(a: Estimate, b: Estimate) -> list[tuple[int, float, float]]:
    """Return (repeat, a, b) for the repeats that both have."""
    of_b = dict(zip(b.repeats, b.values, strict=True)) if b.repeats else {}
    of_a = zip(a.repeats, a.values, strict=True) if a.repeats else ()
    return [(repeat, value, of_b[repeat]) for repeat, value in of_a if repeat in of_b]


def comparable(y: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates over the repeats that all share, as other repeats' windows would shift
    some means and not others. Unchanged if all have the same repeats, or none is shared."""
    of = [set(e.repeats) for e in y]
    shared = set.intersection(*of) if of else set()
    if not shared or all(repeats == shared for repeats in of):
        return list(y)
    return [
        over_repeats(
            *zip(
                *((v, r) for v, r in zip(e.values, e.repeats, strict=True) if r in shared),
                strict=True,
            )
        )
        for e in y
    ]


def difference(a: Estimate, b: Estimate, *, same_seeds: bool = True) -> Estimate:
    """Return a - b: paired over the shared repeats, if there are at least two (or if each has one,
    the same); else, or without `same_seeds`, Welch's t for two samples, whose seeds differ. For
    bootstraps, the ends are compared, which is wider than 95 %. With one run each, there is no
    interval."""
    pairs = common(a, b) if same_seeds else []
    if (
        same_seeds
        and (runs := _same_run(a, b))
        and (found := moving_block.interval_of_difference(*runs))
    ):
        return _of_blocks(a.mean - b.mean, found, a, runs[0])
    if len(a.values) == len(b.values) == len(pairs) == 1 and min(a.n, b.n) > 1:
        low, high = a.low - b.high, a.high - b.low
        return Estimate(a.mean - b.mean, low, high, min(a.n, b.n), APART)
    if len(pairs) >= 2 or (pairs and min(len(a.values), len(b.values)) == 1):
        paired = over_repeats([x - y for _, x, y in pairs], [repeat for repeat, _, _ in pairs])
        if paired.n == 1:
            return paired
        return replace(paired, method=f"paired t over {paired.n} repeats of equal seed")
    mean = a.mean - b.mean
    if a.n < 2 or b.n < 2 or 1 in (len(a.values), len(b.values)):
        return Estimate(mean, mean, mean, 1, ONE_RUN)
    if not (a.values and b.values):
        return Estimate(mean, a.low - b.high, a.high - b.low, min(a.n, b.n), APART)
    return _welch(a, b)


def _same_run(a: Estimate, b: Estimate) -> tuple[OverTime, OverTime] | None:
    """Return the pieces of two metrics of one run each, if both are from the same repeat."""
    if len(a.values) != 1 or len(b.values) != 1 or a.repeats != b.repeats:
        return None
    return None if a.over_time is None or b.over_time is None else (a.over_time, b.over_time)


def _of_blocks(mean: float, found: Interval, of: Estimate, run: OverTime) -> Estimate:
    method = f"paired {_blocks(found, run.pieces)}"
    return Estimate(mean, found.low, found.high, run.pieces, method, (mean,), of.repeats)


def within_repeats(found: Estimate) -> Estimate:
    """Return the estimate without the interval from its single run's pieces."""
    if found.over_time is None:
        return found
    return over_repeats(found.values, found.repeats)


def _welch(a: Estimate, b: Estimate) -> Estimate:
    """Return B. L. Welch's interval of the difference of two means with unequal variances."""
    mean = a.mean - b.mean
    n = a.n + b.n
    va = float(np.var(a.values, ddof=1)) / a.n
    vb = float(np.var(b.values, ddof=1)) / b.n
    method = f"Welch t, {a.n} and {b.n} runs"
    if va + vb == 0.0:
        return Estimate(mean, mean, mean, n, method)
    degrees = (va + vb) ** 2 / (va**2 / (a.n - 1) + vb**2 / (b.n - 1))
    half = t_quantile(degrees) * math.sqrt(va + vb)
    return Estimate(mean, mean - half, mean + half, n, method)


def ratio(a: Estimate, b: Estimate) -> Estimate | None:
    """Return a / b: the geometric mean of the paired ratios, with the t interval of their
    logarithms; None if a value is not above 0. Without shared repeats: Welch's t of the logarithms.
    With one run each of the same repeat: a bootstrap over the blocks that both have."""
    if min(*a.values, *b.values, a.mean, b.mean) <= 0.0:
        return None
    if (runs := _same_run(a, b)) and (blocks := moving_block.interval_of_ratio(*runs)):
        return _of_blocks(a.mean / b.mean, blocks, a, runs[0])
    if not (a.values and b.values):
        if min(a.low, b.low) <= 0.0:
            return None
        n = min(a.n, b.n)
        method = APART if n > 1 else ONE_RUN
        return Estimate(a.mean / b.mean, a.low / b.high, a.high / b.low, n, method)
    logs_a, logs_b = (over_repeats([math.log(v) for v in e.values], e.repeats) for e in (a, b))
    found = difference(logs_a, logs_b)
    low, mean, high = (math.exp(v) for v in (found.low, found.mean, found.high))
    values = tuple(math.exp(v) for v in found.values)
    method = found.method if found.n == 1 else f"{found.method}, of logarithms"
    return Estimate(mean, low, high, found.n, method, values, found.repeats)


def wilcoxon_p(a: Estimate, b: Estimate) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test over the shared repeats; None if there
    are fewer than two or if all are equal. It assumes no normal distribution. With 5 repeats, p is
    at least 0.0625."""
    differences = [x - y for _, x, y in common(a, b)]
    if len(differences) < 2 or not any(differences):
        return None
    return float(stats.wilcoxon(differences, method="auto").pvalue)


def least_ranked() -> int:
    """Return the least number of repeats that a test of ranks or of signs can decide: its p is at
    least 2 / 2^n. Six at 95 %, eight at 99 %."""
    return math.ceil(math.log2(2 / (1 - _confidence.get())))


def signs(a: Estimate, b: Estimate) -> list[bool]:
    """Return for each shared repeat whether a is above b, without equal pairs."""
    return [x > y for _, x, y in common(a, b) if x != y]


def side(a: Estimate, b: Estimate) -> int:
    """Return 1 if the sign test finds a above b over the shared repeats, -1 if below, else 0. It
    leaves out equal pairs and makes no assumption about their distribution. At 95 %, six pairs that
    all agree decide."""
    found = signs(a, b)
    if not found or stats.binomtest(sum(found), len(found)).pvalue >= 1 - _confidence.get():
        return 0
    return 1 if 2 * sum(found) > len(found) else -1


@dataclass(frozen=True)
class Regression:
    """y = intercept + slope x by least squares through the mean of each x."""

    slope: Estimate
    intercept: float
    r2: float  # of the means
    n: int  # different x


def regression(x: Sequence[float], y: Sequence[Estimate]) -> Regression:
    """Return a straight line through the points. Raises ValueError with fewer than three different
    x.

    The slope's interval: if all points share at least two repeats, Student's t over the slopes of
    the single repeats. A repeat's points share trace and losses, so the scatter around one repeat's
    line is not what the next repeat would show. Otherwise it comes from the scatter of the means
    around the line, with n - 2 degrees of freedom.
    """
    if len(x) != len(y) or len(set(x)) < 3:
        raise ValueError(f"a line needs three different x, found {len(set(x))}")
    means = [e.mean for e in y]
    fit = stats.linregress(x, means)
    slope, intercept = float(fit.slope), float(fit.intercept)
    shared = set.intersection(*(set(e.repeats) for e in y))
    if len(shared) >= 2:
        order = sorted(shared)
        by_repeat = [
            [dict(zip(e.repeats, e.values, strict=True))[repeat] for e in y] for repeat in order
        ]
        slopes = [float(stats.linregress(x, values).slope) for values in by_repeat]
        of_slope = replace(
            over_repeats(slopes, order), method=f"Student t over the slopes of {len(order)} repeats"
        )
    else:
        half = t_quantile(len(x) - 2) * float(fit.stderr)
        method = f"least squares, {len(x)} points, t with {len(x) - 2} degrees of freedom"
        of_slope = Estimate(slope, slope - half, slope + half, len(x), method)
    spread = max(means) - min(means)
    r2 = float(fit.rvalue) ** 2 if spread > 0 else 1.0
    return Regression(of_slope, intercept, r2, len(x))


def fitted_change(y: Sequence[Estimate]) -> Estimate | None:
    """Return the change from the first to the last of some ordered values on the straight line
    through them, as if they were evenly spaced: a contrast with centred ranks. The interval is
    Student's t over the changes of single repeats. None unless all share at least two repeats.
    Raises ValueError with fewer than two values."""
    if len(y) < 2:
        raise ValueError(f"a change needs two values, found {len(y)}")
    order = sorted(set.intersection(*(set(e.repeats) for e in y)))
    if len(order) < 2:
        return None
    ranks = np.arange(len(y)) - (len(y) - 1) / 2
    weights = (len(y) - 1) * ranks / float(ranks @ ranks)
    by_repeat = [dict(zip(e.repeats, e.values, strict=True)) for e in y]
    changes = [float(weights @ [values[repeat] for values in by_repeat]) for repeat in order]
    return over_repeats(changes, order)


def trend_p(y: Sequence[float]) -> float:
    """Return the two-sided p of Kendall's test that y has no trend over its order. It needs at
    least 2 values."""
    return float(stats.kendalltau(range(len(y)), y).pvalue)


def trend_over_repeats(y: Sequence[Estimate]) -> tuple[int, float] | None:
    """Return the side (1: rising) and the exact two-sided p of Kendall's test with repeats as
    blocks (Hirsch and Slack 1984): the sum over repeats of how many more pairs of values rise than
    fall. It compares values of one repeat only, so that repeats may differ in level and in how
    strong a trend they show, and lack values. None without two repeats of two values or more."""
    have = Counter(repeat for e in y for repeat in e.repeats)
    order = sorted(repeat for repeat, values in have.items() if values > 1)
    if len(order) < 2:
        return None
    by_repeat = [dict(zip(e.repeats, e.values, strict=True)) for e in y]
    total = pairs = 0
    chances = np.ones(1)
    for repeat in order:
        row = np.array([values[repeat] for values in by_repeat if repeat in values])
        total += int(np.triu(np.sign(row[None, :] - row[:, None])).sum())
        falling = _falling_pairs(row)
        pairs += len(falling) - 1
        chances = np.convolve(chances, falling)
    # The sum is that of all pairs less twice those that fall.
    tail = float(chances[: (pairs - abs(total)) // 2 + 1].sum())
    return int(np.sign(total)), min(1.0, 2 * tail)


def _falling_pairs(row: Floats) -> Floats:
    """Return the probability of each number of falling pairs if a row's values come in random
    order, equal ones included: Gauss's multinomial coefficient."""
    _, counts = np.unique(row, return_counts=True)
    found = _shuffled(len(row))
    for count in counts:
        found = np.asarray(np.polydiv(found, _shuffled(int(count)))[0], dtype=np.float64)
    return found / float(found.sum())


def _shuffled(values: int) -> Floats:
    """Return the product of (1 + q + ... + q^(i-1)) / i for i up to a number of values."""
    found = np.ones(1)
    for length in range(1, values + 1):
        found = np.convolve(found, np.full(length, 1 / length))
    return found
