# SPDX-License-Identifier: Apache-2.0
"""A network with the same round trip between the publisher and every subscriber. Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Impairment, Link, Network


def with_round_trip(network: Network, rtt_ms: float) -> Network:
    """`network` with round trips of `rtt_ms` over the path and over the control network, half of
    it in each direction.

    Over the path all of it lies on the hand-off links of the subscribers' segments, so that a
    frame meets one delayed link, as in geni5; all other delays, and jitter, become 0. Rates,
    queues and losses stay. Raises ValueError if a subscriber's segment ends at the publisher's
    hand-off link: then no link is the publisher's alone.
    """
    half = Impairment(delay_ms=round(rtt_ms / 2, 3))
    publisher = network.publisher.name
    subscribers = {host.name for host in network.subscribers}
    own = _handoff(network, publisher)
    delayed = {_handoff(network, name) for name in subscribers}
    if own in delayed:
        raise ValueError(
            f"{network.name}: found subscribers behind {own}, the publisher's hand-off link; "
            "valid with rtt_ms: subscribers on segments of other links"
        )
    routers = {router.name for router in network.routers}

    def changed(link: Link) -> Link:
        ends = {link.a.node, link.b.node}
        slow = link.name in delayed or (bool(ends & routers) and bool(ends & subscribers))
        delay_ms = half.delay_ms if slow else 0.0
        return dataclasses.replace(
            link,
            forward=dataclasses.replace(link.forward, delay_ms=delay_ms, jitter_ms=0.0),
            backward=dataclasses.replace(link.backward, delay_ms=delay_ms, jitter_ms=0.0),
        )

    return dataclasses.replace(
        network,
        links=tuple(changed(link) for link in network.links),
        round_trip_ms=dict.fromkeys(network.round_trip_ms, 2 * half.delay_ms),
    )


def _handoff(network: Network, host: str) -> str:
    """The link by which the segment of `host` meets the path service (of every lane the same)."""
    segment = network.segment_of(host)
    ends = {segment.edge_switch, segment.endpoint_switch}
    return next(link.name for link in network.links if {link.a.node, link.b.node} == ends)
