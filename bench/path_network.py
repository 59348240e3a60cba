# SPDX-License-Identifier: Apache-2.0
"""The domain on which the path service is measured. Pure.

100 core switches in three levels, as a national research network with its regional ones: s1; 9
below it, joined by a ring; 10 below each of these. Every switch has an access port.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.api.path_client import Endpoint
from topologies.model.network import (
    ControlledBy,
    Domain,
    Impairment,
    Link,
    Network,
    Port,
    Switch,
)

DOMAIN: Final = "core"
ACCESS_PORT: Final = 100
REGIONS: Final = range(2, 11)
SITES_EACH: Final = 10
NEAR: Final = "s11"  # in the tree from the first leaf on
FAR: Final = "s12"  # in a tree only while it is measured
SWITCHES: Final = tuple(f"s{n}" for n in range(1, 101))


def _sites() -> Iterator[tuple[int, int]]:
    """Return (switch of a region, switch of a site)."""
    for index in range(len(REGIONS) * SITES_EACH):
        yield REGIONS[index // SITES_EACH], 11 + index


def _port(node: str, number: int) -> Port:
    return Port(node, number, f"{node}-p{number}", f"02:ff:00:00:{number:02x}:00")


def network() -> Network:
    """Return a ring of regions with sites, all of one controller."""
    pairs = [(1, region) for region in REGIONS]
    pairs += [(a, b) for a, b in zip(REGIONS, [*REGIONS[1:], REGIONS[0]], strict=True)]
    pairs += list(_sites())
    used: dict[int, int] = {}
    links = []
    for a, b in pairs:
        used[a], used[b] = used.get(a, 0) + 1, used.get(b, 0) + 1
        links.append(
            Link(
                f"s{a}:s{b}",
                _port(f"s{a}", used[a]),
                _port(f"s{b}", used[b]),
                Impairment(delay_ms=1.0),
                Impairment(delay_ms=1.0),
                (2000, 2999),
            )
        )
    for switch in SWITCHES:
        ends = (_port(switch, ACCESS_PORT), _port(f"edge-{switch}", 1))
        links.append(Link(f"{switch}:edge", *ends, Impairment(), Impairment(), (100, 199)))
    return Network(
        name="paths",
        description="100 switches in three levels",
        domains=(Domain(DOMAIN, ControlledBy.CONTROLLER),),
        switches=tuple(Switch(name, DOMAIN, n) for n, name in enumerate(SWITCHES, 1)),
        hosts=(),
        routers=(),
        links=tuple(links),
        segments=(),
        multicast_group="239.1.1.1",
        round_trip_ms={},
    )


def endpoint(switch: str, number: int) -> Endpoint:
    """Return the `number`th endpoint of a switch (from 0), with a host behind it."""
    vlan = 3000 + number
    mac = f"02:00:{int(switch[1:]):02x}:00:{number >> 8:02x}:{number & 255:02x}"
    return Endpoint.of(switch, ACCESS_PORT, vlan, [mac])


def leaves(first: int = 0) -> Iterator[Endpoint]:
    """Yield endpoints without end, over all sites except NEAR's and FAR's in turn, from the `first`
    of each site on."""
    sites = [f"s{site}" for _, site in _sites() if f"s{site}" not in (NEAR, FAR)]
    number = first
    while True:
        for site in sites:
            yield endpoint(site, number)
        number += 1
