# SPDX-License-Identifier: Apache-2.0
"""A host is on two paths at once in an emulated network: each lane carries only the frames of its
own path, once that path exists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.api.path_client import PathClient, endpoints_of
from topologies.emulate import lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.emulate.processes import relay_program
from topologies.model.load import load
from topologies.tests.networks import TWO_SITES

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    pytest.mark.skipif(
        not relay_program().exists(), reason="SKIPPED: run `make build` first: NO lane was tested"
    ),
]

TOPOLOGY = TWO_SITES.replace("239.10.1.1 }", "239.10.1.1, lanes: 2 }")


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    path: Path = tmp_path_factory.mktemp("lanes") / "lanes.yaml"
    path.write_text(TOPOLOGY)
    with (
        lifecycle.enter(lifecycle.new_run_id("test-lanes")) as run,
        open_emulation(load(path), run.state_dir) as emulation,
    ):
        yield emulation


def answers(emulation: Emulation, lane: int) -> bool:
    """Return whether the publisher answers a few pings on this lane."""
    target = emulation.network.publisher.path_nic(lane).ip
    emulation.run(
        "sub", ["ip", "neigh", "flush", "all"]
    )  # the kernel remembers a failed resolution for a while
    ping = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "2", target]
    text = emulation.run("sub", ping, check=False).stdout
    (received,) = re.findall(r"(\d+) received", text)
    return int(received) > 0


def arrived(emulation: Emulation) -> dict[str, int]:
    """Return how many frames each of the subscriber's path NICs has received."""
    counters = emulation.counters()["interfaces"]
    nics = [emulation.network.host("sub").path_nic(lane).interface for lane in (1, 2)]
    return {nic: counters[f"sub/{nic}"]["rx_packets"] for nic in nics}


def multicast(emulation: Emulation, lane: int, datagrams: int) -> None:
    """Send datagrams to the lane's group. The publisher's routes choose the NIC."""
    send = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)\n"
        f"for i in range({datagrams}): s.sendto(b'x', ('{emulation.network.group_of(lane)}', 5555))"
    )
    emulation.run("pub", ["python3", "-c", send])


def test_lanes_are_apart(emulation: Emulation) -> None:
    assert not answers(emulation, 1)
    assert not answers(emulation, 2)
    with PathClient(emulation.controller_socket) as service:
        for lane in (2, 1):
            root, leaves = endpoints_of(emulation.network, lane)
            (leaf,) = leaves.values()
            service.create_path(f"p{lane}", root, 10_000_000)
            service.add_leaf(f"p{lane}", leaf)
            assert answers(emulation, lane)
            if lane == 2:
                assert not answers(emulation, 1)
    first, second = arrived(emulation)
    for lane, nic, other in ((1, first, second), (2, second, first)):
        before = arrived(emulation)
        multicast(emulation, lane, 50)
        after = arrived(emulation)
        assert after[nic] - before[nic] >= 50
        assert after[other] - before[other] < 10  # address resolution at most
