# SPDX-License-Identifier: Apache-2.0
"""Published values beside ours."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.paper import compare_all, parse_condition, parse_paper
from parsers.units import Value, absent


def row(**change: Any) -> dict[str, Any]:
    return {
        "metric": "ffdr",
        "protocol": "ldm7",
        "value": 88.7,
        "unit": "%",
        "source": "V-D, Fig. 3",
        "conditions": "m = 8, p = 1 %, r = 20 Mbit/s, whole hour",
        **change,
    }


def test_conditions() -> None:
    eight = parse_condition("m = 8, p = 1 %, r = 20 Mbit/s, f_snd = 5000")
    assert eight.holds(8, 20e6, 0.01)
    assert not eight.holds(16, 20e6, 0.01)
    assert not eight.holds(8, 20e6, 0.0)
    assert not eight.holds(8, 30e6, 0.01)
    spread = parse_condition("p = 0 %, almost independent of m = 4 to 24")
    assert [spread.holds(m, 1e6, 0.0) for m in (3, 4, 12, 24, 25)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    both = parse_condition("m = 8 and 16, lossless and lossy")
    assert [m for m in (8, 12, 16) if both.holds(m, 1e6, 0.5)] == [8, 16]
    assert parse_condition("whole hour of NGRID").holds(3, 5e6, 0.2)


def test_difference_absolute_and_relative() -> None:
    rows, complaints = parse_paper([row()])
    assert complaints == ()
    ours = {"ldm7": {"ffdr": Value(99.76, "%")}}
    found = compare_all(rows, ours, 8, 20e6, 0.01)
    (comparison,) = found.compared
    # 99.76 - 88.7 = 11.06 points; 11.06 / 88.7 = 12.469 %
    assert comparison.difference == pytest.approx(11.06)
    assert comparison.difference_percent == pytest.approx(12.469, abs=1e-3)
    assert comparison.beyond_tolerance
    assert "ours 99.76 % is 12.5 % above the paper's 88.70 %" in comparison.sentence
    assert "V-D, Fig. 3" in comparison.sentence


def test_within_the_tolerance_there_is_no_sentence() -> None:
    ours = {"ldm7": {"ffdr": Value(90.0, "%")}}
    rows, _ = parse_paper([row()])
    assert compare_all(rows, ours, 8, 20e6, 0.01).compared[0].sentence == ""
    # 90.0 is 1.47 % off: a tolerance of 1 % points it out.
    rows, _ = parse_paper([row(tolerance=0.01)])
    assert "1.5 % above" in compare_all(rows, ours, 8, 20e6, 0.01).compared[0].sentence


def test_units_are_converted() -> None:
    rows, _ = parse_paper([row(metric="bandwidth", value=21.4, unit="Mbit/s")])
    ours = {"ldm7": {"nic_bandwidth": Value(20e6, "bit/s")}}
    (comparison,) = compare_all(rows, ours, 8, 20e6, 0.01).compared
    assert comparison.difference == pytest.approx(-1.4e6)
    assert comparison.difference_percent == pytest.approx(-6.542, abs=1e-3)


def test_other_conditions_are_not_compared() -> None:
    rows, _ = parse_paper([row(conditions="m = 16, p = 1 %")])
    found = compare_all(rows, {"ldm7": {"ffdr": Value(1.0, "%")}}, 8, 20e6, 0.01)
    assert found.compared == ()
    assert found.elsewhere == rows


def test_not_measured_is_said() -> None:
    rows, _ = parse_paper([row()])
    found = compare_all(rows, {"ldm7": {"ffdr": absent("%", "no log of uva")}}, 8, 20e6, 0.01)
    assert found.compared[0].difference is None
    assert "not measured here (no log of uva)" in found.compared[0].sentence


def test_statements_and_both_protocols() -> None:
    statement = row(protocol="both", text="grows linearly", metric="cpu")
    del statement["value"]
    rows, _ = parse_paper(
        [statement, row(protocol="both", metric="throughput", unit="bps", value=5)]
    )
    ours = {p: {"throughput": Value(5.0, "bit/s")} for p in ("ldm7", "ldm6")}
    found = compare_all(rows, ours, 8, 20e6, 0.01)
    assert [s.text for s in found.statements] == ["grows linearly"]
    assert [c.protocol for c in found.compared] == ["ldm7", "ldm6"]


def test_a_shorter_run_says_what_input_it_had() -> None:
    hour = row(metric="input_rate", protocol="both", value=10, unit="Mbit/s")
    hour["conditions"] = "mean over the whole hour"
    bandwidth = row(metric="bandwidth", value=20, unit="Mbit/s")
    rows, complaints = parse_paper([bandwidth, hour])
    assert complaints == ()
    ours = {"ldm7": {"nic_bandwidth": Value(5e6, "bit/s"), "input_rate": Value(4.6e6, "bit/s")}}
    found = compare_all(rows, ours, 8, 20e6, 0.01, 30.0).of("nic_bandwidth", "ldm7")
    assert found is not None
    assert found.difference_percent == pytest.approx(-75)  # the comparison stays
    context = "ours, 30 s, had an input rate of 4.60 Mbit/s against the hour's 10.00 Mbit/s"
    assert found.context == context
    assert found.sentence.endswith(f"Note: {context}.")
    # A whole hour, and a row that does not speak of one, need no such note.
    assert {c.context for c in compare_all(rows, ours, 8, 20e6, 0.01, 3600.0).compared} == {""}
    rows, _ = parse_paper([row(metric="bandwidth", unit="Mbit/s", conditions="m = 8"), hour])
    found = compare_all(rows, ours, 8, 20e6, 0.01, 30.0).of("nic_bandwidth", "ldm7")
    assert found is not None
    assert found.context == ""
    # No published input: ours alone.
    rows, _ = parse_paper([bandwidth])
    found = compare_all(rows, ours, 8, 20e6, 0.01, 30.0).of("nic_bandwidth", "ldm7")
    assert found is not None
    assert found.context == "ours, 30 s, had an input rate of 4.60 Mbit/s"


def test_derived_values_are_told_apart() -> None:
    source = "derived from the published figures, 21.4 / 12.33"
    ratio = row(metric="bandwidth_over_offered", value=1.74, unit="1", source=source)
    rows, complaints = parse_paper([ratio, row()])
    assert complaints == ()
    assert [r.derived for r in rows] == [True, False]
    ours = {"ldm7": {"bandwidth_over_offered": Value(1.174, ""), "ffdr": Value(90.0, "%")}}
    first, second = compare_all(rows, ours, 8, 20e6, 0.01).compared
    assert (first.derived, second.derived) == (True, False)
    # 1.174 - 1.74 = -0.566, 32.53 % of 1.74
    assert first.difference_percent == pytest.approx(-32.53, abs=0.01)
    assert source in first.sentence


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"metric": "ffdr"}, "expected a list"),
        (["ffdr"], "row 1: expected a mapping, found 'ffdr'"),
        ([row(metric="speed")], "unknown metric 'speed'; valid: throughput,"),
        ([row(protocol="tcp")], "protocol 'tcp'; valid: ldm7, ldm6, both"),
        ([row(value=None)], "neither value nor text"),
        ([row(unit="Mbit/s")], "unit 'Mbit/s' of ffdr: valid are"),
        ([{"protocol": "ldm7"}], "no 'metric'"),
        ([row(value="many")], "could not convert"),
    ],
)
def test_unusable_rows_are_complaints(block: Any, complaint: str) -> None:
    rows, complaints = parse_paper(block)
    assert rows == ()
    assert len(complaints) == 1
    assert complaint in complaints[0]
