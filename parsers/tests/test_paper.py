# SPDX-License-Identifier: Apache-2.0
"""Published values beside measured ones."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.base.factors import Scalar
from parsers.base.intervals import over_repeats
from parsers.measure.paper import NOT_RUN, compare_all, headlines
from parsers.measure.sweep import Point
from parsers.measure.sweep_json import headline_json
from parsers.read.published import PaperValue


def row(**change: Any) -> PaperValue:
    raw = {
        "metric": "ffdr",
        "protocol": "ldm7",
        "value": 88.7,
        "unit": "%",
        "source": "V-D, Fig. 3",
        "at": {"receivers": 8, "loss": "1%", "rate_bps": "20Mbps"},
        "conditions": "m = 8, p = 1 %",
        **change,
    }
    return PaperValue.model_validate(raw)


def point(
    protocol: str = "ldm7", factors: dict[str, Scalar] | None = None, **values: list[float]
) -> Point:
    """Return the repeats' values of each metric, at m = 8, r = 20 Mbit/s, p = 1 %, over 30 s."""
    levels: dict[str, Scalar] = {"receivers": 8, "rate_bps": 20_000_000, "loss": 0.01}
    return Point(
        {"protocol": protocol, **levels, **(factors or {})},
        {name: over_repeats(v, range(len(v))) for name, v in values.items()},
        (f"{protocol}-m8",),
        fixed={"duration_s": 30.0},
    )


def test_difference_and_error_bar() -> None:
    """99, 99.76 and 100.52 have the mean 99.76 and s = 0.76: +- 4.303 x 0.76 / sqrt(3) = 1.888; no
    share is above 100 %."""
    (found,) = headlines([row()], [point(ffdr=[99.0, 99.76, 100.52])])
    assert found.difference == pytest.approx(11.06)
    assert found.difference_percent == pytest.approx(12.469, abs=1e-3)  # 11.06 of 88.7
    assert found.beyond_tolerance
    assert found.within is False
    assert found.sentence.startswith(
        "LDM7 FFDR: ours 99.76 [97.87, 100.00] % is 12.5 % above the paper's 88.70 %"
    )
    assert "V-D, Fig. 3" in found.sentence
    assert "outside our error bar" in found.sentence
    (found,) = headlines([row()], [point(ffdr=[80.0, 95.0, 93.0])])
    assert found.within is True


def test_one_run_has_no_error_bar() -> None:
    (found,) = headlines([row()], [point(ffdr=[99.76])])
    assert found.within is None
    assert "(one run)" in found.sentence
    assert "error bar" not in found.sentence


def test_within_the_tolerance_there_is_no_sentence() -> None:
    (found,) = headlines([row()], [point(ffdr=[90.0])])
    assert found.sentence == ""
    # 90.0 is 1.47 % off, which a tolerance of 1 % reports.
    (found,) = headlines([row(tolerance=0.01)], [point(ffdr=[90.0])])
    assert "1.5 % above" in found.sentence


def test_units_are_converted() -> None:
    asked = row(metric="bandwidth", value=21.4, unit="Mbit/s")
    (found,) = headlines([asked], [point(nic_bandwidth=[20e6])])
    assert found.difference == pytest.approx(-1.4e6)
    assert found.difference_percent == pytest.approx(-6.542, abs=1e-3)


def test_other_conditions_are_not_compared() -> None:
    asked = row(at={"receivers": 16, "loss": "1%"})
    found = compare_all([asked], [point(ffdr=[1.0])])
    assert (found.compared, found.elsewhere) == ((), (asked,))
    (headline,) = headlines([asked], [point(ffdr=[1.0])])
    assert (headline.ours, headline.reason) == (None, NOT_RUN)
    assert headline.at == {"protocol": "ldm7", "receivers": 16, "loss": 0.01}


def test_a_range_of_levels_is_compared_at_each() -> None:
    asked = row(at={"receivers": {"at_least": 4, "at_most": 24}})
    made = [point(factors={"receivers": m}, ffdr=[90.0]) for m in (2, 4, 24, 32)]
    assert [h.at["receivers"] for h in headlines([asked], made)] == [4, 24]


