# SPDX-License-Identifier: Apache-2.0
"""Chains of controller domains for the tests, made by hand.

domain a            domain b            domain c
a1 --1-- a2 --5-- b1 --1-- b2 --5-- c1 --1-- c2        delays in ms
 |        |        |        |        |        |
 |        |        +--------|---9----+        |       b1:c1, the dearer hand-off
 +--------|--------30-------+                          a1:b2, the dearer hand-off
port 9 of every switch: an access port with VLAN ids 100..199, segments 101, 102, ...
"""

from __future__ import annotations

from controller.paths.core import Endpoint
from topologies.model.network import (
    ControlledBy,
    Domain,
    Host,
    Impairment,
    Link,
    Network,
    Nic,
    Port,
    Role,
    Segment,
    Switch,
)
from topologies.tests.networks import both_ways

CORE_VLANS = (300, 399)
HAND_OFF_VLANS = (200, 205)


def _port(node: str, number: int) -> Port:
    return Port(node, number, f"{node}-p{number}", f"02:ff:00:00:{ord(node[0]):02x}:{number:02x}")


def _link(a: str, b: str, delay_ms: float, vlans: tuple[int, int], used: dict[str, int]) -> Link:
    ends = []
    for node in (a, b):
        used[node] = used.get(node, 0) + 1
        ends.append(_port(node, used[node]))
    return both_ways(ends[0], ends[1], Impairment(delay_ms=delay_ms), vlans)


def mac(switch: str, number: int) -> str:
    return f"02:00:00:{ord(switch[0]):02x}:{int(switch[1]):02x}:{number:02x}"


def endpoint(switch: str, number: int = 1) -> Endpoint:
    """Return host `number` behind the access port of a switch."""
    return Endpoint(switch, 9, 100 + number, (mac(switch, number),))


def chain(names: str = "abc", hand_off_vlans: tuple[int, int] = HAND_OFF_VLANS) -> Network:
    """Return domains with two switches each; segments of three hosts at every switch."""
    used: dict[str, int] = {}
    links = [_link(f"{n}1", f"{n}2", 1, CORE_VLANS, used) for n in names]
    for near, far in zip(names, names[1:], strict=False):
        links.append(_link(f"{near}2", f"{far}1", 5, hand_off_vlans, used))
    for near, far in zip(names, names[1:], strict=False):
        if near == "a":
            links.append(_link("a1", f"{far}2", 30, hand_off_vlans, used))
        else:
            links.append(_link(f"{near}1", f"{far}1", 9, hand_off_vlans, used))
    switches = [Switch(f"{n}{i}", n, 16 * k + i) for k, n in enumerate(names) for i in (1, 2)]
    hosts: list[Host] = []
    segments: list[Segment] = []
    for switch in [s.name for s in switches]:
        edge = f"e{switch}"
        links.append(both_ways(_port(edge, 1), _port(switch, 9), vlan_range=(100, 199)))
        for number in (1, 2, 3):
            name = f"h{switch}{number}"
            role = Role.SUBSCRIBER if hosts else Role.PUBLISHER
            nics = (
                Nic(f"{name}-nic1", mac(switch, number), "10.1.0.1", 16),
                Nic(f"{name}-nic2", mac(switch, number + 16), "10.2.0.1", 16),
            )
            hosts.append(Host(name, edge, name, role, *nics, "10.2.0.2"))
            segments.append(Segment(name, edge, 100 + number, edge, 1, switch, 9, (name,)))
    return Network(
        name="chain",
        description="controller domains in a chain",
        domains=(
            *(Domain(n, ControlledBy.CONTROLLER) for n in names),
            *(Domain(f"e{s.name}", ControlledBy.STATIC) for s in switches),
        ),
        switches=(
            *switches,
            *(Switch(f"e{s.name}", f"e{s.name}", 0x100 + s.dpid) for s in switches),
        ),
        hosts=tuple(hosts),
        routers=(),
        links=tuple(links),
        segments=tuple(segments),
        multicast_group="232.1.1.1",
        round_trip_ms={},
    )
