# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from controller.onos import planning
from controller.onos.planning import Call, Wanted
from controller.onos.records import Devices, HeldBucket, HeldGroup, group_key
from controller.onos.tests.test_records import DATA, DENIED, DEVICE, LLDP, UNICAST, held
from controller.paths.entries import Bucket, Group, Meter
from controller.paths.messages import Change, Command, Delta, messages_of
from controller.paths.stats import Count
from controller.switches.installer import Why

ONE, TWO, THREE = Bucket(2000, 1), Bucket(2001, 2), Bucket(2002, 3)
BUCKETS = f"/groups/{DEVICE}/{group_key(1)}/buckets"
NAMES = {DEVICE: "newy"}


def group(*buckets: Bucket | None) -> HeldGroup:
    found = (HeldBucket(b, str(10 + n), Count()) for n, b in enumerate(buckets))
    return HeldGroup(1, tuple(found), "ADDED", Count(), "1")


def test_a_leaf_that_joins_or_leaves_is_one_request() -> None:
    (joins,) = planning.group_calls(DEVICE, Group(1, (ONE, TWO)), group(ONE))
    assert (joins.method, joins.path) == ("POST", BUCKETS)
    assert joins.body is not None
    assert [b["treatment"]["instructions"][1]["port"] for b in joins.body["buckets"]] == ["2"]
    (leaves,) = planning.group_calls(DEVICE, Group(1, (TWO,)), group(ONE, TWO))
    assert leaves == Call("DELETE", f"{BUCKETS}/10")


def test_a_branch_that_moves_is_added_before_it_is_removed() -> None:
    calls = planning.group_calls(DEVICE, Group(1, (ONE, THREE)), group(ONE, TWO))
    assert [(call.method, call.path) for call in calls] == [
        ("POST", BUCKETS),
        ("DELETE", f"{BUCKETS}/11"),
    ]


def test_a_group_that_onos_lacks_is_made_and_an_equal_one_left_alone() -> None:
    (call,) = planning.group_calls(DEVICE, Group(1, (ONE,)), None)
    assert (call.method, call.path) == ("POST", f"/groups/{DEVICE}")
    assert planning.group_calls(DEVICE, Group(1, (ONE, TWO)), group(TWO, ONE)) == []


def test_a_bucket_of_something_else_is_removed() -> None:
    calls = planning.group_calls(DEVICE, Group(1, (ONE,)), group(ONE, None))
    assert calls == [Call("DELETE", f"{BUCKETS}/11")]


def test_a_changed_meter_is_made_again() -> None:
    add = planning.meter_calls(DEVICE, Change(Command.ADD, Meter(5, 1, 2)))
    assert [(call.method, call.path) for call in add] == [("POST", f"/meters/{DEVICE}")]
    again = planning.meter_calls(DEVICE, Change(Command.MODIFY, Meter(5, 1, 2)))
    assert again == [Call("DELETE", f"/meters/{DEVICE}/global/5"), *add]


def test_changes_are_sorted_and_give_what_onos_must_show() -> None:
    old = (DENIED, Group(2, (ONE,)), Meter(9, 1, 1))
    new = (DATA, Group(1, (ONE,)), Meter(1, 20000, 1000))
    todo, expected = planning.todo_of(DEVICE, messages_of(Delta(old, new)))
    assert [change.entry for change in (*todo.meters, *todo.groups)] == [new[2], new[1]]
    assert (todo.unwanted, todo.flows) == ([DENIED], [DATA])
    assert {call.path for call in todo.last} == {
        f"/groups/{DEVICE}/{group_key(2)}",
        f"/meters/{DEVICE}/global/9",
    }
    assert expected == {
        **{entry.key: Wanted(None) for entry in old},
        **{entry.key: Wanted(entry) for entry in new},
    }
    assert todo.gone == {DENIED.key: Wanted(None)}


def test_what_onos_does_not_show_yet() -> None:
    found = held()
    others = Group(1, (ONE,))
    expected: dict[planning.Key, Wanted] = {
        DATA.key: Wanted(DATA),
        DENIED.key: Wanted(None),
        others.key: Wanted(others),
        ("meter", 5): Wanted(None),
    }
    assert set(planning.unmet(expected, found)) == {DENIED.key, others.key}


def test_what_onos_says_it_has_counts_once_it_has_looked_again() -> None:
    found = held({flow.key: flow.cookie for flow in (DATA, UNICAST, LLDP)})
    expected = planning.confirming(found)
    assert len(expected) == 12 + 1 + 2
    assert planning.unmet(expected, found) == expected


def test_a_refused_entry_is_told() -> None:
    found = held()
    expected: dict[planning.Key, Wanted] = {DATA.key: Wanted(DATA)}
    assert planning.failure_of(expected, found) is None
    failed = found.flows[DATA.key]
    flows = {DATA.key: type(failed)(failed.flow, failed.id, "FAILED", failed.count, "")}
    failure = planning.failure_of(expected, type(found)(flows, {}, {}))
    assert failure is not None
    assert failure.why is Why.REFUSED


def test_the_text_of_what_is_missing() -> None:
    assert planning.text_of({("meter", 5): Wanted(None)}) == "ONOS still shows ('meter', 5)"
    many: dict[planning.Key, Wanted] = {DATA.key: Wanted(DATA), ("meter", 5): Wanted(None)}
    assert planning.text_of(many).startswith("ONOS does not show Flow(")
    assert planning.text_of(many).endswith(" and 1 more")


def test_news() -> None:
    nobody = Devices(frozenset(), {})
    here = Devices(frozenset({DEVICE, "of:99"}), {DEVICE: {1: True, 2: False}, "of:99": {1: True}})
    cut = Devices(here.available, {DEVICE: {1: False, 2: False}})
    gone = Devices(frozenset(), cut.ports)
    first = [("up", "newy"), ("port", "newy", 1, True), ("port", "newy", 2, False)]
    assert planning.news_of(NAMES, nobody, here) == first
    assert planning.news_of(NAMES, here, here) == []
    assert planning.news_of(NAMES, here, cut) == [("port", "newy", 1, False)]
    assert planning.news_of(NAMES, cut, gone) == [("down", "newy")]
    assert planning.news_of(NAMES, gone, here) == first
