# SPDX-License-Identifier: Apache-2.0
"""A small network for the tests, made by hand (delays in ms, VLAN ranges on the core links).

                e2                    e4
                 |p9                   |p9
    e1--p1[s1]p2--5--p1[s2]p3--7--p1[s4]
            p3        p2|              p2
             |          5              |
             20         |p1            90
             +-----p2[s3]p3------------+
                        |p9
                        e3
    s1:s2 300..309   s2:s3 310..319   s1:s3 320..329   s2:s4 330..339   s3:s4 340..349

Least delay from s1: s2 5, s3 10 (through s2, not 20), s4 12 (through s2).
e1..e4 are static edge switches; h1 publishes; e3 has two subscribers.
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

MAC_1 = "02:00:00:00:00:01"
MAC_2 = "02:00:00:00:00:02"
MAC_3A = "02:00:00:00:00:3a"
MAC_3B = "02:00:00:00:00:3b"
MAC_4 = "02:00:00:00:00:04"

ROOT = Endpoint("s1", 1, 101, (MAC_1,))
LEAF_2 = Endpoint("s2", 9, 102, (MAC_2,))
LEAF_3 = Endpoint("s3", 9, 103, (MAC_3A, MAC_3B))
LEAF_4 = Endpoint("s4", 9, 104, (MAC_4,))


def _port(node: str, number: int) -> Port:
    return Port(
        node, number, f"{node}-eth{number}", f"02:ff:00:00:{node.encode()[1]:02x}:{number:02x}"
    )


def _link(
    a: str,
    a_port: int,
    b: str,
    b_port: int,
    delay_ms: float,
    first_vlan: int,
    rate_bps: int | None = None,
) -> Link:
    impairment = Impairment(rate_bps=rate_bps, delay_ms=delay_ms)
    vlan_range = (first_vlan, first_vlan + 9)
    return both_ways(_port(a, a_port), _port(b, b_port), impairment, vlan_range)


def _host(name: str, mac: str, number: int, role: Role) -> Host:
    return Host(
        name,
        f"edge{number}",
        f"site{number}",
        role,
        Nic(f"{name}-nic1", mac, f"10.1.0.{number}", 24),
        Nic(f"{name}-nic2", mac.replace("02:", "06:", 1), f"10.2.{number}.2", 24),
        f"10.2.{number}.1",
    )


def network(rate_to_s4_bps: int | None = 100_000_000) -> Network:
    return Network(
        name="sample",
        description="four core switches, four edges",
        domains=(
            Domain("core", ControlledBy.CONTROLLER),
            *(Domain(f"edge{n}", ControlledBy.STATIC) for n in (1, 2, 3, 4)),
        ),
        switches=(
            *(Switch(f"s{n}", "core", n) for n in (1, 2, 3, 4)),
            *(Switch(f"e{n}", f"edge{n}", 0x10 + n) for n in (1, 2, 3, 4)),
        ),
        hosts=(
            _host("h1", MAC_1, 1, Role.PUBLISHER),
            _host("h2", MAC_2, 2, Role.SUBSCRIBER),
            _host("h3a", MAC_3A, 3, Role.SUBSCRIBER),
            _host("h3b", MAC_3B, 3, Role.SUBSCRIBER),
            _host("h4", MAC_4, 4, Role.SUBSCRIBER),
        ),
        routers=(),
        links=(
            _link("s1", 2, "s2", 1, 5, 300),
            _link("s2", 2, "s3", 1, 5, 310),
            _link("s1", 3, "s3", 2, 20, 320),
            _link("s2", 3, "s4", 1, 7, 330, rate_to_s4_bps),
            _link("s3", 3, "s4", 2, 90, 340, rate_to_s4_bps),
            _link("e1", 1, "s1", 1, 1, 100),
            _link("e2", 1, "s2", 9, 1, 100),
            _link("e3", 1, "s3", 9, 1, 100),
            _link("s4", 9, "e4", 1, 1, 100),
        ),
        segments=(
            Segment("seg1", "edge1", 101, "e1", 1, "s1", 1, ("h1",)),
            Segment("seg2", "edge2", 102, "e2", 1, "s2", 9, ("h2",)),
            Segment("seg3", "edge3", 103, "e3", 1, "s3", 9, ("h3b", "h3a")),
            Segment("seg4", "edge4", 104, "e4", 1, "s4", 9, ("h4",)),
        ),
        multicast_group="232.1.1.1",
        round_trip_ms={"h2": 14.0, "h3a": 24.0, "h3b": 24.0, "h4": 28.0},
    )
