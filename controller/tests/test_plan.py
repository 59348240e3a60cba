# SPDX-License-Identifier: Apache-2.0
"""Plans on the hand-made network of sample.py; all expected values were derived by hand."""

from __future__ import annotations

import dataclasses

import pytest

from controller.core import (
    Core,
    Endpoint,
    InvalidEndpoint,
    UnknownDomain,
    Unreachable,
    core_of,
    route,
    shortest_tree,
)
from controller.entries import (
    ANY_MULTICAST,
    ANY_UNICAST,
    BROADCAST,
    COOKIE_BASE,
    Bucket,
    Entry,
    EthMatch,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetVlan,
    ToGroup,
)
from controller.plan import (
    Conflict,
    Edge,
    NoCapacity,
    NoVlanLeft,
    Path,
    check_root,
    edges_of,
    meter_of,
    plan_path,
    with_leaf,
    without_leaf,
)
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
from topologies.model import Impairment

CORE = core_of(network(), "core")
RATE = 20_000_000


def grown(*leaves: Endpoint, number: int = 1, root: Endpoint = ROOT) -> Path:
    path = Path(f"p{number}", number, root, RATE)
    for leaf in leaves:
        path = with_leaf(CORE, path, leaf, ())
    return path


def test_tree_takes_least_delay() -> None:
    tree = shortest_tree(CORE, "s1")
    assert [h.link for h in route(tree, "s1", "s3")] == ["s1:s2", "s2:s3"]  # 10 ms, not 20
    assert [h.link for h in route(tree, "s1", "s4")] == ["s1:s2", "s2:s4"]  # 12 ms
    assert route(tree, "s1", "s1") == ()


def test_tree_follows_links_against_their_definition() -> None:
    hops = route(shortest_tree(CORE, "s4"), "s4", "s1")
    assert [(h.source, h.source_port, h.target, h.target_port) for h in hops] == [
        ("s4", 1, "s2", 3),
        ("s2", 1, "s1", 2),
    ]


def test_vlans_differ_on_every_segment() -> None:
    path = grown(LEAF_2, LEAF_3, LEAF_4)
    assert dict(path.vlans) == {"s1:s2": 300, "s2:s3": 310, "s2:s4": 330}
    ids = [*dict(path.vlans).values(), *(e.vlan for e in path.endpoints)]
    assert len(ids) == len(set(ids))


def test_edges() -> None:
    assert edges_of(CORE, grown(LEAF_3)) == (
        Edge("s1", 2, "s2", 1, 300),
        Edge("s2", 2, "s3", 1, 310),
    )


def test_entries_at_the_root_switch() -> None:
    cookie = COOKIE_BASE | 7
    down = (SetVlan(300), Output(2))
    up = (SetVlan(101), Output(1))
    expected: set[Entry] = {
        Meter(7, 20_000, 1_000),
        Group(7, (Bucket(300, 2),)),
        Flow(Match(1, 101, ANY_MULTICAST, MAC_1), 1000, cookie, (ToGroup(7),), 7),
        Flow(Match(1, 101, EthMatch(MAC_3A), MAC_1), 1000, cookie, down, 7),
        Flow(Match(1, 101, EthMatch(MAC_3B), MAC_1), 1000, cookie, down, 7),
        Flow(Match(2, 300), 1000, cookie, up),
    }
    assert plan_path(CORE, grown(LEAF_3, number=7))["s1"] == expected


def test_entries_at_a_branching_switch() -> None:
    cookie = COOKIE_BASE | 1
    up = (SetVlan(300), Output(1))
    expected: set[Entry] = {
        Group(1, (Bucket(310, 2), Bucket(330, 3), Bucket(102, 9))),
        Flow(Match(1, 300, ANY_MULTICAST), 1000, cookie, (ToGroup(1),)),
        Flow(Match(1, 300, EthMatch(MAC_2)), 1000, cookie, (SetVlan(102), Output(9))),
        Flow(Match(1, 300, EthMatch(MAC_3A)), 1000, cookie, (SetVlan(310), Output(2))),
        Flow(Match(1, 300, EthMatch(MAC_3B)), 1000, cookie, (SetVlan(310), Output(2))),
        Flow(Match(1, 300, EthMatch(MAC_4)), 1000, cookie, (SetVlan(330), Output(3))),
        Flow(Match(2, 310), 1000, cookie, up),
        Flow(Match(3, 330), 1000, cookie, up),
        Flow(Match(9, 102, EthMatch(MAC_1), MAC_2), 1000, cookie, up),
        Flow(Match(9, 102, EthMatch(BROADCAST), MAC_2, 0x0806), 1000, cookie, up),
    }
    assert plan_path(CORE, grown(LEAF_4, LEAF_2, LEAF_3))["s2"] == expected


