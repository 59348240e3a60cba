# SPDX-License-Identifier: Apache-2.0
"""What fails, and how a stream through the switches is affected. Open vSwitch, real processes."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from controller.api.path_client import PathClient, PathClientError
from controller.tests import process
from controller.tests.ovs_bench import (
    CORE,
    NEEDS_OPEN_VSWITCH,
    RATE,
    Bench,
    Stream,
    open_bench,
)
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT

pytestmark = NEEDS_OPEN_VSWITCH
LEASE_S = 2.0  # a busy machine must be able to renew it
RISEN = "link 's2:s3' is up"
LEAVES = ("s2", "s3", "s4")
SILENT_REASON = "link 's2:s3' is down: nothing arrives from port 2 of switch 's2'"
PORT_REASON = "link 's2:s3' is down: port . of switch 's.' is down"
# A foreign flow at s3 that takes what arrives from s2 (port 1), probes included.
SILENT_CUT = "cookie=0x1234,priority=65000,in_port=1,actions=drop"
FOREIGN = "cookie=0x1234,priority=5,in_port=7,actions=drop"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Yield a bench where controller 0 is active and 1 stands by."""
    with open_bench(controllers=2, options=("--lease-s", str(LEASE_S))) as bench:
        yield bench


def active(bench: Bench) -> int:
    for number in sorted(bench.running):
        with bench.client(number) as client:
            try:
                if client.health()["role"] == "active":
                    return number
            except PathClientError:
                continue
    return -1


def ready(bench: Bench, number: int) -> bool:
    with bench.client(number) as client:
        try:
            health = client.health()
        except PathClientError:
            return False
        return health["role"] == "active" and all(health["switches"].values())


def is_gone(bench: Bench, name: str) -> bool:
    """Delete the path; return whether it is gone. On a busy machine a controller may lose its role
    to the other one meanwhile, which then has no switch for a moment."""
    number = active(bench)
    if number < 0 or not ready(bench, number):
        return False
    with bench.client(number) as client:
        try:
            client.delete_path(name)
        except PathClientError as error:
            return error.status == 404
    return True


