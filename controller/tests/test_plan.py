# SPDX-License-Identifier: Apache-2.0
"""Plans on the hand-made network of sample.py; all expected values were derived by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from controller.paths.core import (
    Bottleneck,
    Conflict,
    Core,
    Endpoint,
    InvalidEndpoint,
    NoCapacity,
    NoVlanLeft,
    UnknownDomain,
    Unreachable,
    core_of,
)
from controller.paths.entries import (
    ANY_MULTICAST,
    ANY_UNICAST,
    BROADCAST,
    Bucket,
    Entry,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
    ToGroup,
    cookie_of,
    kind_of,
)
from controller.paths.forwarding import meter_of
from controller.paths.multipoint_path import (
    Algorithm,
    Edge,
    MultipointPath,
    edges_of,
)
from controller.paths.plan import add_leaf, entries_of, set_macs
from controller.tests.planning import Desk, changed
from controller.tests.planning import grown as grown_on
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
from topologies.model.network import Impairment

CORE = core_of(network(), "core")
RATE = 20_000_000


def grown(*leaves: Endpoint, number: int = 1, root: Endpoint = ROOT) -> MultipointPath:
    return grown_on(CORE, MultipointPath(f"p{number}", number, root, RATE), *leaves)


def vlans(path: MultipointPath) -> dict[str, int]:
    return {hop.link: hop.vlan for hop in path.hops}


def test_tree_takes_least_delay() -> None:
    assert list(vlans(grown(LEAF_3))) == ["s1:s2", "s2:s3"]  # 10 ms, not 20
    assert list(vlans(grown(LEAF_4))) == ["s1:s2", "s2:s4"]  # 12 ms


def test_tree_follows_links_against_their_definition() -> None:
    path = grown(Endpoint("s1", 1, 201), root=Endpoint("s4", 9, 204))
    assert [(e.source, e.source_port, e.target, e.target_port) for e in edges_of(CORE, path)] == [
        ("s4", 1, "s2", 3),
        ("s2", 1, "s1", 2),
    ]


def test_vlans_differ_on_every_segment() -> None:
    path = grown(LEAF_2, LEAF_3, LEAF_4)
    assert vlans(path) == {"s1:s2": 300, "s2:s3": 310, "s2:s4": 330}
    ids = [*vlans(path).values(), *(e.vlan for e in path.endpoints)]
    assert len(ids) == len(set(ids))


def test_edges() -> None:
    assert edges_of(CORE, grown(LEAF_3)) == (
        Edge("s1", 2, "s2", 1, 300),
        Edge("s2", 2, "s3", 1, 310),
    )


def test_entries_at_the_root_switch() -> None:
    down = (SetVlan(300), Output(2))
    unicast = cookie_of(Kind.UNICAST_DOWN, 7)
    expected: set[Entry] = {
        Meter(7, 20_000, 1_000),
        Group(7, (Bucket(300, 2),)),
        Flow(
            Match(1, 101, ANY_MULTICAST, MAC_1),
            1000,
            cookie_of(Kind.DATA_DOWN, 7),
            (ToGroup(7),),
            7,
        ),
        Flow(Match(1, 101, EthMatch(MAC_3A), MAC_1), 1000, unicast, down, 7),
        Flow(Match(1, 101, EthMatch(MAC_3B), MAC_1), 1000, unicast, down, 7),
        Flow(Match(2, 300), 1000, cookie_of(Kind.UP, 7), (SetVlan(101), Output(1))),
        Flow(Match(1, 101, eth_src=MAC_1), 300, cookie_of(Kind.DENIED, 7), ()),
        Flow(Match(1, 101), 200, cookie_of(Kind.SPOOFED, 7), ()),
    }
    assert entries_of(CORE, grown(LEAF_3, number=7))["s1"] == expected


def test_entries_at_a_branching_switch() -> None:
    up = (SetVlan(300), Output(1))
    data, unicast, back = (
        cookie_of(kind, 1) for kind in (Kind.DATA_DOWN, Kind.UNICAST_DOWN, Kind.UP)
    )
    expected: set[Entry] = {
        Group(1, (Bucket(310, 2), Bucket(330, 3), Bucket(102, 9))),
        Flow(Match(1, 300, ANY_MULTICAST), 1000, data, (ToGroup(1),)),
        Flow(Match(1, 300, EthMatch(MAC_2)), 1000, unicast, (SetVlan(102), Output(9))),
        Flow(Match(1, 300, EthMatch(MAC_3A)), 1000, unicast, (SetVlan(310), Output(2))),
        Flow(Match(1, 300, EthMatch(MAC_3B)), 1000, unicast, (SetVlan(310), Output(2))),
        Flow(Match(1, 300, EthMatch(MAC_4)), 1000, unicast, (SetVlan(330), Output(3))),
        Flow(Match(2, 310), 1000, back, up),
        Flow(Match(3, 330), 1000, back, up),
        Flow(Match(9, 102, EthMatch(MAC_1), MAC_2), 1000, back, up),
        Flow(Match(9, 102, EthMatch(BROADCAST), MAC_2, 0x0806), 1000, cookie_of(Kind.ARP, 1), up),
        Flow(Match(9, 102, eth_src=MAC_2), 300, cookie_of(Kind.DENIED, 1), ()),
        Flow(Match(9, 102), 200, cookie_of(Kind.SPOOFED, 1), ()),
    }
    assert entries_of(CORE, grown(LEAF_4, LEAF_2, LEAF_3))["s2"] == expected


def test_endpoints_without_macs_match_any_source() -> None:
    """And no frame counts as spoofed there."""
    path = grown(Endpoint("s2", 9, 202), root=Endpoint("s1", 1, 201))
    plan = entries_of(CORE, path)
    assert {e.match for e in plan["s1"] if isinstance(e, Flow) and e.actions} == {
        Match(1, 201, ANY_MULTICAST),
        Match(2, 300),
    }
    assert {e.match for e in plan["s2"] if isinstance(e, Flow) and e.actions} == {
        Match(1, 300, ANY_MULTICAST),
        Match(9, 202, ANY_UNICAST),
        Match(9, 202, EthMatch(BROADCAST), None, 0x0806),
    }
    drops = [e for e in plan["s2"] if isinstance(e, Flow) and not e.actions]
    assert [(e.match, kind_of(e.cookie)) for e in drops] == [(Match(9, 202), Kind.DENIED)]


def test_registered_macs_are_filled_in() -> None:
    """seg1 ends at s1:1:101 with host h1, seg3 at s3:9:103 with h3a and h3b."""
    path = grown(Endpoint("s3", 9, 103), root=Endpoint("s1", 1, 101))
    assert path.root == ROOT
    assert path.leaves == (LEAF_3,)


def test_path_without_leaves_has_its_meter_and_drops() -> None:
    entries = entries_of(CORE, grown())
    assert set(entries) == {"s1"}
    assert {e for e in entries["s1"] if not isinstance(e, Flow)} == {Meter(1, 20_000, 1_000)}
    assert all(e.actions == () for e in entries["s1"] if isinstance(e, Flow))


def test_best_effort_has_no_meter_and_reserves_nothing() -> None:
    desk = Desk(CORE)
    desk.create("p", ROOT, 0)
    desk.add("p", LEAF_4)
    for entries in entries_of(CORE, desk["p"]).values():
        assert not [e for e in entries if isinstance(e, Meter)]
        assert all(e.meter is None for e in entries if isinstance(e, Flow))
    assert desk.reservations.reserved_bps("s2:s4", "s2") == 0


def test_queues_are_set_only_where_wanted_and_guaranteed() -> None:
    core = dataclasses.replace(CORE, set_queue=True)
    path = grown_on(core, MultipointPath("p", 7, ROOT, RATE), LEAF_3)
    (group,) = (e for e in entries_of(core, path)["s1"] if isinstance(e, Group))
    assert group.buckets == (Bucket(300, 2, 7),)
    assert group.buckets[0].actions == (SetVlan(300), SetQueue(7), Output(2))
    back = Flow(Match(2, 300), 1000, cookie_of(Kind.UP, 7), (SetVlan(101), Output(1)))
    assert back in entries_of(core, path)["s1"]
    free = grown_on(core, MultipointPath("p", 7, ROOT, 0), LEAF_3)
    (group,) = (e for e in entries_of(core, free)["s1"] if isinstance(e, Group))
    assert group.buckets == (Bucket(300, 2),)


@pytest.mark.parametrize(
    ("rate_bps", "rate_kbps", "burst_kbit"),
    [
        (1_000, 1, 200),
        (4_000_000, 4_000, 200),  # 50 ms of 4 Mbit/s are 200 kbit
        (20_000_000, 20_000, 1_000),
        (20_000_001, 20_001, 1_001),  # rounded up
        (100_000_000, 100_000, 5_000),
        (500_000_000, 500_000, 25_000),
    ],
)
def test_meter(rate_bps: int, rate_kbps: int, burst_kbit: int) -> None:
    assert meter_of(MultipointPath("p", 3, ROOT, rate_bps)) == Meter(3, rate_kbps, burst_kbit)


def test_adding_a_leaf_changes_only_what_it_must() -> None:
    """s4 is prepared, and s2's group sends to it last; s3 is not touched."""
    desk = Desk(CORE)
    desk.create("p", ROOT, RATE)
    desk.add("p", LEAF_3)
    first, second = desk.add("p", LEAF_4).phases
    unicast = cookie_of(Kind.UNICAST_DOWN, 1)
    assert set(first) == {"s1", "s2", "s4"}
    assert first["s1"].added == (
        Flow(Match(1, 101, EthMatch(MAC_4), MAC_1), 1000, unicast, (SetVlan(300), Output(2)), 1),
    )
    assert set(first["s2"].added) == {
        Flow(Match(1, 300, EthMatch(MAC_4)), 1000, unicast, (SetVlan(330), Output(3))),
        Flow(Match(3, 330), 1000, cookie_of(Kind.UP, 1), (SetVlan(300), Output(1))),
    }
    assert not any(delta.removed for delta in first.values())
    assert set(second) == {"s2"}
    assert second["s2"].removed == (Group(1, (Bucket(310, 2),)),)
    assert second["s2"].added == (Group(1, (Bucket(310, 2), Bucket(330, 3))),)