def test_endpoints_without_macs_match_any_source() -> None:
    path = grown(Endpoint("s2", 9, 102), root=Endpoint("s1", 1, 101))
    plan = plan_path(CORE, path)
    assert {e.match for e in plan["s1"] if isinstance(e, Flow)} == {
        Match(1, 101, ANY_MULTICAST),
        Match(2, 300),
    }
    assert {e.match for e in plan["s2"] if isinstance(e, Flow)} == {
        Match(1, 300, ANY_MULTICAST),
        Match(9, 102, ANY_UNICAST),
        Match(9, 102, EthMatch(BROADCAST), None, 0x0806),
    }


def test_path_without_leaves_only_has_its_meter() -> None:
    assert plan_path(CORE, grown()) == {"s1": {Meter(1, 20_000, 1_000)}}


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
    assert meter_of(Path("p", 3, ROOT, rate_bps)) == Meter(3, rate_kbps, burst_kbit)


def test_adding_a_leaf_changes_only_what_it_must() -> None:
    before = plan_path(CORE, grown(LEAF_3))
    after = plan_path(CORE, grown(LEAF_3, LEAF_4))
    assert before["s3"] == after["s3"]
    assert before["s2"] - after["s2"] == {Group(1, (Bucket(310, 2),))}
    assert after["s2"] - before["s2"] == {
        Group(1, (Bucket(310, 2), Bucket(330, 3))),
        Flow(Match(1, 300, EthMatch(MAC_4)), 1000, COOKIE_BASE | 1, (SetVlan(330), Output(3))),
        Flow(Match(3, 330), 1000, COOKIE_BASE | 1, (SetVlan(300), Output(1))),
    }
    assert before["s1"] - after["s1"] == set()  # the group has the same one bucket
    assert len(after["s1"] - before["s1"]) == 1  # unicast to MAC_4


def test_removing_a_leaf_is_the_inverse_of_adding_it() -> None:
    path = grown(LEAF_3, LEAF_2)
    again = without_leaf(CORE, with_leaf(CORE, path, LEAF_4, ()), LEAF_4.key)
    assert again == path
    assert "s2:s4" not in dict(again.vlans)


def test_two_paths_use_different_ids_on_a_shared_link() -> None:
    first = grown(LEAF_3)
    second = Path("p2", 2, Endpoint("s1", 1, 201, (MAC_1,)), RATE)
    second = with_leaf(CORE, second, Endpoint("s3", 9, 203, (MAC_3A,)), [first])
    assert dict(second.vlans) == {"s1:s2": 301, "s2:s3": 311}


def test_ids_of_static_segments_are_avoided() -> None:
    path = grown(Endpoint("s2", 9, 300, (MAC_2,)))  # an edge segment that uses 300 itself
    assert dict(path.vlans) == {"s1:s2": 301}


def test_no_vlan_left() -> None:
    paths: list[Path] = []
    for n in range(10):
        path = Path(f"p{n}", n + 1, Endpoint("s1", 1, 1000 + n, (MAC_1,)), 1000)
        paths.append(with_leaf(CORE, path, Endpoint("s2", 9, 2000 + n, (MAC_2,)), paths))
    assert sorted(dict(p.vlans)["s1:s2"] for p in paths) == list(range(300, 310))
    last = Path("last", 11, Endpoint("s1", 1, 1010), 1000)
    with pytest.raises(NoVlanLeft, match=r"300\.\.309 of link 's1:s2'"):
        with_leaf(CORE, last, Endpoint("s2", 9, 2010), paths)


