# SPDX-License-Identifier: Apache-2.0
"""How a network is cut into parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from topologies.model.load import find, load
from topologies.model.network import Link, Network
from topologies.model.parts import LEAST_MS, plan
from topologies.model.paths import one_way_ms, path_to
from topologies.model.round_trip import with_round_trip

GENI5 = load(find("geni5"), {"receivers": 8})
ONE_WAY_MS = {"wsu": 18.0, "sl": 20.5, "uh": 25.0, "osf": 45.0}  # MPUP16, Table II: half of it


def changed(network: Network, name: str, change: Callable[[Link], Link]) -> Network:
    links = tuple(change(k) if k.name == name else k for k in network.links)
    return dataclasses.replace(network, links=links)


def with_jitter(link: Link) -> Link:
    return dataclasses.replace(link, forward=dataclasses.replace(link.forward, jitter_ms=1.0))


def test_each_frame_meets_the_same_delay_as_in_one_part() -> None:
    found = plan(GENI5, 2)
    cut = {host.name: host for part in found.others for host in part}
    assert cut
    for host in GENI5.subscribers:
        for original, now in zip(
            path_to(GENI5, host.name), path_to(found.network, host.name), strict=True
        ):
            assert original.link.name == now.link.name
        moved = cut[host.name].nics[0].to_ms if host.name in cut else 0.0
        there = one_way_ms(path_to(found.network, host.name)) + moved
        assert there == one_way_ms(path_to(GENI5, host.name)) == ONE_WAY_MS[host.name[:-1]]


def test_both_directions_and_both_nics_are_cut() -> None:
    (hosts,) = plan(GENI5, 2).others
    for host in hosts:
        (nic1, nic2), ms = host.nics, ONE_WAY_MS[host.name[:-1]]
        assert (nic1.to_ms, nic1.from_ms, nic2.to_ms, nic2.from_ms) == (ms, ms, ms, ms)
        known = GENI5.host(host.name)
        assert (nic1.interface, nic1.mac) == (known.nic1.interface, known.nic1.mac)
        assert nic2.interface == known.nic2.interface


def test_rates_queues_and_losses_stay() -> None:
    found = plan(GENI5, 2).network
    (before,) = [k for k in GENI5.links if k.name == "tor-wsu:chic"]
    (after,) = [k for k in found.links if k.name == "tor-wsu:chic"]
    assert after == dataclasses.replace(
        before,
        forward=dataclasses.replace(before.forward, delay_ms=0.0),
        backward=dataclasses.replace(before.backward, delay_ms=0.0),
    )
    assert found.round_trip_ms == GENI5.round_trip_ms


@pytest.mark.parametrize("most", [2, 3, 5, 100])
def test_every_receiver_is_in_one_part(most: int) -> None:
    found = plan(GENI5, most)
    away = [host.name for part in found.others for host in part]
    assert len(away) == len(set(away))
    assert set(away) | set(found.stay) == {h.name for h in GENI5.subscribers}
    assert not set(away) & set(found.stay)
    assert 2 <= found.count <= most
    assert all(found.others)


def test_hosts_of_a_rack_leave_together() -> None:
    found = plan(GENI5, 2)
    away = {host.name for part in found.others for host in part}
    for rack in ONE_WAY_MS:
        assert len({name in away for name in (f"{rack}1", f"{rack}2")}) == 1


def test_one_part_is_no_cut() -> None:
    found = plan(GENI5, 1)
    assert (found.network, found.others, found.count) == (GENI5, (), 1)


def test_short_delays_are_not_cut() -> None:
    found = plan(with_round_trip(GENI5, 2 * LEAST_MS - 0.002), 2)
    assert found.count == 1
    assert "wsu1-nic1 has 3.999 ms; valid: 4 ms or more" in found.stay["wsu1"]
    assert plan(with_round_trip(GENI5, 2 * LEAST_MS), 2).count == 2


def test_a_delay_with_jitter_does_not_move() -> None:
    found = plan(changed(GENI5, "tor-wsu:chic", with_jitter), 2)
    away = {host.name for part in found.others for host in part}
    assert "wsu1" not in away and "wsu2" not in away
    assert found.stay["wsu2"] == "wsu1: a link of wsu1-nic1 has jitter"


def test_a_rack_with_two_ways_out_stays() -> None:
    """Its frames would all get the delay of one of them."""
    (link,) = [k for k in GENI5.links if k.name == "tor-wsu:chic"]
    port = dataclasses.replace(link.a, number=9, interface="tor-wsu-p9")
    other = dataclasses.replace(link, name="tor-wsu:salt", a=port)
    network = dataclasses.replace(GENI5, links=(*GENI5.links, other))
    assert "tor-wsu has 2 links" in plan(network, 2).stay["wsu1"]


def test_lanes_are_not_cut() -> None:
    network = load(find("drfsm8"), {"lanes": 2})
    assert plan(network, 2).count == 1
    assert "it has 2 lanes; valid: one" in next(iter(plan(network, 2).stay.values()))
