# SPDX-License-Identifier: Apache-2.0
"""Jain's index, and what all receivers but the first received."""

from __future__ import annotations

import json

import pytest

from parsers.base.metric_units import Value, absent
from parsers.measure.fairness import jain, jain_value
from parsers.read.iperf3 import parse_iperf3


def report(*rates: float) -> str:
    streams = [{"receiver": {"bits_per_second": rate}} for rate in rates]
    return json.dumps({"start": {}, "intervals": [], "end": {"streams": streams}})


@pytest.mark.parametrize(
    ("rates", "index"), [([5, 5, 5], 1.0), ([9, 0, 0], 1 / 3), ([1, 2, 3], 36 / 42)]
)
def test_jains_index(rates: list[float], index: float) -> None:
    assert jain(rates) == pytest.approx(index)


def test_the_path_and_every_flow_count() -> None:
    """10 beside 20 and 30: (60)^2 / (3 x 1400)."""
    reports = {"a": parse_iperf3(report(20), "a"), "b": parse_iperf3(report(30), "b")}
    found = jain_value(Value(10.0, "bit/s"), reports)
    assert found.value == pytest.approx(3600 / 4200)
    assert found.note == "the path and 2 flows"
    assert jain_value(Value(10.0, "bit/s"), {}).reason == "no competing flows"
    assert jain_value(absent("bit/s", "no counters"), reports).reason == "no counters"


def test_an_end_that_says_nothing_of_its_flows_gives_none() -> None:
    assert parse_iperf3(json.dumps({"start": {}, "intervals": [], "end": {}}), "x").flow_bps == ()
