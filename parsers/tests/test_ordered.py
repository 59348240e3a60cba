# SPDX-License-Identifier: Apache-2.0
"""Claims that a metric rises or falls over the range: by hand, and their error rates and power by
simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from parsers.base.intervals import (
    Estimate,
    at_confidence,
    comparable,
    fitted_change,
    over_repeats,
    trend_over_repeats,
)
from parsers.measure import ordered, undecided
from parsers.read.published import Claim

DRAWS = 600


def claim(kind: str = "increases", **more: str) -> Claim:
    raw = {"kind": kind, "metric": "throughput", "over": "receivers", "steps": "trend"}
    return Claim.model_validate({**raw, "text": "so", "source": "x", **more})


def line(*repeats: Sequence[float]) -> list[Estimate]:
    """Return the estimates of a line from each repeat's values, in order of the levels."""
    numbers = range(len(repeats))
    return [over_repeats(values, numbers) for values in zip(*repeats, strict=True)]


def test_fitted_change_by_hand() -> None:
    """Four values: centred ranks -1.5, -0.5, 0.5, 1.5, whose squares sum to 5. Of 1, 2, 4, 9 the
    slope is (-1.5 - 1 + 2 + 13.5) / 5 = 2.6, over three steps 7.8; of 2, 2, 2, 2 it is 0. Mean 3.9,
    s = 7.8 / sqrt(2) = 5.5154, s / sqrt(2) = 3.9, t(1) = 12.706: 49.554."""
    found = fitted_change(line([1, 2, 4, 9], [2, 2, 2, 2]))
    assert found is not None
    assert found.values == pytest.approx((7.8, 0.0))
    assert found.mean == pytest.approx(3.9)
    assert found.high - found.mean == pytest.approx(49.554, abs=1e-2)


def test_fitted_change_needs_repeats_that_all_share() -> None:
    """Repeat 1 lacks the second value, repeats 0 and 2 have all: 5 - 1 and 8 - 2."""
    gap = [over_repeats([1, 9, 2], [0, 1, 2]), over_repeats([5, 8], [0, 2])]
    found = fitted_change(gap)
    assert found is not None
    assert (found.values, found.repeats) == ((4.0, 6.0), (0, 2))
    assert fitted_change(line([1, 2, 3])) is None
    with pytest.raises(ValueError, match="found 1"):
        fitted_change(gap[:1])


@pytest.mark.parametrize(
    ("repeats", "side", "p"),
    [
        # Of 3! orders one rises throughout: (1 / 6)^2 in each tail.
        (([1, 2, 3], [5, 7, 9]), 1, 2 / 36),
        (([3, 2, 1], [9, 7, 5], [30, 20, 10]), -1, 2 / 216),
        # Sums of two repeats of four: 12 by one order in 24^2, 10 by 2 x 3 (one falling pair).
        (([1, 2, 3, 4], [1, 2, 4, 3]), 1, 2 * 7 / 576),
        # Two values: the sign test.
        (([1, 2],) * 6, 1, 2 / 64),
        (([1, 2, 3], [3, 2, 1]), 0, 1.0),
    ],
)
def test_trend_over_repeats_by_hand(repeats: tuple[list[float], ...], side: int, p: float) -> None:
    found = trend_over_repeats(line(*repeats))
    assert found is not None
    assert found[0] == side
    assert found[1] == pytest.approx(p)


def test_equal_values_in_a_trend() -> None:
    """All that can rise does: by 1 of 3! orders and 1 of 3 with two equal values, in each tail. A
    single repeat has no such test."""
    found = trend_over_repeats(line([1, 2, 3], [1, 2, 2]))
    assert found is not None
    assert found[0] == 1
    assert found[1] == pytest.approx(2 / 18)
    assert trend_over_repeats(line([1, 2, 3])) is None


def test_a_trend_of_repeats_that_lack_values() -> None:
    """Repeat 0 has all three in order, repeat 1 two: 1 / 3! x 1 / 2! in each tail."""
    found = trend_over_repeats(
        [over_repeats([1, 5], [0, 1]), over_repeats([2], [0]), over_repeats([3, 6, 1], [0, 1, 2])]
    )
    assert found is not None
    assert found[1] == pytest.approx(2 / 12)


def test_a_budget_that_ended_leaves_the_trend() -> None:
    """Only one repeat has all five levels, which Kendall's test takes as they are."""
    rows = {0: [1, 2, 3, 4, 5], 1: [10, 22, 33, 47, 50]}
    part = [
        over_repeats([rows[0][i], rows[1][i]][: 1 if i == 2 else 2], [0, 1][: 1 if i == 2 else 2])
        for i in range(5)
    ]
    found = ordered.judge(claim(), part)
    assert found.verdict == "held"
    assert found.reason.startswith("it rises, against no step; Kendall's trend test")


