# SPDX-License-Identifier: Apache-2.0
"""The same round trip to every subscriber: the delays along a frame's links add up to it."""

from __future__ import annotations

import dataclasses

import pytest

from topologies.model import wire_plan
from topologies.model.load import find, load
from topologies.model.network import Network
from topologies.model.paths import one_way_ms, path_to, reversed_path
from topologies.model.round_trip import with_round_trip


def geni5(receivers: int = 6) -> Network:
    return load(find("geni5"), {"receivers": receivers})


@pytest.mark.parametrize("rtt_ms", [0.1, 36.0, 200.0])
@pytest.mark.parametrize("name", ["geni5", "drfsm8", "bottleneck", "twocores"])
def test_every_path_and_every_control_link_has_it(name: str, rtt_ms: float) -> None:
    network = with_round_trip(load(find(name)), rtt_ms)
    assert set(network.round_trip_ms) == {h.name for h in network.subscribers}
    for host in network.subscribers:
        path = path_to(network, host.name)
        assert one_way_ms(path) == one_way_ms(reversed_path(path)) == rtt_ms / 2
        assert network.round_trip_ms[host.name] == rtt_ms
        control = next(
            link
            for link in network.links
            if {link.a.node, link.b.node} == {network.routers[0].name, host.name}
        )
        assert control.forward.delay_ms == control.backward.delay_ms == rtt_ms / 2


def test_all_else_stays() -> None:
    before, after = geni5(), geni5()
    after = with_round_trip(after, 10)
    for old, new in zip(before.links, after.links, strict=True):
        assert (
            dataclasses.replace(
                new,
                forward=dataclasses.replace(new.forward, delay_ms=old.forward.delay_ms),
                backward=dataclasses.replace(new.backward, delay_ms=old.backward.delay_ms),
            )
            == old
        )
    assert (after.hosts, after.switches, after.segments) == (
        before.hosts, before.switches, before.segments,
    )  # fmt: skip


def test_it_reaches_the_kernel_and_the_relay() -> None:
    """5 ms on the hand-off of wsu, in both directions: what is set is later read back."""
    network = with_round_trip(geni5(), 10)
    lines = wire_plan.tc_batch(wire_plan.plan(network, "netem")).splitlines()
    assert sum("delay 5000us" in line for line in lines) == 2 * (4 + 6)  # racks, control links
    assert all("5000us" in line for line in lines if "netem" in line)


def test_a_subscriber_beside_the_publisher_is_refused() -> None:
    network = geni5()
    segments = tuple(
        dataclasses.replace(s, hosts=(*s.hosts, "wsu1")) if s.name == "umass" else s
        for s in network.segments
    )
    with pytest.raises(ValueError, match="tor-umass:newy, the publisher's hand-off"):
        with_round_trip(dataclasses.replace(network, segments=segments), 10)
