# SPDX-License-Identifier: Apache-2.0
"""Controller processes of three domains over Open vSwitch: paths over several domains, and what is
left on the switches when a domain refuses, does not answer, or dies at any message."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.api.path_client import PathClientError
from controller.federation.tests.bench import Bench
from controller.federation.tests.networks import chain, endpoint
from controller.paths.core import Endpoint
from topologies.model.network import Impairment

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace"),
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]

GROUP = "01:00:5e:01:01:01"
RATE = 20_000_000
ROOT, NEAR, IN_B, IN_C = endpoint("a1"), endpoint("a2"), endpoint("b2"), endpoint("c2")
State = dict[str, list[str]]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    slow = Impairment(rate_bps=30_000_000, delay_ms=1)  # not emulated; it bounds reservations
    network = chain("abc")
    links = tuple(
        replace(k, forward=slow, backward=slow) if k.name == "c1:c2" else k for k in network.links
    )
    # Not tmp_path: the management sockets' names must fit into 108 characters.
    with tempfile.TemporaryDirectory(prefix="fedtest-") as directory:
        bench = Bench(Path(directory), replace(network, links=links))
        try:
            bench.open()
            yield bench
        finally:
            bench.close()


@pytest.fixture
def empty(bench: Bench) -> Iterator[State]:
    """Make a path in domain a without leaves; yield the state of all switches with it."""
    with bench.client("a") as client:
        client.create_path("P", ROOT, RATE)
    yield bench.state()
    for proxy in bench.proxies.values():
        proxy.hook = lambda _kind, _phase: True
    with bench.client("a") as client:
        for shown in client.paths():
            client.delete_path(shown["name"])


def join(bench: Bench, leaf: Endpoint, path: str = "P") -> None:
    with bench.client("a") as client:
        shown = client.add_leaf(path, leaf)
    assert shown["state"] == "up"


def leave(bench: Bench, leaf: Endpoint) -> None:
    with bench.client("a") as client:
        client.remove_leaf("P", leaf)


def test_frames_cross_three_domains(bench: Bench, empty: State) -> None:
    for leaf in (IN_C, IN_B, NEAR):
        join(bench, leaf)
    everyone: list[tuple[str, int | None]] = [("a2", 101), ("b2", 101), ("c2", 101)]
    bench.expect(everyone, "a1", GROUP, ROOT.macs[0], 101)
    bench.expect([("c2", 101)], "a1", IN_C.macs[0], ROOT.macs[0], 101)
    bench.expect([("b2", 101)], "a1", IN_B.macs[0], ROOT.macs[0], 101)
    bench.expect([("a1", 101)], "c2", ROOT.macs[0], IN_C.macs[0], 101)
    assert bench.deliver("c2", IN_B.macs[0], IN_C.macs[0], 101) == []
    assert bench.deliver("c2", GROUP, IN_C.macs[0], 101) == []
    leave(bench, IN_C)
    bench.expect(everyone[:2], "a1", GROUP, ROOT.macs[0], 101)
    leave(bench, IN_B)
    leave(bench, NEAR)
    assert bench.state() == empty


def test_a_domain_without_capacity_refuses(bench: Bench, empty: State) -> None:
    with bench.client("a") as client:
        client.create_path("Q", endpoint("a1", 2), RATE)
    join(bench, endpoint("c2", 2), "Q")
    before = bench.state()
    with pytest.raises(PathClientError) as refused:
        join(bench, IN_C)
    assert refused.value.status == 409
    assert str(refused.value).startswith("domain 'c': link 'c1:c2'")
    assert "30000000 bit/s" in str(refused.value)
    assert bench.state() == before
    with bench.client("a") as client:
        client.delete_path("Q")
    assert bench.state() == empty


@pytest.mark.long
def test_a_stopped_controller_does_not_answer_in_time(bench: Bench, empty: State) -> None:
    bench.controllers["c"].send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(PathClientError) as late:
            join(bench, IN_C)
        took_s = time.monotonic() - started
        assert late.value.status == 504
        assert "domain 'c' did not answer reserve" in str(late.value)
        # A leaf that does not need domain c is not affected.
        join(bench, IN_B)
        leave(bench, IN_B)
    finally:
        bench.controllers["c"].send_signal(signal.SIGCONT)
    print(f"\na domain that does not answer is given up after {took_s:.1f} s")
    # What was sent to it is still in its socket, and is processed in any order.
    bench.wait_for_state(empty)
    wait_settled(bench)
    assert bench.state() == empty
    join(bench, IN_C)
    bench.expect([("c2", 101)], "a1", GROUP, ROOT.macs[0], 101)


def wait_settled(bench: Bench) -> None:
    """Wait until no domain knows of a segment or of a reservation."""
    until = time.monotonic() + 60
    while any(bench.get(domain, "/v1/domains/connections") for domain in bench.domains):
        assert time.monotonic() < until, [
            bench.get(domain, "/v1/domains/connections") for domain in bench.domains
        ]
        time.sleep(0.1)


DEATHS = [
    ("reserve", "after", "a"),
    ("commit", "after", "b"),
    ("commit", "after", "a"),
    ("commit", "after", "c"),
]


# In test_protocol.py any message may be the last one.
@pytest.mark.long
@pytest.mark.parametrize(("kind", "phase", "victim"), DEATHS)
def test_death_while_a_leaf_joins(
    bench: Bench, empty: State, kind: str, phase: str, victim: str
) -> None:
    """Kill -9 the coordinator or a participant when domain c gets a message, or has carried it out
    (its answer is lost): afterwards nothing of the attempt is left, on any switch."""
    killed = kill_once(bench, kind, phase, victim)
    try:
        with pytest.raises(PathClientError):
            join(bench, IN_C)
        assert killed.is_set()
    finally:
        bench.restart(victim)
    bench.wait_for_state(empty)
    wait_settled(bench)
    assert bench.state() == empty
    join(bench, IN_C)
    bench.expect([("c2", 101)], "a1", GROUP, ROOT.macs[0], 101)


def kill_once(bench: Bench, kind: str, phase: str, victim: str) -> threading.Event:
    """Kill at the next such message from domain a to domain c, which is lost with its answer."""
    killed = threading.Event()

    def hook(found: str, when: str) -> bool:
        if (found, when) != (kind, phase) or killed.is_set():
            return True
        killed.set()
        bench.kill(victim)
        return False

    bench.proxies["a", "c"].hook = hook
    return killed


@pytest.mark.long
def test_death_while_a_leaf_leaves(bench: Bench, empty: State) -> None:
    """What was decided is done, even if the coordinator dies in between; other leaves stay."""
    join(bench, IN_B)
    with_b = bench.state()
    join(bench, IN_C)
    killed = kill_once(bench, "release", "before", "a")
    try:
        with pytest.raises(PathClientError):
            leave(bench, IN_C)
        assert killed.is_set()
    finally:
        bench.restart("a")
    bench.wait_for_state(with_b)
    bench.expect([("b2", 101)], "a1", GROUP, ROOT.macs[0], 101)
    leave(bench, IN_B)
    assert bench.state() == empty


@pytest.mark.long
def test_all_controllers_die_and_the_path_stays(bench: Bench, empty: State) -> None:
    join(bench, IN_C)
    before = bench.state()
    for domain in bench.domains:
        bench.kill(domain)
    assert bench.deliver("a1", GROUP, ROOT.macs[0], 101) == [("c2", 101)]
    for domain in bench.domains:
        bench.restart(domain)
    assert bench.state() == before
    leave(bench, IN_C)
    assert bench.state() == empty


@pytest.mark.long
@pytest.mark.usefixtures("empty")
def test_set_up_time(bench: Bench) -> None:
    """Print figures: from the request to the answer, with all switches confirmed; medians of
    three."""
    figures: dict[str, float] = {}
    for name, leaf in (("one domain", NEAR), ("two domains", IN_B), ("three domains", IN_C)):
        times: list[float] = []
        for _ in range(3):
            started = time.monotonic()
            join(bench, leaf)
            times.append((time.monotonic() - started) * 1000)
            leave(bench, leaf)
        figures[name] = statistics.median(times)
    print()
    for name, ms in figures.items():
        print(f"set-up of a leaf over {name}: {ms:.1f} ms")
    assert figures["three domains"] < 5000
