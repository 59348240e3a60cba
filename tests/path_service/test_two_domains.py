# SPDX-License-Identifier: Apache-2.0
"""Two controllers set up a path over their two core networks, with the traffic and delays of
twocores.yaml's hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.api.path_client import PathClient, PathClientError
from tests.path_service import scenarios
from tests.path_service.networks import endpoints, lab_of, make_path
from tests.path_service.stream import Stream
from topologies.emulate.emulation import Emulation
from topologies.emulate.processes import relay_program
from topologies.model.load import find, load
from virtual.selftest.pair import UDP

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not relay_program().exists() or not UDP.exists(),
        reason="programs are not built (make build): NOTHING of two domains was tested",
    ),
]

RATE_BPS = 20_000_000
HERE = ["uva"]  # in the root's domain
THERE = ["knmi", "dwd", "reading", "bologna"]  # in the other domain
MARGIN_S = 1.0
INTERVAL_US = 2000
FIRST = scenarios.FIRST * 1000 // INTERVAL_US  # the same time


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with lab_of(load(find("twocores"))) as emulation:
        yield emulation


@pytest.fixture
def path(emulation: Emulation) -> Iterator[PathClient]:
    """Make the path P with subscribers in both domains; delete it at the end."""
    make_path(emulation, "P", RATE_BPS, [*HERE, *THERE])
    with PathClient(emulation.controller_socket, timeout_s=60) as service:
        yield service
        service.delete_path("P")
    with PathClient(emulation.controller_sockets["geant"]) as other:
        assert other.paths() == []


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_round_trips_are_those_of_the_topology(emulation: Emulation) -> None:
    """Unicast and address resolution work both ways over the hand-off."""
    for host in ("uva", "knmi", "bologna"):
        argv = ["ping", "-n", "-c", "20", "-i", "0.1", emulation.network.host(host).nic1.ip]
        text = emulation.run(emulation.network.publisher.name, argv, check=False).stdout
        times = [float(x) for x in re.findall(r"time=([\d.]+) ms", text)]
        assert len(times) >= 6, text
        asked_ms = emulation.network.round_trip_ms[host]
        print(f"\nround trip to {host}: asked {asked_ms:g} ms, found {min(times):.1f} ms")
        # ping prints three digits, and other work on the machine adds delay.
        assert asked_ms - 1 <= min(times) <= 3 * asked_ms


@pytest.mark.long
def test_others_come_and_go(emulation: Emulation, path: PathClient, tmp_path: Path) -> None:
    """Hosts that stay get each datagram once while leaves across the same hand-off change."""
    leaves = endpoints(emulation.network)[1]
    staying = ["uva", "knmi", "bologna"]
    stream = Stream(emulation, tmp_path, staying, interval_us=INTERVAL_US)
    time.sleep(MARGIN_S)
    for _ in range(5):
        for host in ("dwd", "reading"):
            path.remove_leaf("P", leaves[host])
        for host in ("reading", "dwd"):
            path.add_leaf("P", leaves[host])
    time.sleep(MARGIN_S)
    result = stream.stop()
    print()
    for host in staying:
        found = result.at(host, FIRST)
        print(f"{host}: {found}")
        assert (found.lost, found.doubled) == (0, 0)


def test_the_hand_off_fails(emulation: Emulation, path: PathClient, tmp_path: Path) -> None:
    """Its leaves get the stream over the other hand-off; the others miss nothing."""
    stream = Stream(emulation, tmp_path, [*HERE, *THERE], interval_us=INTERVAL_US)
    time.sleep(MARGIN_S)
    emulation.cut("newy:lond")
    try:
        until = time.monotonic() + 60
        time.sleep(1)
        while path.get("P")["state"] != "up":
            assert time.monotonic() < until, path.get("P")
            time.sleep(0.1)
        time.sleep(MARGIN_S)
    finally:
        emulation.mend("newy:lond")
    result = stream.stop()
    print()
    for host in (*HERE, *THERE):
        found = result.at(host, FIRST)
        print(f"{host}: {found}")
        assert found.doubled == 0
        assert found.lost == 0 if host in HERE else found.lost > 0
        last = result.arrivals[host][-1].sequence
        assert last >= result.sent - 500, f"{host} was not served to the end"


def test_controllers_die_and_come_back(
    emulation: Emulation, path: PathClient, tmp_path: Path
) -> None:
    """After both are killed the stream continues; after their return the path can change."""
    stream = Stream(emulation, tmp_path, [*HERE, *THERE], interval_us=INTERVAL_US)
    time.sleep(MARGIN_S)
    for domain in ("internet2", "geant"):
        emulation.kill_controller(domain)
    time.sleep(MARGIN_S)
    for domain in ("geant", "internet2"):
        emulation.start_controller(domain)
    leaves = endpoints(emulation.network)[1]
    wait_up(path)
    path.remove_leaf("P", leaves["dwd"])
    path.add_leaf("P", leaves["dwd"])
    time.sleep(MARGIN_S)
    result = stream.stop()
    print()
    for host in ("uva", "knmi", "reading", "bologna"):
        found = result.at(host, FIRST)
        print(f"{host}: {found}")
        assert (found.lost, found.doubled) == (0, 0)


def wait_up(path: PathClient, limit_s: float = 60) -> None:
    until = time.monotonic() + limit_s
    while True:
        try:
            if path.get("P")["state"] == "up":
                return
        except PathClientError:
            pass
        assert time.monotonic() < until, "the path is not up again"
        time.sleep(0.1)


@pytest.mark.long
def test_a_rate_that_the_other_domain_has_not(emulation: Emulation) -> None:
    """150 Mbit/s do not fit into the links to Milan, which have 100 Mbit/s; they fit to London."""
    root, leaves = endpoints(emulation.network)
    with PathClient(emulation.controller_socket, timeout_s=60) as service:
        service.create_path("big", root, 150_000_000)
        try:
            with pytest.raises(PathClientError) as refused:
                service.add_leaf("big", leaves["bologna"])
            assert refused.value.status == 409
            assert str(refused.value).startswith("domain 'geant': ")
            print(f"\n{refused.value}")
            shown = service.add_leaf("big", leaves["reading"])
            assert shown["state"] == "up"
        finally:
            service.delete_path("big")
    with PathClient(emulation.controller_sockets["geant"]) as other:
        assert other.paths() == []
