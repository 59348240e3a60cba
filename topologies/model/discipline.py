# SPDX-License-Identifier: Apache-2.0
"""Set the queue discipline of a network's links. Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Impairment, Network


def with_discipline(network: Network, discipline: str) -> Network:
    """Return `network` with the queue discipline `discipline` ("codel", "fq_codel ecn"; empty:
    FIFO) for each direction of a link that has a rate."""

    def managed(way: Impairment) -> Impairment:
        return way if way.rate_bps is None else dataclasses.replace(way, discipline=discipline)

    links = (
        dataclasses.replace(k, forward=managed(k.forward), backward=managed(k.backward))
        for k in network.links
    )
    return dataclasses.replace(network, links=tuple(links))