def test_not_measured_is_said() -> None:
    made = Point(point().factors, {}, ("c",), reasons={"ffdr": "no log of uva"})
    found = compare_all([row()], [made])
    assert found.compared[0].difference is None
    assert "not measured here (no log of uva); paper 88.70 %" in found.compared[0].sentence
    made = Point(point().factors, {}, (), excluded=("ldm7-m8",))
    (headline,) = headlines([row()], [made])
    assert headline.reason == "the verdict of ldm7-m8 is invalid"


def test_statements_and_both_protocols() -> None:
    statement = row(protocol="both", value=None, text="grows linearly", metric="cpu")
    asked = row(protocol="both", metric="throughput", unit="bps", value=5)
    made = [point(p, throughput=[5.0]) for p in ("ldm7", "ldm6")]
    found = compare_all([statement, asked], made)
    assert [s.text for s in found.statements] == ["grows linearly"]
    assert [c.protocol for c in found.compared] == ["ldm7", "ldm6"]
    # A group with only one protocol gives no value of the other.
    assert [c.protocol for c in compare_all([asked], made[1:]).compared] == ["ldm6"]


def test_a_subscriber_has_values_of_his_own() -> None:
    made = [point(ffdr=[90.0]), point(factors={"subscriber": "uva"}, ffdr=[80.0])]
    (whole,) = headlines([row()], made)
    assert whole.ours is not None
    assert whole.ours.mean == 90.0
    (at_uva,) = headlines([row(subscriber="uva")], made)
    assert at_uva.ours is not None
    assert at_uva.ours.mean == 80.0
    found = compare_all([row(subscriber="uva")], made)
    assert len(found.compared) == 1
    assert found.of("ffdr", "ldm7") is None


def test_a_shorter_run_says_what_input_it_had() -> None:
    hour = row(metric="input_rate", protocol="both", value=10, unit="Mbit/s", published_s=3600)
    bandwidth = row(metric="bandwidth", value=20, unit="Mbit/s", published_s=3600)
    made = [point(nic_bandwidth=[5e6], input_rate=[4.6e6])]
    found = compare_all([bandwidth, hour], made).of("nic_bandwidth", "ldm7")
    assert found is not None
    assert found.difference_percent == pytest.approx(-75)  # the comparison stays
    context = "ours, 30 s, had an input rate of 4.60 Mbit/s against the hour's 10.00 Mbit/s"
    assert found.context == context
    assert found.sentence.endswith(f"Note: {context}.")
    # The input itself, a whole hour, and a row that mentions no hour need no such note.
    assert compare_all([bandwidth, hour], made).compared[1].context == ""
    whole = [Point(made[0].factors, made[0].estimates, ("c",), fixed={"duration_s": 3600.0})]
    assert {c.context for c in compare_all([bandwidth, hour], whole).compared} == {""}
    plain = row(metric="bandwidth", unit="Mbit/s")
    assert compare_all([plain, hour], made).compared[0].context == ""
    # No published input: only the measured one.
    (found,) = compare_all([bandwidth], made).compared
    assert found.context == "ours, 30 s, had an input rate of 4.60 Mbit/s"


def test_derived_values_are_told_apart() -> None:
    source = "derived from the published figures, 21.4 / 12.33"
    ratio = row(metric="bandwidth_over_offered", value=1.74, unit="1", source=source)
    found = compare_all([ratio, row()], [point(bandwidth_over_offered=[1.174], ffdr=[90.0])])
    first, second = found.compared
    assert (first.derived, second.derived) == (True, False)
    # 1.174 - 1.74 = -0.566, 32.53 % of 1.74
    assert first.difference_percent == pytest.approx(-32.53, abs=0.01)
    assert source in first.sentence


def test_as_json() -> None:
    (found,) = headlines([row()], [point(ffdr=[87.0, 89.0])])
    written: Any = headline_json(found)
    assert written["within_error_bar"] is True  # 88 +- 12.7
    assert (written["paper"], written["ours"]["values"]) == (88.7, [87.0, 89.0])
    assert written["at"]["receivers"] == 8


def test_a_point_without_an_input_rate_says_how_long_it_was() -> None:
    """Points of single subscribers have none."""
    short = row(published_s=3600)
    (found,) = headlines([short], [point(ffdr=[99.0])])
    assert found.context == "ours: 30 s of the published 3600 s"
