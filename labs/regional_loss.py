# SPDX-License-Identifier: Apache-2.0
"""The hidden loss of lab 11: packets are lost between Internet2 and one subscriber's regional
network. The place and the share follow from a seed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.network import Network

LOSS_SEED: Final = "loss_seed"  # the lab's parameter that decides the place
PERCENT: Final = (2, 3, 4)


@dataclass(frozen=True)
class RegionalLoss:
    """`network`: the domain of the regional network, `host`: the subscriber behind it; `percent`
    of the packets towards it are lost."""

    network: str
    host: str
    percent: int


def regional_loss(seed: int, network: Network, subscribers: Sequence[str]) -> RegionalLoss:
    """Return which regional network of `subscribers` loses packets, and what share of them."""
    seed, place = divmod(seed, len(subscribers))
    host = subscribers[place]
    return RegionalLoss(network.segment_of(host).domain, host, PERCENT[seed % len(PERCENT)])


def with_regional_loss(network: Network, found: RegionalLoss) -> Network:
    """Return `network` with that loss added."""
    return with_handoff_loss(network, found.percent / 100, found.host)
