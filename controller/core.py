# SPDX-License-Identifier: Apache-2.0
"""The controller's domain as a directed graph, and the shortest-path tree over it.

Pure: everything is derived from the neutral `Network`. A core link joins two switches of the
domain; an access port is a switch port of the domain whose link leaves the domain (towards a
static edge domain or a host): the "core-network switch port" of drfsm.txt 2.1.1, where static
path segments end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.model import ControlledBy, Impairment, Link, Network, Port


class PlanError(Exception):
    """A request that cannot be planned on this network; the text says what and why."""


class UnknownDomain(PlanError):
    pass


class InvalidEndpoint(PlanError):
    pass


class Unreachable(PlanError):
    pass


@dataclass(frozen=True, order=True)
class Endpoint:
    """Where a static segment ends on the core: frames of the segment carry `vlan` at `port`.

    `macs` are the addresses allowed to send from there (sorted, lower case). Without any, every
    source is accepted, and no unicast is forwarded towards the endpoint unless it is the root.
    """

    switch: str
    port: int
    vlan: int
    macs: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.switch, self.port, self.vlan)

    @classmethod
    def of(cls, switch: str, port: int, vlan: int, macs: Iterable[str] = ()) -> Endpoint:
        """The endpoint in canonical form (MACs in lower case, sorted, each once)."""
        return cls(switch, port, vlan, tuple(sorted({mac.lower() for mac in macs})))

    def __str__(self) -> str:
        return f"{self.switch}:{self.port}:{self.vlan}"


@dataclass(frozen=True)
class Hop:
    """One direction of a core link. `rate_bps` None = not limited."""

    link: str
    source: str
    source_port: int
    target: str
    target_port: int
    delay_us: int
    rate_bps: int | None
    vlan_range: tuple[int, int]


@dataclass(frozen=True)
class Access:
    """A port that leaves the domain; rates per direction as the core switch sees them."""

    link: str
    neighbour: str
    rate_in_bps: int | None
    rate_out_bps: int | None


@dataclass(frozen=True)
class Core:
    domain: str
    dpids: Mapping[str, int]
    hops: tuple[Hop, ...]  # two per core link
    access: Mapping[tuple[str, int], Access]
    segment_vlans: frozenset[int]  # of all static segments; core links use other ids if they can

    def hops_from(self, switch: str) -> Iterable[Hop]:
        return (hop for hop in self.hops if hop.source == switch)


def core_of(network: Network, domain: str) -> Core:
    """The graph of `domain`. Raises UnknownDomain, naming the domains that would be valid."""
    valid = [d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER]
    if domain not in valid:
        known = {d.name for d in network.domains}
        what = "has static segments only" if domain in known else "does not exist"
        raise UnknownDomain(
            f"domain '{domain}' of network '{network.name}' {what}; "
            f"valid: {', '.join(valid) or 'none (no domain has controlled_by: controller)'}"
        )
    dpids = {s.name: s.dpid for s in network.switches if s.domain == domain}
    hops: list[Hop] = []
    access: dict[tuple[str, int], Access] = {}
    for link in network.links:
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
    return Core(
        domain, dpids, tuple(hops), access, frozenset(segment.vlan for segment in network.segments)
    )


def _hop(link: Link, source: Port, target: Port, impairment: Impairment) -> Hop:
    return Hop(
        link.name,
        source.node,
        source.number,
        target.node,
        target.number,
        round(impairment.delay_ms * 1000),
        impairment.rate_bps,
        link.vlan_range,
    )


def check_endpoint(core: Core, endpoint: Endpoint) -> None:
    """Raises InvalidEndpoint unless the endpoint is a VLAN on an access port of the domain."""
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


def shortest_tree(core: Core, root: str) -> dict[str, Hop]:
    """Last hop towards each reachable switch: least delay from the root, then fewest hops.

    The tree depends on the network and the root only, not on the leaves: a leaf that joins or
    leaves never moves another one. Ties go to the link that the network lists first.
    """
    best: dict[str, tuple[int, int]] = {root: (0, 0)}
    last: dict[str, Hop] = {}
    queue: list[tuple[int, int, str]] = [(0, 0, root)]
    while queue:
        delay_us, count, switch = heapq.heappop(queue)
        if (delay_us, count) != best[switch]:
            continue
        for hop in core.hops_from(switch):
            cost = (delay_us + hop.delay_us, count + 1)
            if hop.target not in best or cost < best[hop.target]:
                best[hop.target] = cost
                last[hop.target] = hop
                heapq.heappush(queue, (*cost, hop.target))
    return last


def route(tree: Mapping[str, Hop], root: str, leaf: str) -> tuple[Hop, ...]:
    """The hops from the root's switch to the leaf's. Raises Unreachable."""
    hops: list[Hop] = []
    switch = leaf
    while switch != root:
        if switch not in tree:
            raise Unreachable(f"no core links lead from switch '{root}' to switch '{leaf}'")
        hops.append(tree[switch])
        switch = tree[switch].source
    return tuple(reversed(hops))
