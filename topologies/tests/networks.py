# SPDX-License-Identifier: Apache-2.0
"""Small networks for tests: some built by hand (not by the loader), and a file."""

from __future__ import annotations

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
    Router,
    Segment,
    Switch,
)

TWO_SITES = """\
name: two-sites
description: a publisher and a subscriber
source: made up for a test
addresses: { path_subnet: 10.10.1.0/24, multicast_group: 239.10.1.1 }
domains:
  core: { controlled_by: controller }
  east: { controlled_by: static }
  west: { controlled_by: static }
nodes:
  hub: { kind: switch, domain: core }
  sw-east: { kind: switch, domain: east }
  sw-west: { kind: switch, domain: west }
  pub: { kind: host, role: publisher, attached_to: sw-east }
  sub: { kind: host, role: subscriber, attached_to: sw-west }
  ctl: { kind: router }
links:
  - { a: sw-east, b: hub }
  - { a: sw-west, b: hub }
segments:
  east: { through: sw-east, to: hub, vlan: 101 }
  west: { through: sw-west, to: hub, vlan: 202 }
control_network: { router: ctl, subnet: 10.20.0.0/16 }
"""
ANY = (1, 4094)
PLAIN = Impairment()


def two_sites(impairment: str) -> str:
    """Return TWO_SITES with an impairment of the link to the subscriber's site."""
    return TWO_SITES.replace("b: hub }\nsegments", f"b: hub, {impairment} }}\nsegments")


def both_ways(
    a: Port,
    b: Port,
    impairment: Impairment = PLAIN,
    vlan_range: tuple[int, int] = ANY,
    name: str = "",
) -> Link:
    """Return a link with the same impairment in both directions, named after its ends."""
    return Link(name or f"{a.node}:{b.node}", a, b, impairment, impairment, vlan_range)


def _host(name: str, index: int, role: Role) -> Host:
    return Host(
        name=name,
        domain="edge",
        site=name,
        role=role,
        nic1=Nic(f"{name}-nic1", f"02:00:00:00:01:{index:02x}", f"10.9.1.{index}", 24),
        nic2=Nic(f"{name}-nic2", f"02:00:00:00:02:{index:02x}", f"10.8.{index}.2", 30),
        gateway2=f"10.8.{index}.1",
    )


def two_hosts(
    impairment: Impairment, control: Impairment = PLAIN, uplink: Impairment = PLAIN
) -> Network:
    """p and q, each with its NIC1 on the one static switch `sw` (q's link is impaired) and NIC2 on
    router r (q's link impaired with `control`). They share segment `s`, VLAN 100, whose uplink
    (impaired with `uplink`) ends at the static switch `up`."""
    p, q = _host("p", 1, Role.PUBLISHER), _host("q", 2, Role.SUBSCRIBER)
    links = [
        both_ways(
            Port(h.name, 1, h.nic1.interface, h.nic1.mac),
            Port("sw", n, f"sw-p{n}", f"02:00:00:00:03:{n:02x}"),
            i,
        )
        for h, n, i in ((p, 2, PLAIN), (q, 3, impairment))
    ]
    links.append(
        both_ways(
            Port("sw", 1, "sw-p1", "02:00:00:00:03:01"),
            Port("up", 1, "up-p1", "02:00:00:00:04:01"),
            uplink,
        )
    )
    nics = []
    for h, n, i in ((p, 1, PLAIN), (q, 2, control)):
        nic = Nic(f"r-p{n}", f"02:00:00:00:05:{n:02x}", h.gateway2, 30)
        nics.append(nic)
        links.append(
            both_ways(
                Port("r", n, nic.interface, nic.mac),
                Port(h.name, 2, h.nic2.interface, h.nic2.mac),
                i,
            )
        )
    return Network(
        name="two-hosts",
        description="test",
        domains=(Domain("edge", ControlledBy.STATIC), Domain("far", ControlledBy.STATIC)),
        switches=(Switch("sw", "edge", 1), Switch("up", "far", 2)),
        hosts=(p, q),
        routers=(Router("r", tuple(nics)),),
        links=tuple(links),
        segments=(Segment("s", "edge", 100, "sw", 1, "up", 1, ("p", "q")),),
        multicast_group="239.9.1.1",
        round_trip_ms={"q": 2 * impairment.delay_ms},
    )
