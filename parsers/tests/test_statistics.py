# SPDX-License-Identifier: Apache-2.0
"""Intervals compared with published tables and hand calculations, and their coverage by
simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parsers.base.intervals import (
    ONE_RUN,
    Estimate,
    bootstrap,
    difference,
    iqr,
    over_repeats,
    ratio,
    regression,
    t_quantile,
    trend_p,
    wilcoxon_p,
)

DRAWS = 2000


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # Student's table, two-sided 95 % (e.g. Fisher and Yates, Table III).
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (29, 2.045), (120, 1.980)],
)
def test_quantiles_are_those_of_the_table(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_interval_of_five_repeats_by_hand() -> None:
    """Mean 12, squares of deviations 4 + 1 + 0 + 1 + 4 = 10, s = sqrt(10 / 4) = 1.5811,
    s / sqrt(5) = 0.70711, times t(4) = 2.7764: 1.9632."""
    found = over_repeats([10, 11, 12, 13, 14], [0, 1, 2, 3, 4])
    assert found.mean == 12
    assert found.high - 12 == pytest.approx(1.9632, abs=1e-4)
    assert 12 - found.low == pytest.approx(1.9632, abs=1e-4)
    assert (found.n, found.method) == (5, "Student t over 5 repeats")
    assert found.covers(13.96)
    assert not found.covers(13.97)


def test_one_run_has_no_interval() -> None:
    found = over_repeats([3.5], [0])
    assert (found.low, found.mean, found.high, found.n, found.method) == (3.5, 3.5, 3.5, 1, ONE_RUN)
    assert not found.has_interval
    with pytest.raises(ValueError, match="0 values"):
        over_repeats([])


def test_paired_difference_by_hand() -> None:
    """Differences 2, 4, 3 (repeat 7 has no partner): mean 3, s = 1, t(2) 4.3027 / sqrt(3)
    = 2.4841. Unpaired the common trend of the repeats would drown it."""
    a = over_repeats([12, 104, 1003, 5], [0, 1, 2, 7])
    b = over_repeats([1000, 10, 100], [2, 0, 1])
    found = difference(a, b)
    assert found.mean == 3
    assert found.high == pytest.approx(3 + 2.4841, abs=1e-4)
    assert found.repeats == (0, 1, 2)
    assert "paired" in found.method


def test_difference_of_unlike_seeds_is_welch() -> None:
    """Variances of the means 1/3 and 4/3, difference 5 - 10; degrees (5/3)^2 / ((1/3)^2/2 +
    (4/3)^2/2) = 2.7778 / 0.94444 = 2.9412; t = 3.220 (between 4.303 and 3.182), its factor
    sqrt(5/3) = 1.2910."""
    a = over_repeats([4, 5, 6])
    b = over_repeats([8, 10, 12])
    found = difference(a, b)
    assert found.mean == -5
    assert found.method == "Welch t, 3 and 3 runs"
    assert t_quantile(2.9412) == pytest.approx(3.220, abs=2e-3)
    assert found.high == pytest.approx(-5 + 3.220 * 1.2910, abs=5e-3)


def test_difference_of_single_runs_has_no_interval() -> None:
    one = difference(over_repeats([5], [0]), over_repeats([3], [0]))
    assert (one.mean, one.n, one.method) == (2, 1, ONE_RUN)
    other = difference(over_repeats([5], [0]), over_repeats([3, 4], [1, 2]))
    assert (other.mean, other.n) == (1.5, 1)


def test_ratio_by_hand() -> None:
    """Ratios 2 and 8: geometric mean 4; logarithms 0.6931 and 2.0794, s = 0.98026,
    s / sqrt(2) = 0.69315 = ln 2, t(1) = 12.706: the ends are 4 x 2^-+12.706."""
    found = ratio(over_repeats([4, 80], [0, 1]), over_repeats([2, 10], [0, 1]))
    assert found is not None
    assert found.mean == pytest.approx(4)
    assert found.high == pytest.approx(4 * 2**12.7062, rel=1e-3)
    assert found.low == pytest.approx(4 / 2**12.7062, rel=1e-3)
    assert ratio(over_repeats([0.0]), over_repeats([2.0])) is None


def test_wilcoxon_of_five_like_signs() -> None:
    """All 2^5 sign patterns are equally likely: 2 / 32 in the two tails."""
    a = over_repeats([2, 3, 4, 5, 7], range(5))
    b = over_repeats([1, 1, 1, 1, 1], range(5))
    assert wilcoxon_p(a, b) == pytest.approx(0.0625)
    assert wilcoxon_p(a, a) is None


def test_regression_by_hand() -> None:
    """x 1..4, y 2, 4, 5, 8: mean x 2.5, Sxx 5, Sxy = -1.5 x -2.75 - 0.5 x -0.75 + 0.5 x 0.25
    + 1.5 x 3.25 = 9.5, slope 1.9, intercept 0, Syy 18.75, R2 = 9.5^2 / (5 x 18.75) = 0.96267;
    residual sum 18.75 - 18.05 = 0.7, s = sqrt(0.35), of the slope sqrt(0.35 / 5) = 0.26458,
    times t(2) 4.3027 = 1.1384."""
    found = regression([1, 2, 3, 4], [over_repeats([v], [0]) for v in (2, 4, 5, 8)])
    assert found.slope.mean == pytest.approx(1.9)
    assert found.intercept == pytest.approx(0, abs=1e-12)
    assert found.r2 == pytest.approx(0.96267, abs=1e-5)
    assert found.slope.high == pytest.approx(1.9 + 1.1384, abs=1e-4)
    assert found.slope.method == "least squares, 4 points, t with 2 degrees of freedom"


def test_regression_takes_the_slopes_of_the_repeats() -> None:
    """Repeat 0 has slope 1, repeat 1 slope 3, whatever else differs between them: 2 +- 12.706."""
    y = [over_repeats([x, 100 + 3 * x], [0, 1]) for x in (1.0, 2.0, 3.0)]
    found = regression([1, 2, 3], y)
    assert found.slope.mean == pytest.approx(2)
    assert found.slope.high == pytest.approx(2 + 12.7062, abs=1e-3)
    assert found.r2 == pytest.approx(1)
    with pytest.raises(ValueError, match="three different x, found 2"):
        regression([1, 2, 2], y)


def test_trend_of_five_steps() -> None:
    """One of 5! orders rises throughout, one falls: 2 / 120."""
    assert trend_p([1, 2, 3, 4, 5]) == pytest.approx(2 / 120)


def test_bootstrap_says_its_method() -> None:
    values = list(np.random.default_rng(1).exponential(size=100))
    median = bootstrap(values, np.median, "median")
    assert median.low < median.mean == float(np.median(values)) < median.high
    assert median.method.startswith("moving-block bootstrap (blocks of ")
    assert median.method.endswith(") of the median of 100 values")
    assert bootstrap(values, np.median, "median") == median  # seeded
    many = bootstrap(values * 10, iqr, "IQR")
    assert many.method.endswith(") of the IQR of 1000 values")
    assert many.high - many.low < bootstrap(values, iqr, "IQR").high - many.low
    same = bootstrap([2.0, 2.0], np.median, "median")
    assert (same.low, same.mean, same.high) == (2, 2, 2)
    assert not bootstrap([2.0], np.median, "median").has_interval
    assert bootstrap([1.0, 2.0, 3.0], iqr, "IQR").method == "IQR of 3 values: no interval"


def _share(covered: list[bool]) -> float:
    assert len(covered) == DRAWS
    return sum(covered) / DRAWS


@pytest.mark.long
@pytest.mark.slow
def test_intervals_cover_what_they_say() -> None:
    """In 2,000 seeded draws the 95 % intervals contain the truth 93 to 97 % of the time."""
    rng = np.random.default_rng(7)
    mean, pair, unlike, slope, quotient = ([] for _ in range(5))
    for _ in range(DRAWS):
        seeds = rng.normal(0, 3, 5)  # what a repeat's points have in common
        a = over_repeats(list(10 + seeds + rng.normal(0, 1, 5)), range(5))
        b = over_repeats(list(8 + seeds + rng.normal(0, 1, 5)), range(5))
        mean.append(a.covers(10))
        pair.append(difference(a, b).covers(2))
        c = over_repeats(list(rng.normal(10, 1, 4)))
        d = over_repeats(list(rng.normal(8, 3, 6)))
        unlike.append(difference(c, d).covers(2))
        points = [over_repeats([y]) for y in 2 + 0.5 * np.arange(6) + rng.normal(0, 1, 6)]
        slope.append(regression(range(6), points).slope.covers(0.5))
        e = over_repeats(list(np.exp(seeds / 3 + rng.normal(0, 0.2, 5)) * 22), range(5))
        f = over_repeats(list(np.exp(seeds / 3 + rng.normal(0, 0.2, 5))), range(5))
        found = ratio(e, f)
        assert found is not None
        quotient.append(found.covers(22))
    for covered in (mean, pair, unlike, slope, quotient):
        assert 0.93 <= _share(covered) <= 0.97


@pytest.mark.long
@pytest.mark.slow
def test_bootstrap_covers_the_median_of_a_skewed_distribution() -> None:
    """Log-normal, as sizes and latencies are: the true median is 1."""
    rng = np.random.default_rng(8)
    covered = [
        bootstrap(list(rng.lognormal(0, 1, 60)), np.median, "median").covers(1.0)
        for _ in range(DRAWS)
    ]
    assert 0.93 <= _share(covered) <= 0.97


def test_estimates_know_their_values() -> None:
    assert Estimate(1, 1, 1, 1, "x").covers(math.nextafter(1, 2))
