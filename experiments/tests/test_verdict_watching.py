# SPDX-License-Identifier: Apache-2.0
"""Checks of the verdict that need constant watching: settings, changes, packets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from common.virtual_time import Clock
from experiments.tests.judged import (
    GOOD,
    HOSTS,
    counters,
    flight,
    inventory,
    lag,
    look,
    stats,
    statuses,
)
from experiments.verdict import judge
from experiments.verdict.as_planned import InventorySeen, counters_add_up
from experiments.verdict.in_flight import is_certain
from experiments.verdict.one_way import Way
from topologies.model.network import Impairment
from topologies.tests.networks import two_hosts
from topologies.watch.flights import Block

LATER = (look("meanwhile"), look("end"))


# fmt: off
@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (inventory(look(unplanned=["newy/newy-p3 qdiscs: asked none, found root tbf"]), *LATER),
         "planned"),
        (inventory(look(), look("meanwhile", changed=["x"]), look("end")), "changed"),
        (inventory(changes=[{"at_s": 2.0, "place": "newy/p", "what": "MTU"}]), "changed"),
        (inventory(changes_missed=1), "changed"),
        (inventory(look(), {"when": "end", "at_s": 3.0, "failed": "no answer"}), "changed"),
        (inventory(look(), look("meanwhile")), "planned"),  # the watcher ended
        (inventory(look("meanwhile"), look("end")), "planned"),
        (inventory(throttled=100), "CPU quota"),
        (None, "planned"),
    ],
)
# fmt: on
def test_what_is_not_as_planned_or_changes(seen: InventorySeen | None, name: str) -> None:
    names = {"planned": "every interface as planned", "changed": "nothing changed meanwhile"}
    assert statuses(inventory=seen) == {names.get(name, name): "fail"}


def test_without_looks_at_random_moments_nothing_is_certain() -> None:
    assert statuses(inventory=inventory(look(), look("end"))) == {
        "nothing changed meanwhile": "warn"
    }


def test_a_host_without_lags_is_missed() -> None:
    """Its watcher was so late that it could not even end: it is the worst one."""
    network = two_hosts(Impairment())
    one, other = (host.name for host in network.hosts)
    assert statuses(network=network, lags={one: lag(), other: lag()}) == {}
    assert statuses(network=network, lags={one: lag()}) == {"scheduling lag": "warn"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"out_of_order": 20}, "order of packets"),
        ({"duplicates": 5}, "copies of packets"),
        ({"strangers": 5}, "copies of packets"),
        ({"lost": 5}, "packets lost on the way"),
        ({"changed": 1}, "packets unchanged"),
        ({"marked": 1}, "packets unchanged"),
        ({"congestion_marks": 1}, "packets unchanged"),
        ({"hops": 1}, "packets unchanged"),
        ({"fragments": 1}, "packets unchanged"),
    ],
)
def test_what_becomes_of_packets(changes: dict[str, int], name: str) -> None:
    assert statuses(flights=[flight(), flight(**changes)]) == {name: "fail"}


def test_marks_are_no_change_where_queues_are_to_mark() -> None:
    marked = [flight(congestion_marks=9)]
    assert statuses(flights=marked, marks_asked=True) == {}
    also_else = [flight(congestion_marks=9, marked=1)]
    assert statuses(flights=also_else, marks_asked=True) == {"packets unchanged": "fail"}


@pytest.mark.parametrize(
    ("field", "count", "status"),
    [
        *[("out_of_order", 1, "warn"), ("out_of_order", 3, "warn"), ("out_of_order", 4, "fail")],
        *[("lost", 1, "warn"), ("lost", 4, "fail"), ("duplicates", 1, "fail")],
    ],
)
def test_a_packet_or_two_of_a_small_sample_prove_nothing(
    field: str, count: int, status: str
) -> None:
    """1 of 584 is 0.17 %. Yet with 0.1 % in the whole run, 44 % of all samples have one or more, 2
    % three or more, 0.3 % four or more (binomial distribution)."""
    found = statuses(flights=[flight(packets=584, **{field: count})], clock="native")
    names = {
        "out_of_order": "order of packets",
        "lost": "packets lost on the way",
        "duplicates": "copies of packets",
    }
    assert found == {names[field]: status}


@pytest.mark.parametrize("field", ["duplicates", "strangers", "lost"])
def test_what_the_watcher_missed_explains_as_many_at_each_receiver(field: str) -> None:
    """A departure that it did not see makes the packet a stranger wherever it arrives; an arrival
    that it did not see is a loss. Neither explains more packets than it missed."""
    name = "packets lost on the way" if field == "lost" else "copies of packets"
    both = [flight(**{field: 5}), flight(target="sl2", **{field: 5})]
    assert statuses(flights=both, flights_unseen=5) == {name: "warn"}
    assert statuses(flights=both, flights_unseen=4) == {name: "fail"}
    assert statuses(flights=[flight(out_of_order=20)], flights_unseen=99) == {
        "order of packets": "fail"
    }


@pytest.mark.parametrize("clock", ["native", "virtual"])
@pytest.mark.parametrize("delays", [(20.5, 140.0, 150.0), (20.5, 20.5, 220.0), (15.0, 20.5, 20.5)])
def test_one_bad_block_of_one_receiver_is_enough(
    delays: tuple[float, float, float], clock: Clock
) -> None:
    """A bottleneck; a quarter of a second; a way that is shorter than the plan's."""
    good = Block(0.0, 100, 20.5, 20.5, 20.51, 20.6)
    bad = Block(10.0, 100, *delays, 230.0)
    seen = dataclasses.replace(GOOD, flights=[flight(blocks=[good, bad])], clock=clock)
    check = next(c for c in judge(seen).checks if c.name == "delays during the replay")
    assert check.status == "fail"
    assert "umass to sl1 (path), 10 to 20 s" in check.text