@pytest.fixture
def path(bench: Bench) -> Iterator[str]:
    process.wait_until("an active controller", lambda: active(bench) >= 0, 60)
    number = active(bench)
    process.wait_until("ready", lambda: ready(bench, number), 60)
    with bench.client(number) as client:
        client.create_path("NGRID", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("NGRID", leaf)
    yield "NGRID"
    process.wait_until("no path", lambda: is_gone(bench, "NGRID"), 60)


def assert_undisturbed(stream: Stream, *leaves: str) -> None:
    for leaf in leaves:
        assert (leaf, stream.lost(leaf), stream.doubled(leaf)) == (leaf, 0, 0)


def packets_of(bench: Bench, switch: str) -> int:
    text = "\n".join(bench.flows(switch))
    return sum(int(number) for number in re.findall(r"n_packets=(\d+)", text))


def restart_alone(bench: Bench) -> None:
    """Kill -9 both, and start number 0 again: no controller takes over in between."""
    for number in list(bench.running):
        bench.stop_controller(signal.SIGKILL, number)
    bench.start_controller(0)
    process.wait_until("ready", lambda: ready(bench, 0), 60)


@pytest.mark.usefixtures("path")
def test_killed_and_restarted_controller_loses_no_frame(bench: Bench) -> None:
    with Stream(bench) as stream:
        began_s = time.monotonic()
        restart_alone(bench)
        took_s = time.monotonic() - began_s
        bench.start_controller(1)
    print(
        f"\nkill -9 and restart: {stream.sent} frames, lost "
        f"{[stream.lost(leaf) for leaf in LEAVES]}, doubled "
        f"{[stream.doubled(leaf) for leaf in LEAVES]}, in order again after {took_s:.1f} s"
    )
    assert_undisturbed(stream, *LEAVES)


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_what_changed_while_no_controller_watched_is_mended_and_nothing_else(
    bench: Bench,
) -> None:
    def content() -> list[list[str]]:
        counters = r"duration=\S+ |n_\w+=\d+, |idle_age=\d+, "
        return [
            sorted(re.sub(counters, "", line) for line in (*bench.flows(s), *bench.groups(s)))
            for s in CORE.dpids
        ]

    before = content()
    packets = sum(
        int(n) for line in bench.flows("s3") for n in re.findall(r"n_packets=(\d+)", line)
    )
    for number in list(bench.running):
        bench.stop_controller(signal.SIGKILL, number)
    stale = "cookie=0x444f574e03000999,priority=1000,in_port=9,dl_vlan=999,actions=drop"
    strange = (
        "cookie=0x444f574e03000998,priority=1000,in_port=9,dl_vlan=998,actions=pop_vlan,output:1"
    )
    for flow in (FOREIGN, stale, strange):
        bench.ofctl("add-flow", "s4", flow)
    bench.ofctl("add-group", "s4", "group_id=999,type=select,bucket=actions=output:1")
    bench.ofctl("add-group", "s4", "group_id=16777999,type=all,bucket=actions=output:1")
    bench.ofctl("add-meter", "s4", "meter=999,kbps,band=type=drop,rate=5")
    bench.ofctl("del-flows", "s4", "in_port=9,dl_vlan=104")  # the leaf's
    with Stream(bench) as stream:
        bench.start_controller(0)
        process.wait_until("ready", lambda: ready(bench, 0), 60)
    assert_undisturbed(stream, *LEAVES)
    at_s4 = bench.dump("flows", "s4")
    assert any("cookie=0x1234" in line for line in at_s4)
    assert not any("dl_vlan=999" in line or "dl_vlan=998" in line for line in at_s4)
    bench.ofctl("del-flows", "s4", "cookie=0x1234/-1")
    (kept,) = [line for line in bench.groups("s4") if "group_id=16777999" in line]
    bench.ofctl("del-groups", "s4", "group_id=16777999")
    assert kept
    assert content() == before
    assert bench.meters("s4") == []
    assert (
        packets_of(bench, "s3") > packets
    )  # entries that were right were not installed again: their counters continued
    bench.start_controller(1)


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_standby_takes_over_without_a_frame_lost(bench: Bench) -> None:
    first, second = 0, 1
    assert active(bench) == first
    with bench.client(second) as client:
        with pytest.raises(PathClientError, match="standby") as caught:
            client.create_path("other", ROOT, RATE)
        assert caught.value.status == 503
    # Switches try again after up to 8 s where no controller listened.
    process.wait_until("switches at the standby", lambda: slaves(bench, second) >= 4, 60)
    with Stream(bench) as stream:
        began_s = time.monotonic()
        bench.stop_controller(signal.SIGKILL, first)
        process.wait_until("takeover", lambda: active(bench) == second, 60)
        active_s = time.monotonic() - began_s
        process.wait_until("all switches", lambda: ready(bench, second), 60)
        ready_s = time.monotonic() - began_s
        with bench.client(second) as client:
            assert len(client.get("NGRID")["leaves"]) == 3
            client.remove_leaf("NGRID", LEAF_4)
            client.add_leaf("NGRID", LEAF_4)
        bench.start_controller(first)
        with bench.client(first) as client:
            assert client.health()["role"] == "standby"
    print(
        f"\nkill -9 of the active controller (lease {LEASE_S:g} s): the standby is active after "
        f"{active_s:.2f} s, has all switches after {ready_s:.2f} s; {stream.sent} frames, lost "
        f"{[stream.lost(leaf) for leaf in LEAVES[:2]]}"
    )
    assert_undisturbed(stream, "s2", "s3")
    bench.stop_controller(signal.SIGTERM, second)  # gives the lease back
    process.wait_until("the first again", lambda: ready(bench, first), 60)
    bench.start_controller(second)


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_a_stall_of_both_controllers_changes_no_role(bench: Bench) -> None:
    """As when the whole machine stands still for longer than the lease."""
    number = active(bench)
    logs = [bench.log(each) for each in bench.running]
    before = [log.read_text() for log in logs]
    standby_first = sorted(bench.running, key=lambda each: each == number)
    for each in standby_first:
        bench.running[each].send_signal(signal.SIGSTOP)
    time.sleep(2 * LEASE_S)
    for each in standby_first:
        bench.running[each].send_signal(signal.SIGCONT)
    time.sleep(LEASE_S)
    said = "".join(log.read_text()[len(old) :] for log, old in zip(logs, before, strict=True))
    assert not re.search("active now|standing by", said), said
    assert ready(bench, number)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "port-status"])