def test_a_leaf_where_the_tree_is_already_takes_one_phase() -> None:
    desk = Desk(CORE)
    desk.create("p", ROOT, RATE)
    desk.add("p", LEAF_3)
    assert len(desk.add("p", LEAF_2).phases) == 1
    assert len(desk.remove("p", LEAF_2.key).phases) == 1


def test_removing_a_leaf_is_the_inverse_of_adding_it() -> None:
    desk = Desk(CORE)
    desk.create("p", ROOT, RATE)
    desk.add("p", LEAF_3)
    desk.add("p", LEAF_2)
    before = desk["p"]
    there = desk.add("p", LEAF_4)
    back = desk.remove("p", LEAF_4.key)
    assert desk["p"] == before
    assert not desk.reservations.vlan_taken("s2:s4", 330)
    assert [
        {s: (set(d.removed), set(d.added)) for s, d in phase.items()} for phase in back.phases
    ] == [{s: (set(d.removed), set(d.added)) for s, d in phase.items()} for phase in there.undoing]


def test_two_paths_use_different_ids_on_a_shared_link() -> None:
    desk = Desk(CORE)
    desk.create("p1", ROOT, RATE)
    desk.add("p1", LEAF_3)
    desk.create("p2", Endpoint("s1", 1, 201, (MAC_1,)), RATE)
    desk.add("p2", Endpoint("s3", 9, 203, (MAC_3A,)))
    assert desk.vlans("p2") == {"s1:s2": 301, "s2:s3": 311}


