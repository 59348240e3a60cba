# SPDX-License-Identifier: Apache-2.0
"""Lose frames on the publisher's hand-off link, so that all subscribers miss them. Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Link, Network


def with_handoff_loss(network: Network, loss: float) -> Network:
    """Return `network` with `loss` on the publisher's hand-off link, for frames from the publisher.

    The hand-off link joins the publisher's static segment to the path service: all subscribers miss
    what is lost there, as DRFSM21 5.2 (Table 5) assumes for the publisher's regional network.
    Frames towards the publisher are not lost. Raises ValueError if `loss` is not a probability.
    """
    if not 0 <= loss < 1:
        raise ValueError(f"found a loss of {loss:g}; valid: a probability below 1")
    segment = network.segment_of(network.publisher.name)
    ends = {segment.edge_switch, segment.endpoint_switch}

    def changed(link: Link) -> Link:
        if {link.a.node, link.b.node} != ends:
            return link
        away = "forward" if link.a.node == segment.edge_switch else "backward"
        impaired = dataclasses.replace(getattr(link, away), loss=loss)
        return dataclasses.replace(link, **{away: impaired})

    return dataclasses.replace(network, links=tuple(changed(link) for link in network.links))
