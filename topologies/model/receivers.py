# SPDX-License-Identifier: Apache-2.0
"""Change receivers' rates and round trips in a network. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from topologies.model.network import Link, Network


def with_round_trip_of(network: Network, host: str, rtt_ms: float) -> Network:
    """Return `network` with another round trip over the path for one host. The difference is added
    to the link of its NIC1, half of it in each direction.

    Raises ValueError for a round trip shorter than the host's now.
    """
    more = round((rtt_ms - network.round_trip_ms[host]) / 2, 3)
    if more < 0:
        raise ValueError(
            f"found {rtt_ms:g} ms for {host}; valid: at least {network.round_trip_ms[host]:g} ms, "
            "its round trip in the topology"
        )
    nic = network.host(host).nic1.interface

    def changed(link: Link) -> Link:
        if nic not in (link.a.interface, link.b.interface):
            return link
        there, back = link.forward, link.backward
        return dataclasses.replace(
            link,
            forward=dataclasses.replace(there, delay_ms=there.delay_ms + more),
            backward=dataclasses.replace(back, delay_ms=back.delay_ms + more),
        )

    return dataclasses.replace(
        network,
        links=tuple(changed(link) for link in network.links),
        round_trip_ms={**network.round_trip_ms, host: rtt_ms},
    )


def with_receiver_rates(
    network: Network, rate_bps: Mapping[str, int], queue_bytes: int | None = None
) -> Network:
    """Return `network` with a rate on the link to NIC1 of each named host, towards the host.

    The link is in the host's own domain. The path service does not use its rate for admission,
    since it does not know the universities' networks. What exceeds the rate waits in the link's
    queue, and what exceeds the queue is lost. `queue_bytes` None: the default queue for the rate.
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
