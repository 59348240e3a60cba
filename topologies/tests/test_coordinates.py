# SPDX-License-Identifier: Apache-2.0
"""The places of the topologies' switches agree with the delays that the files compute from the
cities."""

from __future__ import annotations

from math import acos, cos, radians, sin

import pytest

from topologies.model.load import find, load
from topologies.model.network import Network, Switch

EARTH_KM, DETOUR, KM_PER_MS = 6371, 1.5, 200  # as in drfsm8.yaml


def delay_ms(a: Switch, b: Switch) -> float:
    assert a.lat is not None and a.lon is not None and b.lat is not None and b.lon is not None
    north, south = radians(a.lat), radians(b.lat)
    cosine = sin(north) * sin(south) + cos(north) * cos(south) * cos(radians(a.lon - b.lon))
    return round(EARTH_KM * acos(min(1.0, cosine)) * DETOUR / KM_PER_MS, 1)


@pytest.mark.parametrize("name", ["drfsm8", "twocores"])
def test_the_delays_are_those_of_the_coordinates(name: str) -> None:
    network = load(find(name))
    switches = {switch.name: switch for switch in network.switches}
    checked = 0
    for link in network.links:
        if {link.a.node, link.b.node} <= switches.keys():
            expected = delay_ms(switches[link.a.node], switches[link.b.node])
            # Three links lie within a city or its suburb and have no delay.
            assert link.forward.delay_ms == (expected if expected > 0.1 else 0), link.name
            checked += 1
    assert checked > 10


@pytest.mark.parametrize(
    ("name", "known"),
    [("geni5", True), ("drfsm8", True), ("twocores", True), ("bottleneck", False)],
)
def test_all_switches_or_none_have_a_place(name: str, known: bool) -> None:
    network = load(find(name))
    assert {switch.lat is not None for switch in network.switches} == {known}
    assert Network.from_json(network.to_json()) == network
