# SPDX-License-Identifier: Apache-2.0
"""Trees on small graphs, worked out by hand."""

from __future__ import annotations

import pytest

from controller.paths.core import (
    Core,
    DownSet,
    Endpoint,
    NoCapacity,
    Unreachable,
)
from controller.paths.multipoint_path import Algorithm
from controller.tests.domains import make_core
from controller.tests.planning import Desk


def leaf(switch: str, vlan: int = 7) -> Endpoint:
    return Endpoint(switch, 91, vlan)


def tree_of(core: Core, algorithm: Algorithm, *switches: str) -> tuple[list[str], float]:
    """Return the links of the tree from "r" in the order in which they were added, and their total
    cost."""
    desk = Desk(core)
    desk.create("p", leaf("r"), 0, algorithm=algorithm)
    for switch in switches:
        desk.add("p", leaf(switch))
    hops = desk["p"].hops
    return [h.link for h in hops], sum(core.hop[h.link, h.source].cost for h in hops)


# Leaves a, b, c around a hub h without a leaf; r also reaches all of them directly.
STAR = (
    ("r", "a", 4.0),
    ("r", "b", 5.5),
    ("r", "c", 5.5),
    ("r", "h", 3.0),
    ("h", "a", 2.0),
    ("h", "b", 3.0),
    ("h", "c", 3.0),
)


def test_steiner_is_cheaper_than_shortest_paths() -> None:
    """Shortest: a 4 by r:a (by h 5), b 5.5 by r:b (by h 6), c 5.5 by r:c (by h 6); total 15.
    Steiner: a 4 by r:a; b by a:h:b 2 + 3 = 5 (r:b 5.5, r:h:b 6); c from h 3; total 12."""
    core = make_core(STAR)
    links, cost = tree_of(core, Algorithm.SHORTEST, "a", "b", "c")
    assert (links, cost) == (["r:a", "r:b", "r:c"], 15.0)
    links, cost = tree_of(core, Algorithm.STEINER, "a", "b", "c")
    assert (links, cost) == (["r:a", "h:a", "h:b", "h:c"], 12.0)


def test_a_leaf_that_joins_moves_no_other() -> None:
    """When b is removed, the links that only b needed are pruned; a stays, as it leads to h and
    c."""
    desk = Desk(make_core(STAR))
    desk.create("p", leaf("r"), 0, algorithm=Algorithm.STEINER)
    for switch in ("a", "b", "c"):
        desk.add("p", leaf(switch))
    before = {h.link: h.vlan for h in desk["p"].hops}
    desk.remove("p", leaf("b").key)
    assert desk.vlans("p") == {k: v for k, v in before.items() if k != "h:b"}
    desk.remove("p", leaf("a").key)  # its switch still leads to h
    assert list(desk.vlans("p")) == ["r:a", "h:a", "h:c"]
    desk.remove("p", leaf("c").key)
    assert desk.vlans("p") == {}


def test_of_ways_with_equal_cost_the_one_with_fewer_hops() -> None:
    core = make_core([("r", "x", 1.0), ("x", "y", 1.0), ("y", "a", 2.0), ("x", "a", 3.0)])
    assert tree_of(core, Algorithm.SHORTEST, "a")[0] == ["r:x", "x:a"]


def test_of_equal_parallel_links_the_first_and_the_next_when_it_is_full() -> None:
    core = make_core(
        [("r", "a", 1.0), ("r", "a", 1.0), ("r", "a", 1.0)],
        {"r:a": 10_000_000, "r:a/2": 10_000_000, "r:a/3": 10_000_000},
    )
    desk = Desk(core)
    for number in (1, 2, 3):
        desk.create(f"p{number}", leaf("r", number), 6_000_000)
        desk.add(f"p{number}", leaf("a", number))
    assert [list(desk.vlans(f"p{n}")) for n in (1, 2, 3)] == [["r:a"], ["r:a/2"], ["r:a/3"]]
    desk.create("p4", leaf("r", 4), 6_000_000)
    with pytest.raises(NoCapacity, match="link 'r:a' from 'r'"):
        desk.add("p4", leaf("a", 4))


def test_capacity_excludes_links_and_the_tree_goes_round() -> None:
    """r:a has 10 Mbit/s, of which 6 are taken: a second path of 6 goes over b."""
    core = make_core(
        [("r", "a", 1.0), ("r", "b", 5.0), ("b", "a", 5.0)],
        {"r:a": 10_000_000},
    )
    desk = Desk(core)
    desk.create("p", leaf("r", 1), 6_000_000)
    desk.add("p", leaf("a", 1))
    desk.create("q", leaf("r", 2), 6_000_000)
    desk.add("q", leaf("a", 2))
    assert list(desk.vlans("q")) == ["r:b", "b:a"]
    desk.add("q", leaf("b", 2))  # on the way: no further hop, no further capacity
    assert list(desk.vlans("q")) == ["r:b", "b:a"]
    desk.create("free", leaf("r", 3), 0)
    desk.add("free", leaf("a", 3))
    assert list(desk.vlans("free")) == ["r:a"]


def test_one_copy_per_link_however_many_leaves() -> None:
    desk = Desk(make_core([("r", "a", 1.0), ("a", "b", 1.0)], {"r:a": 10_000_000}))
    desk.create("p", leaf("r", 1), 10_000_000)
    for switch in ("a", "b"):
        for vlan in (2, 3):
            desk.add("p", leaf(switch, vlan))
    assert desk.reservations.reserved_bps("r:a", "r") == 10_000_000
    assert desk.reservations.reserved_bps("a-91", "a") == 20_000_000  # a copy per leaf of the port


