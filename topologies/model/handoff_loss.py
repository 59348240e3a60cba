# SPDX-License-Identifier: Apache-2.0
"""Lose frames on a hand-off link: the publisher's, so that all subscribers miss them, or one
subscriber's. Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Link, Network


def with_handoff_loss(network: Network, loss: float, host: str | None = None) -> Network:
    """Return `network` with `loss` on the hand-off link of `host` (default: the publisher), for
    frames from the publisher.

    The hand-off link joins a host's static segment to the path service. All subscribers miss what
    the publisher's link loses, as DRFSM21 5.2 (Table 5) assumes for its regional network. Frames
    towards the publisher are not lost. Raises ValueError if `loss` is not a probability.
    """
    if not 0 <= loss < 1:
        raise ValueError(f"found a loss of {loss:g}; valid: a probability below 1")
    publisher = network.publisher.name
    segment = network.segment_of(host or publisher)
    ends = {segment.edge_switch, segment.endpoint_switch}
    source = segment.edge_switch if host in (None, publisher) else segment.endpoint_switch

    def changed(link: Link) -> Link:
        if {link.a.node, link.b.node} != ends:
            return link
        away = "forward" if link.a.node == source else "backward"
        impaired = dataclasses.replace(getattr(link, away), loss=loss)
        return dataclasses.replace(link, **{away: impaired})

    return dataclasses.replace(network, links=tuple(changed(link) for link in network.links))