def test_capacity_names_the_bottleneck() -> None:
    paths: list[Path] = []
    for n in range(3):
        path = Path(f"p{n}", n + 1, Endpoint("s1", 1, 1000 + n), 30_000_000)
        paths.append(with_leaf(CORE, path, Endpoint("s4", 9, 2000 + n), paths))
    more = Path("more", 9, Endpoint("s1", 1, 1009), 30_000_000)
    with pytest.raises(NoCapacity, match=r"link 's2:s4' from 's2' has 100000000 bit/s, 90000000"):
        with_leaf(CORE, more, Endpoint("s4", 9, 2009), paths)
    with_leaf(CORE, more, Endpoint("s3", 9, 2009), paths)  # not over that link
    fits = Path("fits", 9, Endpoint("s1", 1, 1009), 10_000_000)
    with_leaf(CORE, fits, Endpoint("s4", 9, 2009), paths)  # exactly full


def test_id_of_another_path_on_another_link_is_free() -> None:
    """Ids are local to a link: with one range for all links, each link counts for itself."""
    net = network()
    net = dataclasses.replace(
        net, links=tuple(dataclasses.replace(k, vlan_range=(500, 509)) for k in net.links)
    )
    core = core_of(net, "core")
    first = with_leaf(core, Path("a", 1, ROOT, RATE), LEAF_2, ())
    assert dict(first.vlans) == {"s1:s2": 500}
    second = Path("b", 2, Endpoint("s2", 9, 202), RATE)
    second = with_leaf(core, second, LEAF_3, [first])
    assert dict(second.vlans) == {"s2:s3": 500}
    both = with_leaf(core, Path("c", 3, Endpoint("s1", 1, 203), RATE), LEAF_3, [first])
    assert dict(both.vlans) == {"s1:s2": 501, "s2:s3": 500}


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
        assert [h.link for h in route(shortest_tree(core, "s1"), "s1", "s3")] == there
        assert [h.link for h in route(shortest_tree(core, "s3"), "s3", "s1")] == back


def test_capacity_of_access_links_is_per_direction() -> None:
    narrow, wide = Impairment(rate_bps=1_000_000), Impairment(rate_bps=1_000_000_000)
    path = Path("p", 1, ROOT, RATE)
    # s4:e4 leaves the core forwards, e2:s2 and e1:s1 backwards.
    for name, leaf in (("s4:e4", LEAF_4), ("e2:s2", LEAF_2)):
        out, back = (narrow, wide) if name == "s4:e4" else (wide, narrow)
        with pytest.raises(NoCapacity, match=f"link '{name}' from '{leaf.switch}'"):
            with_leaf(_asymmetric(name, out, back), path, leaf, ())
        with_leaf(_asymmetric(name, back, out), path, leaf, ())
    with pytest.raises(NoCapacity, match="link 'e1:s1' from 'e1'"):
        check_root(_asymmetric("e1:s1", narrow, wide), path, ())
    check_root(_asymmetric("e1:s1", wide, narrow), path, ())


def test_capacity_is_per_direction() -> None:
    there = with_leaf(CORE, Path("a", 1, ROOT, 100_000_000), LEAF_4, ())
    back = Path("b", 2, Endpoint("s4", 9, 204), 100_000_000)
    with_leaf(CORE, back, Endpoint("s1", 1, 201), [there])


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
    with pytest.raises(error, match=text):
        with_leaf(CORE, grown(LEAF_3), leaf, ())


def test_endpoint_of_another_path() -> None:
    other = grown(LEAF_2, number=2)
    with pytest.raises(Conflict, match="s2:9:102 is in use by path 'p2'"):
        with_leaf(CORE, Path("p1", 1, Endpoint("s1", 1, 5), RATE), LEAF_2, [other])
    with pytest.raises(Conflict, match="s1:1:101 is in use by path 'p2'"):
        check_root(CORE, grown(), [other])


def test_unreachable() -> None:
    cut = core_of(network(), "core")
    cut = type(cut)(cut.domain, cut.dpids, (), cut.access, cut.segment_vlans)
    with pytest.raises(Unreachable, match="from switch 's1' to switch 's2'"):
        with_leaf(cut, grown(), LEAF_2, ())


def test_unknown_domain_names_the_valid_ones() -> None:
    with pytest.raises(UnknownDomain, match="'nowhere' .* does not exist; valid: core"):
        core_of(network(), "nowhere")
    with pytest.raises(UnknownDomain, match="'edge1' .* static segments only; valid: core"):
        core_of(network(), "edge1")
