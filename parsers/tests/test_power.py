# SPDX-License-Identifier: Apache-2.0
"""Power, compared with published tables."""

from __future__ import annotations

import pytest

from parsers.base.intervals import Estimate, over_repeats
from parsers.base.power import least_effect, repeats_for, signs_for, visible


@pytest.mark.parametrize(
    ("effect", "repeats"),
    # Paired t test, 5 % two-sided, power 80 % (G*Power 3; Cohen's small, medium, large effect).
    [(0.2, 199), (0.5, 34), (0.8, 15)],
)
def test_repeats_are_those_of_the_table(effect: float, repeats: int) -> None:
    assert repeats_for(effect, 1.0) == repeats
    assert repeats_for(3 * effect, 3.0) == repeats
    assert least_effect(repeats) <= effect < least_effect(repeats - 1)


def test_no_number_of_repeats_is_advice() -> None:
    assert repeats_for(0.01, 1.0) is None
    assert repeats_for(0.0, 0.0) is None
    assert repeats_for(0.1, 0.0) == 2


def test_what_an_interval_sees() -> None:
    """34 values with standard deviation 1 detect 0.5. A normal interval of +-1.96 detects 1.96 +
    0.8416 = 2.80 of its standard error of 1."""
    values = [1.0, -1.0] * 17
    spread = (34 / 33) ** 0.5
    found = visible(over_repeats(values))
    assert found == pytest.approx(0.5 * spread, rel=0.03)
    assert visible(Estimate(0, -1.96, 1.96, 60, "bootstrap")) == pytest.approx(2.80, abs=0.01)
    assert visible(over_repeats([1.0])) is None


@pytest.mark.parametrize(
    ("share", "pairs"),
    # All agree: 2 / 2^6 is below 5 %. 90 %: of 12, 10 or more (p = 158 / 4096 = 0.039) come with a
    # probability of 0.282 + 0.377 + 0.230 = 0.889; of 9, 8 (0.039) with 0.387 + 0.387 = 0.775;
    # of 10, 9 (0.021) with 0.349 + 0.387 = 0.736; of 11, 10 (0.012) with 0.697.
    [(1.0, 6), (0.0, 6), (0.9, 12), (0.5, None)],
)
def test_pairs_that_the_sign_test_needs(share: float, pairs: int | None) -> None:
    assert signs_for(share) == pairs
