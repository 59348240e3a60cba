# SPDX-License-Identifier: Apache-2.0
"""Random domains, random changes: what must hold after each change, and while it is under way.

The switches are those of fake_switch.py. A step is stopped at every phase, with some switches of
the next phase done and some not. Links count as working even if a step avoids them, so that an old
and a new branch both carry what is sent into them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.paths.core import (
    Core,
    DownSet,
    Endpoint,
    PlanError,
)
from controller.paths.entries import (
    BROADCAST,
    CONTROLLER,
    Entry,
    Flow,
    Group,
    Meter,
    ToGroup,
)
from controller.paths.forwarding import base_entries
from controller.paths.igmp import mac_of
from controller.paths.messages import Delta
from controller.paths.multipoint_path import Algorithm, Channels, MultipointPath, unreached
from controller.paths.plan import (
    Step,
    entries_of,
    set_macs,
    transition,
)
from controller.paths.reservations import Reservations
from controller.tests.domains import VLAN_RANGE, cores, endpoints, mac
from controller.tests.fake_switch import FakeNetwork, Frame
from controller.tests.planning import Desk, changed

MULTICAST = "01:00:5e:01:01:01"
REPORTS = "01:00:5e:00:00:16"
CHANNELS = Channels(IPv4Address("232.10.1.254"), 3)  # 01:00:5e:0a:01:fe to 01:00:5e:0a:02:00
ARP = 0x0806
IPV4, IGMP = 0x0800, 2
Held = Mapping[str, Iterable[Entry]]
Routes = dict[str, dict[Endpoint, tuple[object, ...]]]

SETTINGS = settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def network_holding(core: Core, held: Held) -> FakeNetwork:
    net = FakeNetwork(core)
    for name, entries in held.items():
        switch = net.switches[name]
        for entry in entries:
            match entry:
                case Flow():
                    switch.flows[entry.priority, entry.match] = entry
                case Group():
                    switch.groups[entry.number] = entry
                case Meter():
                    switch.meters[entry.number] = entry
    return net


def routes_of(core: Core, path: MultipointPath) -> dict[Endpoint, tuple[object, ...]]:
    """Return the hops to each leaf that is served."""
    way: dict[str, tuple[object, ...]] = {path.root.switch: ()}
    for tree_hop in path.hops:
        hop = core.hop[tree_hop.link, tree_hop.source]
        way[hop.target] = (*way[hop.source], tree_hop)
    return {leaf: way[leaf.switch] for leaf in path.leaves if leaf.switch in way}


def source_of(endpoint: Endpoint) -> str:
    return endpoint.macs[0] if endpoint.macs else mac(0xFFFF)


def channel_routes(
    core: Core, path: MultipointPath, channel: int | None
) -> dict[Endpoint, tuple[object, ...]]:
    """Return the hops to each leaf that is served and has joined the channel (None: any
    multicast)."""
    return {
        leaf: hops
        for leaf, hops in routes_of(core, path).items()
        if channel is None or (channel, leaf.key) in path.members
    }


def channels_of(*paths: MultipointPath | None) -> list[tuple[int | None, str]]:
    """Return each channel of any of the paths with its address, and None with that of other
    multicast."""
    channels = next((p.channels for p in paths if p is not None and p.channels is not None), None)
    count = 0 if channels is None else channels.count
    return [
        (None, MULTICAST),
        *((n, mac_of(channels.group(n))) for n in range(count) if channels is not None),
    ]


def arrivals(
    net: FakeNetwork, root: Endpoint, address: str = MULTICAST
) -> Counter[tuple[str, int, int | None]]:
    frame = Frame(address, source_of(root), root.vlan)
    got = net.inject(root.switch, root.port, frame)
    return Counter((switch, port, out.vlan) for switch, port, out in got)


def check_while_under_way(
    core: Core,
    held: Held,
    step: Step,
    before: dict[str, MultipointPath],
    after: dict[str, MultipointPath],
    draw: st.DataObject,
) -> Held:
    """Check that leaves that are served before and after by the same hops get each frame exactly
    once all the time; that no leaf gets it twice; and that no other gets it."""
    base = base_entries(core)

    def check(state: Held) -> None:
        for switch, entries in state.items():
            groups = {entry.number for entry in entries if isinstance(entry, Group)}
            for entry in entries:
                used = {a.group for a in getattr(entry, "actions", ()) if isinstance(a, ToGroup)}
                assert used <= groups, (step.what, switch, entry)
        net = network_holding(core, {s: {*base[s], *e} for s, e in state.items()})
        for name in before.keys() | after.keys():
            old, new = before.get(name), after.get(name)
            for channel, address in channels_of(old, new):
                check_address(net, old, new, channel, address)

    def check_address(
        net: FakeNetwork,
        old: MultipointPath | None,
        new: MultipointPath | None,
        channel: int | None,
        address: str,
    ) -> None:
        olds = channel_routes(core, old, channel) if old is not None else {}
        news = channel_routes(core, new, channel) if new is not None else {}
        path = old or new
        assert path is not None
        got = arrivals(net, path.root, address)
        assert set(got) <= {leaf.key for leaf in (*olds, *news)}, (step.what, channel, got)
        assert all(copies == 1 for copies in got.values()), (step.what, channel, got)
        for leaf in olds.keys() & news.keys():
            if olds[leaf] == news[leaf]:
                assert got[leaf.key] == 1, (step.what, channel, leaf, got)

    check(held)
    for phase in step.phases:
        switches = sorted(phase)
        some = draw.draw(st.sets(st.sampled_from(switches)))
        check(changed(held, {switch: phase[switch] for switch in some}))
        held = changed(held, phase)
        check(held)
    return held


def check_forwarding(core: Core, held: Held, path: MultipointPath) -> None:
    net = network_holding(core, held)
    leaves = list(routes_of(core, path))
    assert arrivals(net, path.root) == Counter({leaf.key: 1 for leaf in leaves})
    assert len(net.on_links) == len(path.hops)
    check_channels(core, net, path)
    root = path.root
    for leaf in leaves:
        for address in leaf.macs:
            there = Frame(address, source_of(root), root.vlan)
            got = net.inject(root.switch, root.port, there)
            assert [(s, p, f.vlan) for s, p, f in got] == [leaf.key]
        back = Frame(source_of(root), source_of(leaf), leaf.vlan)
        got = net.inject(leaf.switch, leaf.port, back)
        assert [(s, p, f.vlan) for s, p, f in got] == [root.key]
        stranger = Frame(source_of(root), mac(0xEEEE), leaf.vlan)
        assert bool(net.inject(leaf.switch, leaf.port, stranger)) == (not leaf.macs)
        assert (
            net.inject(leaf.switch, leaf.port, Frame(MULTICAST, source_of(leaf), leaf.vlan)) == []
        )
        others = {
            other.key
            for other in leaves
            if path.leaf_to_leaf and (other.switch, other.port) != (leaf.switch, leaf.port)
        }
        request = Frame(BROADCAST, source_of(leaf), leaf.vlan, ARP)
        got = net.inject(leaf.switch, leaf.port, request)
        assert Counter((s, p, f.vlan) for s, p, f in got) == Counter({root.key, *others})
        for other in leaves:
            for address in other.macs if other != leaf and root.macs else ():
                got = net.inject(leaf.switch, leaf.port, Frame(address, source_of(leaf), leaf.vlan))
                expected = [other.key] if other.key in others else []
                assert [(s, p, f.vlan) for s, p, f in got] == expected


def check_channels(core: Core, net: FakeNetwork, path: MultipointPath) -> None:
    """Check that a channel reaches its members alone, over the links that lead to them, and that
    reports reach the controller, unless a stranger sends them."""
    for channel, address in channels_of(path)[1:]:
        routes = channel_routes(core, path, channel)
        assert arrivals(net, path.root, address) == Counter({leaf.key: 1 for leaf in routes})
        assert len(net.on_links) == len({hop for hops in routes.values() for hop in hops})
    for leaf in routes_of(core, path):
        report = Frame(REPORTS, source_of(leaf), leaf.vlan, IPV4, IGMP)
        told = [] if path.channels is None else [(leaf.switch, CONTROLLER, report)]
        assert net.inject(leaf.switch, leaf.port, report) == told
        if leaf.macs:
            strange = Frame(REPORTS, mac(0xEEEE), leaf.vlan, IPV4, IGMP)
            assert net.inject(leaf.switch, leaf.port, strange) == []


def check_reservations(desk: Desk, paths: dict[str, MultipointPath]) -> None:
    core, reservations = desk.core, desk.reservations
    reserved: Counter[tuple[str, str]] = Counter()
    vlans: Counter[tuple[str, int]] = Counter()
    for path in paths.values():
        for tree_hop in path.hops:
            reserved[tree_hop.link, tree_hop.source] += path.rate_bps
            vlans[tree_hop.link, tree_hop.vlan] += 1
            assert reservations.vlan_taken(tree_hop.link, tree_hop.vlan)
            assert path.name in reservations.paths_over(tree_hop.link)
        for leaf in path.leaves:
            reserved[core.access[leaf.switch, leaf.port].link, leaf.switch] += path.rate_bps
            assert reservations.owner_of(leaf.key) == path.name
        ids = [tree_hop.vlan for tree_hop in path.hops]
        assert len(ids) == len(set(ids)), "an id twice in a path, though the range has many"
    for (link, node), rate_bps in reserved.items():
        assert reservations.reserved_bps(link, node) == rate_bps
        hop = core.hop.get((link, node))
        assert hop is None or hop.rate_bps is None or rate_bps <= hop.rate_bps
    assert max(vlans.values(), default=1) == 1
    assert len({path.number for path in paths.values()}) == len(paths)
    again = Reservations(core)
    for path in paths.values():
        again.replace(None, path)
    assert all(again.path(name) == reservations.path(name) == path for name, path in paths.items())
    for name in paths:
        assert again.tree(name).joined == reservations.tree(name).joined
        assert again.tree(name).channels == reservations.tree(name).channels
    for hop in core.hops:
        assert again.reserved_bps(hop.link, hop.source) == reservations.reserved_bps(
            hop.link, hop.source
        )
        for vlan in range(VLAN_RANGE[0], VLAN_RANGE[1] + 1):
            assert again.vlan_taken(hop.link, vlan) == reservations.vlan_taken(hop.link, vlan)


class Story:
    """The current paths, and what the switches hold after all steps so far."""

    def __init__(self, core: Core, data: st.DataObject) -> None:
        self.core = core
        self.desk = Desk(core)
        self.data = data
        self.paths: dict[str, MultipointPath] = {}
        self.held: Held = {switch: frozenset() for switch in core.dpids}

    def tell(self, step: Step) -> None:
        before = dict(self.paths)
        name = (step.new or step.old or next(iter(before.values()))).name
        if step.new is None:
            del self.paths[name]
        else:
            self.paths[name] = step.new
        self.held = check_while_under_way(self.core, self.held, step, before, self.paths, self.data)
        expected: dict[str, set[Entry]] = {switch: set() for switch in self.core.dpids}
        for path in self.paths.values():
            for switch, entries in entries_of(self.core, path).items():
                expected[switch] |= entries
        assert self.held == {switch: frozenset(entries) for switch, entries in expected.items()}
        check_reservations(self.desk, self.paths)

    def act(self) -> None:
        draw, desk, core = self.data.draw, self.desk, self.core
        often = ["add"] * 5 + ["channels"] * 3
        action = draw(st.sampled_from(["create", *often, "remove", "fail", "macs", "delete"]))
        try:
            if action == "create" or not self.paths:
                name = f"p{len(self.paths)}-{desk.reservations.version}"
                desk.create(
                    name,
                    draw(endpoints(core)),
                    draw(st.sampled_from([0, 4_000_000])),
                    algorithm=draw(st.sampled_from(Algorithm)),
                    leaf_to_leaf=draw(st.booleans()),
                    channels=draw(st.sampled_from([None, CHANNELS, CHANNELS])),
                )
                path = desk[name]
                self.tell(Step("created", None, path, ({path.root.switch: _all(core, path)},)))
                return
            name = draw(st.sampled_from(sorted(self.paths)))
            leaves = self.paths[name].leaves
            if action == "add":
                self.tell(desk.add(name, draw(endpoints(core))))
            elif action == "fail":
                links = draw(st.sets(st.sampled_from([h.link for h in core.hops]), max_size=3))
                switches = draw(st.sets(st.sampled_from(sorted(core.dpids)), max_size=1))
                down = DownSet(frozenset(links), frozenset(switches))
                self.tell(desk.reroute(name, down))
                for tree_hop in self.paths[name].hops:
                    assert not down.hits(core.hop[tree_hop.link, tree_hop.source])
            elif action == "delete":
                self.tell(desk.delete(name))
            elif leaves and action == "channels":
                if self.paths[name].channels is not None:
                    self.tell(desk.join(name, draw(memberships(leaves))))
            elif leaves:
                leaf = draw(st.sampled_from(leaves))
                if action == "remove":
                    self.tell(desk.remove(name, leaf.key))
                else:
                    step = set_macs(
                        core, desk.reservations, self.paths[name], leaf.key, [mac(0xABCD)]
                    )
                    self.tell(desk.take(step))
        except PlanError:
            check_reservations(desk, self.paths)  # refused: nothing is left of it


def memberships(
    leaves: Iterable[Endpoint],
) -> st.SearchStrategy[dict[tuple[str, int, int], frozenset[int]]]:
    keys = st.sampled_from([leaf.key for leaf in leaves])
    return st.dictionaries(keys, st.frozensets(st.integers(0, 2)), max_size=4)


def _all(core: Core, path: MultipointPath) -> Delta:
    return Delta((), tuple(entries_of(core, path)[path.root.switch]))


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_nothing_is_lost_or_doubled_while_anything_changes(data: st.DataObject) -> None:
    story = Story(data.draw(cores()), data)
    for _ in range(data.draw(st.integers(4, 14))):
        story.act()
    for path in story.paths.values():
        check_forwarding(story.core, story.held, path)


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_adding_and_removing_leaves_everything_as_it_was(data: st.DataObject) -> None:
    story = Story(data.draw(cores()), data)
    for _ in range(6):
        story.act()
    if not story.paths:
        return
    name = data.draw(st.sampled_from(sorted(story.paths)))
    before, held = story.paths[name], story.held
    if unreached(story.core, before):
        return
    leaf = data.draw(endpoints(story.core))
    try:
        story.tell(story.desk.add(name, leaf))
    except PlanError:
        return
    story.tell(story.desk.remove(name, leaf.key))
    assert story.paths[name] == before
    assert story.held == held


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_transition_gets_from_any_state_to_any_other(data: st.DataObject) -> None:
    """It computes from the two states alone what the steps do: a held change needs that after a
    restart."""
    story = Story(data.draw(cores()), data)
    story.desk.create("p", Endpoint("s1", 91, 99), 0, channels=CHANNELS)
    states: list[MultipointPath | None] = [None, story.desk["p"]]
    for _ in range(6):
        try:
            story.desk.add("p", data.draw(endpoints(story.core)))
        except PlanError:
            continue
        states.append(story.desk["p"])
        story.desk.join("p", data.draw(memberships(story.desk["p"].leaves)))
        states.append(story.desk["p"])
    old, new = data.draw(st.sampled_from(states)), data.draw(st.sampled_from(states))
    held = changed(
        dict.fromkeys(story.core.dpids, ()), _merged(entries_of(story.core, old) if old else {})
    )
    step = Step("transition", old, new, transition(story.core, old, new))
    before = {"p": old} if old else {}
    after = {"p": new} if new else {}
    reached = check_while_under_way(story.core, held, step, before, after, data)
    expected = entries_of(story.core, new) if new else {}
    assert {s: e for s, e in reached.items() if e} == {s: e for s, e in expected.items() if e}


def _merged(entries: Mapping[str, Iterable[Entry]]) -> dict[str, Delta]:
    return {switch: Delta((), tuple(some)) for switch, some in entries.items()}
