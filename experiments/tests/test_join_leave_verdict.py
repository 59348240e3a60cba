# SPDX-License-Identifier: Apache-2.0
"""How the verdict of a cell whose subscribers come and go judges its subscriptions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.design.join_leave_expansion import expand
from experiments.design.spec import JoinLeaveSpec, find, load_as
from experiments.tests.stored import changed, write_watched
from experiments.verdict.from_files import judge_cell, lacking
from experiments.verdict.join_leave import content_checks
from parsers.base.metric_units import Value, absent
from parsers.measure.join_leave import (
    FeedInfo,
    FeedMetrics,
    JoinLeaveCell,
    JoinLeaveMetrics,
)
from parsers.measure.subscriptions import Session, Subscription
from parsers.tests.test_join_leave import write_run
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

STAYED = Subscription(
    subscriber="uwisc",
    feed="NGRID",
    sessions=(Session(0.0, None, "stayed", ready_s=0.5),),
    stayed=True,
    sent=9,
    received=9,
    in_flight=0,
    lost=(),
    away=0,
    recovered=0,
    not_recovered=(),
    duplicates=0,
    damaged=0,
    arrived_twice=0,
    by={"fmtp": 9},
)
BACK = dataclasses.replace(
    STAYED,
    subscriber="uva",
    sessions=(
        Session(1.0, 3.0, "killed", ready_s=1.5),
        Session(5.0, None, "stayed", ready_s=5.5),
    ),
    stayed=False,
    away=2,
    recovered=2,
)
FEED = FeedMetrics(
    info=FeedInfo(
        name="NGRID", lane=1, r_mc_bps=1, r_vn_bps=1, products=9, nic1="n", stays=("uwisc",)
    ),
    input_bps=Value(1.0, "bit/s"),
    path_setup_s=Value(0.1, "s"),
    sessions=3,
    leaves_added=3,
    leaves_removed=1,
    leaf_setup_p50=Value(0.1, "s"),
    latency_p50=Value(0.1, "s"),
    latency_p99=Value(0.1, "s"),
    whole_p50=Value(0.1, "s"),
    whole_p99=Value(0.1, "s"),
    throughput=Value(1e6, "bit/s"),
    branches=frozenset({"star:5:404", "ashb:2:303"}),
    subscribed=frozenset({"star:5:404", "ashb:2:303"}),
    counters=None,
)


def metrics(
    *subscriptions: Subscription, feed: FeedMetrics = FEED, lost: Value | None = None
) -> JoinLeaveMetrics:
    total = Value(float(sum(len(s.lost) for s in subscriptions)), "products")
    return JoinLeaveMetrics(
        cell=JoinLeaveCell.model_construct(),
        verdict=None,
        values={"lost_products": total if lost is None else lost},
        feeds=(feed,),
        subscriptions=subscriptions,
        drops=(),
        virtual=None,
        notices={},
        problems=(),
        missing=(),
    )


def statuses(found: JoinLeaveMetrics) -> tuple[str, ...]:
    return tuple(check.status for check in content_checks(found))


def test_all_is_well() -> None:
    checks = content_checks(metrics(STAYED, BACK))
    assert [c.status for c in checks] == ["pass"] * 3
    assert "18 products sent to 2 subscriptions" in checks[0].text
    assert checks[1].text == "2 of 2 products sent during breaks of 1 subscription"
    assert "3 joins, 3 leaves added and 1 removed" in checks[2].text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lost": ("NGRID.000004",)}, "uva NGRID: 1 lost, 0 twice, 0 damaged"),
        ({"duplicates": 2}, "uva NGRID: 0 lost, 2 twice, 0 damaged"),
        ({"damaged": 1}, "uva NGRID: 0 lost, 0 twice, 1 damaged"),
    ],
)
def test_one_product_amiss_fails(change: dict[str, Any], text: str) -> None:
    first = content_checks(metrics(STAYED, dataclasses.replace(BACK, **change)))[0]
    assert (first.name, first.status) == ("products identical", "fail")
    assert first.text.endswith(text)


def test_what_is_in_flight_at_a_leave_is_not_lost() -> None:
    found = metrics(STAYED, dataclasses.replace(BACK, in_flight=2, received=7))
    assert statuses(found) == ("pass", "pass", "pass")
    assert "2 of them in flight" in content_checks(found)[0].text


def test_nothing_that_was_not_looked_at_passes() -> None:
    unknown = absent("products", "uva never got NGRID")
    assert statuses(metrics(STAYED, lost=unknown))[0] == "fail"
    assert statuses(metrics(BACK))[0] == "fail"  # no subscriber stayed
    assert statuses(metrics())[0] == "fail"


def test_what_is_not_recovered_fails() -> None:
    found = metrics(STAYED, dataclasses.replace(BACK, recovered=1, not_recovered=("NGRID.000006",)))
    check = content_checks(found)[1]
    assert (check.status, check.asked, check.found) == ("fail", 2, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"branches": frozenset({"star:5:404"})},
        {"branches": frozenset({"star:5:404", "ashb:2:303", "losa:3:707"})},
        {"leaves_added": 0},  # then something other than subscriptions made the tree
    ],
)
def test_trees_must_follow_the_subscriptions(change: dict[str, Any]) -> None:
    found = metrics(STAYED, BACK, feed=dataclasses.replace(FEED, **change))
    assert statuses(found)[2] == "fail"


def test_a_cell_is_judged_from_its_files_alone(tmp_path: Path) -> None:
    (cell,) = (write_run(tmp_path) / "cells").iterdir()
    spec = load_as(JoinLeaveSpec, find("join-leave"))
    network = load_topology(find_topology(spec.topology))
    write_watched(cell, network, ["uwisc", "uva"])
    assert lacking(json.loads((cell / "cell.json").read_text())) == "asked"
    planned = expand(spec, ["uwisc", "uva"])[0]
    asked = dataclasses.replace(planned, m=2, streams=planned.streams[:1])
    measured = {h: network.round_trip_ms[h] for h in ("uwisc", "uva")}
    changed(cell / "cell.json", asked=asked.to_dict(), rtt_measured_ms=measured | {"uva": 500.0})
    found = {c.name: c.status for c in judge_cell(cell)[0].checks}
    assert found["products identical"] == "pass"
    assert found["trees follow the subscriptions"] == "pass"
    assert found["experiment's settings"] == "pass"
    assert found["round-trip times"] == "fail"
    changed(cell / "cell.json", rtt_measured_ms=measured)
    again = {c.name: c.status for c in judge_cell(cell)[0].checks}
    assert {name for name in found if found[name] != again[name]} == {"round-trip times"}