def test_ids_of_static_segments_are_avoided() -> None:
    path = grown(Endpoint("s2", 9, 300, (MAC_2,)))  # an edge segment that uses 300 itself
    assert vlans(path) == {"s1:s2": 301}


def test_no_vlan_left() -> None:
    """Ten paths fill s1:s2, ten more go over s1:s3 and fill that; the next finds no way."""
    desk = Desk(CORE)
    for n in range(20):
        desk.create(f"p{n}", Endpoint("s1", 1, 1000 + n, (MAC_1,)), 0)
        desk.add(f"p{n}", Endpoint("s2", 9, 2000 + n, (MAC_2,)))
    assert sorted(desk.vlans(f"p{n}")["s1:s2"] for n in range(10)) == list(range(300, 310))
    assert all(list(desk.vlans(f"p{n}")) == ["s1:s3", "s2:s3"] for n in range(10, 20))
    desk.create("last", Endpoint("s1", 1, 1020), 0)
    with pytest.raises(NoVlanLeft, match=r"300\.\.309 of link 's1:s2'"):
        desk.add("last", Endpoint("s2", 9, 2020))
    desk.remove("p3", ("s2", 9, 2003))
    desk.add("last", Endpoint("s2", 9, 2020))
    assert desk.vlans("last") == {"s1:s2": 303}


