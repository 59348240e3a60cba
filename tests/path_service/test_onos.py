# SPDX-License-Identifier: Apache-2.0
"""The path service over a real ONOS, where the variable ONOS has its address, e.g.
http://127.0.0.1:8181. ONOS_RESTART is a command that ends ONOS and starts it again."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

import pytest

from common.onos import OnosAddress
from common.shell import check
from controller.api.path_client import PathClient
from controller.paths.core import Endpoint
from tests.path_service import scenarios
from tests.path_service.networks import endpoints, lab_of, mesh, tidy
from tests.path_service.scenarios import PATH, RATE_BPS
from tests.path_service.test_failures import show
from topologies.emulate.emulation import Emulation
from topologies.emulate.onos import Onos
from topologies.model.load import find, load

ADDRESS: Final = os.environ.get("ONOS", "")
RESTART: Final = os.environ.get("ONOS_RESTART", "")
HERE: Final = Onos.from_here(OnosAddress.parse(ADDRESS)) if ADDRESS else None
CONFIRMED_MS: Final = 1500  # with ONOS's polls every second
REROUTED_MS: Final = 100
STRANGER: Final = "cookie=0x1234,priority=7,in_port=2,dl_vlan=2078,actions=drop"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not ADDRESS, reason="ONOS= is not given: the path service over ONOS was NOT tested"
    ),
]
Table = dict[str, list[str]]


@pytest.fixture(scope="module")
def running() -> Iterator[Emulation]:
    with lab_of(mesh(delayed=False), queues=False, onos=HERE) as found:
        yield found


@pytest.fixture
def emulation(running: Emulation) -> Iterator[Emulation]:
    yield running
    tidy(running)


def table_of(switch: str) -> list[str]:
    """Return a switch's flows, groups and meters, without cookies, counters and bucket ids, and
    without two flags: ONOS always asks for a report when a flow goes, never for a meter's
    statistics, which Open vSwitch has anyway."""
    found = []
    for what in ("flows", "groups", "meters"):
        text = check(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", f"dump-{what}", switch])
        for line in text.replace("bands=\n", "bands=").splitlines():
            if line.strip() and "reply" not in line:
                bare = re.sub(
                    r"cookie=\w+,? ?|bucket_id:\d+,|send_flow_rem | stats(?= )", "", line.strip()
                )
                head, *buckets = bare.split(",bucket=")
                found.append(",bucket=".join([head, *sorted(buckets)]))
    return sorted(found)


def eight_leaves(onos: Onos | None) -> tuple[Table, list[float]]:
    """Bring up geni5 and a path with 8 leaves; return the core switches' tables, and how many ms
    each leaf took."""
    network = load(find("geni5"), {})
    times = []
    with lab_of(network, queues=False, onos=onos) as emulation:
        root, by_host = endpoints(network)
        four: list[Endpoint] = list({(e.switch, e.port): e for e in by_host.values()}.values())
        leaves = [*four, *(replace(leaf, vlan=leaf.vlan + 50, macs=()) for leaf in four)]
        assert len(leaves) == 8
        with PathClient(emulation.controller_socket) as service:
            service.create_path(PATH, root, RATE_BPS)
            for leaf in leaves:
                began = time.monotonic()
                service.add_leaf(PATH, leaf)
                times.append((time.monotonic() - began) * 1000)
        core = [s.name for s in network.switches if s.domain == emulation.network.domains[0].name]
        return {switch: table_of(switch) for switch in core}, times


def test_the_switches_have_what_they_have_without_onos() -> None:
    """This test comes first: a process can be in one network only."""
    native, _ = eight_leaves(None)
    found, times = eight_leaves(HERE)
    print("leaves confirmed after", ", ".join(f"{ms:.0f}" for ms in times), "ms")
    assert sum(len(table) for table in native.values()) > 40
    assert found == native
    assert median(times) < CONFIRMED_MS


@pytest.mark.long
def test_leaves_come_and_go(emulation: Emulation) -> None:
    figures = scenarios.joins_and_leaves(emulation, 50)
    show("50 joins and leaves over ONOS", figures)
    figures.undisturbed(["qb", "qc"])
    assert figures.times_ms["join"] < CONFIRMED_MS


def test_link_breaks(emulation: Emulation) -> None:
    figures = scenarios.link_down(emulation, silent=False)
    show("link down over ONOS", figures)
    figures.undisturbed(["qb", "qd"])
    qc = figures.accounts["qc"]
    assert qc.lost > 0, "the link did not break"
    assert qc.gap_ms < REROUTED_MS


def test_strangers_flows_stay_and_the_service_comes_back(emulation: Emulation) -> None:
    stream = scenarios.started(emulation)
    scenarios.add_flow("c", STRANGER)
    before = {switch: table_of(switch) for switch in "abcd"}
    domain = emulation.network.switches[0].domain
    emulation.kill_controller(domain)
    emulation.start_controller(domain)
    time.sleep(2.5)  # ONOS has polled the switches twice
    assert {switch: table_of(switch) for switch in "abcd"} == before
    figures = scenarios.ended(stream)
    show("path service killed over ONOS", figures)
    figures.undisturbed(scenarios.HOSTS)


@pytest.mark.skipif(not RESTART, reason="ONOS_RESTART= is not given: its restart was NOT tested")
def test_onos_starts_again(emulation: Emulation) -> None:
    stream = scenarios.started(emulation, ["qb", "qc"])
    _, leaves = endpoints(emulation.network)
    with PathClient(emulation.controller_socket) as service:
        began = time.monotonic()
        subprocess.run(RESTART, shell=True, check=True)
        scenarios.wait_until("ONOS is gone", lambda: not all(service.health()["switches"].values()))
        deadline = began + 600
        while not all(service.health()["switches"].values()):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        ready = time.monotonic()
        scenarios.add_leaf(emulation, leaves["qd"])
    time.sleep(5)
    figures = scenarios.ended(stream, {"ready again": (ready - began) * 1000})
    show("ONOS restarted", figures)
    figures.undisturbed(["qb", "qc"])
