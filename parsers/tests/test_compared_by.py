# SPDX-License-Identifier: Apache-2.0
"""Claims by differences, and against protocols that lack a factor, with chosen values."""

from __future__ import annotations

from parsers.base.factors import Scalar
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import points
from parsers.read.published import Claim
from parsers.tests.test_sweep import cell, one

OFFSETS = (-10.0, 0.0, 10.0)
WINDOWS_MS = (111.0, 263.0, 251.0)  # the metric of each repeat, without an offset
TCP = ("cubic", "bbr")


def shifts(kind: str, compared_by: str) -> Claim:
    return Claim.model_validate(
        {
            **{"kind": kind, "metric": "latency_p50", "text": "it shifts", "source": "x"},
            **(
                {"over": "clock_offset_ms"}
                if kind == "increases"
                else {"where": {"clock_offset_ms": 10}, "against": {"clock_offset_ms": 0}}
            ),
            "compared_by": compared_by,
        }
    )


def shifted() -> list[CellMetrics]:
    return [
        cell("ldm7", 8, n, more={"clock_offset_ms": offset}, latency_p50=window + offset)
        for offset in OFFSETS
        for n, window in enumerate(WINDOWS_MS)
    ]


def test_the_same_amount_is_seen_as_a_difference_not_as_a_ratio() -> None:
    """10 ms are 9 % of 111 ms and 4 % of 263: of three ratios, no interval excludes 1."""
    made = points(shifted())
    for kind in ("increases", "above"):
        assert one(shifts(kind, "ratio"), made).verdict == "not decidable"
        assert one(shifts(kind, "difference"), made).verdict == "held"


def test_a_difference_may_be_undecided_too() -> None:
    cells = [
        cell("ldm7", 8, n, more={"clock_offset_ms": offset}, latency_p50=value)
        for offset, values in ((0.0, (100, 200, 300)), (10.0, (99, 204, 308)))
        for n, value in enumerate(values)
    ]
    found = one(shifts("above", "difference"), points(cells))
    assert found.verdict == "not decidable"
    assert found.reason.startswith("the interval includes 0")


def unicast() -> Claim:
    return Claim.model_validate(
        {
            **{"kind": "above", "metric": "wire_per_delivered", "text": "more", "source": "x"},
            **{"where": {"protocol": "tcp"}, "against": {"protocol": "fmtp"}},
        }
    )


def test_a_protocol_without_the_factor_is_compared_with_each_level() -> None:
    cells = [
        cell("tcp", 8, n, more={"tcp": name}, wire_per_delivered=8.0 + n / 100)
        for name in TCP
        for n in (0, 1)
    ]
    cells += [cell("fmtp", 8, n, wire_per_delivered=1.0 + n / 100) for n in (0, 1)]
    found = one(unicast(), points(cells))
    assert found.verdict == "held"
    assert len(found.parts) == len(TCP)


def test_a_point_that_has_the_factor_is_preferred() -> None:
    sets: list[tuple[str, dict[str, Scalar], float]] = [
        ("tcp", {"tcp": "cubic"}, 2.0),
        ("fmtp", {"tcp": "cubic"}, 3.0),
        ("fmtp", {}, 1.0),
    ]
    cells = [
        cell(name, 8, n, more=more, wire_per_delivered=value + n / 100)
        for name, more, value in sets
        for n in (0, 1)
    ]
    assert one(unicast(), points(cells)).verdict == "not held"


def test_of_two_that_lack_factors_none_is_taken() -> None:
    sets: list[tuple[str, dict[str, Scalar]]] = [
        ("tcp", {"tcp": "cubic", "repair": "unicast"}),
        ("fmtp", {"repair": "unicast"}),
        ("fmtp", {}),
    ]
    cells = [
        cell(name, 8, n, more=more, wire_per_delivered=1.0 + n)
        for name, more in sets
        for n in (0, 1)
    ]
    found = one(unicast(), points(cells))
    assert found.verdict == "not decidable"
    assert "nothing to compare with" in found.reason