def test_capacity_names_the_bottleneck() -> None:
    desk = Desk(CORE)
    for n in range(3):
        desk.create(f"p{n}", Endpoint("s1", 1, 1000 + n), 30_000_000)
        desk.add(f"p{n}", Endpoint("s4", 9, 2000 + n))
    desk.create("more", Endpoint("s1", 1, 1009), 30_000_000)
    core = dataclasses.replace(CORE, hops=tuple(h for h in CORE.hops if h.link != "s3:s4"))
    narrow = Desk(core)
    for path in desk.reservations.paths.values():
        narrow.reservations.replace(None, path)
    text = r"link 's2:s4' from 's2' has 100000000 bit/s, 90000000 bit/s .* 'more' needs 30000000"
    with pytest.raises(NoCapacity, match=text) as caught:
        narrow.add("more", Endpoint("s4", 9, 2009))
    assert caught.value.bottleneck == Bottleneck("s2:s4", "s2", 100_000_000, 90_000_000, 30_000_000)
    narrow.add("more", Endpoint("s3", 9, 2009))  # not over that link
    narrow.create("fits", Endpoint("s1", 1, 1010), 10_000_000)
    narrow.add("fits", Endpoint("s4", 9, 2010))  # exactly full
    desk.add("more", Endpoint("s4", 9, 2009))  # where there is another way, by that
    assert list(desk.vlans("more")) == ["s1:s2", "s2:s3", "s3:s4"]


def test_load_of_other_paths_makes_a_link_costlier() -> None:
    """s1 to s2: 5 ms, or over s3 20 + 5 ms. With s1:s2 at 10 Mbit/s, of which 9 are taken, it costs
    5 ms x 1.9 = 9.5 ms for another path; a cost of 24 ms x 1.9 = 45.6 ms is more than 25 ms."""
    for cost_us, way in ((5_000, ["s1:s2"]), (24_000, ["s1:s3", "s2:s3"])):
        hops = tuple(
            dataclasses.replace(h, rate_bps=10_000_000, cost=cost_us) if h.link == "s1:s2" else h
            for h in CORE.hops
        )
        desk = Desk(dataclasses.replace(CORE, hops=hops))
        desk.create("a", Endpoint("s1", 1, 201), 9_000_000)
        desk.add("a", Endpoint("s2", 9, 202))
        assert list(desk.vlans("a")) == ["s1:s2"]
        desk.create("b", Endpoint("s1", 1, 301), 1_000_000)
        desk.add("b", Endpoint("s2", 9, 302))
        assert list(desk.vlans("b")) == way


def test_id_of_another_path_on_another_link_is_free() -> None:
    """Ids are local to a link: with one range for all links, each link counts for itself."""
    net = network()
    net = dataclasses.replace(
        net, links=tuple(dataclasses.replace(k, vlan_range=(500, 509)) for k in net.links)
    )
    desk = Desk(core_of(net, "core"))
    desk.create("a", ROOT, RATE)
    desk.add("a", LEAF_2)
    assert desk.vlans("a") == {"s1:s2": 500}
    desk.create("b", Endpoint("s2", 9, 202), RATE)
    desk.add("b", LEAF_3)
    assert desk.vlans("b") == {"s2:s3": 500}
    desk.delete("b")
    desk.create("c", Endpoint("s1", 1, 203), RATE)
    desk.add("c", LEAF_3)
    assert desk.vlans("c") == {"s1:s2": 501, "s2:s3": 500}


