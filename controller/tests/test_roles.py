# SPDX-License-Identifier: Apache-2.0
"""One controller is active, whichever stops or comes back."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.service.active_role import GIVEN_BACK, Keeper, Lease, LeaseTable
from controller.service.store import LOG_PAGES, PAGE_BYTES, is_locked

DURATION_S = 2.0


@dataclass
class Controller:
    name: str
    store: Path
    events: list[str] = field(default_factory=list)
    generation: int | None = None
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(
            LeaseTable(self.store), self.name, f"at-{self.name}", DURATION_S,
            self._active, self._standby,
        )  # fmt: skip

    def _active(self, generation: int) -> None:
        self.events.append(f"active {generation}")
        self.generation = generation

    def _standby(self, lease: Lease) -> None:
        self.events.append(f"standby of {lease.address}")
        self.generation = None


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def look(standby: Controller, began: float, looks: int) -> None:
    """Let a standby look at the lease, as often as it does."""
    for number in range(1, looks + 1):
        assert standby.keeper.turn(began + 0.1 * number) == pytest.approx(0.1)


def test_first_is_active_second_stands_by_and_takes_over(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    assert first.keeper.turn(100.0) == DURATION_S / 4
    look(second, 99.9, 10)
    assert first.keeper.turn(101.0) == DURATION_S / 4  # now until 103; dies
    look(second, 100.9, 20)
    assert second.events == ["standby of at-a"]
    assert second.keeper.turn(103.0) == DURATION_S / 4
    assert second.events == ["standby of at-a", "active 103000"]


@pytest.mark.parametrize("at_s", [100.5, 101.85, 102.0, 150.0])
def test_one_that_starts_waits_only_for_the_rest_of_an_old_lease(store: Path, at_s: float) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)  # until 102; dies
    now = at_s
    while second.generation is None and now < 200:
        second.keeper.turn(now)
        now += 0.1
    assert second.generation is not None
    assert max(102.0, at_s) - 0.01 < second.generation / 1000 < max(102.0, at_s) + 0.2


def test_one_that_another_stops_for_a_moment_takes_over_a_second_later(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    look(second, 99.9, 20)
    writer = sqlite3.connect(store, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    look(second, 101.9, 1)
    writer.execute("ROLLBACK")
    look(second, 102.0, 9)
    second.keeper.turn(103.0)
    assert second.events == ["standby of at-a", "active 103000"]


def test_a_former_holder_learns_it_while_the_file_is_locked(store: Path) -> None:
    """It was stopped; the new one writes to a slow disk."""
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    second.keeper.turn(102.5)
    writer = sqlite3.connect(store, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    first.keeper.turn(103.0)
    assert first.events == ["active 100000", "standby of ", "standby of at-b"]


def test_a_holder_whose_lease_ended_unread_stands_by(store: Path) -> None:
    first = Controller("a", store)
    first.keeper.turn(100.0)
    sqlite3.connect(store, isolation_level=None).execute("DROP TABLE lease")
    first.keeper.turn(102.5)
    assert first.events == ["active 100000", "standby of "]


def test_who_has_ended_takes_nothing(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    first.keeper.end()
    first.keeper.turn(100.1)
    second.keeper.turn(100.2)
    assert (first.events, second.events) == (["active 100000"], ["active 100200"])


def test_one_that_cannot_act_lets_another(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Controller("a", store), Controller("b", store)

    def broken(_generation: int) -> None:
        raise ValueError("the store is damaged")

    monkeypatch.setattr(first.keeper, "_on_active", broken)
    assert first.keeper.turn(100.0) == pytest.approx(0.1)
    look(first, 100.0, 19)
    assert first.events == ["standby of "]
    second.keeper.turn(102.0)
    first.keeper.turn(102.0)
    assert (first.events, second.events) == (["standby of ", "standby of at-b"], ["active 102000"])


def test_renewals_do_not_wait_for_the_disk(store: Path) -> None:
    """SQLite syncs when it copies the log into the file, and when it begins the log again."""
    table = LeaseTable(store)
    lease = table.take(None, "a", "at-a", 100.0, 1.0)
    assert lease is not None
    log, copied = store.with_name("store.db-wal"), store.stat().st_mtime_ns
    for number in range(3 * LOG_PAGES):
        assert table.renew(lease, 101.0 + number)
    assert store.stat().st_mtime_ns == copied
    assert log.stat().st_size > 3 * LOG_PAGES * PAGE_BYTES
    table.checkpoint()
    assert store.stat().st_mtime_ns > copied
    assert table.renew(lease, 500.0)
    assert LeaseTable(store).read() == Lease("a", "at-a", 500.0, lease.generation)


@pytest.mark.parametrize("how", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT])
def test_every_kind_of_lock_is_one(how: int) -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = how
    assert is_locked(error)
    assert not is_locked(sqlite3.OperationalError("no code"))


def test_one_that_slept_comes_back_as_standby(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    second.keeper.turn(103.0)
    assert LeaseTable(store).read() == Lease("b", "at-b", 105.0, 103000)
    first.keeper.turn(103.5)
    assert first.events == ["active 100000", "standby of ", "standby of at-b"]
    assert first.generation is None
    second.keeper.turn(104.0)
    assert second.events == ["active 103000"]


def test_one_that_slept_alone_is_still_active(store: Path) -> None:
    alone = Controller("a", store)
    alone.keeper.turn(100.0)
    alone.keeper.turn(110.0)
    assert alone.events == ["active 100000"]
    assert LeaseTable(store).read() == Lease("a", "at-a", 112.0, 100000)


@pytest.mark.parametrize("stall_s", [2.5, 3600, -3600], ids=["stall", "clock ahead", "clock back"])
def test_no_role_changes_when_the_machine_stands_still(store: Path, stall_s: float) -> None:
    """Neither controller ran meanwhile, or the clock was set; the standby runs first again."""
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    look(second, 100.0, 4)
    look(second, 100.4 + stall_s, 1)
    first.keeper.turn(100.5 + stall_s)
    look(second, 100.5 + stall_s, 4)
    assert (first.events, second.events) == (["active 100000"], ["standby of at-a"])


def test_a_clock_set_back_delays_no_standby(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(5000.0)
    look(second, 100.0, 20)
    assert second.events == ["standby of at-a"]
    second.keeper.turn(102.1)
    assert second.events == ["standby of at-a", "active 5000001"]


def test_a_standby_waits_while_the_active_one_writes(store: Path) -> None:
    """The disk is slow: a transaction takes longer than the lease, and nobody can renew it."""
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    look(second, 100.0, 5)
    writer = sqlite3.connect(store, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    look(second, 100.5, 50)
    assert first.keeper.turn(105.5) == pytest.approx(0.1)
    writer.execute("ROLLBACK")
    look(second, 105.5, 5)
    assert first.keeper.turn(106.1) == DURATION_S / 4
    assert (first.events, second.events) == (["active 100000"], ["standby of at-a"])


def test_generations_grow_also_in_a_new_store_and_when_the_clock_goes_back(tmp_path: Path) -> None:
    old, new = LeaseTable(tmp_path / "old.db"), LeaseTable(tmp_path / "new.db")
    first = old.take(None, "a", "at-a", 100.0, 1.0)
    second = new.take(None, "a", "at-a", 101.0, 1.0)
    assert first and second and second.generation > first.generation
    assert old.renew(first, GIVEN_BACK)
    third = old.take(old.read(), "a", "at-a", 50.0, 1.0)
    assert third and third.generation == first.generation + 1


def test_only_the_lease_that_was_seen_is_taken(store: Path) -> None:
    table = LeaseTable(store)
    seen = table.take(None, "a", "at-a", 100.0, 1.0)
    assert seen and table.renew(seen, 102.0)
    assert table.take(seen, "b", "at-b", 101.5, 1.0) is None
    assert table.read() == Lease("a", "at-a", 102.0, seen.generation)


def test_lease_that_is_given_back_can_be_taken_at_once(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    second.keeper.turn(100.1)
    first.keeper.end()
    second.keeper.turn(100.2)
    assert second.generation == 100_200


def test_store_that_cannot_be_written_ends_the_role_only_when_the_lease_ends(store: Path) -> None:
    first = Controller("a", store)
    first.keeper.turn(100.0)
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("ALTER TABLE lease RENAME TO gone")
    first.keeper.turn(101.0)
    assert first.keeper._lease is not None
    first.keeper.turn(102.5)
    assert first.keeper._lease is None
    other.execute("ALTER TABLE gone RENAME TO lease")
    look(first, 102.5, 19)
    first.keeper.turn(104.5)
    assert first.events == ["active 100000", "standby of ", "active 104500"]


def test_never_two_at_a_time_and_generations_grow(store: Path) -> None:
    seed = random.Random(3)
    controllers = [Controller(name, store) for name in "abc"]
    now = 100.0
    generations: list[int] = []
    table = LeaseTable(store)
    for _ in range(300):  # each time all but one are stopped for a while
        turning = seed.choice(controllers)
        before = turning.generation
        for _ in range(seed.choice([1, 5, 25])):
            now += 0.1
            turning.keeper.turn(now)
        if turning.generation is not None and turning.generation != before:
            generations.append(turning.generation)
        lease = table.read()
        assert lease is not None
        holders = [c.name for c in controllers if c.generation == lease.generation]
        assert holders in ([lease.holder], [])
    assert generations == sorted(set(generations)) and len(generations) > 30
