# SPDX-License-Identifier: Apache-2.0
"""The controller process and a real Open vSwitch: what is planned is installed and forwards."""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

import pytest

from controller.api.answers import PathAnswer
from controller.api.path_client import PathClient, PathClientError
from controller.paths import igmp
from controller.paths.entries import Flow, Kind, kind_of
from controller.paths.forwarding import base_entries
from controller.paths.igmp import Filter, Record, Report
from controller.paths.multipoint_path import Channels, MultipointPath
from controller.paths.plan import entries_of
from controller.tests import process
from controller.tests.ovs_bench import (
    ARP,
    BROADCAST,
    CORE,
    EVERYONE,
    MULTICAST,
    NEEDS_OPEN_VSWITCH,
    RATE,
    Bench,
    open_bench,
)
from controller.tests.planning import grown
from controller.tests.sample import (
    LEAF_2,
    LEAF_3,
    LEAF_4,
    MAC_1,
    MAC_2,
    MAC_3A,
    MAC_4,
    ROOT,
)
from controller.tests.switches import DATAPATH, PLAIN_TYPE, raw_mac, receive

pytestmark = NEEDS_OPEN_VSWITCH


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_bench() as bench:
        yield bench


@pytest.fixture
def path(bench: Bench) -> Iterator[PathClient]:
    """Make a path with three leaves, which is deleted at the end."""
    with bench.client() as client:
        client.create_path("NGRID", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("NGRID", leaf)
        yield client
        for shown in client.paths():
            client.delete_path(shown["name"])


def test_the_framework_is_the_one_that_was_asked_for(bench: Bench) -> None:
    expected = os.environ.get("DOWNPOUR_EXPECT_FRAMEWORK", "")
    assert f"with {expected}" in bench.log().read_text()


def meter_id(path: PathAnswer) -> int:
    assert path["meter"] is not None
    return path["meter"]["id"]


def test_the_datapath_is_the_one_that_was_asked_for(bench: Bench) -> None:
    for switch in CORE.dpids:
        assert bench.vsctl("get", "bridge", switch, "datapath_type").strip() == DATAPATH


def test_switches_hold_what_was_planned(bench: Bench, path: PathClient) -> None:
    shown = path.get("NGRID")
    assert shown["state"] == "up"
    number = meter_id(shown)
    planned = grown(CORE, MultipointPath("NGRID", number, ROOT, RATE), LEAF_2, LEAF_3, LEAF_4)
    base = base_entries(CORE)
    for switch, entries in entries_of(CORE, planned).items():
        flows = [e for e in (*entries, *base[switch]) if isinstance(e, Flow)]
        probes = [flow for flow in flows if kind_of(flow.cookie) is Kind.LLDP]
        assert len(bench.flows(switch)) == len(flows) - len(probes)
        assert len(bench.groups(switch)) == 1
    # Written by hand: 4396 = 0x1000|300, 4406 = 0x1000|310, 4426 = |330, 4198 = |102.
    (group,) = bench.groups("s1")
    assert f"group_id={number},type=all,bucket=" in group
    assert re.findall(r"set_field:(\d+)->vlan_vid", group) == ["4396"]
    (group,) = bench.groups("s2")
    assert re.findall(r"set_field:(\d+)->vlan_vid", group) == ["4406", "4426", "4198"]
    (meter,) = bench.meters("s1")
    assert meter.startswith(f"meter={number} kbps burst stats")
    assert meter.endswith("type=drop rate=20000 burst_size=1000")
    for switch in ("s2", "s3", "s4"):
        assert bench.meters(switch) == []
    ingress = [line for line in bench.flows("s1") if f"meter:{number}" in line]
    assert len(ingress) == 5  # multicast, and the four hosts' addresses
    assert all("dl_vlan=101" in line and f"dl_src={MAC_1}" in line for line in ingress)


@pytest.mark.usefixtures("path")
def test_frames_arrive_translated(bench: Bench) -> None:
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    bench.expect(EVERYONE, "s1", BROADCAST, MAC_1, 101, ARP)
    bench.expect([("s3", 103)], "s1", MAC_3A, MAC_1, 101)
    bench.expect([("s2", 102)], "s1", MAC_2, MAC_1, 101)
    bench.expect([("s1", 101)], "s4", MAC_1, MAC_4, 104)
    bench.expect([("s1", 101)], "s3", BROADCAST, MAC_3A, 103, ARP)


@pytest.mark.usefixtures("path")
def test_other_frames_do_not_pass(bench: Bench) -> None:
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    assert bench.deliver("s1", MULTICAST, MAC_1, 999) == []
    assert bench.deliver("s1", MULTICAST, MAC_2, 101) == []
    assert bench.deliver("s1", MULTICAST, MAC_1, 300) == []
    assert bench.deliver("s2", MULTICAST, MAC_2, 102) == []
    assert bench.deliver("s2", MAC_4, MAC_2, 102) == []
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)