def _asymmetric(name: str, forward: Impairment, backward: Impairment) -> Core:
    net = network()
    links = tuple(
        dataclasses.replace(k, forward=forward, backward=backward) if k.name == name else k
        for k in net.links
    )
    return core_of(dataclasses.replace(net, links=links), "core")


def test_delay_is_per_direction() -> None:
    slow, fast = Impairment(delay_ms=50), Impairment(delay_ms=1)
    for forward, backward, there, back in (
        (slow, fast, ["s1:s3"], ["s2:s3", "s1:s2"]),  # 20 or 5 + 50 ms; 20 or 1 + 5 ms
        (fast, slow, ["s1:s2", "s2:s3"], ["s1:s3"]),
    ):
        core = _asymmetric("s2:s3", forward, backward)
        path = MultipointPath("p", 1, Endpoint("s1", 1, 201), RATE)
        assert list(vlans(grown_on(core, path, Endpoint("s3", 9, 203)))) == there
        path = MultipointPath("p", 1, Endpoint("s3", 9, 203), RATE)
        assert list(vlans(grown_on(core, path, Endpoint("s1", 1, 201)))) == back


def test_capacity_of_access_links_is_per_direction() -> None:
    narrow, wide = Impairment(rate_bps=1_000_000), Impairment(rate_bps=1_000_000_000)
    path = MultipointPath("p", 1, ROOT, RATE)
    # s4:e4 leaves the core forwards, e2:s2 and e1:s1 backwards.
    for name, leaf in (("s4:e4", LEAF_4), ("e2:s2", LEAF_2)):
        out, back = (narrow, wide) if name == "s4:e4" else (wide, narrow)
        with pytest.raises(NoCapacity, match=f"link '{name}' from '{leaf.switch}'"):
            grown_on(_asymmetric(name, out, back), path, leaf)
        grown_on(_asymmetric(name, back, out), path, leaf)
    with pytest.raises(NoCapacity, match="link 'e1:s1' from 'e1'"):
        grown_on(_asymmetric("e1:s1", narrow, wide), path)
    grown_on(_asymmetric("e1:s1", wide, narrow), path)


def test_capacity_is_per_direction() -> None:
    desk = Desk(CORE)
    desk.create("a", ROOT, 100_000_000)
    desk.add("a", LEAF_4)
    desk.create("b", Endpoint("s4", 9, 204), 100_000_000)
    desk.add("b", Endpoint("s1", 1, 201))
    assert list(desk.vlans("b")) == ["s2:s4", "s1:s2"]


@pytest.mark.parametrize(
    ("leaf", "error", "text"),
    [
        (Endpoint("s9", 1, 5), InvalidEndpoint, "'s9' is not in domain 'core'; valid: s1, s2"),
        (Endpoint("e2", 1, 5), InvalidEndpoint, "'e2' is not in domain"),
        (Endpoint("s2", 2, 5), InvalidEndpoint, "port 2 of switch 's2' .*; valid: 9"),  # core
        (Endpoint("s2", 9, 4095), InvalidEndpoint, "VLAN id 4095"),
        (Endpoint("s2", 9, 0), InvalidEndpoint, "VLAN id 0"),
        (Endpoint("s1", 1, 102), InvalidEndpoint, "on the port of the root"),
        (Endpoint("s2", 9, 102, (MAC_1,)), InvalidEndpoint, f"MAC {MAC_1} .* s1:1:101"),
    ],
)
def test_bad_leaf(leaf: Endpoint, error: type[Exception], text: str) -> None:
    desk = Desk(CORE)
    before = desk.create("p", ROOT, RATE)
    with pytest.raises(error, match=text):
        desk.add("p", leaf)
    assert desk["p"] is before


def test_endpoint_of_another_path() -> None:
    desk = Desk(CORE)
    desk.create("p2", ROOT, RATE)
    desk.add("p2", LEAF_2)
    desk.create("p1", Endpoint("s1", 1, 5), RATE)
    with pytest.raises(Conflict, match="s2:9:102 is in use by path 'p2'"):
        desk.add("p1", LEAF_2)
    with pytest.raises(Conflict, match="s1:1:101 is in use by path 'p2'"):
        desk.create("p3", ROOT, RATE)


