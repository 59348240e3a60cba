# SPDX-License-Identifier: Apache-2.0
"""The controller's domain as a directed graph.

Pure: everything is derived from the neutral `Network`. A core link joins two switches of the
domain; an access port is a switch port of the domain whose link leaves the domain (towards a
static edge domain, a host, or another controller's domain): the "core-network switch port" of
DRFSM21 2.1.1, where static path segments end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from topologies.model.network import (
    ControlledBy,
    Impairment,
    Link,
    Network,
    Port,
)

if TYPE_CHECKING:
    import networkx as nx  # its import costs a command 0.1 s, and few need a graph

MAX_MACS: Final = 1024  # at one endpoint


class PlanError(Exception):
    """A request that cannot be planned on this network; the text says what and why."""


class UnknownDomain(PlanError):
    pass


class InvalidEndpoint(PlanError):
    pass


class Unreachable(PlanError):
    pass


class Conflict(PlanError):
    """Something else in the network is in the way."""


class EndpointInUse(Conflict):
    """`workgroup`: the owner of the path at the endpoint. `public`: the text without its name."""

    def __init__(self, endpoint: str, path: str, workgroup: str) -> None:
        super().__init__(f"endpoint {endpoint} is in use by path '{path}'")
        self.workgroup = workgroup
        self.public = f"endpoint {endpoint} is in use by another path"


class NoVlanLeft(Conflict):
    pass


class NoNumberLeft(Conflict):
    pass


@dataclass(frozen=True)
class Bottleneck:
    """One direction of a link whose guarantees would exceed its rate."""

    link: str
    source: str  # the node that the direction leaves
    capacity_bps: int
    reserved_bps: int
    asked_bps: int


class NoCapacity(Conflict):
    def __init__(self, path: str, bottleneck: Bottleneck) -> None:
        b = bottleneck
        super().__init__(
            f"link '{b.link}' from '{b.source}' has {b.capacity_bps} bit/s, {b.reserved_bps} bit/s "
            f"are guaranteed to paths, path '{path}' needs {b.asked_bps} bit/s more"
        )
        self.bottleneck = bottleneck


EndpointKey = tuple[str, int, int]  # switch, port, VLAN id


@dataclass(frozen=True, order=True)
class Endpoint:
    """The end of a static segment on the core: its frames carry `vlan` at `port`.

    `macs` are the addresses that may send from there (sorted, lower case). If there are none, every
    source is accepted, and unicast is forwarded to the endpoint only if it is the root.
    """

    switch: str
    port: int
    vlan: int
    macs: tuple[str, ...] = ()

    @property
    def key(self) -> EndpointKey:
        """Return the endpoint's identity: switch, port, VLAN id."""
        return (self.switch, self.port, self.vlan)

    @classmethod
    def of(cls, switch: str, port: int, vlan: int, macs: Iterable[str] = ()) -> Endpoint:
        """Return the endpoint in canonical form (MACs in lower case, sorted, each once)."""
        return cls(switch, port, vlan, tuple(sorted({mac.lower() for mac in macs})))

    def __str__(self) -> str:
        return f"{self.switch}:{self.port}:{self.vlan}"


@dataclass(frozen=True)
class Hop:
    """One direction of a core link.

    `rate_bps` None: not limited. Trees minimise `cost`: the cost of the link, else its delay in
    microseconds + 1, so that with equal delays the fewest hops win.
    """

    link: str
    source: str
    source_port: int
    target: str
    target_port: int
    rate_bps: int | None
    vlan_range: tuple[int, int]
    cost: float


@dataclass(frozen=True)
class DownSet:
    """What cannot carry frames now: core links by name, and switches."""

    links: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()

    def hits(self, hop: Hop) -> bool:
        """Return whether a hop cannot be used."""
        return hop.link in self.links or hop.source in self.switches or hop.target in self.switches


NOTHING_DOWN = DownSet()


@dataclass(frozen=True)
class Access:
    """A port that leaves the domain; rates per direction as the core switch sees them."""

    link: str
    neighbour: str
    rate_in_bps: int | None
    rate_out_bps: int | None


