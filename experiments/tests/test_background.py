# SPDX-License-Identifier: Apache-2.0
"""Competing flows: how they are distributed, and where they are impossible."""

from __future__ import annotations

from typing import Any, cast

import pytest

from experiments.cells import background_traffic
from experiments.tests.judged import SHAPED, end, queue, statuses
from experiments.verdict.collect import congested
from topologies.model.load import find, load


def test_flows_are_dealt_out_in_turn() -> None:
    assert background_traffic.shares(1, ["a", "b", "c"]) == {"a": 1}
    assert background_traffic.shares(4, ["a", "b", "c"]) == {"a": 2, "b": 1, "c": 1}
    assert background_traffic.shares(0, ["a"]) == {}


def test_what_is_reported_begins_after_slow_start() -> None:
    words = " ".join(background_traffic.client_argv("10.10.2.2", 4, 30))
    assert "-c 10.10.2.2" in words
    assert "-P 4 -C cubic -O 3 -t 30" in words


def test_a_topology_without_a_second_lane_is_refused() -> None:
    network = load(find("geni5"))
    with pytest.raises(
        background_traffic.BackgroundError, match="valid with background_flows: a topology"
    ):
        background_traffic.Background(cast(Any, None), network, ["wsu1"], 4)


def test_where_flows_compete() -> None:
    """At the ends of the one link with a rate: the wire's egress, and the switch's port."""
    network = load(find("bottleneck"), {"receivers": 2, "lanes": 2})
    link = next(k for k in network.links if k.name == "left:right")
    assert congested(network) == {
        "wire/w0a", "wire/w0b", f"left/{link.a.interface}", f"right/{link.b.interface}",
    }  # fmt: skip


def test_a_full_queue_is_no_fault_where_flows_compete() -> None:
    """1,000 of 20,000 packets dropped there and a full queue are what was asked for. A packet
    elsewhere is not, nor is the same without competing flows."""
    lost = {"wire/w0b/10:": {"kind": "tbf", "drops": 1000}}
    full = queue(peak_backlog_bytes=500_000)
    other = queue(place="wire/w1b/10:")
    without = statuses(end=end(qdiscs=lost, classes=SHAPED), queues=[full, other])
    assert without == {"uninjected drops": "fail", "queue backlog": "warn"}
    among = {"congested": frozenset({"wire/w0b"}), "queues": [full, other]}
    assert statuses(end=end(qdiscs=lost, classes=SHAPED), **among) == {}
    elsewhere = {**lost, "wire/w1b/10:": {"kind": "tbf", "drops": 1}}
    found = statuses(end=end(qdiscs=elsewhere, classes=SHAPED), **among)
    assert found == {"uninjected drops": "warn"}
