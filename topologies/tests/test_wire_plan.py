# SPDX-License-Identifier: Apache-2.0
"""Commands of impaired links in both variants, and the parser of what is read back.

The `tc -j` samples are those of iproute2 6.1. It printed those of tbf, bfifo and the redirect on a
test interface. Those of netem were written after its source's printer (delay and jitter in seconds,
loss as a fraction), since the kernel of the first test machine had no netem.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest

from topologies.model import wire_plan
from topologies.model.network import Impairment
from topologies.model.wire_plan import RelayReady, WirePlan, plan, read_back
from topologies.tests.networks import two_hosts

ASKED = Impairment(
    rate_bps=20_000_000, delay_ms=18.0, jitter_ms=0.5, loss=0.01, queue_bytes=250_000
)


def wire_of(impairment: Impairment, mechanism: str) -> WirePlan:
    return plan(two_hosts(impairment), mechanism)


def tbf(dev: str, **more: Any) -> dict[str, Any]:
    options = {"rate": 2500000, "burst": 4554, "burst_raw": "b", "lat": 98178, "limit": 250000}
    return {"kind": "tbf", "handle": "10:", "dev": dev, "options": {**options, **more}}


def netem(dev: str, **more: Any) -> dict[str, Any]:
    options = {
        "limit": 100000,
        "delay": {"delay": 0.018, "jitter": 0.0005, "correlation": 0},
        "loss-random": {"loss": 0.01, "correlation": 0},
        "ecn": False,
        "gap": 0,
    }
    return {
        "kind": "netem",
        "handle": "1:",
        "dev": dev,
        "root": True,
        "options": {**options, **more},
    }


def redirect(to_dev: str) -> list[dict[str, Any]]:
    common = {"protocol": "all", "pref": 1, "kind": "u32", "chain": 0}
    action = {
        "order": 1,
        "kind": "mirred",
        "mirred_action": "redirect",
        "direction": "egress",
        "to_dev": to_dev,
        "control_action": {"type": "stolen"},
    }
    return [
        common,
        {**common, "options": {"fh": "800:", "ht_divisor": 1}},
        {**common, "options": {"fh": "800::800", "actions": [action]}},
    ]


FILTERS = {"w0a": redirect("w0b"), "w0b": redirect("w0a")}


def ready(**changes: Any) -> RelayReady:
    line = {
        "link": "q:sw",
        "delay_us": 18000,
        "jitter_us": 500,
        "loss": 0.01,
        "seed": 1,
        "slots": 512,
    }
    found = {
        "sched_fifo": True,
        "lines": [
            {**line, "direction": "forward", "in": "w0a", "out": "w0b", **changes},
            {**line, "direction": "backward", "in": "w0b", "out": "w0a"},
        ],
    }
    return cast(RelayReady, found)


def test_plain_links_are_left_alone() -> None:
    wire = plan(two_hosts(Impairment()), "netem")
    assert wire.links == ()
    assert wire_plan.tc_batch(wire) == ""


def test_netem_commands() -> None:
    assert wire_plan.tc_batch(wire_of(ASKED, "netem")).splitlines() == [
        "qdisc add dev w0a clsact",
        "filter add dev w0a ingress protocol all prio 1 u32 match u32 0 0"
        " action mirred egress redirect dev w0b",
        "qdisc add dev w0b root handle 1: netem limit 100000 delay 18000us 500us"
        " loss random 1.0000000%",
        # 20 Mbit/s for 1 ms are 2500 bytes; three frames of 1518 are more.
        "qdisc add dev w0b parent 1:1 handle 10: tbf rate 20000000bit burst 4554 limit 250000",
        "qdisc add dev w0b clsact",
        "filter add dev w0b ingress protocol all prio 1 u32 match u32 0 0"
        " action mirred egress redirect dev w0a",
        "qdisc add dev w0a root handle 1: netem limit 100000 delay 18000us 500us"
        " loss random 1.0000000%",
        "qdisc add dev w0a parent 1:1 handle 10: tbf rate 20000000bit burst 4554 limit 250000",
    ]


def test_relay_commands_and_configuration() -> None:
    wire = wire_of(ASKED, "relay")
    assert wire_plan.tc_batch(wire).splitlines() == [
        "qdisc add dev w0b root handle 10: tbf rate 20000000bit burst 4554 limit 250000",
        "qdisc add dev w0a root handle 10: tbf rate 20000000bit burst 4554 limit 250000",
    ]
    text = wire_plan.relay_configuration(
        wire, ready=Path("/s/ready.json"), stats=Path("/s/stats.json"), seed=1
    )
    lines = text.splitlines()
    assert lines[:2] == ["ready /s/ready.json", "stats /s/stats.json"]
    assert lines[2].startswith("line q:sw forward w0a w0b delay_us=18000 jitter_us=500 loss=0.01 ")
    assert lines[3].startswith("line q:sw backward w0b w0a delay_us=18000 jitter_us=500 loss=0.01 ")
    assert len(lines) == 4
    seeds = {line.split("seed=")[1].split()[0] for line in lines[2:]}
    assert len(seeds) == 2, "both directions would lose the same frames"


def test_rate_alone_needs_no_relay() -> None:
    asked = Impairment(rate_bps=100_000_000, queue_bytes=1_000_000)
    wire = wire_of(asked, "relay")
    assert wire.relayed == ()
    assert {d.mechanism for d in wire.directions} == {"redirect"}
    batch = wire_plan.tc_batch(wire)
    assert "netem" not in batch
    # 100 Mbit/s for 1 ms: 12500 bytes.
    assert "root handle 10: tbf rate 100000000bit burst 12500 limit 1000000" in batch


def test_directions_differ() -> None:
    network = two_hosts(ASKED)
    links = tuple(
        dataclasses.replace(k, backward=Impairment(delay_ms=7.0)) if k.name == "q:sw" else k
        for k in network.links
    )
    wire = plan(dataclasses.replace(network, links=links), "relay")
    assert [(d.direction, d.asked.delay_ms) for d in wire.directions] == [
        ("forward", 18.0),
        ("backward", 7.0),
    ]
    assert "dev w0a root" not in wire_plan.tc_batch(wire)


def test_netem_limit_holds_a_long_fat_link() -> None:
    # 10 Gbit/s x 90 ms = 112.5 MB, in frames of 60 bytes: 1.875 million; default is 1000.
    asked = Impairment(rate_bps=10_000_000_000, delay_ms=90.0, queue_bytes=0)
    assert wire_plan.netem_limit_frames(asked) == 1_875_000


def test_relay_slots() -> None:
    # 1 Gbit/s x 18 ms = 2.25 MB = 1482 frames of 1518 bytes; twice that, next power of two: 4096.
    assert wire_plan.relay_slots(Impairment(rate_bps=10**9, delay_ms=18.0)) == 4096
    assert wire_plan.relay_slots(Impairment(rate_bps=10**6, delay_ms=1.0)) == 512
    assert wire_plan.relay_slots(Impairment(rate_bps=10**11, delay_ms=100.0)) == 16384
    assert wire_plan.relay_slots(Impairment(delay_ms=45.0)) == 8192


def test_netem_read_back() -> None:
    wire = wire_of(ASKED, "netem")
    qdiscs = [netem("w0b"), tbf("w0b"), netem("w0a"), tbf("w0a")]
    found = read_back(wire, qdiscs, FILTERS, None)
    assert [(r.link, r.direction, r.mechanism, r.ok) for r in found] == [
        ("q:sw", "forward", "netem", True),
        ("q:sw", "backward", "netem", True),
    ]
    assert found[0].found == ASKED


def test_relay_read_back() -> None:
    wire = wire_of(ASKED, "relay")
    found = read_back(wire, [tbf("w0b"), tbf("w0a")], {}, ready())
    assert all(r.ok for r in found), found
    assert found[0].found == ASKED
    assert found[0].mechanism == "relay"


@pytest.mark.parametrize(
    ("qdiscs", "note"),
    [
        ([netem("w0b", delay={"delay": 0.017, "jitter": 0.0005}), tbf("w0b")], "delay"),
        ([netem("w0b", delay={"delay": 0.018, "jitter": 0}), tbf("w0b")], "jitter"),
        ([netem("w0b", **{"loss-random": {"loss": 0.011}}), tbf("w0b")], "loss"),
        ([netem("w0b"), tbf("w0b", rate=1250000)], "rate"),
        ([netem("w0b"), tbf("w0b", limit=249000)], "queue"),
        ([netem("w0b")], "rate; queue"),
        ([tbf("w0b")], "delay; jitter; loss"),
        ([netem("w0b", limit=1000), tbf("w0b")], "netem's limit is 1000 frames"),
        ([], "rate; queue; delay; jitter; loss"),
    ],
)
def test_netem_mismatch_is_named(qdiscs: list[dict[str, Any]], note: str) -> None:
    wire = wire_of(ASKED, "netem")
    forward, backward = read_back(wire, [*qdiscs, netem("w0a"), tbf("w0a")], FILTERS, None)
    assert (forward.ok, forward.note) == (False, note)
    assert backward.ok


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"delay_us": 17000}, "delay"),
        ({"loss": 0.0}, "loss"),
        ({"slots": 8}, "wire-relay's ring has 8 slots"),
        ({"out": "w1b"}, "wire-relay carries w0a to w1b"),
        ({"direction": "x"}, "wire-relay does not serve it; delay; jitter; loss"),
    ],
)
def test_relay_mismatch_is_named(changes: dict[str, Any], note: str) -> None:
    wire = wire_of(ASKED, "relay")
    forward, backward = read_back(wire, [tbf("w0b"), tbf("w0a")], {}, ready(**changes))
    assert (forward.ok, forward.note) == (False, note)
    assert backward.ok


def test_missing_redirect_is_named() -> None:
    wire = wire_of(ASKED, "netem")
    qdiscs = [netem("w0b"), tbf("w0b"), netem("w0a"), tbf("w0a")]
    forward, backward = read_back(wire, qdiscs, {"w0b": redirect("w0a")}, None)
    assert (forward.ok, forward.note) == (False, "frames of w0a go to None")
    assert backward.ok


def test_queue_not_asked_for_is_set_and_noted() -> None:
    asked = Impairment(rate_bps=20_000_000)
    wire = wire_of(asked, "relay")
    # 20 Mbit/s for 50 ms: 125000 bytes.
    assert "limit 125000" in wire_plan.tc_batch(wire)
    found = read_back(wire, [tbf("w0b", limit=125000), tbf("w0a", limit=125000)], FILTERS, None)
    assert found[0].ok and found[0].found == asked
    assert found[0].note == "queue not asked for, set to 125000 bytes"


def test_tbf_limit_from_latency() -> None:
    # Printed for limit 250000 without -r: (250000 - 6000) / 2500000 s = 97600 us.
    assert wire_plan.tbf_limit_bytes({"rate": 2500000, "burst": 6000, "lat": 97600}) == 250000


def test_describe() -> None:
    assert (
        wire_plan.describe(ASKED)
        == "rate 20 Mbit/s, delay 18 ms, jitter 0.5 ms, loss 0.01, queue 250000 bytes"
    )
    assert wire_plan.describe(Impairment(delay_ms=20.5)) == "no rate, delay 20.5 ms"


@pytest.mark.parametrize(("mechanism", "parent"), [("netem", "1:1"), ("relay", "root")])
def test_outlets_are_where_switches_send_over_links_with_a_rate(
    mechanism: str, parent: str
) -> None:
    limited = Impairment(rate_bps=20_000_000, delay_ms=5.0, queue_bytes=250_000)
    network = two_hosts(limited, uplink=dataclasses.replace(limited, queue_bytes=None))
    found = json.loads(wire_plan.outlets(plan(network, mechanism), {"sw", "up"}, 77))["outlets"]
    # The wires are w0 (q:sw) and w1 (sw:up); 50 ms of 20 Mbit/s are 125,000 bytes.
    keys = ("switch", "port", "interface", "queue_bytes")
    assert [tuple(o[key] for key in keys) for o in found] == [
        ("sw", 3, "w0a", 250_000),
        ("sw", 1, "w1b", 125_000),
        ("up", 1, "w1a", 125_000),
    ]
    assert {(o["pid"], o["parent"]) for o in found} == {(77, parent)}
    unlimited = plan(two_hosts(Impairment(delay_ms=5.0)), mechanism)
    assert json.loads(wire_plan.outlets(unlimited, {"sw", "up"}, 77)) == {"outlets": []}
