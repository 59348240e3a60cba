# SPDX-License-Identifier: Apache-2.0
"""Change the rate of a network's core links. Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Impairment, Link, Network


def with_core_rate(network: Network, rate_bps: int, queue_bytes: int) -> Network:
    """Return `network` with this rate and queue on each link between switches that has a rate.

    Delays and losses stay. Raises ValueError if no such link has one.
    """
    switches = {switch.name for switch in network.switches}

    def is_limited(link: Link) -> bool:
        rates = (link.forward.rate_bps, link.backward.rate_bps)
        return {link.a.node, link.b.node} <= switches and any(rates)

    def limited(way: Impairment) -> Impairment:
        if way.rate_bps is None:
            return way
        return dataclasses.replace(way, rate_bps=rate_bps, queue_bytes=queue_bytes)

    if not any(is_limited(link) for link in network.links):
        raise ValueError(
            f"found {network.name}, whose switches' links have no rate; valid: a topology with "
            "one, such as bottleneck"
        )
    links = tuple(
        dataclasses.replace(link, forward=limited(link.forward), backward=limited(link.backward))
        if is_limited(link)
        else link
        for link in network.links
    )
    return dataclasses.replace(network, links=links)
