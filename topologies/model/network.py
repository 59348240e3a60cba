# SPDX-License-Identifier: Apache-2.0
"""The neutral network graph: the network with every address and number explicit.

The YAML files of this room expand to a `Network`. It is immutable, independent of Mininet and
OpenFlow, and the contract with the rooms above: `to_json` and `from_json` carry it between
processes (`network.json` of a run directory).

Units are in the names. Frames are Ethernet frames without FCS, as tc and OpenFlow meters count.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any


class ControlledBy(StrEnum):
    """How a domain's switches are programmed."""

    CONTROLLER = "controller"  # the dynamic multipoint path service (DMPS) of DRFSM21 2.1.1
    STATIC = "static"  # static path segments (SPS), installed when the network is built


class Role(StrEnum):
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    MONITOR = "monitor"  # a `Monitor`, no `Host`


@dataclass(frozen=True)
class Domain:
    name: str
    controlled_by: ControlledBy


@dataclass(frozen=True)
class Impairment:
    """One direction of a link. None = not limited / not set."""

    rate_bps: int | None = None
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0  # probability 0..1, uniformly random
    queue_bytes: int | None = None
    discipline: str = ""  # of the queue of a link with a rate: codel, ...; empty: FIFO

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is impaired."""
        return self == Impairment()


@dataclass(frozen=True)
class Port:
    """One end of a link. `number` is the OpenFlow port on switches, the index on other nodes."""

    node: str
    number: int
    interface: str  # at most 15 characters, unique in the network
    mac: str


@dataclass(frozen=True)
class Link:
    """`forward` impairs frames from a to b, `backward` frames from b to a."""

    name: str  # "a:b", unique
    a: Port
    b: Port
    forward: Impairment
    backward: Impairment
    vlan_range: tuple[int, int]  # ids the path service may use on this link, inclusive
    cost: float | None = None  # cost of crossing it for a path; None: delay in us, plus 1

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is impaired."""
        return self.forward.is_plain and self.backward.is_plain


@dataclass(frozen=True)
class Switch:
    name: str  # at most 10 characters
    domain: str
    dpid: int
    lat: float | None = None  # degrees north
    lon: float | None = None  # degrees east


@dataclass(frozen=True)
class Nic:
    interface: str
    mac: str
    ip: str
    prefix_len: int


@dataclass(frozen=True)
class Host:
    """A host with two NICs (DRFSM21 2.1.2): nic1 on the path service, nic2 on the routed control
    network. A host that may be on several paths at once, one for each file-stream, has a lane for
    each further path: a NIC and a static segment."""

    name: str
    domain: str
    site: str
    role: Role
    nic1: Nic
    nic2: Nic
    gateway2: str  # the router's address on nic2's subnet
    lanes: tuple[Nic, ...] = ()  # NICs on the path service for lanes 2, 3, ...; nic1 is lane 1's

    def path_nic(self, lane: int = 1) -> Nic:
        """Return the NIC that has the path's address on `lane`."""
        return self.nic1 if lane == 1 else self.lanes[lane - 2]


@dataclass(frozen=True)
class Router:
    """A Linux router of the control network; one subnet per attached host."""

    name: str
    nics: tuple[Nic, ...]


@dataclass(frozen=True)
class Monitor:
    """A host that is only on the control network, to which the others send statistics (DRFSM21 3.1,
    Fig. 4)."""

    name: str
    site: str
    nic2: Nic
    gateway2: str  # the router's address on nic2's subnet


@dataclass(frozen=True)
class Segment:
    """A static path segment (SPS, DRFSM21 2.1.1) through one static domain: from a port of a
    dynamic domain's switch (`endpoint_*`) to one or more hosts, at their NIC of `lane`. Between the
    two domains its frames carry `vlan`."""

    name: str
    domain: str
    vlan: int
    edge_switch: str
    edge_port: int  # port of edge_switch towards the dynamic domain
    endpoint_switch: str
    endpoint_port: int  # port of endpoint_switch towards the edge
    hosts: tuple[str, ...]
    lane: int = 1


def _monitor(raw: Mapping[str, Any]) -> Monitor:
    return Monitor(raw["name"], raw["site"], Nic(**raw["nic2"]), raw["gateway2"])


