# SPDX-License-Identifier: Apache-2.0
"""Make the test network, and a test's paths in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controller.api.path_client import PathClient, endpoints_of
from controller.paths.core import Endpoint
from tests.path_service.stream import Stream
from topologies.emulate import lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.emulate.facts import KernelFacts
from topologies.emulate.onos import Onos
from topologies.model.load import load
from topologies.model.network import Impairment, Network

MESH: Final = Path(__file__).parent / "mesh.yaml"
DOMAIN: Final = "core"


def mesh(*, lanes: int = 1, delayed: bool, rate_bps: int | None = 120_000_000) -> Network:
    """Return `mesh.yaml`, without delays if they only burden a machine's processors. Core links
    have `rate_bps` and queue 50 ms of it."""
    network = load(MESH, {"lanes": lanes})
    core = {s.name for s in network.switches if s.domain == DOMAIN}

    def changed(old: Impairment) -> Impairment:
        queue = None if rate_bps is None else rate_bps * 50 // 8000
        delay_ms = old.delay_ms if delayed else 0.0
        return Impairment(rate_bps=rate_bps, delay_ms=delay_ms, queue_bytes=queue)

    links = [
        dataclasses.replace(link, forward=changed(link.forward), backward=changed(link.backward))
        if {link.a.node, link.b.node} <= core
        else link
        for link in network.links
    ]
    return dataclasses.replace(network, links=tuple(links))


@contextmanager
def lab_of(
    network: Network,
    facts: KernelFacts | None = None,
    *,
    queues: bool = True,
    lease_s: float = 0.0,
    onos: Onos | None = None,
) -> Iterator[Emulation]:
    """Bring a network up in its own run; take it down at the end."""
    run_id = lifecycle.new_run_id("paths")
    with (
        lifecycle.enter(run_id) as run,
        open_emulation(
            network,
            run.state_dir,
            facts=facts,
            queues=queues,
            lease_s=lease_s,
            controllers=onos or True,
        ) as emulation,
    ):
        yield emulation


def endpoints(network: Network, lane: int = 1) -> tuple[Endpoint, dict[str, Endpoint]]:
    """Return the publisher's endpoint, and the others by host."""
    root, leaves = endpoints_of(network, lane)
    by_key = {(e.switch, e.port, e.vlan): e for e in leaves.values()}
    found = {}
    for host in network.subscribers:
        segment = network.segment_of(host.name, lane)
        key = (segment.endpoint_switch, segment.endpoint_port, segment.vlan)
        found[host.name] = by_key[key]
    return root, found


def make_path(
    emulation: Emulation, name: str, rate_bps: int, hosts: list[str], *, lane: int = 1
) -> dict[str, Endpoint]:
    """Create a path from the publisher to `hosts`; return the endpoints of all hosts."""
    root, leaves = endpoints(emulation.network, lane)
    with PathClient(emulation.controller_socket) as service:
        service.create_path(name, root, rate_bps)
        for host in hosts:
            service.add_leaf(name, leaves[host])
    return leaves


def tidy(emulation: Emulation) -> None:
    """Mend all links, and end all streams and paths, for the next test on the same network."""
    Stream.abandon_all()
    for link in emulation.broken_links:
        emulation.mend(link)
    with PathClient(emulation.controller_socket) as service:
        for path in service.paths():
            service.delete_path(path["name"])
