# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from experiments.expectations import check, table
from experiments.spec import Expectation, find, load


def metrics(**values: float | None) -> dict[str, Any]:
    def cell(protocol: str) -> dict[str, Any]:
        shown = {
            name: {"value": value, "reason": "no log" if value is None else ""}
            for name, value in values.items()
        }
        return {"cell": {"protocol": protocol}, "values": shown}

    return {"cells": {"ldm7-x": cell("ldm7"), "ldm6-x": cell("ldm6")}}


FFDR = Expectation(metric="ffdr", protocol="ldm7", at_least=99, reason="why")


@pytest.mark.parametrize(("value", "met"), [(99.0, True), (98.9, False), (None, False)])
def test_bound_from_below(value: float | None, met: bool) -> None:
    (finding,) = check([FFDR], metrics(ffdr=value))
    assert finding.met is met
    assert finding.cell == "ldm7-x"
    text = table([finding])
    assert ("NOT MET" in text) is not met
    assert "at least 99 %" in text
    assert ("no log" in text) is (value is None)


@pytest.mark.parametrize(("value", "met"), [(2.0, True), (2.1, False)])
def test_bound_from_above_at_every_cell(value: float, met: bool) -> None:
    expectation = Expectation(metric="bandwidth_over_offered", at_most=2, reason="why")
    findings = check([expectation], metrics(bandwidth_over_offered=value))
    assert [f.cell for f in findings] == ["ldm6-x", "ldm7-x"]
    assert all(f.met is met for f in findings)


def test_an_expectation_about_no_cell_is_not_met() -> None:
    (finding,) = check([FFDR], {"cells": {}})
    assert not finding.met


def test_an_expectation_for_one_clock_is_not_about_cells_under_the_other() -> None:
    exact = Expectation(metric="mplr", clock="virtual", at_least=1, at_most=1, reason="why")
    found = metrics(mplr=2.0)
    assert check([exact], found) == []
    found["cells"]["ldm7-x"]["cell"]["clock"] = "virtual"
    (finding,) = check([exact], found)
    assert (finding.cell, finding.met) == ("ldm7-x", False)
    native = Expectation(metric="mplr", clock="native", at_most=2, reason="why")
    assert [f.cell for f in check([native], found)] == ["ldm6-x"]


def test_the_regression_judges_content_delivery_bandwidth_and_verdict() -> None:
    expected = {(e.metric, e.protocol) for e in load(find("regression")).expectations}
    assert expected >= {
        ("products_identical", "all"),
        ("ffdr", "ldm7"),
        ("bandwidth_over_offered", "ldm7"),
        ("bandwidth_over_offered", "ldm6"),
        ("verdict_invalid", "all"),
    }