@dataclass(frozen=True)
class Network:
    name: str
    description: str
    domains: tuple[Domain, ...]
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    routers: tuple[Router, ...]
    links: tuple[Link, ...]
    segments: tuple[Segment, ...]
    multicast_group: str  # IPv4 group used on the paths
    round_trip_ms: dict[str, float]  # host -> RTT over the path service to the publisher
    lane_groups: tuple[str, ...] = ()  # IPv4 groups of lanes 2, 3, ...
    monitor: Monitor | None = None

    @property
    def publisher(self) -> Host:
        """Return the host that publishes."""
        return next(h for h in self.hosts if h.role is Role.PUBLISHER)

    @property
    def subscribers(self) -> tuple[Host, ...]:
        """Return the hosts that subscribe, in the order of `hosts`."""
        return tuple(h for h in self.hosts if h.role is Role.SUBSCRIBER)

    def without_monitor(self) -> Network:
        """Return the network without its monitor, if it has one."""
        if self.monitor is None:
            return self
        name, gateway = self.monitor.name, self.monitor.gateway2
        return dataclasses.replace(
            self,
            monitor=None,
            links=tuple(k for k in self.links if name not in (k.a.node, k.b.node)),
            routers=tuple(
                Router(r.name, tuple(nic for nic in r.nics if nic.ip != gateway))
                for r in self.routers
            ),
        )

    def host(self, name: str) -> Host:
        """Return the host with this name, which must exist."""
        return next(h for h in self.hosts if h.name == name)

    @property
    def lane_count(self) -> int:
        """Return how many paths, one for each file-stream, a host may be on at once."""
        return 1 + len(self.lane_groups)

    def group_of(self, lane: int) -> str:
        """Return the multicast group of a lane."""
        return self.multicast_group if lane == 1 else self.lane_groups[lane - 2]

    def segment_of(self, host: str, lane: int = 1) -> Segment:
        """Return the segment that a host is in, on `lane`."""
        return next(s for s in self.segments if host in s.hosts and s.lane == lane)

    def nics_of(self, segment: Segment) -> tuple[Nic, ...]:
        """Return the NICs at which a segment ends, in the order of its hosts."""
        return tuple(self.host(name).path_nic(segment.lane) for name in segment.hosts)

    @cached_property
    def _json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    def to_json(self) -> str:
        """Return the network as text for `from_json`; the text is made once."""
        return self._json

    @classmethod
    def from_json(cls, text: str) -> Network:
        """Read what `to_json` wrote. Raises ValueError, KeyError, TypeError."""
        raw = json.loads(text)
        return cls(
            name=raw["name"],
            description=raw["description"],
            domains=tuple(
                Domain(d["name"], ControlledBy(d["controlled_by"])) for d in raw["domains"]
            ),
            switches=tuple(Switch(**s) for s in raw["switches"]),
            hosts=tuple(
                Host(
                    **{
                        **h,
                        "role": Role(h["role"]),
                        "nic1": Nic(**h["nic1"]),
                        "nic2": Nic(**h["nic2"]),
                        "lanes": tuple(Nic(**n) for n in h.get("lanes", ())),
                    }
                )
                for h in raw["hosts"]
            ),
            routers=tuple(
                Router(r["name"], tuple(Nic(**n) for n in r["nics"])) for r in raw["routers"]
            ),
            links=tuple(
                Link(
                    name=k["name"],
                    a=Port(**k["a"]),
                    b=Port(**k["b"]),
                    forward=Impairment(**k["forward"]),
                    backward=Impairment(**k["backward"]),
                    vlan_range=(k["vlan_range"][0], k["vlan_range"][1]),
                    cost=k.get("cost"),
                )
                for k in raw["links"]
            ),
            segments=tuple(Segment(**{**s, "hosts": tuple(s["hosts"])}) for s in raw["segments"]),
            multicast_group=raw["multicast_group"],
            round_trip_ms=dict(raw["round_trip_ms"]),
            lane_groups=tuple(raw.get("lane_groups", ())),
            monitor=_monitor(raw["monitor"]) if raw.get("monitor") else None,
        )
