# SPDX-License-Identifier: Apache-2.0
"""Channels over three domains: hosts report to their own domain's controller, and a hand-off
carries whatever any host behind it has joined."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller.federation.peers import DOMAIN_HEADER, MESSAGES_URL
from controller.federation.tests.networks import endpoint
from controller.federation.tests.rig import DomainRig, WorldRig
from controller.federation.tests.test_federation import join, json_of, leave
from controller.federation.values import Connection, Members, request_json
from controller.paths import igmp
from controller.paths.core import Endpoint
from controller.paths.entries import CONTROLLER, Kind, cookie_of
from controller.paths.igmp import Filter, Record, Report
from controller.paths.replies import PacketIn
from controller.service.channels import RETRY_S, ChannelKeeper
from controller.tests.fake_switch import Frame

BASE = IPv4Address("232.10.1.0")
ROOT = endpoint("a1")
NEAR, IN_B, IN_C, IN_C_TOO = endpoint("a2"), endpoint("b2"), endpoint("c2"), endpoint("c1", 2)


class Hosts:
    """The hosts of all domains, and each domain's keeper."""

    def __init__(self, world: WorldRig) -> None:
        self.world = world
        self.now_s = 0.0
        self.keepers: dict[str, ChannelKeeper] = {}
        for name, rig in world.domains.items():
            self.start(name, rig)

    def start(self, name: str, rig: DomainRig) -> None:
        keeper = ChannelKeeper(rig.own, lambda _switch, _messages: None, lambda call: call())
        keeper.tell = rig.federation.tell_members
        rig.federation.on_members = keeper.set_remote
        self.keepers[name] = keeper

    def turn(self, after_s: float = 0.0) -> None:
        """Let the domains take turns, so that what one tells another reaches a third."""
        self.now_s += after_s
        for _ in range(8):
            for keeper in self.keepers.values():
                keeper.turn(self.now_s)

    def say(self, leaf: Endpoint, what: Filter, channel: int) -> None:
        domain = self.world.domains[leaf.switch[0]]
        frame = Frame("01:00:5e:00:00:16", leaf.macs[0], leaf.vlan, 0x0800, 2)
        ((switch, port, _),) = domain.net.inject(leaf.switch, leaf.port, frame)
        assert port == CONTROLLER
        report = Report(3, (Record(what, BASE + channel),))
        data = igmp.frame_of(report, leaf.macs[0], vlan=leaf.vlan)
        packet = PacketIn(leaf.port, cookie_of(Kind.IGMP, 1), data)
        self.keepers[domain.home].packet_in(switch, packet)
        self.turn()

    def join(self, leaf: Endpoint, channel: int = 0) -> None:
        self.say(leaf, Filter.TO_EXCLUDE, channel)

    def leave(self, leaf: Endpoint, channel: int = 0) -> None:
        self.say(leaf, Filter.TO_INCLUDE, channel)

    def reached(self, channel: int = 0) -> list[tuple[str, int, int | None]]:
        frame = Frame(f"01:00:5e:0a:01:{channel:02x}", ROOT.macs[0], ROOT.vlan)
        return self.world.deliver("a1", 9, frame)

    def crossing(self, domain: str) -> set[int]:
        """Return the channels that leave a domain for the next one."""
        own = self.world.domains[domain].own
        hand_offs = own.core.probed
        return {
            member.channel
            for view in own.paths()
            for member in view.path.members
            if member.leaf[1] in hand_offs[member.leaf[0]]
        }


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    world = WorldRig(tmp_path)
    body = {"name": "P", "root": json_of(ROOT), "rate_bps": 20_000_000}
    channels = {"base": str(BASE), "count": 4}
    made = world.domains["a"].http.post("/v1/paths", json={**body, "channels": channels})
    assert made.status_code == 201, made.text
    found = Hosts(world)
    for leaf in (NEAR, IN_B, IN_C, IN_C_TOO):
        join(world.domains["a"], leaf)
    found.turn()
    yield found
    world.close()


