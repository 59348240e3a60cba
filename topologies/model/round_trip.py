# SPDX-License-Identifier: Apache-2.0
"""Change the round trips between the publisher and the subscribers of a network. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from topologies.model.network import Link, Network


def with_round_trip(network: Network, rtt_ms: float) -> Network:
    """Return `network` with round trips of `rtt_ms` over the path and over the control network,
    half of it in each direction.

    Over the path, all delay is on the hand-off links of the subscribers' segments, so that a frame
    crosses one delayed link, as in geni5; all other delays, and jitter, become 0. Rates, queues and
    losses stay. Raises ValueError if a subscriber's segment ends at the publisher's hand-off link:
    then no link belongs to the publisher alone.
    """
    return with_round_trips(network, dict.fromkeys(_subscribers(network), rtt_ms))


def with_round_trips(network: Network, rtt_ms: Mapping[str, float]) -> Network:
    """Return the same with a round trip for each subscriber. Subscribers without one get the
    longest.

    Raises ValueError like `with_round_trip`, and if two subscribers behind one hand-off link should
    have different ones.
    """
    publisher = network.publisher.name
    halves = {host: round(rtt / 2, 3) for host, rtt in rtt_ms.items()}
    longest = max(halves.values())
    own = _handoff(network, publisher)
    delayed: dict[str, tuple[str, float]] = {}  # link -> host, and half of its round trip
    for host, half in halves.items():
        link = _handoff(network, host)
        first, other = delayed.setdefault(link, (host, half))
        if other != half:
            raise ValueError(
                f"{network.name}: found {2 * other:g} ms for {first} and {2 * half:g} ms for "
                f"{host} behind the same link {link}; valid: the same for both"
            )
    rest = _subscribers(network) - set(halves)
    for host in sorted(rest):
        halves[host] = delayed.setdefault(_handoff(network, host), (host, longest))[1]
    if own in delayed:
        raise ValueError(
            f"{network.name}: found subscribers behind {own}, the publisher's hand-off link; "
            "valid with rtt_ms: subscribers on segments of other links"
        )
    routers = {router.name for router in network.routers}

    def changed(link: Link) -> Link:
        ends = {link.a.node, link.b.node}
        half = delayed[link.name][1] if link.name in delayed else 0.0
        if ends & routers:
            half = next((halves[host] for host in ends & set(halves)), 0.0)
        return dataclasses.replace(
            link,
            forward=dataclasses.replace(link.forward, delay_ms=half, jitter_ms=0.0),
            backward=dataclasses.replace(link.backward, delay_ms=half, jitter_ms=0.0),
        )

    return dataclasses.replace(
        network,
        links=tuple(changed(link) for link in network.links),
        round_trip_ms={host: 2 * halves[host] for host in network.round_trip_ms},
    )


def _subscribers(network: Network) -> set[str]:
    return {host.name for host in network.subscribers}


def _handoff(network: Network, host: str) -> str:
    """Return the link between the segment of `host` and the path service, which is the same for
    every lane."""
    segment = network.segment_of(host)
    ends = {segment.edge_switch, segment.endpoint_switch}
    return next(link.name for link in network.links if {link.a.node, link.b.node} == ends)