def test_the_order_that_all_repeats_show() -> None:
    """Two windows, one of which changes tenfold as much: t intervals of two repeats show nothing.
    Both have all four in order: 2 / 24^2 = 0.0035, which is also below 0.005, half of 1 %."""
    windows = line([100, 90, 60, 30], [100, 99, 97, 95])
    asked = claim("decreases")
    found = ordered.judge(asked, windows)
    assert found.verdict == "held"
    assert found.reason.endswith("; Kendall's trend test over the repeats, p = 0.0035")
    with at_confidence(0.99):
        assert ordered.judge(asked, windows).verdict == "held"
    with at_confidence(0.994):
        assert ordered.judge(asked, windows).verdict == "not decidable"
    assert ordered.judge(claim(), windows).verdict == "not held"
    assert ordered.judge(claim("decreases", steps="each"), windows).verdict == "not decidable"


def test_a_line_that_levels_off_rises() -> None:
    """In each repeat a factor of 4 and then the same: logarithms 0, 2, 2 (of 2): slope 1, twice."""
    flat_end = line([25, 100, 100], [24, 96, 96], [25, 100, 100])
    found = ordered.judge(claim(), flat_end)
    assert found.verdict == "held"
    assert found.reason.startswith("it rises, against no step; fitted change over the range +300 [")
    each = ordered.judge(claim(steps="each"), flat_end)
    assert (each.verdict, each.reason) == (
        "not decidable",
        "it rises at 1 of 2 steps, by its interval at 1",
    )
    assert ordered.judge(claim("decreases"), flat_end).verdict == "not held"


def test_a_line_that_turns_does_not_rise_though_its_ends_do() -> None:
    turns = line([10, 40, 20], [11, 44, 22.1], [10, 40.2, 20])
    found = ordered.judge(claim(), turns)
    assert found.verdict == "not held"
    assert found.reason.startswith("1 of 2 steps go the opposite way (Bonferroni); fitted change")


def test_opposite_steps_count_by_wider_intervals() -> None:
    """Of two steps each has 97.5 %: t(2) = 6.2053 instead of 4.3027. The last step of -0.0100,
    -0.0200, -0.0300 in logarithms: -0.02 +- 0.01 / sqrt(3) x 4.3027 = 0.0248 or 0.0358 includes 0;
    -0.0150, -0.0200, -0.0250: +- 0.01242 excludes it, +- 0.01791 too; -0.0130, -0.0200, -0.0270:
    +- 0.01739 excludes 0, +- 0.02508 does not."""

    def verdict(*last: float) -> str:
        rows = [[1.0, 2.0, 2.0 * float(np.exp(step))] for step in last]
        return ordered.judge(claim(), line(*rows)).verdict

    assert verdict(-0.01, -0.02, -0.03) == "held"
    assert verdict(-0.015, -0.02, -0.025) == "not held"
    assert verdict(-0.013, -0.02, -0.027) == "held"


def test_values_of_0_are_compared_by_differences() -> None:
    """Weights -0.9, -0.3, 0.3, 0.9: changes -6.3, -7.2 and -6."""
    found = ordered.judge(claim("decreases"), line([6, 3, 0, 0], [7, 3, 0, 0], [6, 2, 0, 0]))
    assert found.verdict == "held"
    assert "fitted change over the range -6.5 [" in found.reason
    assert found.sees == ""


def test_one_run_each_may_level_off() -> None:
    """Kendall's tau-b of six ordered values with one tie: p below 0.01."""
    values = line([82, 90, 99, 99.9, 100, 100])
    assert ordered.judge(claim(), values).reason.startswith("against no step; one run each")
    assert ordered.judge(claim(steps="each"), values).verdict == "not decidable"
    assert ordered.judge(claim("decreases"), values).verdict == "not held"
    assert ordered.judge(claim(), line([82, 90, 99, 99.9, 100, 99.5])).verdict == "not decidable"


def test_an_open_claim_says_how_many_repeats_it_needs() -> None:
    """Changes 0, 1 and 2 in logarithms: mean 1, s = 1; one standard deviation needs 10 repeats."""
    e = float(np.e)
    found = ordered.judge(claim(), line([1, 1], [1, e], [1, e * e]))
    assert found.verdict == "not decidable"
    assert found.decider is not None
    assert (found.decider.text, found.decider.by_repeats) == (
        "about 10 repeats would (3 here)",
        True,
    )