@pytest.mark.slow
def test_a_hand_off_carries_what_is_joined_behind_it(hosts: Hosts) -> None:
    assert hosts.reached() == []
    hosts.join(IN_C)
    assert hosts.reached() == [IN_C.key]
    assert (hosts.crossing("a"), hosts.crossing("b")) == ({0}, {0})
    hosts.join(IN_B)
    hosts.join(IN_C_TOO)
    hosts.join(NEAR, 1)
    assert hosts.reached() == sorted(leaf.key for leaf in (IN_B, IN_C, IN_C_TOO))
    assert hosts.reached(1) == [NEAR.key]
    hosts.leave(IN_C)
    assert (hosts.crossing("a"), hosts.crossing("b")) == ({0}, {0})
    hosts.leave(IN_C_TOO)
    assert (hosts.crossing("a"), hosts.crossing("b")) == ({0}, set())
    assert hosts.reached() == [IN_B.key]
    hosts.leave(IN_B)
    assert (hosts.crossing("a"), hosts.crossing("b")) == (set(), set())


@pytest.mark.slow
def test_users_see_members_and_no_hand_offs(hosts: Hosts) -> None:
    hosts.join(IN_C)
    hosts.join(NEAR, 3)
    shown = hosts.world.domains["a"].http.get("/v1/paths/P").json()["channels"]["members"]
    assert shown == [{"group": "232.10.1.3", "switch": "a2", "port": 9, "vlan": NEAR.vlan}]


@pytest.mark.slow
def test_a_message_that_was_lost_is_repeated(hosts: Hosts) -> None:
    wire = hosts.world.domains["c"].wires["b"]
    wire.fate = lambda request: "lost" if isinstance(request, Members) else "ok"
    hosts.join(IN_C)
    assert hosts.reached() == []
    wire.fate = lambda _request: "ok"
    hosts.turn(RETRY_S)
    assert hosts.reached() == [IN_C.key]


@pytest.mark.slow
def test_a_controller_that_comes_back_keeps_what_crosses(hosts: Hosts) -> None:
    hosts.join(IN_C)
    for name in "ba":
        hosts.world.domains[name].restart()
        hosts.start(name, hosts.world.domains[name])
    hosts.turn()
    assert hosts.reached() == [IN_C.key]
    hosts.leave(IN_C)
    assert hosts.reached() == []
    assert (hosts.crossing("a"), hosts.crossing("b")) == (set(), set())


@pytest.mark.slow
def test_a_domain_that_leaves_the_tree_takes_its_channels_along(hosts: Hosts) -> None:
    hosts.join(IN_C)
    hosts.join(IN_B, 2)
    for leaf in (IN_C, IN_C_TOO):
        leave(hosts.world.domains["a"], leaf)
    hosts.turn()
    assert hosts.reached() == []
    assert hosts.reached(2) == [IN_B.key]
    assert (hosts.crossing("a"), hosts.crossing("b")) == ({2}, set())


@pytest.mark.slow
def test_a_stranger_joins_nothing_over_a_hand_off(hosts: Hosts) -> None:
    """Only the domain at the other end of a link may say what crosses it."""
    a = hosts.world.domains["a"]
    path = a.own.path("P").path
    (crossing,) = [leaf for leaf in path.leaves if leaf.port in a.own.core.probed[leaf.switch]]
    link = a.own.core.access[crossing.switch, crossing.port].link
    members = Members(Connection("a", "P"), link, crossing.vlan, frozenset([0]))

    def send(sender: str, asked: Members) -> tuple[int, str]:
        answer = a.http.post(
            MESSAGES_URL, content=request_json(asked), headers={DOMAIN_HEADER: sender}
        )
        return answer.status_code, answer.json().get("kind", "")

    assert send("c", members) == (403, "")
    other_vlan = Members(Connection("a", "P"), link, crossing.vlan % 4094 + 1, frozenset([0]))
    assert send("b", other_vlan) == (200, "unknown")
    no_channel = Members(Connection("a", "P"), link, crossing.vlan, frozenset([4]))
    assert send("b", no_channel) == (200, "unknown")
    hosts.turn()
    assert hosts.crossing("a") == set()
    assert send("b", members) == (200, "done")
    hosts.turn()
    assert hosts.crossing("a") == {0}
