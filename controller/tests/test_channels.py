# SPDX-License-Identifier: Apache-2.0
"""Channels: what switches hold for them, and hosts that join and leave by IGMP.

The expected entries were worked out by hand for the network of sample.py; 232.10.1.254 and the two
groups after it have the Ethernet addresses 01:00:5e:0a:01:fe to 01:00:5e:0a:02:00.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller.paths import igmp
from controller.paths.channels import InvalidChannels, check_channels
from controller.paths.core import Endpoint, InvalidEndpoint
from controller.paths.entries import (
    CONTROLLER,
    Bucket,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    Output,
    ToGroup,
    cookie_of,
)
from controller.paths.igmp import Filter, Record, Report
from controller.paths.messages import Message, PacketOut
from controller.paths.multipoint_path import Channels, Member
from controller.paths.plan import entries_of
from controller.paths.replies import PacketIn
from controller.service.channels import ChannelKeeper
from controller.service.service import Failure, Why
from controller.service.store import Store
from controller.service.views import PathWish
from controller.tests.domains import make_core
from controller.tests.fake_switch import Frame
from controller.tests.planning import Desk
from controller.tests.rig import Rig, assert_problem
from controller.tests.sample import (
    LEAF_2,
    LEAF_3,
    LEAF_4,
    MAC_1,
    MAC_2,
    MAC_3A,
    MAC_3B,
    MAC_4,
    ROOT,
    network,
)

RATE = 20_000_000
BASE = IPv4Address("232.10.1.254")
THREE = Channels(BASE, 3)
MAC_OF = ["01:00:5e:0a:01:fe", "01:00:5e:0a:01:ff", "01:00:5e:0a:02:00"]
REPORTS_TO = "01:00:5e:00:00:16"


def desk() -> Desk:
    desk = Desk(Rig().service.core)
    desk.create("p", ROOT, RATE, channels=THREE)
    for leaf in (LEAF_2, LEAF_3, LEAF_4):
        desk.add("p", leaf)
    return desk


def of_channels(found: object) -> bool:
    if isinstance(found, Group):
        return found.number > 0xFFFF
    if isinstance(found, Flow):
        return found.cookie in (cookie_of(Kind.CHANNEL, 1), cookie_of(Kind.UNJOINED, 1))
    return False


# -- what switches hold


def test_a_channel_nobody_joined_is_dropped_where_the_path_has_leaves() -> None:
    """254 and 255 differ only in the last bit; 0 of the next 256 stands alone."""
    made = desk()
    cookie = cookie_of(Kind.UNJOINED, 1)
    for switch, port, vlan, source in (("s1", 1, 101, MAC_1), ("s3", 1, 310, None)):
        found = {e for e in entries_of(made.core, made["p"])[switch] if of_channels(e)}
        two, one = EthMatch(MAC_OF[0], "ff:ff:ff:ff:ff:fe"), EthMatch(MAC_OF[2])
        assert found == {
            Flow(Match(port, vlan, match, source), 1010, cookie, ()) for match in (two, one)
        }


def test_a_member_gets_a_bucket_on_its_way_alone() -> None:
    """s4 is not on the way to s3, so it does not change. The group of channel 2 of path 1 is
    3·65536 + 1."""
    made = desk()
    step = made.join("p", {LEAF_3.key: frozenset([2])})
    assert made["p"].members == {Member(2, LEAF_3.key)}
    (phase,) = step.phases
    assert not any(delta.removed for delta in phase.values())
    cookie, group = cookie_of(Kind.CHANNEL, 1), 196609
    dst = EthMatch(MAC_OF[2])
    assert {switch: set(delta.added) for switch, delta in phase.items()} == {
        "s1": {
            Group(group, (Bucket(300, 2),)),
            Flow(Match(1, 101, dst, MAC_1), 1020, cookie, (ToGroup(group),), 1),
        },
        "s2": {
            Group(group, (Bucket(310, 2),)),
            Flow(Match(1, 300, dst), 1020, cookie, (ToGroup(group),)),
        },
        "s3": {
            Group(group, (Bucket(103, 9),)),
            Flow(Match(1, 310, dst), 1020, cookie, (ToGroup(group),)),
        },
    }


def test_another_member_changes_what_differs() -> None:
    made = desk()
    made.join("p", {LEAF_3.key: frozenset([0])})
    (phase,) = made.join("p", {LEAF_4.key: frozenset([0])}).phases
    assert set(phase) == {"s2", "s4"}
    assert set(phase["s2"].removed) == {Group(65537, (Bucket(310, 2),))}
    assert set(phase["s2"].added) == {Group(65537, (Bucket(310, 2), Bucket(330, 3)))}
    back = made.join("p", {LEAF_4.key: frozenset()})
    assert [dict(p) for p in back.phases] == [
        {s: d.inverse for s, d in p.items()} for p in (phase,)
    ]


def test_reports_go_to_the_controller_through_a_meter_of_the_leaf() -> None:
    """Port 9 is the first access port of s3: 65537 + 102 for VLAN 103."""
    made = desk()
    found = {e for e in entries_of(made.core, made["p"])["s3"] if not of_channels(e)}
    number = 65537 + 102
    assert Meter(number, 100, 200) in found
    for mac in (MAC_3A, MAC_3B):
        match = Match(9, 103, None, mac, 0x0800, 2)
        cookie = cookie_of(Kind.IGMP, 1)
        assert Flow(match, 1200, cookie, (Output(CONTROLLER),), number) in found


def test_a_leaf_that_goes_takes_its_channels_along() -> None:
    made = desk()
    made.join("p", {LEAF_3.key: frozenset([0, 1]), LEAF_4.key: frozenset([1])})
    made.remove("p", LEAF_3.key)
    assert made["p"].members == {Member(1, LEAF_4.key)}
    groups = {
        switch: {e.number for e in entries if isinstance(e, Group)}
        for switch, entries in entries_of(made.core, made["p"]).items()
    }
    assert groups == {"s1": {1, 131073}, "s2": {1, 131073}, "s4": {1, 131073}}


def test_a_path_without_channels_has_none() -> None:
    made = Desk(Rig().service.core)
    made.create("p", ROOT, RATE)
    made.add("p", LEAF_2)
    with pytest.raises(InvalidChannels, match="found channels 0; path 'p' has 0"):
        made.join("p", {LEAF_2.key: frozenset([0])})
    for entries in entries_of(made.core, made["p"]).values():
        assert not [e for e in entries if isinstance(e, Flow) and e.match.ip_proto is not None]


@pytest.mark.parametrize(
    ("base", "count", "latency_ms", "text"),
    [
        ("232.10.1.0", 0, 0, "found 0 channels; valid: 1..255"),
        ("232.10.1.0", 256, 0, "found 256 channels"),
        ("232.10.1.0", 1, 9001, "leave latency of 9001 ms; valid: 0..9000"),
        ("10.0.0.1", 1, 0, "valid: 224.0.1.0..239.255.255.255"),
        ("224.0.0.22", 1, 0, "valid: 224.0.1.0..239.255.255.255"),
        ("239.255.255.255", 2, 0, "valid: 224.0.1.0..239.255.255.255"),
        ("239.128.0.5", 1, 0, "Ethernet address of a group in 224.0.0.0/24"),
        ("232.127.255.255", 2, 0, "beyond one range of Ethernet addresses"),
    ],
)
def test_channels_that_cannot_be_are_refused(
    base: str, count: int, latency_ms: int, text: str
) -> None:
    with pytest.raises(InvalidChannels, match=text):
        check_channels(Channels(IPv4Address(base), count, latency_ms))


def test_a_switch_has_meters_for_32_access_ports() -> None:
    core = make_core([("s1", "s2", 1.0)])
    many = {("s2", port): next(iter(core.access.values())) for port in range(1, 34)}
    core = type(core)(core.domain, core.dpids, core.hops, {**core.access, **many}, frozenset())
    made = Desk(core)
    made.create("p", Endpoint("s1", 91, 5), 0, channels=THREE)
    made.add("p", Endpoint("s2", 32, 5))
    with pytest.raises(InvalidEndpoint, match="port 33 is access port 33 of switch 's2'"):
        made.add("p", Endpoint("s2", 33, 5))


# -- hosts


class Hosts:
    """Hosts behind the leaves of a rig: their reports pass through the switches."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.now_s = 0.0
        self.posted: list[tuple[str, Message]] = []
        self.keeper = self.new_keeper()

    def new_keeper(self) -> ChannelKeeper:
        def post(switch: str, messages: object) -> None:
            assert isinstance(messages, list)
            self.posted += [(switch, message) for message in messages]

        self.keeper = ChannelKeeper(self.rig.service, post, lambda call: call())
        self.turn()
        return self.keeper

    def turn(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        for _ in range(3):  # a turn takes note of the end of the previous turn's change
            self.keeper.turn(self.now_s)

    def send(self, leaf: Endpoint, mac: str, report: Report) -> None:
        frame = Frame(REPORTS_TO, mac, leaf.vlan, 0x0800, 2)
        got = self.rig.net.inject(leaf.switch, leaf.port, frame)
        for switch, port, _ in got:
            assert port == CONTROLLER
            data = igmp.frame_of(report, mac, vlan=leaf.vlan)
            self.keeper.packet_in(switch, PacketIn(leaf.port, cookie_of(Kind.IGMP, 1), data))

    def say(self, leaf: Endpoint, what: Filter, channel: int = 0, mac: str = "") -> None:
        report = Report(3, (Record(what, BASE + channel),))
        self.send(leaf, mac or leaf.macs[0], report)
        self.turn()

    def join(self, leaf: Endpoint, channel: int = 0, mac: str = "") -> None:
        self.say(leaf, Filter.TO_EXCLUDE, channel, mac)

    def leave(self, leaf: Endpoint, channel: int = 0, mac: str = "") -> None:
        self.say(leaf, Filter.TO_INCLUDE, channel, mac)

    def reached(self, channel: int) -> set[str]:
        frame = Frame(MAC_OF[channel], MAC_1, 101)
        got = self.rig.net.inject("s1", 1, frame)
        assert len({switch for switch, _, _ in got}) == len(got)
        return {switch for switch, _, _ in got}

    def queries(self) -> list[tuple[str, int, igmp.Received]]:
        found = []
        for switch, message in self.posted:
            assert isinstance(message, PacketOut)
            found.append((switch, message.port, igmp.read(message.frame)))
        self.posted.clear()
        return found


@pytest.fixture
def hosts(rig: Rig) -> Hosts:
    make(rig)
    return Hosts(rig)


def make(rig: Rig, channels: Channels = THREE) -> None:
    rig.service.create("p", ROOT, RATE, channels=channels)
    for leaf in (LEAF_2, LEAF_3, LEAF_4):
        rig.service.add_leaf("p", leaf)


def test_hosts_get_what_they_join(hosts: Hosts) -> None:
    assert [hosts.reached(channel) for channel in range(3)] == [set(), set(), set()]
    hosts.join(LEAF_3, 0)
    hosts.join(LEAF_4, 0)
    hosts.join(LEAF_4, 2)
    assert [hosts.reached(channel) for channel in range(3)] == [{"s3", "s4"}, set(), {"s4"}]
    hosts.leave(LEAF_3, 0)
    assert [hosts.reached(channel) for channel in range(3)] == [{"s4"}, set(), {"s4"}]
    hosts.rig.assert_settled()


def test_hosts_are_asked_when_their_leaf_is_there(hosts: Hosts) -> None:
    """They may have joined before. The query leaves the leaf's port with its VLAN id."""
    found = {(switch, port): received for switch, port, received in hosts.queries()}
    assert set(found) == {("s2", 9), ("s3", 9), ("s4", 9)}
    received = found["s3", 9]
    assert received.vlan == 103
    assert received.message == igmp.Query(3, response_s=1.0)


def test_two_hosts_of_a_leaf_leave_with_the_second(hosts: Hosts) -> None:
    hosts.join(LEAF_3, mac=MAC_3A)
    hosts.join(LEAF_3, mac=MAC_3B)
    hosts.leave(LEAF_3, mac=MAC_3A)
    assert hosts.reached(0) == {"s3"}
    hosts.leave(LEAF_3, mac=MAC_3B)
    assert hosts.reached(0) == set()


def test_leave_latency(rig: Rig) -> None:
    make(rig, Channels(BASE, 3, 3000))
    hosts = Hosts(rig)
    hosts.join(LEAF_2)
    hosts.queries()
    hosts.leave(LEAF_2)
    hosts.turn(2.9)
    assert hosts.reached(0) == {"s2"}
    asked = [(switch, received.message) for switch, _, received in hosts.queries()]
    assert asked == [("s2", igmp.Query(3, BASE, 1.5))] * 2
    hosts.turn(0.2)
    assert hosts.reached(0) == set()


def test_strangers_join_nothing(hosts: Hosts) -> None:
    hosts.join(LEAF_2, mac=MAC_4)  # not a host of that leaf
    hosts.join(Endpoint("s2", 9, 999), mac=MAC_2)  # not an endpoint of the path
    data = igmp.frame_of(Report(3, (Record(Filter.TO_EXCLUDE, BASE),)), MAC_4, vlan=102)
    hosts.keeper.packet_in("s2", PacketIn(9, 0, data))  # as if a switch had let it pass
    hosts.keeper.packet_in("s2", PacketIn(9, 0, b"\0" * 60))
    hosts.turn()
    assert hosts.reached(0) == set()
    assert hosts.rig.service.path("p").path.members == frozenset()
    assert hosts.keeper.counts()["reports_stranger"] == 1
    assert hosts.keeper.counts()["reports_malformed"] == 1


def test_a_host_that_floods_harms_no_other(hosts: Hosts) -> None:
    """A host sends the most that a switch's meter passes: 1000 reports in 5 s, each the opposite of
    the last. The other hosts' frames come once, and their reports count."""
    hosts.join(LEAF_3)
    calls = hosts.rig.calls
    for number in range(1000):
        report = Report(3, (Record(Filter(3 + number % 2), BASE),))
        hosts.send(LEAF_2, MAC_2, report)
        if number % 20 == 19:
            hosts.turn(0.1)
            assert "s3" in hosts.reached(0)
    hosts.join(LEAF_4, 1)
    assert hosts.reached(1) == {"s4"}
    assert hosts.rig.calls - calls <= 2 * 50 + 2  # one change a turn, not one a report
    hosts.rig.assert_settled()


def test_what_was_joined_outlives_the_controller(tmp_path: Path) -> None:
    store = tmp_path / "store"
    rig = Rig(Store(store, network().name, "core"))
    make(rig)
    hosts = Hosts(rig)
    hosts.join(LEAF_3)
    hosts.join(LEAF_4)
    rig.store = Store(store, network().name, "core")
    rig.calls = 0
    rig.restart()
    assert rig.service.path("p").path.members == {Member(0, LEAF_3.key), Member(0, LEAF_4.key)}
    assert rig.calls == 0  # the switches already had all of it
    hosts.new_keeper()
    hosts.join(LEAF_4)
    hosts.turn(72.4)
    assert hosts.reached(0) == {"s3", "s4"}
    hosts.turn(0.2)  # the hosts of s3 did not answer
    assert hosts.reached(0) == {"s4"}
    rig.service.delete("p")
    rig.store = Store(store, network().name, "core")
    rig.restart()
    assert rig.service.paths() == []


def test_a_new_path_at_the_same_endpoints_begins_anew(hosts: Hosts) -> None:
    hosts.join(LEAF_3)
    hosts.rig.service.delete("p")
    hosts.turn()
    make(hosts.rig)
    hosts.turn()
    assert hosts.reached(0) == set()
    hosts.join(LEAF_3)
    assert hosts.reached(0) == {"s3"}


def test_members_follow_a_tree_that_moves(hosts: Hosts) -> None:
    hosts.join(LEAF_4)
    hosts.rig.service.link_changed("s2:s4", False, "cut")
    assert hosts.reached(0) == {"s4"}
    hosts.join(LEAF_3)
    hosts.rig.service.link_changed("s2:s4", True)
    hosts.leave(LEAF_3)
    assert hosts.reached(0) == {"s4"}
    hosts.rig.assert_settled()


def test_a_join_waits_for_a_hold_to_end(hosts: Hosts) -> None:
    service = hosts.rig.service
    leaf = Endpoint("s2", 9, 777)
    asked = PathWish("p", ROOT, RATE, leaves=(leaf,), channels=THREE)
    service.hold("h", asked, hosts.rig.clock() + 30)
    hosts.join(LEAF_3)
    assert hosts.reached(0) == set()
    service.commit("h")
    hosts.turn(1.0)
    assert hosts.reached(0) == {"s3"}
    assert len(service.path("p").path.leaves) == 4


def test_a_switch_that_does_not_answer_gets_its_channels_later(hosts: Hosts) -> None:
    hosts.rig.failing["s3"] = Failure(Why.TIMEOUT)
    hosts.join(LEAF_3)
    hosts.join(LEAF_4)
    assert hosts.reached(0) == {"s4"}
    hosts.rig.failing.clear()
    hosts.rig.service.retry(["s3"])
    assert hosts.reached(0) == {"s3", "s4"}


# -- REST


CHANNELS = {"base": "232.10.1.254", "count": 3, "leave_latency_ms": 0}
BODY = {
    "name": "p",
    "root": {"switch": "s1", "port": 1, "vlan": 101},
    "rate_bps": RATE,
    "channels": CHANNELS,
}


def test_rest_makes_channels_and_tells_who_joined(rig: Rig) -> None:
    made = rig.http.post("/v1/paths", json=BODY)
    assert made.status_code == 201, made.text
    assert made.json()["channels"] == {**CHANNELS, "members": []}
    assert rig.http.post("/v1/paths", json=BODY).status_code == 200
    other = {**BODY, "channels": {"base": "232.10.1.254", "count": 4}}
    assert_problem(rig.http.post("/v1/paths", json=other), 409, "3 from 232.10.1.254", "4 from")
    rig.service.add_leaf("p", LEAF_3)
    Hosts(rig).join(LEAF_3, 1)
    shown = rig.http.get("/v1/paths/p").json()["channels"]
    assert shown["members"] == [{"group": "232.10.1.255", "switch": "s3", "port": 9, "vlan": 103}]


@pytest.mark.parametrize(
    "channels",
    [
        {"base": "10.0.0.1", "count": 1},
        {"base": "232.10.1.0", "count": 256},
        {"base": "232.10.1.0", "count": 1, "leave_latency_ms": 9001},
        {"base": "224.0.0.1", "count": 1},
    ],
)
def test_rest_refuses_channels_that_cannot_be(rig: Rig, channels: dict[str, object]) -> None:
    assert_problem(rig.http.post("/v1/paths", json={**BODY, "channels": channels}), 422)
    assert rig.service.paths() == []


def test_counters_tell_each_channel_and_leaf(hosts: Hosts) -> None:
    """5 frames of channel 0 while s3 has joined, 2 more with s4, 3 of channel 1 for nobody, 4 of
    other multicast to all."""
    rig = hosts.rig
    hosts.join(LEAF_3)
    for _ in range(5):
        hosts.reached(0)
    rig.monitor.read(max_age_s=-1)
    hosts.join(LEAF_4)
    for _ in range(2):
        hosts.reached(0)
    for _ in range(3):
        assert hosts.reached(1) == set()
    for _ in range(4):
        rig.net.inject("s1", 1, Frame("01:00:5e:01:01:01", MAC_1, 101))
    rig.clock.now += 10
    found = rig.http.get("/v1/paths/p/counters").json()
    (channel,) = found["channels"]
    assert channel["group"] == "232.10.1.254"
    assert channel["entered"]["packets"] == 7
    got = {leaf["switch"]: leaf["got"]["packets"] for leaf in channel["leaves"]}
    assert got == {"s3": 7, "s4": 2}
    assert found["unjoined"]["packets"] == 3
    assert found["entered"]["multicast"]["packets"] == 11
    leaves = {leaf["switch"]: leaf["multicast"]["packets"] for leaf in found["leaves"]}
    assert leaves == {"s2": 4, "s3": 11, "s4": 6}
    edges = {edge["to"]: edge["arrived"]["packets"] for edge in found["edges"]}
    assert edges == {"s2": 11, "s3": 11, "s4": 6}