@pytest.mark.parametrize(
    ("delay_ms", "late_ms", "status"),
    [
        (1.0, 0.9, None),  # what userspace switches may add
        (1.0, 1.5, "warn"),
        (1.0, 3.0, "fail"),
        (8.0, 1.5, None),
        (8.0, 1.9, "warn"),
        (8.0, 4.5, "fail"),
        (45.0, 1.9, None),
        (45.0, 2.1, "warn"),
        (45.0, 10.1, "fail"),
    ],
)
def test_a_short_way_allows_less(delay_ms: float, late_ms: float, status: str | None) -> None:
    found = delay_ms + late_ms
    seen = flight(
        asked=Way(delay_ms, 0.0, 0.0, 0, False, ("a:b",)),
        blocks=[Block(at_s, 100, delay_ms, found, found, found) for at_s in (0.0, 10.0)],
    )
    assert statuses(flights=[seen]).get("delays during the replay") == status


def sparse(*delays_ms: float) -> list[Block]:
    """Return blocks that are 30 s apart, of a packet each."""
    return [Block(30.0 * i, 1, ms, ms, ms, ms) for i, ms in enumerate(delays_ms)]


@pytest.mark.parametrize(
    ("delays", "status"),
    [
        ([20.5] * 6, "pass"),
        ([20.5] * 4, "warn"),  # too few in the whole replay
        ([20.5] * 5 + [15.0], "fail"),
        ([20.5] * 5 + [23.0], "fail"),
        ([20.5] * 9 + [23.0], "fail"),  # the last, with those that five have no use for
        ([20.5] * 6 + [20.6] * 4, "warn"),
    ],
)
def test_few_packets_are_judged_together(delays: list[float], status: str) -> None:
    """A protocol that sends little is no reason for doubt; a packet too early or late is one."""
    seen = dataclasses.replace(GOOD, flights=[flight(blocks=sparse(*delays))], clock="virtual")
    check = next(c for c in judge(seen).checks if c.name == "delays during the replay")
    assert check.status == status
    if len(delays) == 6:
        assert "umass to sl1 (path), 0 to 160 s" in check.text


def test_few_packets_do_not_hide_behind_many() -> None:
    """A flight with few packets is judged although another one has many."""
    seen = dataclasses.replace(
        GOOD, flights=[flight(), flight(target="sl2", blocks=sparse(*[30.0] * 5))], clock="virtual"
    )
    check = next(c for c in judge(seen).checks if c.name == "delays during the replay")
    assert check.status == "fail"
    assert "umass to sl2 (path), 0 to 130 s" in check.text


def test_no_packet_watched_is_a_warning() -> None:
    assert set(statuses(flights=[]).values()) == {"warn"}


def test_a_rule_of_somebody_else_fails_whatever_it_does() -> None:
    rule = {"chain": "INPUT", "packets": 0, "bytes": 0, "rule": "-A INPUT -p udp -j MARK"}
    end = GOOD.end.model_copy(update={"iptables": counters(iptables={"sl1": [rule]}).iptables})
    assert statuses(end=end)["firewall rules"] == "fail"


