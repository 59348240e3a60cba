# SPDX-License-Identifier: Apache-2.0
"""What the service does when things go wrong or happen at once: single cases, worked out by
hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.paths.core import Endpoint
from controller.paths.forwarding import base_entries
from controller.service import holds
from controller.service.service import (
    Failure,
    HoldState,
    PathWish,
    Why,
)
from controller.service.store import Fenced, Store
from controller.tests.process import wait_until
from controller.tests.rig import Rig, problem
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, MAC_2, ROOT, network

RATE = 20_000_000
# Other VLAN ids at the same ports, of another path.
ROOT_B = Endpoint("s1", 1, 501)
LEAF_2B = Endpoint("s2", 9, 502)
LEAF_4B = Endpoint("s4", 9, 504)


def vlan_on(rig: Rig, name: str, link: str) -> int:
    return next(hop.vlan for hop in rig.service.path(name).path.hops if hop.link == link)


# -- what a change freed is not used again before the switches have forgotten it


def test_vlan_of_a_pruned_branch_waits_for_the_switch_that_did_not_confirm(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    assert vlan_on(rig, "a", "s1:s2") == 300
    rig.failing["s2"] = Failure(Why.NOT_CONNECTED)
    rig.service.switch_down("s2")
    assert problem(lambda: rig.service.remove_leaf("a", LEAF_2.key)).status == 504
    rig.service.create("b", ROOT_B, RATE)
    assert problem(lambda: rig.service.add_leaf("b", LEAF_2B)).status == 504
    # s2 still sends frames with id 300 to the leaf of path a.
    assert vlan_on(rig, "b", "s1:s2") == 301
    rig.restart()  # s2 is still away, and the new process knows what it may not use
    assert problem(lambda: rig.service.add_leaf("a", LEAF_2)).status == 504
    assert vlan_on(rig, "a", "s1:s2") == 302
    rig.failing.clear()
    rig.service.switch_up("s2")
    rig.service.remove_leaf("a", LEAF_2.key)
    rig.service.add_leaf("a", LEAF_2)
    assert vlan_on(rig, "a", "s1:s2") == 300
    rig.assert_settled()


def test_number_of_a_deleted_path_waits_too(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    rig.failing["s2"] = Failure(Why.TIMEOUT)
    assert problem(lambda: rig.service.delete("a")).status == 504
    rig.service.create("b", ROOT, RATE)
    assert rig.service.path("b").path.number == 2
    rig.failing.clear()
    rig.service.retry(["s2"])
    rig.service.create("c", ROOT_B, RATE)
    assert rig.service.path("c").path.number == 1


# -- changes side by side


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_slow_switch_delays_only_those_who_need_it(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.create("b", ROOT_B, RATE)
    rig.gate["s4"] = threading.Event()
    slow, got = in_thread(lambda: rig.service.add_leaf("a", LEAF_4))
    wait_until("s4 is asked", lambda: len(rig.service.path("a").path.leaves) == 1)
    started = time.monotonic()
    rig.service.add_leaf("b", LEAF_2B)  # goes by s1 and s2
    assert time.monotonic() - started < 5
    assert slow.is_alive()
    rig.gate["s4"].set()
    slow.join(20)
    assert not isinstance(got[0], Exception)
    rig.assert_settled()


def test_endpoint_is_not_used_again_while_it_is_being_given_up(rig: Rig) -> None:
    """The entries of both have the same keys: a late deletion would remove the new ones."""
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    rig.service.create("b", ROOT_B, RATE)
    rig.gate["s2"] = threading.Event()
    leaving, _ = in_thread(lambda: rig.service.remove_leaf("a", LEAF_2.key))
    wait_until("it is planned", lambda: not rig.service.path("a").path.leaves)
    joining, got = in_thread(lambda: rig.service.add_leaf("b", LEAF_2))
    time.sleep(0.05)
    assert not rig.service.path("b").path.leaves
    rig.gate["s2"].set()
    leaving.join(20)
    joining.join(20)
    assert not isinstance(got[0], Exception)
    rig.assert_settled()


def test_switch_that_did_not_answer_is_not_waited_for_again(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.failing["s2"] = Failure(Why.TIMEOUT, "5 s")
    assert problem(lambda: rig.service.add_leaf("a", LEAF_2)).status == 504
    rig.asked.clear()
    reads = rig.reads
    rig.service.create("b", ROOT_B, RATE)
    assert problem(lambda: rig.service.add_leaf("b", LEAF_2B)).status == 504
    assert rig.reads == reads  # not even read again so soon
    assert set(rig.asked) == {"s1"}
    rig.failing.clear()
    rig.service.retry(["s2"])
    rig.assert_settled()


def test_concurrent_requests_for_one_leaf_make_one_leaf(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    threads = [in_thread(lambda: rig.service.add_leaf("a", LEAF_2)) for _ in range(8)]
    for thread, _ in threads:
        thread.join(20)
    answers: list[Any] = [results[0] for _, results in threads]
    assert sorted(is_new for _, is_new in answers) == [False] * 7 + [True]
    rig.assert_settled()


def test_many_changes_at_once(rig: Rig) -> None:
    """In 8 threads, paths with their own VLAN ids at the same ports are made, grow, shrink and are
    deleted."""

    def life(number: int) -> Callable[[], object]:
        def run() -> None:
            name, root = f"p{number}", Endpoint("s1", 1, 600 + number)
            leaves = [Endpoint(s, 9, 600 + number) for s in ("s2", "s3", "s4")]
            for _ in range(5):
                rig.service.create(name, root, 1_000_000)
                for leaf in leaves:
                    rig.service.add_leaf(name, leaf)
                rig.service.remove_leaf(name, leaves[number % 3].key)
                rig.service.delete(name)

        return run

    # 10 VLAN ids on each link: not more than 8 at once.
    threads = [in_thread(life(number)) for number in range(8)]
    for thread, _ in threads:
        thread.join(60)
    assert [results for _, results in threads] == [[None]] * 8
    assert rig.entries() == base_entries(rig.service.core)
    rig.assert_settled()


# -- links


def test_link_down_moves_only_who_used_it(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    rig.service.add_leaf("a", LEAF_4)  # by s2
    rig.service.create("b", ROOT_B, RATE)
    rig.service.add_leaf("b", LEAF_2B)
    before = rig.service.path("b").path
    rig.service.link_changed("s2:s4", False, "port 3 of s2 is down")
    assert [h.link for h in rig.service.path("a").path.hops] == ["s1:s2", "s2:s3", "s3:s4"]
    assert rig.service.path("b").path is before
    assert rig.service.path("a").up
    rig.assert_settled()
    kinds = [event.kind for event in rig.service.events.after(0)[0]]
    assert kinds[-2:] == ["link-down", "rerouted"]


def test_leaf_without_a_way_comes_back_with_the_link(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_4)
    rig.service.add_leaf("a", LEAF_2)
    rig.service.link_changed("s3:s4", False)
    rig.service.link_changed("s2:s4", False)
    view = rig.service.path("a")
    assert not view.up
    assert view.down_leaves() == frozenset({LEAF_4.key})
    assert problem(lambda: rig.service.add_leaf("a", Endpoint("s4", 9, 777))).kind == "unreachable"
    rig.restart()  # links are up until reported down: it comes with the next change
    rig.service.link_changed("s2:s4", False)
    rig.service.link_changed("s2:s4", True)
    assert rig.service.path("a").up
    rig.assert_settled()


# -- holds


def wish(*leaves: Endpoint, name: str = "a", rate_bps: int = RATE) -> PathWish:
    return PathWish(name, ROOT, rate_bps, leaves=leaves)


def test_hold_counts_and_tells_no_switch(rig: Rig) -> None:
    before = rig.entries()
    rig.service.hold("h", wish(LEAF_4, rate_bps=60_000_000), rig.clock() + 30)
    assert rig.entries() == before
    assert rig.service.paths() == []
    rig.service.create("b", ROOT_B, 60_000_000)
    rig.service.add_leaf("b", LEAF_4B)
    around = ["s1:s2", "s2:s3", "s3:s4"]  # s2:s4 has 100 Mbit/s
    assert [hop.link for hop in rig.service.path("b").path.hops] == around
    assert problem(lambda: rig.service.create("c", ROOT, RATE)).kind == "endpoint-in-use"
    rig.service.release("h")
    rig.service.create("c", ROOT, RATE)
    assert problem(lambda: rig.service.commit("h")).kind == "hold-over"
    rig.service.release("h")
    rig.service.release("never heard of")
    assert problem(lambda: rig.service.commit("never heard of")).kind == "unknown-hold"


@pytest.mark.parametrize("restarted", [False, True])
def test_hold_is_committed_even_by_the_next_process(rig: Rig, restarted: bool) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    rig.service.hold("h", wish(LEAF_2, LEAF_3, LEAF_4), rig.clock() + 30)
    if restarted:
        rig.restart()
    assert problem(lambda: rig.service.add_leaf("a", LEAF_4)).kind == "path-held"
    assert not rig.service.add_leaf("a", LEAF_2)[1]  # is there
    assert rig.service.commit("h").up
    assert {leaf.key for leaf in rig.service.path("a").path.leaves} == {
        LEAF_2.key,
        LEAF_3.key,
        LEAF_4.key,
    }
    assert rig.service.commit("h").up  # a second time
    rig.assert_settled()


def test_hold_expires(rig: Rig) -> None:
    rig.service.hold("h", wish(LEAF_4), rig.clock() + 30)
    rig.service.hold("h", wish(LEAF_4), rig.clock() + 99)  # the same, and no longer
    assert problem(lambda: rig.service.hold("h", wish(), rig.clock() + 30)).kind == "hold-exists"
    rig.clock.now += 31
    rig.service.expire()
    assert rig.service.hold_view("h").state is HoldState.EXPIRED
    rig.service.create("a", ROOT, RATE)
    assert rig.service.path("a").path.number == 1  # was never told to a switch
    rig.clock.now += 3700
    rig.service.expire()
    assert problem(lambda: rig.service.hold_view("h")).status == 404


def test_refused_commit_leaves_nothing(rig: Rig) -> None:
    before = rig.entries()
    rig.service.hold("h", wish(LEAF_4), rig.clock() + 30)
    rig.refuse_next["s4"] = 2
    assert problem(lambda: rig.service.commit("h")).kind == "refused"
    assert rig.entries() == before
    assert rig.service.paths() == []
    assert rig.service.hold_view("h").state is HoldState.RELEASED


def test_hold_of_a_path_that_is_rerouted_is_dropped(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.hold("h", wish(LEAF_4), rig.clock() + 30)
    rig.service.link_changed("s2:s4", False)
    assert problem(lambda: rig.service.commit("h")).kind == "hold-over"
    rig.service.add_leaf("a", LEAF_4)
    rig.assert_settled()


# -- time, store, roles


def test_path_ends_at_its_end_time(rig: Rig) -> None:
    now = rig.clock()
    assert problem(lambda: rig.service.create("a", ROOT, RATE, end_time=now)).status == 422
    rig.service.create("a", ROOT, RATE, end_time=now + 60)
    rig.service.create("b", ROOT_B, RATE, end_time=now + 60)
    rig.service.set_end_time("b", None)
    assert not rig.service.create("a", ROOT, RATE)[1]  # does not ask for another end
    differs = problem(lambda: rig.service.create("a", ROOT, RATE, end_time=now + 61))
    assert "end_time" in differs.detail
    rig.restart()
    rig.clock.now += 60
    rig.service.expire()
    assert [view.path.name for view in rig.service.paths()] == ["b"]
    assert rig.service.events.after(0)[0][-1].kind == "path-expired"


@pytest.mark.parametrize("held", [False, True], ids=["added", "held"])
def test_leaf_to_leaf_begins_and_ends_with_a_leaf_far_away(rig: Rig, held: bool) -> None:
    """The root's switch needs its group before the flows that send ARP into it."""
    if held:
        leaves = (LEAF_3, LEAF_2)
        rig.service.hold(
            "h", PathWish("a", ROOT, RATE, leaf_to_leaf=True, leaves=leaves), rig.clock() + 9
        )
        rig.restart()  # the phases of a hold are then computed from its path alone
        rig.service.commit("h")
    else:
        rig.service.create("a", ROOT, RATE, leaf_to_leaf=True)
        rig.service.add_leaf("a", LEAF_3)
        rig.service.add_leaf("a", LEAF_2)
    rig.assert_settled()
    rig.service.link_changed("s1:s2", False)
    rig.assert_settled()
    rig.service.remove_leaf("a", LEAF_2.key)
    rig.service.remove_leaf("a", LEAF_3.key)
    rig.assert_settled()
    rig.service.delete("a")
    assert rig.entries() == base_entries(rig.service.core)