def test_unreachable() -> None:
    with pytest.raises(Unreachable, match="from switch 's1' to switch 's2'"):
        grown_on(dataclasses.replace(CORE, hops=()), MultipointPath("p", 1, ROOT, RATE), LEAF_2)


def test_a_step_fits_only_the_books_it_was_planned_on() -> None:
    desk = Desk(CORE)
    path = desk.create("p", ROOT, RATE)
    late = add_leaf(CORE, desk.reservations, path, LEAF_2)
    desk.add("p", LEAF_3)
    with pytest.raises(ValueError, match="reservations have changed"):
        late.apply(desk.reservations)
    with pytest.raises(ValueError, match="not what path 'p' is now"):
        add_leaf(CORE, desk.reservations, path, LEAF_2)


def test_numbers_and_ids_of_a_deleted_path_wait_for_the_switches() -> None:
    desk = Desk(CORE)
    desk.create("a", ROOT, RATE)
    desk.add("a", LEAF_2)
    desk.delete("a", release=False)
    assert desk.reservations.next_number() == 2
    desk.create("b", ROOT, RATE)  # its endpoint is free at once
    desk.add("b", LEAF_2)
    assert (desk["b"].number, desk.vlans("b")) == (2, {"s1:s2": 301})
    desk.reservations.release_number(2)  # in use: nothing happens
    assert desk.reservations.next_number() == 3
    desk.reservations.release_number(1)
    desk.create("c", Endpoint("s1", 1, 201), RATE)
    desk.add("c", Endpoint("s2", 9, 202))
    assert (desk["c"].number, desk.vlans("c")) == (1, {"s1:s2": 300})


def test_ids_of_a_pruned_branch_can_be_set_aside() -> None:
    desk = Desk(CORE)
    desk.create("p", ROOT, RATE)
    desk.add("p", LEAF_2)
    pruned = desk.remove("p", LEAF_2.key)
    assert pruned.old is not None
    freed = desk.reservations.set_aside(pruned.old, pruned.new)
    assert freed == (("s1:s2", 300),)
    desk.add("p", LEAF_2)
    assert desk.vlans("p") == {"s1:s2": 301}
    desk.reservations.give_back(freed)
    desk.create("q", Endpoint("s1", 1, 201), RATE)
    desk.add("q", Endpoint("s2", 9, 202))
    assert desk.vlans("q") == {"s1:s2": 300}


def test_changing_macs_changes_the_flows_of_that_leaf_only() -> None:
    desk = Desk(CORE)
    desk.create("p", ROOT, RATE)
    desk.add("p", LEAF_2)
    desk.add("p", LEAF_3)
    before = entries_of(CORE, desk["p"])
    (phase,) = desk.take(
        set_macs(CORE, desk.reservations, desk["p"], LEAF_3.key, [MAC_3A, MAC_4.upper()])
    ).phases
    assert desk["p"].leaves == (LEAF_2, Endpoint("s3", 9, 103, (MAC_4, MAC_3A)))
    assert changed(before, phase) == entries_of(CORE, desk["p"])
    touched = [e for d in phase.values() for e in (*d.removed, *d.added)]
    assert all(
        isinstance(e, Flow)
        and (
            e.match.eth_src in (MAC_3B, MAC_4)
            or e.match.eth_dst in (EthMatch(MAC_3B), EthMatch(MAC_4))
        )
        for e in touched
    )
    with pytest.raises(InvalidEndpoint, match=f"MAC {MAC_2} of leaf s3:9:103 is already at s2"):
        set_macs(CORE, desk.reservations, desk["p"], LEAF_3.key, [MAC_2])


def test_a_path_survives_json() -> None:
    path = dataclasses.replace(
        grown(LEAF_2, LEAF_4),
        workgroup="unidata",
        algorithm=Algorithm.STEINER,
        leaf_to_leaf=True,
        end_time=1e9,
    )
    assert MultipointPath.from_json(json.loads(json.dumps(path.to_json()))) == path


def test_unknown_domain_names_the_valid_ones() -> None:
    with pytest.raises(UnknownDomain, match="'nowhere' .* does not exist; valid: core"):
        core_of(network(), "nowhere")
    with pytest.raises(UnknownDomain, match="'edge1' .* static segments only; valid: core"):
        core_of(network(), "edge1")
