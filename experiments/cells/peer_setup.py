# SPDX-License-Identifier: Apache-2.0
"""Set up a protocol's adapter for a cell."""

from __future__ import annotations

from pathlib import Path

from experiments.cells.job import Job
from experiments.design.carousel import PORT
from protocols.adapter import Setup, Station
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network


def setup_of(job: Job, network: Network, emulation: Emulation, work: Path) -> Setup:
    """Return the set-up of a cell. `work`: where its files go."""
    cell = job.cell

    def station(host: str) -> Station:
        return Station(network.host(host).nic1.ip, emulation.nic1_of(host))

    hosts = cell.subscribing(h.name for h in network.subscribers)
    return Setup(
        build=job.build,
        work=work,
        sender=station(network.publisher.name),
        receivers=tuple(station(host) for host in hosts),
        group=network.multicast_group,
        port=PORT,
        rate_bps=cell.shaped_bps,
        loss=max((cell.loss, *cell.by_receiver(hosts, "p_i").values())),
        delay_ms=max(network.round_trip_ms[host] for host in hosts) / 2,
        rcvbuf_bytes=cell.b_rcv_bytes,
        rcvbufs=tuple(cell.b_rcv_of(hosts).values()),
        file_bytes=cell.carousel.file_bytes,
    )
