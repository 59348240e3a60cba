# SPDX-License-Identifier: Apache-2.0
"""Probe frames, and the links' delays by them: as requested, and when changed without the network's
knowledge."""

from __future__ import annotations

import pytest

from common.shell import check, in_node
from topologies.model.network import Impairment
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import facts_with, network_up
from topologies.watch.link_probes import (
    LEAST_FRAME_BYTES,
    LinkProbe,
    Way,
    frame,
    parse,
    summarize,
)

WAYS = (
    Way("a:b", "forward", 18.0, 0.0, 0.0, 0, 1),
    Way("a:b", "backward", 20.0, 1.0, 0.01, 1, 0),
)


def test_a_probe_is_found_with_and_without_its_tag() -> None:
    sent = frame(3, 7, 1_700_000_000_000_000_123)
    assert len(sent) == LEAST_FRAME_BYTES
    assert sent[12:18] == bytes.fromhex("81000fff88b5")  # 802.1Q, VLAN 4095, local experimental
    assert parse(sent) == (3, 7, 1_700_000_000_000_000_123)
    assert parse(sent[:12] + sent[16:]) == (3, 7, 1_700_000_000_000_000_123)
    assert parse(b"\0" * 60) is None
    assert parse(sent[:40]) is None


def test_summary_has_least_middle_and_most() -> None:
    forward, backward = summarize(WAYS, {0: [18_300_000, 18_100_000, 19_000_000]}, 10)
    assert forward == LinkProbe("a:b", "forward", 18.0, 0.0, 0.0, 10, 3, 18.1, 18.3, 19.0)
    assert backward == LinkProbe("a:b", "backward", 20.0, 1.0, 0.01, 10, 0, None, None, None)


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.parametrize("mechanism", ["relay", "netem"])
def test_links_have_the_delay_asked(mechanism: str) -> None:
    """18 ms each way on q's link, 7 ms on its control link. Whatever the machine adds, no probe is
    faster, and the least of ten is within 2 ms."""
    network = two_hosts(Impairment(100_000_000, 18.0), control=Impairment(delay_ms=7.0))
    with network_up(network, facts_with(mechanism)) as emulation:
        found = {(p.link, p.direction): p for p in emulation.probe_links()}
        assert {link for link, _ in found} == {"q:sw", "r:q"}
        for (link, _), p in found.items():
            asked = 18.0 if link == "q:sw" else 7.0
            assert (p.asked_ms, p.sent, p.received) == (asked, 10, 10)
            assert p.least_ms is not None
            assert asked - 0.01 <= p.least_ms <= asked + 2.0, p
        emulation.cut("r:q")
        assert {p.link for p in emulation.probe_links()} == {"q:sw"}


@pytest.mark.root
def test_links_are_read_again() -> None:
    """A rate changes after the network was opened."""
    with network_up(two_hosts(Impairment(100_000_000, 18.0, queue_bytes=500_000))) as emulation:
        assert emulation.read_links() == emulation.readback
        (interface,) = (
            d.egress
            for d in emulation._wire.directions
            if (d.link, d.direction) == ("q:sw", "forward")
        )
        parent = ["parent", "1:1"] if emulation.readback[0].mechanism == "netem" else ["root"]
        tbf = ["handle", "10:", "tbf", "rate", "50mbit", "burst", "12500", "limit", "500000"]
        change = ["tc", "qdisc", "change", "dev", interface, *parent, *tbf]
        check(in_node(emulation.pids["wire"], change))
        (bad,) = (r for r in emulation.read_links() if not r.ok)
        assert (bad.link, bad.direction, bad.found.rate_bps) == ("q:sw", "forward", 50_000_000)