def test_ways_that_are_down_are_not_taken() -> None:
    desk = Desk(make_core([("r", "a", 1.0), ("r", "b", 5.0), ("b", "a", 5.0)]))
    desk.create("p", leaf("r"), 0)
    desk.add("p", leaf("a"), DownSet(links=frozenset({"r:a"})))
    assert list(desk.vlans("p")) == ["r:b", "b:a"]
    desk.create("q", leaf("r", 8), 0)
    with pytest.raises(Unreachable, match="'r' to switch 'a'; down: link 'r:a', switch 'b'"):
        desk.add("q", leaf("a", 8), DownSet(frozenset({"r:a"}), frozenset({"b"})))


# -- links and switches that fail
#
#   r --1-- a --1-- c      leaves at a, b, c, d
#   |       |       |
#   2       9       1
#   |       |       |
#   b ------9------ d
RING = (
    ("r", "a", 1.0),
    ("a", "c", 1.0),
    ("c", "d", 1.0),
    ("r", "b", 2.0),
    ("b", "d", 9.0),
    ("a", "b", 9.0),
)


def ring() -> Desk:
    desk = Desk(make_core(RING))
    desk.create("p", leaf("r"), 0)
    for switch in ("a", "b", "c", "d"):
        desk.add("p", leaf(switch))
    assert desk.vlans("p") == {"r:a": 100, "r:b": 101, "a:c": 102, "c:d": 103}
    return desk


def test_what_is_behind_a_broken_link_goes_another_way() -> None:
    """a:c breaks: c and d are then reached over b:d and d:c. c:d had id 103 in the other direction,
    and gets an id that it did not have."""
    desk = ring()
    step = desk.reroute("p", DownSet(links=frozenset({"a:c"})))
    assert desk.vlans("p") == {"r:a": 100, "r:b": 101, "b:d": 102, "c:d": 104}
    assert [h.source for h in desk["p"].hops] == ["r", "r", "b", "d"]
    first, second = step.phases
    assert set(first) == {"a", "b", "c", "d"}  # r's entries stay as they are
    assert set(second) == {"b"}  # it gets frames only when all else is in place
    assert step.what == "path 'p' re-routed"
    again = desk.reroute("p", DownSet(links=frozenset({"a:c"})))
    assert again.phases == () and again.new is again.old
    back = desk.reroute("p", DownSet())
    assert back.phases == ()  # no leaf is moved back


def test_leaves_without_a_way_stay_and_come_back() -> None:
    desk = ring()
    down = DownSet(links=frozenset({"a:c", "b:d"}))
    step = desk.reroute("p", down)
    assert step.what.endswith("unreachable leaves: c:91:7, d:91:7")
    assert desk.vlans("p") == {"r:a": 100, "r:b": 101}
    assert [e.switch for e in desk["p"].leaves] == ["a", "b", "c", "d"]
    desk.reroute("p", DownSet(links=frozenset({"a:c"})))
    assert [(h.link, h.source) for h in desk["p"].hops[2:]] == [("b:d", "b"), ("c:d", "d")]
    desk.remove("p", leaf("c").key)
    assert len(desk.vlans("p")) == 3


def test_a_lost_leaf_can_be_removed() -> None:
    desk = ring()
    desk.reroute("p", DownSet(links=frozenset({"a:c", "b:d"})))
    assert desk.remove("p", leaf("d").key).phases == ()
    desk.reroute("p", DownSet())
    assert [e.switch for e in desk["p"].leaves] == ["a", "b", "c"]
    assert set(desk.vlans("p")) == {"r:a", "r:b", "a:c"}


def test_a_lost_leaf_is_served_when_a_new_one_brings_the_tree() -> None:
    desk = ring()
    desk.reroute("p", DownSet(links=frozenset({"a:c", "b:d"})))
    desk.add("p", leaf("c", 8))
    assert set(desk.vlans("p")) == {"r:a", "r:b", "a:c"}
    assert len(desk.reservations.tree("p").branches["c"]) == 2


def test_a_switch_that_is_down_is_gone_round() -> None:
    """Without a: b stays, d goes over b, c over d; a's leaf has no way."""
    desk = ring()
    step = desk.reroute("p", DownSet(switches=frozenset({"a"})))
    assert [(h.link, h.source) for h in desk["p"].hops] == [
        ("r:b", "r"),
        ("b:d", "b"),
        ("c:d", "d"),
    ]
    assert step.what.endswith("unreachable leaves: a:91:7")


def test_a_branch_that_led_only_to_what_moved_is_pruned() -> None:
    """Leaf d alone: r, a, c, d. When c:d breaks, d goes over b, and a and c are no longer
    needed."""
    desk = Desk(make_core(RING))
    desk.create("p", leaf("r"), 0)
    desk.add("p", leaf("d"))
    assert list(desk.vlans("p")) == ["r:a", "a:c", "c:d"]
    desk.reroute("p", DownSet(links=frozenset({"c:d"})))
    assert list(desk.vlans("p")) == ["r:b", "b:d"]
    assert desk.reservations.paths_over("a:c") == ()
    assert desk.reservations.paths_through("b") == ("p",)
    assert desk.reservations.paths_through("c") == ()
