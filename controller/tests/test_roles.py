# SPDX-License-Identifier: Apache-2.0
"""One controller is active, whichever stops or comes back."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.service.active_role import Keeper, Lease, LeaseTable

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


def test_first_is_active_second_stands_by_and_takes_over(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    assert first.keeper.turn(100.0) == DURATION_S / 4
    assert second.keeper.turn(100.0) == pytest.approx(0.1)
    assert first.keeper.turn(101.0) == DURATION_S / 4  # now until 103; dies
    second.keeper.turn(102.9)
    assert second.events == ["standby of at-a"]
    second.keeper.turn(103.0)
    assert second.events == ["standby of at-a", "active 103000"]


def test_one_that_slept_comes_back_as_standby(store: Path) -> None:
    first, second = Controller("a", store), Controller("b", store)
    first.keeper.turn(100.0)
    second.keeper.turn(103.0)
    assert LeaseTable(store).read() == Lease("b", "at-b", 105.0, 103000)
    first.keeper.turn(103.5)
    assert first.events == ["active 100000", "standby of at-b"]
    assert first.generation is None
    second.keeper.turn(104.0)
    assert second.events == ["active 103000"]


def test_one_that_slept_alone_gets_another_generation(store: Path) -> None:
    """Another may have been active in between."""
    alone = Controller("a", store)
    alone.keeper.turn(100.0)
    alone.keeper.turn(110.0)
    assert alone.events == ["active 100000", "active 110000"]


def test_generations_grow_also_in_a_new_store_and_when_the_clock_goes_back(tmp_path: Path) -> None:
    old, new = LeaseTable(tmp_path / "old.db"), LeaseTable(tmp_path / "new.db")
    first = old.take("a", "at-a", 100.0, 1.0)
    second = new.take("a", "at-a", 101.0, 1.0)
    assert first and second and second.generation > first.generation
    assert old.renew(first, 0.0)
    third = old.take("a", "at-a", 50.0, 1.0)
    assert third and third.generation == first.generation + 1


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
    blocker = sqlite3.connect(store, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    first.keeper.turn(101.0)
    assert first.keeper._lease is not None
    first.keeper.turn(102.5)
    assert first.keeper._lease is None
    blocker.execute("ROLLBACK")
    first.keeper.turn(102.6)
    assert first.events == ["active 100000", "active 102600"]


def test_never_two_at_a_time_and_generations_grow(store: Path) -> None:
    seed = random.Random(3)
    controllers = [Controller(name, store) for name in "abc"]
    now = 100.0
    generations: list[int] = []
    table = LeaseTable(store)
    for _ in range(1000):
        now += seed.choice([0.05, 0.4, 3.0])
        turning = seed.choice(controllers)
        before = turning.generation
        turning.keeper.turn(now)
        if turning.generation is not None and turning.generation != before:
            generations.append(turning.generation)
        lease = table.read()
        assert lease is not None
        holders = [c.name for c in controllers if c.generation == lease.generation]
        assert holders in ([lease.holder], [])
    assert generations == sorted(set(generations)) and len(generations) > 100
