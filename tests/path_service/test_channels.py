# SPDX-License-Identifier: Apache-2.0
"""Hosts of an emulated network join and leave groups with ordinary sockets."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.path_service.channels import THREE, Layers
from tests.path_service.networks import lab_of, mesh, tidy
from tests.path_service.scenarios import wait_until
from tests.path_service.stream import account
from topologies.emulate.emulation import Emulation
from topologies.emulate.processes import relay_program
from virtual.selftest.pair import UDP

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not relay_program().exists() or not UDP.exists(),
        reason="programs are not built (make build): NOTHING of channels was tested",
    ),
]

HOSTS = ["qb", "qc", "qd"]
FLOOD_PER_S = 10_000


@pytest.fixture(scope="module")
def running() -> Iterator[Emulation]:
    with lab_of(mesh(delayed=False)) as found:
        yield found


@pytest.fixture
def emulation(running: Emulation) -> Iterator[Emulation]:
    yield running
    tidy(running)


@pytest.fixture
def layers(emulation: Emulation, tmp_path: Path) -> Iterator[Layers]:
    found = Layers(emulation, tmp_path, HOSTS)
    yield found
    found.close()


def test_a_host_gets_what_its_socket_joins(layers: Layers) -> None:
    """qc gets channel 0 throughout, without a loss, while qb joins and leaves it. No host gets a
    frame of a channel that it has not joined."""
    layers.join("qc", 0)
    layers.wait_joined({0: {"qc"}})
    time.sleep(0.6)  # Open vSwitch's datapath follows its tables
    for channel in range(2):
        layers.send(channel)
    for _ in range(3):
        layers.join("qb", 0)
        took_s = layers.wait_joined({0: {"qb", "qc"}})
        wait_until("qb's frames are counted", lambda: layers.got().get((0, "qb"), 0) > 0)
        left = layers.leave("qb", 0)
        layers.wait_joined({0: {"qc"}})
        print(f"\njoin took {took_s * 1000:.0f} ms; qb got {len(left)} datagrams")
        assert left
    sent = layers.stop(0)
    layers.stop(1)
    found = account(layers.leave("qc", 0), 0, sent - 1)
    print(f"qc: {found}")
    assert (found.lost, found.doubled) == (0, 0)
    layers.wait_joined({})
    got = layers.got()
    assert set(got) == {(0, "qb"), (0, "qc")}, got
    assert got[0, "qb"] < got[0, "qc"]


def test_sockets_that_were_there_before_the_path_are_asked(
    emulation: Emulation, tmp_path: Path
) -> None:
    early = Layers(emulation, tmp_path, [])
    try:
        early.join("qd", 1)
        tidy(emulation)
        time.sleep(1.5)  # the kernel has sent all its unsolicited reports
        late = Layers(emulation, tmp_path, HOSTS)
        took_s = late.wait_joined({1: {"qd"}})
        print(f"\nthe query was answered after {took_s:.1f} s")
    finally:
        early.close()


def test_leave_latency_imitates_a_router(emulation: Emulation, tmp_path: Path) -> None:
    latency = dataclasses.replace(THREE, leave_latency_ms=2000)
    layers = Layers(emulation, tmp_path, HOSTS, latency)
    try:
        layers.join("qb", 2)
        layers.wait_joined({2: {"qb"}})
        layers.leave("qb", 2)
        took_s = layers.wait_joined({})
        print(f"\nthe leave took effect after {took_s:.2f} s")
        assert took_s >= 1.8
    finally:
        layers.close()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("iperf") is None, reason="iperf 2 is not installed")
def test_iperf_as_the_documentation_has_it(emulation: Emulation, layers: Layers) -> None:
    def on_path(host: str) -> str:
        return f"{THREE.base}%{emulation.network.host(host).nic1.interface}"

    listen = ["iperf", "-s", "-u", "-i", "1", "-B", on_path("qb")]
    server = emulation.popen("qb", listen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        layers.wait_joined({0: {"qb"}})
        time.sleep(0.6)
        publisher = emulation.network.publisher.name
        send = ["iperf", "-c", on_path(publisher), "-u", "-T", "8", "-b", "2M", "-t", "4"]
        emulation.run(publisher, send, check=False)
    finally:
        server.terminate()
        out, _ = server.communicate(timeout=30)
    print(out.decode())
    layers.wait_joined({})
    assert re.search(r" [12][.]\d+ Mbits/sec", out.decode()), out.decode()


@pytest.mark.long
def test_a_host_that_floods_reports_harms_nobody(layers: Layers) -> None:
    """While qb sends 10,000 reports per second, qc loses nothing, and qd joins as before."""
    layers.join("qc", 0)
    layers.wait_joined({0: {"qc"}})
    time.sleep(0.6)
    layers.send(0)
    layers.send(1)
    flood = layers.flood("qb", 2, FLOOD_PER_S, 6.0)
    time.sleep(1.0)
    layers.join("qd", 1)
    start = time.monotonic()
    while "qd" not in layers.joined().get(1, set()):
        assert time.monotonic() < start + 5.0
        time.sleep(0.02)
    took_s = time.monotonic() - start
    out, _ = flood.communicate(timeout=60)
    sent = layers.stop(0)
    layers.stop(1)
    found = account(layers.leave("qc", 0), 0, sent - 1)
    print(f"\n{int(out)} reports; qd joined after {took_s * 1000:.0f} ms; qc: {found}")
    assert int(out) >= FLOOD_PER_S * 6 * 0.5
    assert len(layers.leave("qd", 1)) > 0
    assert found.doubled == 0
