# SPDX-License-Identifier: Apache-2.0
"""Find the links that a frame crosses between two hosts of the path service, and how long that
takes.

The rule is the path service's: the path of least cost from the publisher through the controller
domains. Each domain is entered at one hand-off link, the same for all subscribers. Frames to the
publisher take the same links back.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from topologies.model.network import (
    ControlledBy,
    Domain,
    Link,
    Network,
    Segment,
    Switch,
)


class NoPath(Exception):
    """Two hosts cannot exchange frames over the path service."""


@dataclass(frozen=True)
class Hop:
    """A link and the direction in which a frame crosses it."""

    link: Link
    forward: bool  # from link.a to link.b

    @property
    def delay_ms(self) -> float:
        """Return the delay in the direction of the hop."""
        return (self.link.forward if self.forward else self.link.backward).delay_ms

    @property
    def source(self) -> str:
        """Return the node where the hop begins."""
        return (self.link.a if self.forward else self.link.b).node

    @property
    def target(self) -> str:
        """Return the node where the hop ends."""
        return (self.link.b if self.forward else self.link.a).node


def cost_of(link: Link, forward: bool) -> float:
    """Return the cost of crossing a link: its `cost`, else its delay in that direction in us, plus
    1."""
    if link.cost is not None:
        return link.cost
    return round((link.forward if forward else link.backward).delay_ms * 1000) + 1


def domain_tree(
    links: Iterable[Link],
    domain_of: Mapping[str, str],
    root: str,
    entries: Mapping[str, str] = MappingProxyType({}),
    avoid: Container[str] = frozenset(),
) -> dict[str, Hop]:
    """Return the last hop towards each switch that can be reached from switch `root`, on the paths
    of least cost, then of fewest links, then first in the order of the links.

    `domain_of` has the switches of all controller domains. Each domain is entered through one
    hand-off link, the one reached at the least cost (or the one that `entries` gives for the
    domain), and only once: a path that has left a domain does not return. Links in `avoid` are not
    used.
    """
    leaving: dict[str, list[tuple[int, Hop]]] = defaultdict(list)
    for index, link in enumerate(links):
        if link.a.node in domain_of and link.b.node in domain_of and link.name not in avoid:
            leaving[link.a.node].append((index, Hop(link, True)))
            leaving[link.b.node].append((index, Hop(link, False)))
    entry_of: dict[str, str | None] = {**entries, domain_of[root]: None}
    last: dict[str, Hop] = {}
    done: set[str] = set()
    queue: list[tuple[float, int, tuple[int, ...], str, Hop | None]] = [(0, 0, (), root, None)]
    while queue:
        cost, hops, indices, switch, hop = heapq.heappop(queue)
        if switch in done:
            continue
        if hop is not None and domain_of[hop.source] != domain_of[switch]:
            entry = entry_of.setdefault(domain_of[switch], hop.link.name)
            if entry != hop.link.name:
                continue
        done.add(switch)
        if hop is not None:
            last[switch] = hop
        for index, leave in leaving[switch]:
            if leave.target not in done:
                total = cost + cost_of(leave.link, leave.forward)
                heapq.heappush(queue, (total, hops + 1, (*indices, index), leave.target, leave))
    return last


def route(tree: Mapping[str, Hop], root: str, switch: str) -> tuple[Hop, ...]:
    """Return the hops from the root of a `domain_tree` to `switch`. Raises NoPath."""
    hops: list[Hop] = []
    here = switch
    while here != root:
        if here not in tree:
            raise NoPath(f"no path from {root} to {switch}")
        hops.append(tree[here])
        here = tree[here].source
    return tuple(reversed(hops))


def frame_path(
    links: tuple[Link, ...],
    controlled: Mapping[str, str],
    from_segment: Segment,
    from_host: str,
    to_segment: Segment,
    to_host: str,
) -> tuple[Hop, ...]:
    """Return all links from one host's NIC1 to another's, in order. `controlled`: switch -> its
    controller domain. Raises NoPath."""
    access_out = _hop(links, from_host, from_segment.edge_switch)
    access_in = _hop(links, to_segment.edge_switch, to_host)
    if from_segment == to_segment:
        return (access_out, access_in)
    root = from_segment.endpoint_switch
    tree = domain_tree(links, controlled, root)
    return (
        access_out,
        _hop(links, from_segment.edge_switch, from_segment.endpoint_switch),
        *route(tree, root, to_segment.endpoint_switch),
        _hop(links, to_segment.endpoint_switch, to_segment.edge_switch),
        access_in,
    )


def controlled_switches(domains: Iterable[Domain], switches: Iterable[Switch]) -> dict[str, str]:
    """Return switch -> domain, for the switches of controller domains."""
    controlled = {d.name for d in domains if d.controlled_by is ControlledBy.CONTROLLER}
    return {s.name: s.domain for s in switches if s.domain in controlled}


def path_to(network: Network, subscriber: str) -> tuple[Hop, ...]:
    """Return all links that a frame crosses from NIC1 of the publisher to NIC1 of `subscriber`; its
    route back is `reversed_path`. Raises NoPath."""
    publisher = network.publisher.name
    return frame_path(
        network.links,
        controlled_switches(network.domains, network.switches),
        network.segment_of(publisher),
        publisher,
        network.segment_of(subscriber),
        subscriber,
    )


def handoff_of(network: Network) -> Link | None:
    """Return the hand-off link between two controller domains that the most subscribers are
    behind; None if every path stays in one domain. Raises NoPath."""
    domain_of = controlled_switches(network.domains, network.switches)
    behind: dict[str, int] = defaultdict(int)
    links: dict[str, Link] = {}
    for host in network.subscribers:
        for hop in path_to(network, host.name):
            ends = (domain_of.get(hop.source), domain_of.get(hop.target))
            if None not in ends and ends[0] != ends[1]:
                behind[hop.link.name] += 1
                links[hop.link.name] = hop.link
    return links[max(behind, key=lambda name: behind[name])] if behind else None


def behind_handoff(network: Network) -> frozenset[str]:
    """Return the subscribers whose path crosses `handoff_of`. Raises NoPath."""
    link = handoff_of(network)
    return frozenset(
        host.name
        for host in network.subscribers
        if link is not None and link in [hop.link for hop in path_to(network, host.name)]
    )


def one_way_ms(path: Iterable[Hop]) -> float:
    """Return the sum of the hops' delays."""
    return round(sum(hop.delay_ms for hop in path), 3)


def reversed_path(path: tuple[Hop, ...]) -> tuple[Hop, ...]:
    """Return the same path in the opposite direction."""
    return tuple(Hop(hop.link, not hop.forward) for hop in reversed(path))


def _hop(links: Iterable[Link], source: str, target: str) -> Hop:
    for link in links:
        if (link.a.node, link.b.node) == (source, target):
            return Hop(link, True)
        if (link.b.node, link.a.node) == (source, target):
            return Hop(link, False)
    raise NoPath(f"no link from {source} to {target}")
