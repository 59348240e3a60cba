# SPDX-License-Identifier: Apache-2.0
"""The planned way of a packet from one host to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from topologies.model.network import Network
from topologies.model.paths import Hop, NoPath, one_way_ms, path_to, reversed_path
from topologies.model.wire_plan import burst_bytes, queue_bytes
from topologies.watch.flights import CONTROL, PATH, Station

BURST_BYTES: Final = 65_536  # that a sender's queue releases at once, and TCP in a window
HEADROOM: Final = 1.02  # a link this much faster than everything sent over it never has a queue


@dataclass(frozen=True)
class Way:
    """A way from one host to another. `room_ms`: what its queues may add to the delay."""

    delay_ms: float
    jitter_ms: float
    room_ms: float
    routers: int
    lossy: bool
    links: tuple[str, ...]

    @property
    def most_ms(self) -> float:
        """Return the longest time that a packet may be in transit."""
        return self.delay_ms + self.jitter_ms + self.room_ms


def stations(
    network: Network, nic1_of: Callable[[str], str], address_of: Callable[[str], str]
) -> list[Station]:
    """Return NIC1 and NIC2 of every host, or NIC2 alone if no address is on the path."""
    found = []
    for host in network.hosts:
        if address := address_of(host.name):
            found.append(Station(host.name, nic1_of(host.name), address, PATH))
        found.append(Station(host.name, host.nic2.interface, host.nic2.ip, CONTROL))
    return found


def ways(network: Network, rate_bps: float) -> dict[tuple[str, str, str], Way]:
    """Return (source, target, network) -> the way, between the publisher and each subscriber.
    `rate_bps`: of everything that leaves the publisher's NIC1."""
    publisher = network.publisher.name
    found = {}
    for host in network.subscribers:
        for kind, hops in (
            (PATH, _path(network, host.name)),
            (CONTROL, _control(network, host.name)),
        ):
            if hops is None:
                continue
            routers = 1 if kind == CONTROL else 0
            found[publisher, host.name, kind] = _way(hops, rate_bps, routers)
            found[host.name, publisher, kind] = _way(reversed_path(hops), rate_bps, routers)
    return found


def _path(network: Network, host: str) -> tuple[Hop, ...] | None:
    try:
        return path_to(network, host)
    except NoPath:
        return None


def _control(network: Network, host: str) -> tuple[Hop, ...] | None:
    routers = {r.name for r in network.routers}
    nic2 = {h.name: h.nic2.interface for h in network.hosts}

    def hop(node: str) -> Hop | None:
        for link in network.links:
            if link.a.interface == nic2[node] and link.b.node in routers:
                return Hop(link, True)
            if link.b.interface == nic2[node] and link.a.node in routers:
                return Hop(link, False)
        return None

    first, last = hop(network.publisher.name), hop(host)
    if first is None or last is None or first.target != last.target:
        return None
    return first, Hop(last.link, not last.forward)


def _way(hops: Iterable[Hop], rate_bps: float, routers: int) -> Way:
    hops = tuple(hops)
    jitter = room = 0.0
    lossy = False
    for hop in hops:
        asked = hop.link.forward if hop.forward else hop.link.backward
        jitter += asked.jitter_ms
        lossy = lossy or asked.loss > 0
        if asked.rate_bps is None:
            continue
        held = max(0, BURST_BYTES - burst_bytes(asked.rate_bps))
        if asked.rate_bps < rate_bps * HEADROOM:
            held = queue_bytes(asked) or 0
        room += 8e3 * held / asked.rate_bps
    names = tuple(hop.link.name for hop in hops)
    return Way(one_way_ms(hops), jitter, room, routers, lossy, names)
