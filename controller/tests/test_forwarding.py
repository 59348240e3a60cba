# SPDX-License-Identifier: Apache-2.0
"""The service's messages drive fake switches; frames show how the network then behaves."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

import topologies
from controller.api.path_client import endpoints_of
from controller.paths.core import Endpoint
from controller.paths.entries import BROADCAST, Entries
from controller.paths.forwarding import base_entries
from controller.paths.messages import Message
from controller.service.service import Failure, PathService
from controller.tests.fake_switch import FakeNetwork, Frame
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
from topologies.model.load import load
from topologies.model.network import ControlledBy, Network

MULTICAST = "01:00:5e:01:01:01"
ARP = 0x0806
RATE = 20_000_000


class World:
    def __init__(self, net: Network | None = None, domain: str = "core") -> None:
        self.sent: dict[str, Sequence[Message]] = {}
        self.service = PathService(net or network(), domain, self.apply, self.read)
        self.net = FakeNetwork(self.service.core)
        for switch in self.net.switches:
            self.service.switch_up(switch)

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        self.sent.update(changes)
        for switch, messages in changes.items():
            self.net.switches[switch].handle(messages)
        return {}

    def read(self, switches: Iterable[str]) -> dict[str, Entries | Failure]:
        return {switch: self.net.switches[switch].entries() for switch in switches}

    def path(self, *leaves: Endpoint, name: str = "p1", root: Endpoint = ROOT) -> None:
        self.service.create(name, root, RATE)
        for leaf in leaves:
            self.service.add_leaf(name, leaf)


@pytest.fixture
def world() -> World:
    return World()


def test_multicast_reaches_every_leaf_once_with_its_vlan(world: World) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    for dst in (MULTICAST, BROADCAST):
        got = world.net.inject("s1", 1, Frame(dst, MAC_1, 101))
        assert got == [
            ("s2", 9, Frame(dst, MAC_1, 102)),
            ("s3", 9, Frame(dst, MAC_1, 103)),
            ("s4", 9, Frame(dst, MAC_1, 104)),
        ]
        assert sorted(world.net.on_links) == [
            ("s1", 2, 300),
            ("s2", 2, 310),
            ("s2", 3, 330),
        ]  # one copy per link, another id on each
    assert world.net.switches["s1"].metered == {1: 2}


def test_unicast_from_the_root_reaches_its_leaf_only_and_is_metered(world: World) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    for mac, place in (
        (MAC_2, ("s2", 9, 102)),
        (MAC_3A, ("s3", 9, 103)),
        (MAC_3B, ("s3", 9, 103)),
        (MAC_4, ("s4", 9, 104)),
    ):
        switch, port, vlan = place
        got = world.net.inject("s1", 1, Frame(mac, MAC_1, 101))
        assert got == [(switch, port, Frame(mac, MAC_1, vlan))]
    assert world.net.switches["s1"].metered == {1: 4}


def test_leaf_to_root_unicast_and_arp(world: World) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    for leaf, mac in ((LEAF_2, MAC_2), (LEAF_3, MAC_3B), (LEAF_4, MAC_4)):
        for frame in (Frame(MAC_1, mac, leaf.vlan), Frame(BROADCAST, mac, leaf.vlan, ARP)):
            got = world.net.inject(leaf.switch, leaf.port, frame)
            assert got == [("s1", 1, Frame(frame.dst, mac, 101, frame.eth_type))]
    assert not world.net.switches["s1"].metered  # only what enters at the root


def test_nothing_from_leaf_to_leaf(world: World) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    for frame in (
        Frame(MAC_4, MAC_2, 102),
        Frame(MULTICAST, MAC_2, 102),
        Frame(BROADCAST, MAC_2, 102),  # broadcast that is not ARP
    ):
        assert world.net.inject("s2", 9, frame) == []


@pytest.mark.parametrize(
    ("switch", "port", "frame"),
    [
        ("s1", 1, Frame(MULTICAST, MAC_1, 999)),  # unknown VLAN
        ("s1", 1, Frame(MULTICAST, MAC_1, None)),  # untagged
        ("s1", 1, Frame(MULTICAST, MAC_1, 300)),  # a core id from outside
        ("s1", 1, Frame(MULTICAST, MAC_2, 101)),  # source that is not the root's
        ("s1", 1, Frame("02:00:00:00:00:99", MAC_1, 101)),  # unknown destination
        ("s2", 9, Frame(MAC_1, MAC_2, 103)),  # another leaf's VLAN
        ("s2", 9, Frame(MAC_1, MAC_3A, 102)),  # another leaf's source
        ("s4", 9, Frame(MULTICAST, MAC_1, 101)),  # the root's VLAN and source at a leaf
    ],
)
def test_everything_else_is_dropped(world: World, switch: str, port: int, frame: Frame) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    assert world.net.inject(switch, port, frame) == []


def test_two_paths_do_not_mix(world: World) -> None:
    world.path(LEAF_2, LEAF_3)
    second = Endpoint("s1", 1, 201, (MAC_1,))
    world.path(Endpoint("s3", 9, 203, (MAC_3A,)), LEAF_4, name="p2", root=second)
    assert world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101)) == [
        ("s2", 9, Frame(MULTICAST, MAC_1, 102)),
        ("s3", 9, Frame(MULTICAST, MAC_1, 103)),
    ]
    assert world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 201)) == [
        ("s3", 9, Frame(MULTICAST, MAC_1, 203)),
        ("s4", 9, Frame(MULTICAST, MAC_1, 104)),
    ]
    assert world.net.switches["s1"].metered == {1: 1, 2: 1}
    world.service.delete("p1")
    assert world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101)) == []
    assert len(world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 201))) == 2


def test_leaf_that_joins_or_leaves_does_not_touch_the_others(world: World) -> None:
    world.path(LEAF_3)
    s3 = world.net.switches["s3"].entries()
    world.sent.clear()
    world.service.add_leaf("p1", LEAF_4)
    assert set(world.sent) == {"s1", "s2", "s4"}
    assert world.net.switches["s3"].entries() == s3
    world.sent.clear()
    world.service.remove_leaf("p1", LEAF_4.key)
    assert set(world.sent) == {"s1", "s2", "s4"}
    assert world.net.switches["s3"].entries() == s3
    assert world.net.switches["s4"].entries() == base_entries(world.service.core)["s4"]
    assert world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101)) == [
        ("s3", 9, Frame(MULTICAST, MAC_1, 103))
    ]


def test_delete_leaves_nothing(world: World) -> None:
    world.path(LEAF_2, LEAF_3, LEAF_4)
    world.service.delete("p1")
    base = base_entries(world.service.core)
    for name, switch in world.net.switches.items():
        assert switch.entries() == base[name]


def test_leaf_at_the_roots_switch(world: World) -> None:
    net = network()
    links = list(net.links)
    extra = type(links[-1])(
        "s1:x",
        type(links[0].a)("s1", 8, "s1-eth8", "02:ff:00:00:00:08"),
        type(links[0].a)("x", 1, "x-eth1", "02:ff:00:00:00:09"),
        links[-1].forward,
        links[-1].backward,
        (1, 2),
    )
    net = type(net)(**{**net.__dict__, "links": (*links, extra)})
    world.service = PathService(net, "core", world.apply, world.read)
    for switch in world.net.switches:
        world.service.switch_up(switch)
    near = Endpoint("s1", 8, 108, ("02:00:00:00:00:08",))
    world.path(near, LEAF_2)
    assert world.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101)) == [
        ("s1", 8, Frame(MULTICAST, MAC_1, 108)),
        ("s2", 9, Frame(MULTICAST, MAC_1, 102)),
    ]
    got = world.net.inject("s1", 8, Frame(MAC_1, near.macs[0], 108))
    assert got == [("s1", 1, Frame(MAC_1, near.macs[0], 101))]


def test_reconnected_switch_is_brought_back(world: World) -> None:
    world.path(LEAF_2, LEAF_3)
    before = world.net.switches["s2"].entries()
    world.service.switch_down("s2")
    assert not world.service.path("p1").up
    world.net.switches["s2"].flows.clear()  # it restarted, empty; groups still exist elsewhere
    world.service.switch_up("s2")
    assert world.service.path("p1").up
    assert world.net.switches["s2"].entries() == before


@pytest.mark.parametrize("name", ["geni5", "drfsm8"])
def test_topologies_of_the_project(name: str) -> None:
    """Every segment gets each multicast frame once, on its own VLAN id; no core link carries two
    copies; all ids of the tree differ; and each host is reached and reaches the publisher."""
    net = load(Path(topologies.__file__).with_name(f"{name}.yaml"))
    (domain,) = [d.name for d in net.domains if d.controlled_by is ControlledBy.CONTROLLER]
    world = World(net, domain)
    root, leaves = endpoints_of(net)
    world.path(*leaves.values(), root=root)
    publisher = net.publisher.nic1.mac

    got = world.net.inject(root.switch, root.port, Frame(MULTICAST, publisher, root.vlan))
    assert [(s, p, f.vlan) for s, p, f in got] == sorted(leaf.key for leaf in leaves.values())
    assert len(net.subscribers) == sum(len(leaf.macs) for leaf in leaves.values())
    ids = [vlan for _, _, vlan in world.net.on_links]
    ids += [endpoint.vlan for endpoint in (root, *leaves.values())]
    assert len(ids) == len(set(ids))

    for host in net.subscribers:
        leaf = leaves[net.segment_of(host.name).name]
        mac = host.nic1.mac
        there = Frame(mac, publisher, root.vlan)
        assert world.net.inject(root.switch, root.port, there) == [
            (leaf.switch, leaf.port, Frame(mac, publisher, leaf.vlan))
        ]
        back = Frame(publisher, mac, leaf.vlan)
        assert world.net.inject(leaf.switch, leaf.port, back) == [
            (root.switch, root.port, Frame(publisher, mac, root.vlan))
        ]


def test_random_changes_always_leave_exactly_the_plan(world: World) -> None:
    """After each of 300 random joins and leaves of two paths, the strict switches have accepted
    every message, and multicast reaches exactly the current leaves."""
    seed = random.Random(20150615)
    leaves = {
        "p1": (ROOT, [LEAF_2, LEAF_3, LEAF_4]),
        "p2": (
            Endpoint("s3", 9, 903, (MAC_3A,)),
            [Endpoint("s4", 9, 904, (MAC_4,)), Endpoint("s1", 1, 901, (MAC_1,))],
        ),
    }
    present: dict[str, set[Endpoint]] = {}
    for _ in range(300):
        name = seed.choice(list(leaves))
        root, candidates = leaves[name]
        leaf = seed.choice(candidates)
        if name not in present:
            world.service.create(name, root, RATE)
            present[name] = set()
        elif seed.random() < 0.1:
            world.service.delete(name)
            del present[name]
        elif leaf in present[name]:
            world.service.remove_leaf(name, leaf.key)
            present[name].remove(leaf)
        else:
            world.service.add_leaf(name, leaf)
            present[name].add(leaf)
        for path, (source, _) in leaves.items():
            frame = Frame(MULTICAST, source.macs[0], source.vlan)
            got = world.net.inject(source.switch, source.port, frame)
            expected = present.get(path, set())
            assert [(s, p, f.vlan) for s, p, f in got] == sorted(e.key for e in expected)