def test_blocks_that_came_twice() -> None:
    for count, status in ((1, "warn"), (4000, "fail")):
        found = {h: stats(datagrams=9_900, blocks=9_900, duplicate_blocks=count) for h in HOSTS}
        assert statuses(receivers=found) == {"blocks received twice": status}


def test_blocks_of_a_file_that_was_given_up_come_late() -> None:
    """FMTP counts them with those that it has. More datagrams than were sent are another matter."""
    for received, status in ((9_900, {}), (10_001, {"blocks received twice": "fail"})):
        found = {
            h: stats(datagrams=received, blocks=9_500, duplicate_blocks=400, missed=9)
            for h in HOSTS
        }
        seen = statuses(receivers=found, datagrams_sent=10_000)
        assert {n: s for n, s in seen.items() if n == "blocks received twice"} == status


def test_repairs_by_multicast_bring_a_block_to_all_again() -> None:
    found = {h: stats(datagrams=9_900, blocks=9_900, duplicate_blocks=4000) for h in HOSTS}
    for repair in ("blocks", "multicast"):
        assert "blocks received twice" not in statuses(receivers=found, repair=repair)


def test_a_receiver_that_is_told_to_ask_too_soon() -> None:
    """Below 1 the timer ends while the product is still being sent: such an f_rcv is set on
    purpose."""
    found = {h: stats(datagrams=9_900, blocks=9_900, duplicate_blocks=4000) for h in HOSTS}
    assert "blocks received twice" not in statuses(receivers=found, f_rcv=0.5)
    assert statuses(receivers=found, f_rcv=1.0) == {"blocks received twice": "fail"}


def test_full_queues_hold_blocks_back() -> None:
    """A queue of seconds delivers a block after its repair."""
    found = {h: stats(datagrams=9_900, blocks=9_900, duplicate_blocks=4000) for h in HOSTS}
    full = statuses(receivers=found, congested=frozenset({"sw/sw-p3"}))
    assert "blocks received twice" not in full


def test_the_interface_that_does_not_add_up_is_named() -> None:
    """1,000 frames enter the middle of q's link; 900 come out, and 30 of these do not arrive."""
    network = two_hosts(Impairment(delay_ms=18.0))
    at = {
        "sw/sw-p3": {"tx_packets": 1000},
        "wire/w0b": {"rx_packets": 1000},
        "wire/w0a": {"tx_packets": 900},
        "q/q-nic1": {"rx_packets": 860},
    }
    check = counters_add_up(network, counters(), counters(interfaces=at))
    assert check.status == "fail"
    assert "link q:sw backward in the middle: 1000 frames went in, 900 came out" in check.text
    assert "wire/w0a to q/q-nic1: 900 frames went in, 860 came out" in check.text
    assert "sw/sw-p3" not in check.text
    both: dict[str, Any] = {"network": network, "start": counters(), "end": counters(interfaces=at)}
    of_cell = dataclasses.replace(GOOD, **both, congested=frozenset({"sw/sw-p3"}))
    (busy,) = (c for c in judge(of_cell).checks if c.name == check.name)
    assert busy.status == "n/a"  # competing flows continue while counters are read
    dropped = {"wire/w0a/10:": {"kind": "tbf", "drops": 100}}
    good = {**at, "q/q-nic1": {"rx_packets": 900}}
    end = counters(interfaces=good, qdiscs=dropped)
    assert counters_add_up(network, counters(), end).status == "pass"


def test_what_is_sent_to_one_who_left_is_no_loss() -> None:
    """Its branch of the path is gone; order and copies are still judged."""
    lost = [flight(lost=5)]
    assert statuses(flights=lost) == {"packets lost on the way": "fail"}
    assert statuses(flights=lost, branches_change=True) == {}
    assert statuses(flights=[flight(duplicates=5)], branches_change=True) == {
        "copies of packets": "fail"
    }


@pytest.mark.parametrize(
    ("lost", "sampled", "certain"), [(30, 0, True), (1, 0, False), (9, 4, True)]
)
def test_more_lost_than_came(lost: int, sampled: int, certain: bool) -> None:
    """None of 30 packets arrives: at 10 % that is 1e-30. One of one is 10 %; 9 of 13 are 4e-7."""
    assert is_certain(lost, sampled, 0.1) is certain
