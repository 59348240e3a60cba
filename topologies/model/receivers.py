# SPDX-License-Identifier: Apache-2.0
"""A network whose receivers have links of different rates. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from topologies.model.network import Link, Network


def with_receiver_rates(
    network: Network, rate_bps: Mapping[str, int], queue_bytes: int | None = None
) -> Network:
    """Return `network` with a rate on the link to NIC1 of each named host, towards the host.

    The link lies in the host's own domain: the path service does not admit by it, as it does not
    know the networks of universities. What does not fit waits in the link's queue, then is lost.
    `queue_bytes` None: the queue that a link of this rate has.
    Raises ValueError for a host that the network does not have.
    """
    nics = {host.nic1.interface: host.name for host in network.hosts}
    if unknown := sorted(set(rate_bps) - set(nics.values())):
        valid = ", ".join(sorted(nics.values()))
        raise ValueError(f"found {unknown[0]}; valid: {valid}")

    def changed(link: Link) -> Link:
        for port, towards in ((link.b, "forward"), (link.a, "backward")):
            host = nics.get(port.interface)
            if host is not None and host in rate_bps:
                way = dataclasses.replace(
                    getattr(link, towards), rate_bps=rate_bps[host], queue_bytes=queue_bytes
                )
                return dataclasses.replace(link, **{towards: way})
        return link

    return dataclasses.replace(network, links=tuple(changed(link) for link in network.links))