def test_leaf_leaves_and_joins(bench: Bench, path: PathClient) -> None:
    at_s3 = sorted(
        re.sub(r"duration=\S+ |n_\w+=\d+, |idle_age=\d+, ", "", f) for f in bench.flows("s3")
    )
    path.remove_leaf("NGRID", LEAF_4)
    assert len(bench.flows("s4")) == 2  # table miss, wrong VLAN at port 9
    assert bench.groups("s4") == []
    bench.expect([("s2", 102), ("s3", 103)], "s1", MULTICAST, MAC_1, 101)
    path.add_leaf("NGRID", LEAF_4)
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    after = sorted(
        re.sub(r"duration=\S+ |n_\w+=\d+, |idle_age=\d+, ", "", f) for f in bench.flows("s3")
    )
    assert after == at_s3


def test_delete_leaves_nothing(bench: Bench, path: PathClient) -> None:
    path.delete_path("NGRID")
    for switch in CORE.dpids:
        wrong_vlan, miss = bench.flows(switch)
        assert "priority=0" in miss and "actions=drop" in miss
        assert bench.groups(switch) == []
        assert bench.meters(switch) == []
    bench.expect([], "s1", MULTICAST, MAC_1, 101)


def test_meter_holds_the_rate(bench: Bench) -> None:
    """1 Mbit/s with a bucket of 200 kbit. Of 200 frames of 1000 bytes in one burst (1.6 Mbit),
    about 25 pass at once; the rest that passes is the rate times the duration of the burst."""
    with bench.client() as client:
        client.create_path("slow", ROOT, 1_000_000)
        client.add_leaf("slow", LEAF_2)
        bench.expect([("s2", 102)], "s1", MULTICAST, MAC_1, 101)
        tag = struct.pack("!HHH", 0x8100, 101, PLAIN_TYPE)
        frame = (raw_mac(MULTICAST) + raw_mac(MAC_1) + tag + b"meter".ljust(1000, b"."))[:1000]
        started = time.monotonic()
        for _ in range(200):
            bench.sockets["x-s1"].send(frame)
        count = 0
        # Half a second of silence after the last frame, however late a busy switch forwards it.
        quiet_until = time.monotonic() + 0.5
        while time.monotonic() < min(quiet_until, started + 20):
            seen = receive(bench.sockets["x-s2"])
            if seen is not None and seen.payload.startswith(b"meter"):
                count += 1
                quiet_until = time.monotonic() + 0.5
            elif seen is None:
                time.sleep(0.005)
        elapsed_s = time.monotonic() - started
        client.delete_path("slow")
    assert 15 <= count <= 25 + 1_000_000 * elapsed_s / 8000 + 5


def test_counters_tell_what_entered_what_leaves_got_and_what_was_dropped(
    bench: Bench, path: PathClient
) -> None:
    """40 multicast frames, 3 with a spoofed source at s2, 2 with an unused VLAN id at s4. Open
    vSwitch updates its flows' counters about every half second."""
    before = path.counters("NGRID")
    while True:  # frames sent before this test may be credited to flows that came later
        time.sleep(1.5)
        now = path.counters("NGRID")
        if now["entered"] == before["entered"]:
            break
        before = now
    before = now

    def frame(dst: str, src: str, vlan: int) -> bytes:
        tag = struct.pack("!HHH", 0x8100, vlan, PLAIN_TYPE)
        return (raw_mac(dst) + raw_mac(src) + tag).ljust(100, b".")

    for _ in range(40):
        bench.sockets["x-s1"].send(frame(MULTICAST, MAC_1, 101))
    for _ in range(3):
        bench.sockets["x-s2"].send(frame(MAC_1, MAC_4, 102))
    for _ in range(2):
        bench.sockets["x-s4"].send(frame(MAC_1, MAC_4, 999))

    def more(*keys: str, leaf: int | None = None) -> int:
        counts = []
        for shown in (before, path.counters("NGRID")):
            part: Any = shown if leaf is None else shown["leaves"][leaf]
            for key in keys:
                part = part[key]
            counts.append(part["packets"])
        return int(counts[1] - counts[0])

    process.wait_until("the root's count", lambda: more("entered", "multicast") == 40)
    for leaf in range(3):
        process.wait_until(f"leaf {leaf}", lambda i=leaf: more("multicast", leaf=i) == 40)  # type: ignore[misc]
    process.wait_until("spoofed", lambda: more("spoofed", leaf=0) == 3)
    wrong = 'downpour_port_wrong_vlan_packets_total{port="9",switch="s4"} '
    process.wait_until(
        "wrong VLAN id",
        lambda: float((path.metrics().partition(wrong)[2].split() or ["0"])[0]) >= 2,
    )
    process.wait_until(
        "nothing is missing",
        lambda: all(
            part["compared"] is not None and part["compared"]["missing"] == 0
            for part in (lambda shown: (*shown["leaves"], *shown["edges"]))(path.counters("NGRID"))
        ),
    )