@dataclass(frozen=True)
class Core:
    """`set_queue`: outputs of guaranteed paths use the queue of the port with the path's number
    (if the datapath supports OpenFlow's set_queue). `probed`: each switch's ports whose links
    lead to a switch of a controller, this one or another."""

    domain: str
    dpids: Mapping[str, int]
    hops: tuple[Hop, ...]  # two per core link
    access: Mapping[tuple[str, int], Access]
    segment_vlans: frozenset[int]  # of all static segments; core links use other ids if possible
    registered: Mapping[EndpointKey, tuple[str, ...]] = field(default_factory=dict)
    set_queue: bool = False
    probed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def hop(self) -> Mapping[tuple[str, str], Hop]:
        """Return the hops by (link, switch that it leaves)."""
        return {(hop.link, hop.source): hop for hop in self.hops}

    @cached_property
    def access_index(self) -> Mapping[tuple[str, int], int]:
        """Return the index of each access port among those of its switch, from 0."""
        count: dict[str, int] = {}
        found: dict[tuple[str, int], int] = {}
        for switch, port in sorted(self.access):
            found[switch, port] = count.setdefault(switch, 0)
            count[switch] += 1
        return found

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Return the switches as a graph. Read only.

        An edge has its parallel hops in `hops`, in the network's order.
        """
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.dpids)
        for hop in self.hops:
            if not graph.has_edge(hop.source, hop.target):
                graph.add_edge(hop.source, hop.target, hops=())
            edge = graph.edges[hop.source, hop.target]
            edge["hops"] = (*edge["hops"], hop)
        return graph

    def with_registered_macs(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint, with registered MACs if it names none.

        These are the MACs of the segment that ends there. If none are registered, every source is
        accepted.
        """
        if endpoint.macs:
            return endpoint
        return replace(endpoint, macs=self.registered.get(endpoint.key, ()))


def core_of(network: Network, domain: str, *, set_queue: bool = False) -> Core:
    """Return the graph of `domain`. Raises UnknownDomain, which names the valid domains."""
    valid = [d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER]
    if domain not in valid:
        known = {d.name for d in network.domains}
        what = "has static segments only" if domain in known else "does not exist"
        raise UnknownDomain(
            f"domain '{domain}' of network '{network.name}' {what}; "
            f"valid: {', '.join(valid) or 'none (no domain has controlled_by: controller)'}"
        )
    dpids = {s.name: s.dpid for s in network.switches if s.domain == domain}
    controlled = {s.name for s in network.switches if s.domain in valid}
    hops: list[Hop] = []
    access: dict[tuple[str, int], Access] = {}
    probed: dict[str, list[int]] = {switch: [] for switch in dpids}
    for link in network.links:
        if link.a.node in controlled and link.b.node in controlled:
            for end in (link.a, link.b):
                probed.get(end.node, []).append(end.number)
        inside = (link.a.node in dpids, link.b.node in dpids)
        if inside == (True, True):
            hops.append(_hop(link, link.a, link.b, link.forward))
            hops.append(_hop(link, link.b, link.a, link.backward))
        elif inside == (True, False):
            access[link.a.node, link.a.number] = Access(
                link.name, link.b.node, link.backward.rate_bps, link.forward.rate_bps
            )
        elif inside == (False, True):
            access[link.b.node, link.b.number] = Access(
                link.name, link.a.node, link.forward.rate_bps, link.backward.rate_bps
            )
    registered = {
        (s.endpoint_switch, s.endpoint_port, s.vlan): tuple(
            sorted(nic.mac.lower() for nic in network.nics_of(s))
        )
        for s in network.segments
        if s.endpoint_switch in dpids
    }
    segment_vlans = frozenset(segment.vlan for segment in network.segments)
    return Core(
        domain,
        dpids,
        tuple(hops),
        access,
        segment_vlans,
        registered,
        set_queue,
        {switch: tuple(sorted(ports)) for switch, ports in probed.items()},
    )


def _hop(link: Link, source: Port, target: Port, impairment: Impairment) -> Hop:
    return Hop(
        link.name,
        source.node,
        source.number,
        target.node,
        target.number,
        impairment.rate_bps,
        link.vlan_range,
        round(impairment.delay_ms * 1000) + 1 if link.cost is None else link.cost,
    )


def check_endpoint(core: Core, endpoint: Endpoint) -> None:
    """Raise InvalidEndpoint unless the endpoint is a VLAN on an access port of the domain."""
    if endpoint.switch not in core.dpids:
        raise InvalidEndpoint(
            f"switch '{endpoint.switch}' is not in domain '{core.domain}'; "
            f"valid: {', '.join(sorted(core.dpids))}"
        )
    if (endpoint.switch, endpoint.port) not in core.access:
        ports = sorted(port for switch, port in core.access if switch == endpoint.switch)
        raise InvalidEndpoint(
            f"port {endpoint.port} of switch '{endpoint.switch}' is not an access port; "
            f"valid: {', '.join(map(str, ports)) or 'none'}"
        )
    if not 1 <= endpoint.vlan <= 4094:
        raise InvalidEndpoint(f"VLAN id {endpoint.vlan} of {endpoint} is not within 1..4094")
