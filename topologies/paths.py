# SPDX-License-Identifier: Apache-2.0
"""Which links a frame crosses between two hosts of the path service, and how long that takes.

The rule is the controller's: inside the controlled domain the path of least delay from the
publisher, then of fewest links, then first in the order of the links. Frames to the publisher
take the same links back.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from topologies.model import Link, Network, Segment


class NoPath(Exception):
    """Two hosts cannot exchange frames over the path service."""


@dataclass(frozen=True)
class Hop:
    """A link and the direction in which a frame crosses it."""

    link: Link
    forward: bool  # from link.a to link.b

    @property
    def delay_ms(self) -> float:
        return (self.link.forward if self.forward else self.link.backward).delay_ms

    @property
    def source(self) -> str:
        return (self.link.a if self.forward else self.link.b).node

    @property
    def target(self) -> str:
        return (self.link.b if self.forward else self.link.a).node


def core_path(
    links: Iterable[Link], switches: frozenset[str], source: str, target: str
) -> tuple[Hop, ...]:
    """The path from switch `source` to `target` through `switches` only. Raises NoPath."""
    leaving: dict[str, list[tuple[int, Hop]]] = defaultdict(list)
    for index, link in enumerate(links):
        if link.a.node in switches and link.b.node in switches:
            leaving[link.a.node].append((index, Hop(link, True)))
            leaving[link.b.node].append((index, Hop(link, False)))
    # Whole microseconds, so that equal sums of decimal milliseconds compare equal.
    queue: list[tuple[int, int, tuple[int, ...], str, tuple[Hop, ...]]] = [(0, 0, (), source, ())]
    done: set[str] = set()
    while queue:
        delay_us, hops, indices, switch, path = heapq.heappop(queue)
        if switch == target:
            return path
        if switch in done:
            continue
        done.add(switch)
        for index, hop in leaving[switch]:
            if hop.target not in done:
                cost = delay_us + round(hop.delay_ms * 1000)
                entry = (cost, hops + 1, (*indices, index), hop.target, (*path, hop))
                heapq.heappush(queue, entry)
    raise NoPath(f"no path from {source} to {target}")


def frame_path(
    links: tuple[Link, ...],
    domain_of_switch: dict[str, str],
    from_segment: Segment,
    from_host: str,
    to_segment: Segment,
    to_host: str,
) -> tuple[Hop, ...]:
    """All links from one host's NIC1 to another's, in order. Raises NoPath."""
    domain = domain_of_switch[from_segment.endpoint_switch]
    if domain != domain_of_switch[to_segment.endpoint_switch]:
        raise NoPath(f"{from_host} and {to_host} end in different controlled domains")
    access_out = _hop(links, from_host, from_segment.edge_switch)
    access_in = _hop(links, to_segment.edge_switch, to_host)
    if from_segment == to_segment:
        return (access_out, access_in)
    switches = frozenset(name for name, of in domain_of_switch.items() if of == domain)
    return (
        access_out,
        _hop(links, from_segment.edge_switch, from_segment.endpoint_switch),
        *core_path(links, switches, from_segment.endpoint_switch, to_segment.endpoint_switch),
        _hop(links, to_segment.endpoint_switch, to_segment.edge_switch),
        access_in,
    )


def path_to(network: Network, subscriber: str) -> tuple[Hop, ...]:
    """All links a frame crosses from NIC1 of the publisher to NIC1 of `subscriber`; its way back
    is `reversed_path`. Raises NoPath."""
    publisher = network.publisher.name
    return frame_path(
        network.links,
        {switch.name: switch.domain for switch in network.switches},
        network.segment_of(publisher),
        publisher,
        network.segment_of(subscriber),
        subscriber,
    )


def one_way_ms(path: Iterable[Hop]) -> float:
    return round(sum(hop.delay_ms for hop in path), 3)


def reversed_path(path: tuple[Hop, ...]) -> tuple[Hop, ...]:
    return tuple(Hop(hop.link, not hop.forward) for hop in reversed(path))


def _hop(links: Iterable[Link], source: str, target: str) -> Hop:
    for link in links:
        if (link.a.node, link.b.node) == (source, target):
            return Hop(link, True)
        if (link.b.node, link.a.node) == (source, target):
            return Hop(link, False)
    raise NoPath(f"no link from {source} to {target}")
