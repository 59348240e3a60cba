# SPDX-License-Identifier: Apache-2.0
"""The store fails, or the process dies, before any SQL statement of a change.

Afterwards the service and its file are, together with the switches, as before the change or as
after it; the same request again completes the change.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.paths.core import Endpoint
from controller.service.problems import ServiceError
from controller.service.store import Store
from controller.service.views import PathWish
from controller.tests.rig import Rig
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, MAC_3A, ROOT, network

RATE = 20_000_000
ROOT_B = Endpoint("s1", 1, 103)
FULL = "database or disk is full"


class Faulty:
    """A connection that fails at one statement (`fail_at`), or from there on (`lasting`); `before`
    is called with each statement's number."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
        self.count = 0
        self.fail_at = 0
        self.is_lasting = False
        self.before: Callable[[int], None] = lambda _number: None

    def _step(self, sql: str) -> None:
        if sql == "ROLLBACK":
            return
        self.count += 1
        self.before(self.count)
        if self.fail_at and (
            self.count == self.fail_at or (self.is_lasting and self.count > self.fail_at)
        ):
            raise sqlite3.OperationalError(FULL)

    def execute(self, sql: str, *values: Any) -> Any:
        self._step(sql)
        return self._real.execute(sql, *values)

    def executemany(self, sql: str, values: Any) -> Any:
        self._step(sql)
        return self._real.executemany(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def wish(name: str, root: Endpoint, *leaves: Endpoint) -> PathWish:
    return PathWish(name, root, RATE, leaves=leaves)


class Site:
    """Path "a" with two leaves, and a hold of path "b"."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "store"
        self.rig = Rig(Store(self.file, network().name, "core"))
        service = self.rig.service
        service.create("a", ROOT, RATE)
        service.add_leaf("a", LEAF_2)
        service.add_leaf("a", LEAF_3)
        service.hold("h", wish("b", ROOT_B, LEAF_4), self.rig.clock() + 60)
        self.faulty = Faulty(self.rig.store._connection)
        self.rig.store._connection = self.faulty  # type: ignore[assignment]

    def copied(self, to: Path) -> Path:
        """Return a copy of the file, as a crash now would leave it."""
        to.mkdir()
        for path in self.file.parent.glob("store*"):
            if path.is_file():
                shutil.copyfile(path, to / path.name)
        return to / "store"


@dataclass(frozen=True)
class Seen:
    """What users see of paths and holds, and what is reserved."""

    paths: tuple[object, ...]
    holds: tuple[tuple[str, str], ...]
    reserved: tuple[int, ...]

    @classmethod
    def of(cls, rig: Rig) -> Seen:
        service = rig.service
        paths = sorted(
            (p.name, p.root, p.rate_bps, p.end_time, tuple(sorted(p.leaves)), len(p.hops))
            for p in (view.path for view in service.paths())
        )
        holds = sorted((h.id, h.state.value) for h in service.state.holds._by_id.values())
        reserved = [service.reserved_bps(hop.link, hop.source) for hop in service.core.hops]
        return cls(tuple(paths), tuple(holds), tuple(reserved))


def of_file(file: Path, clock_s: float) -> Seen:
    """Return it as a new process reads it."""
    rig = Rig(Store(file, network().name, "core"))
    rig.clock.now = clock_s
    try:
        return Seen.of(rig)
    finally:
        rig.store.close()


def create(rig: Rig) -> None:
    rig.service.create("c", Endpoint("s1", 1, 104), RATE)


def add(rig: Rig) -> None:
    rig.service.add_leaf("a", Endpoint("s4", 9, 110))


def remove(rig: Rig) -> None:
    if rig.service.state.leaf_of(rig.service.state.existing("a"), LEAF_2.key) is not None:
        rig.service.remove_leaf("a", LEAF_2.key)


def macs(rig: Rig) -> None:
    rig.service.set_macs("a", LEAF_3.key, [MAC_3A, "02:00:00:00:00:99"])


def end_time(rig: Rig) -> None:
    rig.service.set_end_time("a", rig.clock() + 500)


def delete(rig: Rig) -> None:
    if "a" in rig.service.state.paths:
        rig.service.delete("a")


def hold(rig: Rig) -> None:
    rig.service.hold("i", wish("a", ROOT, Endpoint("s4", 9, 110)), rig.clock() + 60)


def commit(rig: Rig) -> None:
    rig.service.commit("h")


def release(rig: Rig) -> None:
    rig.service.release("h")


def expire(rig: Rig) -> None:
    rig.clock.now = 1_000_000.0 + 61
    rig.service.expire()


def reroute(rig: Rig) -> None:
    rig.service.link_changed("s1:s2", False, "test")
    rig.service.retry(rig.net.switches)


CHANGES = (create, add, remove, macs, end_time, delete, hold, commit, release, expire, reroute)


def refused(change: Callable[[Rig], None]) -> Callable[[Rig], None]:
    """Let a switch refuse the change in the middle."""

    def run(rig: Rig) -> None:
        rig.refuse_next = {"s2": 0, "s4": 0}
        try:
            change(rig)
        finally:
            rig.refuse_next = {}

    run.__name__ = f"refused_{change.__name__}"
    return run


ALL = (*CHANGES, refused(add), refused(commit), refused(hold))


def attempt(rig: Rig, change: Callable[[Rig], None]) -> ServiceError | None:
    try:
        change(rig)
    except ServiceError as error:
        return error
    return None


def outcome(directory: Path, change: Callable[[Rig], None]) -> tuple[Seen, Seen, int]:
    """Return (before, after, statements) of the change without a fault."""
    directory.mkdir()
    site = Site(directory)
    before = Seen.of(site.rig)
    error = attempt(site.rig, change)
    assert error is None or error.kind == "refused"
    after = Seen.of(site.rig)
    site.rig.assert_settled()
    assert of_file(site.copied(directory / "copy"), site.rig.clock()) == after
    return before, after, site.faulty.count


def fits(seen: Seen, before: Seen, after: Seen, change: Callable[[Rig], None]) -> bool:
    """Return whether it is as before or after; a link's failure makes two changes: it ends holds,
    then moves paths."""
    if change is reroute:
        return seen.paths in (before.paths, after.paths) and seen.holds in (
            before.holds,
            after.holds,
        )
    return seen in (before, after)


@pytest.mark.slow
@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("change", ALL, ids=lambda c: c.__name__)
def test_failure_at_each_statement(
    tmp_path: Path, change: Callable[[Rig], None], is_lasting: bool
) -> None:
    before, after, statements = outcome(tmp_path / "whole", change)
    assert statements >= 3
    for number in range(1, statements + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        site = Site(directory)
        rig, faulty = site.rig, site.faulty
        faulty.fail_at, faulty.is_lasting = number, is_lasting
        error = attempt(rig, change)
        place = f"{change.__name__}, statement {number}: {error}"
        assert error is None or error.kind in ("store", "refused"), place
        if error is not None and error.kind == "store":
            assert error.status == 507, place
        seen = Seen.of(rig)
        assert fits(seen, before, after, change), place
        if error is None and change not in (expire, reroute):  # those are tried again automatically
            assert seen == after, place
        else:
            assert error is None or error.kind == "refused" or seen == before, place
        rig.assert_settled()
        if not faulty.is_lasting:  # the file never has anything but one of the two
            found = of_file(site.copied(directory / "crash"), rig.clock())
            assert fits(found, before, after, change), place
        faulty.fail_at = 0
        rig.service.retry(rig.net.switches)
        assert of_file(site.copied(directory / "healed"), rig.clock()) == Seen.of(rig), place
        again = attempt(rig, change)
        assert again is None or again.kind in ("refused", "hold-over"), place
        assert Seen.of(rig) == after, place
        rig.assert_settled()
        rig.restart()
        assert Seen.of(rig) == after, place
        rig.assert_settled()
        rig.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("change", ALL, ids=lambda c: c.__name__)
def test_crash_before_each_statement(tmp_path: Path, change: Callable[[Rig], None]) -> None:
    """Check what kill -9 leaves in the file; the switches are empty."""
    before, after, statements = outcome(tmp_path / "whole", change)
    directory = tmp_path / "run"
    directory.mkdir()
    site = Site(directory)
    images: list[Path] = []
    site.faulty.before = lambda number: images.append(site.copied(directory / str(number)))
    attempt(site.rig, change)
    assert len(images) == statements
    found = []
    for number, image in enumerate(images, 1):
        rig = Rig(Store(image, network().name, "core"))
        rig.clock.now = 1_000_000.0
        seen = Seen.of(rig)
        is_refused = change.__name__.startswith("refused")
        assert is_refused or fits(seen, before, after, change), number
        found.append(seen)
        rig.assert_settled()
        again = attempt(rig, change)
        assert again is None or again.kind in ("refused", "hold-over"), (number, again)
        if not change.__name__.startswith("refused"):
            assert Seen.of(rig) == after, number
        rig.assert_settled()
        rig.store.close()
    assert found[0] == before


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path)


def test_full_disk_is_logged_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.faulty.fail_at, site.faulty.is_lasting = site.faulty.count + 1, True
    site.rig.clock.now += 61  # the hold expires: each turn of the clock tries to write that
    for _ in range(50):
        site.rig.service.expire()
        assert attempt(site.rig, add) is not None
    assert [m for m in caplog.messages if "cannot be written" in m] == [
        f"the store cannot be written: {FULL}"
    ]
    caplog.set_level("INFO")
    site.faulty.fail_at = 0
    site.rig.service.expire()
    assert "the store can be written again" in caplog.text
    add(site.rig)
    assert site.rig.service.hold_view("h").state.value == "expired"


@pytest.mark.slow
def test_real_full_file(tmp_path: Path) -> None:
    """Paths are made until SQLite's own limit of pages is reached, then deleted."""
    rig = Rig(Store(tmp_path / "store", network().name, "core"))
    pages = rig.store._connection.execute("PRAGMA page_count").fetchone()[0]
    rig.store._connection.execute(f"PRAGMA max_page_count={pages + 2}")
    made = []
    for number in range(300):
        name = f"path-{number:03}-{'x' * 40}"
        response = rig.http.post(
            "/v1/paths",
            json={
                "name": name,
                "root": {"switch": "s1", "port": 1, "vlan": 200 + number},
                "rate_bps": 0,
            },
        )
        if response.status_code == 507:
            break
        assert response.status_code == 201, response.text
        made.append(name)
    assert response.status_code == 507 and made
    assert response.json()["type"] == "urn:downpour:problem:store"
    shown = [path["name"] for path in rig.http.get("/v1/paths?limit=1000").json()]
    assert shown == sorted(made)
    rig.assert_settled()
    for gone in made[:50]:
        assert rig.http.delete(f"/v1/paths/{gone}").status_code == 204
    assert (
        rig.http.post(
            "/v1/paths",
            json={"name": "again", "root": {"switch": "s1", "port": 1, "vlan": 700}, "rate_bps": 0},
        ).status_code
        == 201
    )
    rig.restart()
    assert {view.path.name for view in rig.service.paths()} == {*made[50:], "again"}
    rig.assert_settled()
