# SPDX-License-Identifier: Apache-2.0
"""What is written for a change, and what a watcher receives."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from controller.paths.core import Endpoint
from controller.paths.multipoint_path import Algorithm, MultipointPath, TreeHop
from controller.service import store as store_module
from controller.service.active_role import LeaseTable
from controller.service.events import EventKind, EventLog, as_sse
from controller.service.store import (
    LOG_PAGES,
    PAGE_BYTES,
    Blocked,
    Change,
    HoldRow,
    Store,
    StoreError,
)
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT

HOPS = (TreeHop("s1:s2", "s1", 300), TreeHop("s2:s3", "s2", 310), TreeHop("s2:s4", "s2", 330))
PATH = MultipointPath(
    "a",
    7,
    ROOT,
    20_000_000,
    (LEAF_2, LEAF_3, LEAF_4),
    HOPS,
    "unidata",
    Algorithm.STEINER,
    True,
    1_800_000_000.25,
)


def opened() -> Store:
    return Store(None, "sample", "core")


def written(store: Store, old: MultipointPath | None, new: MultipointPath | None) -> int:
    """Return how many rows the change wrote."""
    before = store._connection.total_changes
    with store.transaction():
        store.replace(old, new)
    return store._connection.total_changes - before


def test_everything_of_a_path_comes_back() -> None:
    store = opened()
    written(store, None, PATH)
    blocked = Blocked("s1", 3, "s1:s2", 305)
    row = HoldRow("h", "a", "held", 12.5, "{}", "{}")
    with store.transaction():
        store.block([blocked, blocked])
        store.put_hold(row)
    loaded = store.load()
    assert (loaded.paths, loaded.holds, loaded.blocked) == ((PATH,), (row,), (blocked,))
    with store.transaction():
        store.unblock([blocked])
        store.delete_hold("h")
    written(store, PATH, None)
    loaded = store.load()
    assert (loaded.paths, loaded.holds, loaded.blocked) == ((), (), ())


def test_a_leaf_writes_a_few_rows_however_many_there_are() -> None:
    store = opened()
    many = tuple(Endpoint("s2", 9, vlan) for vlan in range(1000, 2000))
    big = replace(PATH, leaves=many)
    written(store, None, big)
    grown = replace(big, leaves=(*many, LEAF_4))
    assert written(store, big, grown) == 1
    assert written(store, grown, big) == 1
    longer = replace(big, hops=(*HOPS, TreeHop("s3:s4", "s3", 340)), leaves=(*many, LEAF_4))
    assert written(store, big, longer) == 2
    assert store.load().paths == (longer,)
    renewed = replace(longer, leaves=(*many, Endpoint.of(*LEAF_4.key, ["02:00:00:00:00:99"])))
    assert written(store, longer, renewed) == 1
    assert store.load().paths == (renewed,)


def test_transaction_that_fails_writes_nothing() -> None:
    store = opened()
    try:
        with store.transaction():
            store.replace(None, PATH)
            raise KeyError
    except KeyError:
        pass
    assert store.load().paths == ()


def test_changes_turn_one_state_into_another() -> None:
    moved = replace(
        PATH,
        leaves=(LEAF_2, Endpoint.of(*LEAF_4.key, ["02:00:00:00:00:99"]), LEAF_3),
        # s4 by s3 now, which must come after s3's own hop
        hops=(HOPS[0], HOPS[1], TreeHop("s3:s4", "s3", 340)),
    )
    for old, new in ((PATH, replace(PATH, leaves=PATH.leaves[1:], hops=HOPS[1:])), (PATH, PATH)):
        assert Change.between(old, new).applied_to(old) == new
    change = Change.between(PATH, moved)
    assert change.hops_removed == (HOPS[2],)
    assert change.hops_added == (TreeHop("s3:s4", "s3", 340),)
    assert Change.from_json(change.to_json()) == change
    reordered = replace(PATH, hops=(HOPS[0], HOPS[2], HOPS[1]))
    store = opened()
    written(store, None, PATH)
    written(store, PATH, reordered)
    assert store.load().paths[0].hops == reordered.hops


def test_ring_of_events() -> None:
    log = EventLog("b00", ring_events=3)
    assert (log.after(0), log.id_at(0)) == (([], False), "b00-0")
    for number in range(5):
        log.add(EventKind.LEAF_ADDED, 1.5, "unidata", leaf=number)
    found, forgotten = log.after(0)
    assert ([event.data["leaf"] for event in found], forgotten) == ([2, 3, 4], True)
    assert log.after(2)[1] is False  # what comes next is still there
    assert [event.sequence for event in log.after(4)[0]] == [5]
    assert [event.sequence for event in log.after(2, limit=2)[0]] == [3, 4]
    assert (log.position_of("b00-4"), log.id_of(log.after(4)[0][0])) == (4, "b00-5")
    for strange in ("b00-6", "b01-4", "b00--1", "", "b00-4 ", "b00-١", "x" * 1000):
        assert log.position_of(strange) is None, strange
    assert log.after(10**18) == ([], False)


def test_sse_form() -> None:
    """The data is on one line, whatever it contains: a line break would begin a new field."""
    text = as_sse("b-1", EventKind.LEAF_ADDED, {"leaf": "a\nevent: forged\r\n"})
    assert text == b'id: b-1\nevent: leaf-added\ndata: {"leaf":"a\\nevent: forged\\r\\n"}\n\n'


def test_the_log_of_writes_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    store, lease = Store(file, "sample", "core"), LeaseTable(file)
    largest_bytes = 0
    for number in range(100):
        written(store, *((None, PATH) if number % 2 == 0 else (PATH, None)))
        lease.take(lease.read(), "a", "here", float(number), 0.5)
        log_bytes = file.with_name("store.sqlite-wal").stat().st_size
        largest_bytes = max(largest_bytes, log_bytes)
    frame_bytes, of_one_change = PAGE_BYTES + 24, 16
    assert largest_bytes < (LOG_PAGES + of_one_change) * frame_bytes
    assert largest_bytes >= LOG_PAGES * PAGE_BYTES  # it reached the bound


def locked(file: Path) -> sqlite3.Connection:
    """Return a connection that has the file for itself, as while it commits to a slow disk."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    return other


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Store(tmp_path / "store", "n", "d").close()
    return tmp_path / "store"


def test_opening_waits_longer_than_a_change(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_MS", 50)
    other = locked(file)
    threading.Timer(0.5, other.execute, ["ROLLBACK"]).start()
    opened = Store(file, "n", "d")
    second = locked(file)
    with pytest.raises(sqlite3.OperationalError, match="locked"), opened.transaction():
        pass
    second.close()
    opened.close()


def test_a_file_that_stays_locked_is_no_wrong_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "OPEN_TIMEOUT_MS", 50)
    other = locked(file)
    with pytest.raises(StoreError, match=r"another program had it locked for 0\.05 s; valid"):
        Store(file, "n", "d")
    other.close()