def test_a_step_to_a_single_run_needs_more_repeats() -> None:
    """Logarithms of the first step: 0.693 and 0.698, +- 0.0317; the last value has one repeat."""
    values = [over_repeats(v, range(len(v))) for v in ([1.0, 1.1], [2.0, 2.211], [4.0])]
    found = ordered.judge(claim(steps="each"), values)
    assert found.verdict == "not decidable"
    assert found.reason == "it rises at 2 of 2 steps, by its interval at 1"
    assert found.decider is not None
    assert found.decider.text == "two or more repeats of each cell would give an interval"


def test_only_ordered_claims_have_a_trend() -> None:
    with pytest.raises(ValidationError, match="no steps: trend is of increases and decreases"):
        claim("flat")


def test_two_values_have_one_step() -> None:
    """t alone decides, without halving the error."""
    found = ordered.judge(claim(), line([1, 2], [1, 2.1], [1, 2.2]))
    assert found.reason == "it rises at 1 of 1 steps, by its interval at 1"


def test_means_of_other_windows_are_not_compared() -> None:
    """The second window, ten times as busy, is there for two of three levels."""
    part = [over_repeats([10, 100], [0, 1]), over_repeats([9], [0]), over_repeats([8, 80], [0, 1])]
    assert [e.values for e in comparable(part)] == [(10.0,), (9.0,), (8.0,)]
    assert comparable(part[::2]) == part[::2]
    apart = [over_repeats([1.0], [0]), over_repeats([2.0], [1])]
    assert comparable(apart) == apart


def shares(
    truth: Sequence[float], kind: str, steps: str = "trend", repeats: int = 4, uneven: bool = False
) -> Counter[str]:
    """Return the share of each verdict over simulated runs: repeats differ by a factor of e (one
    standard deviation), the values of one by 5 %. `uneven`: and in how strongly they change, by a
    factor of e."""
    random = np.random.default_rng(2053)
    asked = claim(kind, steps=steps)
    found: Counter[str] = Counter()
    for _ in range(DRAWS):
        common = random.normal(0, 1, size=(repeats, 1))
        noise = random.normal(0, 0.05, size=(repeats, len(truth)))
        scale = np.exp(random.normal(0, 1, size=(repeats, 1)) if uneven else 0 * common)
        values = np.exp(common + scale * np.array(truth) + noise)
        found[ordered.judge(asked, line(*values)).verdict] += 1
    return Counter({verdict: count / DRAWS for verdict, count in found.items()})


def test_level_lines_are_rarely_called_rising() -> None:
    """At most 2.5 % held, and at most 5 % not held (2.5 % by the change, 2.5 % by a step); with 600
    runs, three standard errors are 1.9 and 2.7 %."""
    found = shares([0.0] * 5, "increases")
    assert found["held"] <= 0.025 + 0.019
    assert found["not held"] <= 0.05 + 0.027


def test_lines_that_level_off_are_found() -> None:
    """It rises by 22 and 49 %, then stays: the trend is found nearly always, each step never."""
    truth = [0.0, 0.2, 0.4, 0.4, 0.4]
    assert shares(truth, "increases")["held"] >= 0.9
    assert shares(truth, "increases")["not held"] <= 0.025 + 0.019
    assert shares(truth, "increases", "each")["held"] <= 0.05


def test_lines_that_turn_are_not_called_falling() -> None:
    """Down by a third and up again: the change is 0, and the steps up exceed their noise by far."""
    found = shares([0.0, -0.4, -0.4, 0.0], "decreases")
    assert found["held"] <= 0.01
    assert found["not held"] >= 0.8


def test_few_repeats_do_not_show_that_a_value_lies_on_its_limit() -> None:
    """Mean 0.001, s = 1: more than 1000 repeats; of four values that may be chance."""
    four = over_repeats([1.0, -1.0, 1.0, -1.0], range(4))
    found = undecided.repeats(four, 0.001)
    assert found.text == "more repeats would; 4 are too few to say how many"
    assert found.by_repeats
    nine = undecided.Decider("about 9 repeats would (4 here)", True)
    assert undecided.most([nine, found]) == undecided.most([found, nine]) == found
    five = over_repeats([1.0, -1.0, 1.0, -1.0, 0.0], range(5))
    found = undecided.repeats(five, 0.001)
    assert found.text.startswith("more than 1000 repeats would")
    assert not found.by_repeats
    asked = undecided.most([undecided.Decider("about 3 repeats would (2 here)", True), found])
    assert asked == found


def test_windows_of_unlike_strength_are_decided_by_their_order() -> None:
    """Three windows with steps of 20 %, or of 7 or 50 %: t has two degrees of freedom and a spread
    as large as its mean."""
    truth = [0.0, -0.2, -0.4, -0.6, -0.8]
    found = shares(truth, "decreases", repeats=3, uneven=True)
    assert found["held"] >= 0.9
    assert found["not held"] <= 0.01
    assert shares(truth, "decreases", "each", repeats=3, uneven=True)["held"] <= 0.05