@pytest.mark.usefixtures("path")
def test_dead_link_is_found_and_the_tree_moves(bench: Bench, silent: bool) -> None:
    """s2:s3 fails. From then on s3 is reached over s1:s3; s2 and s4 notice nothing."""
    number = active(bench)
    risen = rises(bench, number)
    before = len(bench.log(number).read_text())
    with bench.client(number) as client, Stream(bench) as stream:
        process.wait_until("frames at s3", lambda: stream.heard["s3"].last_s > 0)
        time.sleep(0.5)
        if silent:
            bench.ofctl("add-flow", "s3", SILENT_CUT)
        else:
            bench.vsctl("del-port", "s3", "s3-p1")
        process.wait_until("the other way", lambda: uses(client, "s1", "s3"), 60)
        time.sleep(1)
        said = bench.log(number).read_text()[before:]
        assert re.search(SILENT_REASON if silent else PORT_REASON, said), said
        if silent:
            bench.ofctl("del-flows", "s3", "cookie=0x1234/-1")
        else:
            bench.vsctl(*bench.patch_port("s3", 1, "s2", 2).commands)
        process.wait_until(
            "link up", lambda: bench.log(number).read_text().count(RISEN) > risen, 60
        )
    print(
        f"\nlink dead ({'silent' if silent else 'port status'}): gap at the leaf behind it "
        f"{stream.heard['s3'].longest_gap_s * 1000:.0f} ms, {stream.lost('s3')} frames of 500 per s"
    )
    assert_undisturbed(stream, "s2", "s4")
    assert stream.doubled("s3") == 0


@pytest.mark.long
@pytest.mark.usefixtures("path")
def test_links_that_are_wired_otherwise_are_reported_and_avoided(bench: Bench) -> None:
    """Port 2 of s2 and port 3 of s3 are connected to each other: neither s2:s3 nor s3:s4 is what
    the network description says, and s3 is reached over s1."""
    number = active(bench)
    risen = rises(bench, number)

    def peers(second: str, third: str) -> None:
        bench.vsctl(
            *("set", "interface", "s2-p2", f"options:peer={second}"),
            *("--", "set", "interface", "s3-p3", f"options:peer={third}"),
        )

    with bench.client(number) as client, Stream(bench) as stream:
        peers("s3-p3", "s2-p2")
        process.wait_until("the other way", lambda: uses(client, "s1", "s3"), 60)
        process.wait_until(
            "a report", lambda: "wired differently: port" in bench.log(number).read_text()
        )
        peers("s3-p1", "s4-p2")
        process.wait_until("link up", lambda: rises(bench, number) > risen, 60)
    assert_undisturbed(stream, "s2", "s4")


def uses(client: PathClient, source: str, target: str) -> bool:
    return any((e["from"], e["to"]) == (source, target) for e in client.get("NGRID")["edges"])


def rises(bench: Bench, number: int) -> int:
    return bench.log(number).read_text().count(RISEN)


def slaves(bench: Bench, number: int) -> int:
    """Return how many switches have confirmed the role since the controller started."""
    lines = bench.log(number).read_text().splitlines()
    return len({line for line in lines if "confirmed the role: slave" in line})
