# SPDX-License-Identifier: Apache-2.0
"""What one protocol saves compared with another, by hand: a line of 2 per 100 reaches 5 at 250."""

from __future__ import annotations

import pytest

from parsers.base.factors import Scalar
from parsers.base.intervals import over_repeats
from parsers.measure.claims import judge
from parsers.measure.saving import saving
from parsers.measure.sweep import Point
from parsers.read.published import Claim

RATES = (50.0, 100.0, 400.0, 500.0)


def line(factor: float = 1.0) -> list[tuple[float, ...]]:
    """Return 2 per 100 in both repeats of each rate, times `factor` in the second one."""
    return [(r / 50, r / 50 * factor) for r in RATES]


@pytest.mark.parametrize(
    ("wanted", "needed", "share", "bound"),
    [
        (5.0, 250.0, 0.84, ""),  # 1 - 40 / 250, between two measured rates
        (8.0, 400.0, 0.90, ""),  # at one of them
        (11.0, 500.0, 0.92, "at least"),  # not reached at 500
        (0.5, 50.0, 0.2, "at most"),  # less than at 50
    ],
)
def test_where_the_line_is_reached(wanted: float, needed: float, share: float, bound: str) -> None:
    estimates = [over_repeats(v, (0, 1)) for v in line()]
    found = saving(40.0, over_repeats((wanted, wanted), (0, 1)), RATES, estimates)
    assert found is not None
    assert found.bound == bound
    assert found.needed == pytest.approx(needed)
    assert found.share.mean == pytest.approx(share)
    assert found.share.n == 2


def test_each_repeat_is_compared_with_itself() -> None:
    """The second repeat is twice as fast throughout: both need 250."""
    estimates = [over_repeats(v, (0, 1)) for v in line(2.0)]
    found = saving(40.0, over_repeats((5.0, 10.0), (0, 1)), RATES, estimates)
    assert found is not None
    assert found.share.values == pytest.approx((0.84, 0.84))


def test_a_repeat_that_is_missing_somewhere_does_not_count() -> None:
    estimates = [over_repeats(v, (0, 1)) for v in line()]
    estimates[2] = over_repeats((8.0,), (1,))
    found = saving(40.0, over_repeats((5.0, 5.0), (0, 1)), RATES, estimates)
    assert found is not None
    assert found.share.repeats == (1,)


def test_no_answer_where_the_repeats_disagree_about_the_ends() -> None:
    estimates = [over_repeats(v, (0, 1)) for v in line()]
    assert saving(40.0, over_repeats((0.5, 11.0), (0, 1)), RATES, estimates) is None


# -- as a claim -------------------------------------------------------------------------------
CLAIM = {
    "kind": "saving",
    "metric": "throughput",
    "over": "rate_bps",
    "where": {"protocol": "ldm7", "rate_bps": "40Mbps"},
    "against": {"protocol": "ldm6"},
    "at_least": 0.8,
    "text": "so",
    "source": "x",
}


def made(ldm7: tuple[float, ...], factor: float = 1.0) -> list[Point]:
    def point(protocol: str, rate: float, values: tuple[float, ...]) -> Point:
        estimate = over_repeats([v * 1e6 for v in values], range(len(values)))
        factors: dict[str, Scalar] = {"protocol": protocol, "rate_bps": rate * 1e6, "receivers": 4}
        return Point(factors, {"throughput": estimate}, ("c",))

    others = [point("ldm6", r, v) for r, v in zip(RATES, line(factor), strict=True)]
    return [point("ldm7", 40.0, ldm7), point("ldm7", 50.0, (1.0, 1.0)), *others]


@pytest.mark.parametrize(
    ("ldm7", "verdict", "text"),
    [
        ((5.0, 5.0), "held", "need 250 Mbit/s (measured 50 to 500 Mbit/s): saving 84 [84, 84] %"),
        ((2.0, 2.0), "not held", "saving 60 [60, 60] %"),  # needs 100
        ((11.0, 11.0), "held", "need above 500 Mbit/s"),
        ((0.5, 0.5), "not held", "need at most 50 Mbit/s"),
        ((5.0,), "not decidable", "saving 84 %"),
    ],
)
def test_the_claim(ldm7: tuple[float, ...], verdict: str, text: str) -> None:
    (found,) = judge([Claim.model_validate(CLAIM)], made(ldm7))
    assert found.verdict == verdict
    assert text in found.numbers


def test_a_line_that_ends_before_the_saving_is_decided() -> None:
    """Above 500 it is at least 92 %, where 95 % are claimed."""
    (found,) = judge([Claim.model_validate({**CLAIM, "at_least": 0.95})], made((11.0, 11.0)))
    assert (found.verdict, found.reason) == (
        "not decidable",
        "what was measured does not reach far enough",
    )


def test_without_the_other_protocol() -> None:
    (found,) = judge([Claim.model_validate(CLAIM)], made((5.0, 5.0))[:2])
    assert found.verdict == "not decidable"
    assert "nothing to compare with" in found.reason


@pytest.mark.parametrize("key", ["over", "against", "at_least"])
def test_what_the_claim_needs(key: str) -> None:
    with pytest.raises(ValueError, match=f"kind saving: .*{key}"):
        Claim.model_validate({k: v for k, v in CLAIM.items() if k != key})