def test_hosts_join_channels_by_igmp(bench: Bench) -> None:
    """Hosts send reports as frames; a report from a MAC that the leaf does not have joins
    nothing."""
    base = IPv4Address("232.10.1.254")
    first = "01:00:5e:0a:01:fe"

    def say(switch: str, mac: str, vlan: int, what: Filter) -> None:
        frame = igmp.frame_of(Report(3, (Record(what, base),)), mac, vlan=vlan)
        bench.sockets[f"x-{switch}"].send(frame)

    with bench.client() as client:
        client.create_path("layers", ROOT, RATE, channels=Channels(base, 3))
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("layers", leaf)
        bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
        bench.expect([], "s1", first, MAC_1, 101)
        say("s2", MAC_4, 102, Filter.TO_EXCLUDE)
        say("s3", MAC_3A, 103, Filter.TO_EXCLUDE)
        bench.expect([("s3", 103)], "s1", first, MAC_1, 101)
        say("s4", MAC_4, 104, Filter.TO_EXCLUDE)
        bench.expect([("s3", 103), ("s4", 104)], "s1", first, MAC_1, 101)
        say("s3", MAC_3A, 103, Filter.TO_INCLUDE)
        bench.expect([("s4", 104)], "s1", first, MAC_1, 101)
        assert client.get("layers")["state"] == "up"
        bench.vsctl("del-controller", "s2")
        process.wait_until("degraded", lambda: client.get("layers")["state"] == "degraded")
        for what in ("del-flows", "del-groups", "del-meters"):
            bench.ofctl(what, "s2")
        bench.vsctl("set-controller", "s2", *bench.targets)
        process.wait_until("up", lambda: client.get("layers")["state"] == "up")
        bench.expect([("s4", 104)], "s1", first, MAC_1, 101)
        client.delete_path("layers")
    for switch in CORE.dpids:
        assert bench.groups(switch) == bench.meters(switch) == []


def test_switch_that_lost_everything_is_restored(bench: Bench, path: PathClient) -> None:
    bench.vsctl("del-controller", "s2")
    process.wait_until("degraded", lambda: path.get("NGRID")["state"] == "degraded")
    for what in ("del-flows", "del-groups", "del-meters"):
        bench.ofctl(what, "s2")
    bench.expect([], "s1", MULTICAST, MAC_1, 101)
    bench.vsctl("set-controller", "s2", *bench.targets)
    process.wait_until("up", lambda: path.get("NGRID")["state"] == "up")
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)


def test_refused_change_is_reported_and_undone(bench: Bench, path: PathClient) -> None:
    """Another program takes the group id that the path wants at s4: the switch's own error is
    reported."""
    path.remove_leaf("NGRID", LEAF_4)
    number = meter_id(path.get("NGRID"))
    bench.ofctl("add-group", "s4", f"group_id={number},type=all,bucket=actions=output:1")
    with pytest.raises(PathClientError, match="OFPGMFC_GROUP_EXISTS") as caught:
        path.add_leaf("NGRID", LEAF_4)
    assert caught.value.status == 502
    shown = path.get("NGRID")
    assert shown["state"] == "up"
    assert len(shown["leaves"]) == 2
    assert len(path.add_leaf("NGRID", LEAF_4)["leaves"]) == 3  # s4 was cleaned
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