def test_holds_of_a_busy_workgroup_are_forgotten_the_oldest_first(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "MAX_REMEMBERED", 10)
    for number in range(50):
        rig.clock.now += 1
        for group in ("busy", "quiet") if number < 3 else ("busy",):
            wished = PathWish(f"p{number}{group}", ROOT, RATE, workgroup=group)
            rig.service.hold(f"{group}-{number}", wished, rig.clock() + 60)
            rig.service.release(f"{group}-{number}")
        rig.service.expire()
    kept = {f"busy-{number}" for number in range(40, 50)} | {f"quiet-{n}" for n in range(3)}
    assert set(rig.service.state.holds._by_id) == kept
    assert {row.id for row in rig.store.load().holds} == kept
    assert rig.service.hold_view("quiet-0").state is HoldState.RELEASED


def test_what_is_kept_of_groups_ends_with_the_path(rig: Rig) -> None:
    for number in range(30):
        rig.service.create(f"p{number}", ROOT, RATE)
        rig.service.add_leaf(f"p{number}", LEAF_3)
        assert rig.service.group_changes()
        rig.service.delete(f"p{number}")
    assert rig.service.group_changes() == {}


def test_store_that_cannot_be_written_changes_nothing(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    before = rig.entries()
    rig.store._connection.execute("PRAGMA query_only=1")
    for call in (
        lambda: rig.service.add_leaf("a", LEAF_4),
        lambda: rig.service.remove_leaf("a", LEAF_2.key),
        lambda: rig.service.delete("a"),
        lambda: rig.service.create("b", ROOT_B, RATE),
        lambda: rig.service.hold("h", wish(LEAF_3), rig.clock() + 9),
    ):
        assert problem(call).kind == "store"
    assert rig.entries() == before
    rig.store._connection.execute("PRAGMA query_only=0")
    rig.service.delete("a")
    assert rig.entries() == base_entries(rig.service.core)


def test_who_lost_the_lease_writes_nothing(tmp_path: Path) -> None:
    rig = Rig(Store(tmp_path / "store", network().name, "core"))
    lease = "INSERT OR REPLACE INTO lease VALUES (1, 'x', 'x', 0, ?)"
    rig.store._connection.execute(lease, (1,))
    rig.service.activate(1)
    for switch in rig.net.switches:
        rig.service.switch_up(switch)
    rig.service.create("a", ROOT, RATE)
    rig.store._connection.execute(lease, (2,))
    before = rig.entries()
    assert problem(lambda: rig.service.add_leaf("a", LEAF_2)).status == 503
    assert problem(lambda: rig.service.delete("a")).status == 503
    assert (rig.entries(), rig.service.is_active) == (before, False)
    with pytest.raises(Fenced), rig.store.transaction():
        pass
    rig.service.activate(2)
    for switch in rig.net.switches:
        rig.service.switch_up(switch)
    rig.service.add_leaf("a", LEAF_2)
    rig.assert_settled()


def test_recovery_touches_only_what_differs(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    rig.service.add_leaf("a", LEAF_2)
    rig.service.add_leaf("a", LEAF_4)
    rig.net.switches["s4"].__init__("s4")  # type: ignore[misc]  # lost all, as after a restart
    rig.sent.clear()
    rig.restart()
    assert rig.sent == ["s4"]
    assert rig.service.path("a").up
    rig.assert_settled()


def test_registered_macs_count_as_asked_for(rig: Rig) -> None:
    rig.service.create("a", ROOT, RATE)
    without = Endpoint("s2", 9, 102)
    assert rig.service.add_leaf("a", without)[1]
    assert rig.service.path("a").path.leaves[0].macs == (MAC_2,)
    assert not rig.service.add_leaf("a", LEAF_2)[1]
    assert not rig.service.add_leaf("a", without)[1]
