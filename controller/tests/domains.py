# SPDX-License-Identifier: Apache-2.0
"""Domains made for tests: from a list of links, and at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from controller.paths.core import (
    Access,
    Core,
    Endpoint,
    Hop,
)

ACCESS_PORTS = (91, 92)
VLAN_RANGE = (100, 129)


def make_core(
    links: Iterable[tuple[str, str, float]],
    rates_bps: Mapping[str, int] | None = None,
    vlan_range: tuple[int, int] = VLAN_RANGE,
) -> Core:
    """`links`: (switch, switch, cost). Link "a:b" has the same number at both ends, from 1; every
    switch has the access ports of ACCESS_PORTS, without a limit."""
    rates_bps = rates_bps or {}
    hops: list[Hop] = []
    names: dict[str, None] = {}
    for number, (a, b, cost) in enumerate(links, 1):
        names |= {a: None, b: None}
        name = f"{a}:{b}"
        if any(hop.link == name for hop in hops):
            name = f"{name}/{number}"
        for source, target in ((a, b), (b, a)):
            hops.append(
                Hop(name, source, number, target, number, rates_bps.get(name), vlan_range, cost)
            )
    access = {
        (switch, port): Access(f"{switch}-{port}", f"edge-{switch}-{port}", None, None)
        for switch in names
        for port in ACCESS_PORTS
    }
    dpids = {switch: number for number, switch in enumerate(names, 1)}
    return Core("core", dpids, tuple(hops), access, frozenset())


@st.composite
def cores(draw: st.DrawFn) -> Core:
    """Draw a connected domain: 2 to 7 switches, some links parallel, some with a rate."""
    count = draw(st.integers(2, 7))
    cost = st.integers(1, 20).map(float)
    links = [
        (f"s{draw(st.integers(1, number - 1))}", f"s{number}", draw(cost))
        for number in range(2, count + 1)
    ]
    for _ in range(draw(st.integers(0, 5))):
        a, b = draw(st.integers(1, count)), draw(st.integers(1, count))
        if a != b:
            links.append((f"s{a}", f"s{b}", draw(cost)))
    core = make_core(links)
    rates = draw(st.dictionaries(st.sampled_from([h.link for h in core.hops]), st.just(10_000_000)))
    return make_core(links, rates)


def mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


@st.composite
def endpoints(draw: st.DrawFn, core: Core) -> Endpoint:
    """Draw an endpoint. Its VLAN id decides its MACs (one, two or none), so that no two endpoints
    share one."""
    switch, port = draw(st.sampled_from(sorted(core.access)))
    vlan = draw(st.integers(1, 24)) + 100 * draw(st.integers(0, 1))
    place = core.dpids[switch] * 1000 + port * 10
    macs = {0: [], 1: [mac(place + vlan)], 2: [mac(place + vlan), mac(place + vlan + 20_000)]}
    return Endpoint.of(switch, port, vlan, macs[min(vlan % 4, 2)] if vlan % 4 else macs[1])
