# SPDX-License-Identifier: Apache-2.0
"""The store: what comes late, twice or in another order counts once; damage is one line."""

from __future__ import annotations

import random
import sqlite3
from itertools import product
from pathlib import Path

import pytest

from monitor import minute_tables
from monitor.recording import GONE, Points, Recording, Series
from monitor.records import Minute, Records
from monitor.store import BLOCK, STEP_US, Store, StoreError, StoreRoomError

ACKS = Series("acks", "counter", 0, "Done.", (("host", "uva"), ("receiver", "10.0.0.1")))
LAG = Series("lag_seconds", "gauge", 9, "Lag.", (("host", "uva"),))


def recorded(*points: tuple[int, int], series: Series = ACKS) -> Recording:
    recording = Recording()
    for time_us, value in points:
        recording.of(series).add(time_us, value)
    return recording


def all_of(store: Store, name: str = "run") -> dict[Series, list[tuple[int, int]]]:
    (source,) = (s for s in store.sources() if s.name == name)
    return {series: list(points) for series, points in store.recording(source.id).points.items()}


def test_late_and_repeated_points_count_once() -> None:
    """In pieces, shuffled and each twice, over several blocks: the same as if at once."""
    rng = random.Random(11)
    every = [(10 * i, rng.choice((GONE, i))) for i in range(3 * BLOCK)]
    pieces = [every[i : i + 700] for i in range(0, len(every), 700)] * 2
    rng.shuffle(pieces)
    store = Store(None)
    for piece in pieces:
        rng.shuffle(piece)
        store.put("run", "virtual", recorded(*piece))
    assert all_of(store) == {ACKS: every}


def test_appending_second_by_second(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.db")
    for i in range(300):
        store.put("run", "native", recorded((i, i)))
    other = Store(tmp_path / "m.db")  # another process may read at the same time
    assert all_of(other) == {ACKS: [(i, i) for i in range(300)]}
    ((blocks,),) = store._select("SELECT count(*) FROM block")
    assert blocks < 12


def test_a_window_begins_with_the_value_that_holds() -> None:
    store = Store(None)
    store.put("run", "native", recorded(*((i, i // 10) for i in range(0, 10 * 5000, 10))))
    ((number, series),) = store.series(1, "acks", {"host": "uva"}).items()
    assert series == ACKS
    for start, end in ((0, 5), (15, 30), (40_955, 40_985), (49_995, 60_000)):
        times, values = store.points(number, start, end)
        first = min(start // 10 * 10, 49_990)
        assert times.tolist() == [t for t in range(first, end + 1, 10) if t < 50_000]
        assert values.tolist() == [t // 10 for t in times.tolist()]
    assert store.series(1, "acks", {"host": "ucar"}) == {}
    assert store.points(99)[0].size == 0


def held(points: list[tuple[int, int]]) -> dict[int, int]:
    """Return the last value of each step of 10 s."""
    return {time // STEP_US: value for time, value in sorted(points)}


def steps_of(store: Store, start: int = 0, end: int = 2**62) -> dict[int, int]:
    ((times, values),) = store.coarse(1, start, end).values()
    return dict(zip(times.tolist(), values.tolist(), strict=True))


def test_the_steps_hold_the_last_value_whatever_comes_late_or_twice() -> None:
    rng = random.Random(3)
    every = [(700_000 * i + rng.randrange(600_000), rng.choice((GONE, i))) for i in range(9_000)]
    every = [point for point in every if not 2 * 10**9 < point[0] < 3 * 10**9]  # and a gap
    pieces = [every[i : i + 500] for i in range(0, len(every), 500)] * 2
    rng.shuffle(pieces)
    store = Store(None)
    for piece in pieces:
        store.put("run", "virtual", recorded(*piece))
    assert steps_of(store) == held(every)
    changed = [(time, value + 5) for time, value in every]
    store.put("run", "virtual", recorded(*changed))  # the first value holds, as in `held`
    assert steps_of(store) == held(every)
    ((blocks,),) = store._select("SELECT count(*) FROM coarse")
    assert blocks < 12


def test_a_window_of_steps_begins_with_the_one_that_holds() -> None:
    store = Store(None)
    points = [(i * STEP_US, i) for i in range(0, 3 * BLOCK, 2)]
    store.put("run", "native", recorded(*points))
    assert list(steps_of(store, 5 * STEP_US, 9 * STEP_US)) == [4, 6, 8]
    first = 2 * BLOCK * STEP_US  # of the second block
    assert list(steps_of(store, first + STEP_US, first + 2 * STEP_US)) == [2 * BLOCK, 2 * BLOCK + 2]
    assert list(steps_of(store, 9**15, 9**15)) == [points[-1][1]]


def test_a_store_of_version_2_gets_its_steps(tmp_path: Path) -> None:
    store = Store(tmp_path / "old")
    points = [(i * 1_000_000, i * i) for i in range(2 * BLOCK)]
    store.put("run", "native", recorded(*points))
    store._db.executescript("DROP TABLE coarse; DROP TABLE path; PRAGMA user_version = 2")
    store.close()
    assert steps_of(Store(tmp_path / "old")) == held(points)
    assert steps_of(Store(tmp_path / "old")) == held(points)  # once


def test_a_thinned_recording_has_the_value_at_the_end_of_each_step() -> None:
    store = Store(None)
    points = [(i * 1_000_000, i) for i in range(95)]
    store.put("run", "native", recorded(*points))
    (thin,) = store.recording(1, 3 * STEP_US).points.values()
    assert list(thin) == [(30_000_000, 29), (60_000_000, 59), (90_000_000, 89), (120_000_000, 94)]


def test_sources_are_apart() -> None:
    store = Store(None)
    store.put("a", "native", recorded((1, 1)))
    store.put("b", "virtual", recorded((1, 2)))
    assert (all_of(store, "a"), all_of(store, "b")) == ({ACKS: [(1, 1)]}, {ACKS: [(1, 2)]})
    with pytest.raises(StoreError, match="source a: found clock virtual; valid: native"):
        store.put("a", "virtual", recorded((2, 2)))


DAY = 86_400
HOSTS, STEP_S = 6, 600


def growth(path: Path, days: int, keep_s: float | None) -> list[int]:
    """Return the bytes of a store, after each day in which a site's hours come in."""
    store, sizes = Store(path), []
    for hour in range(24 * days):
        times = range(3600 * hour, 3600 * (hour + 1), STEP_S)
        records = Records()
        for at in times:
            for host in range(HOSTS):
                found = Minute(f"h{host}", "NGRID", at, 9, 9 * at, 9, 9 * at, at, 1, 0, None)
                records.minutes[found.key] = found
        store.put_records("site", "native", records)
        points = [(at * 1_000_000, at * at % 9973) for at in range(3600 * hour, 3600 * hour + 3600)]
        store.put("site", "native", recorded(*points))
        if keep_s is not None:
            store.forget("site", keep_s)
        if hour % 24 == 23:
            ((pages,),) = store._select("PRAGMA page_count")
            ((free,),) = store._select("PRAGMA freelist_count")
            sizes.append(pages)
            assert free < pages
    store.close()
    return sizes


@pytest.mark.slow
def test_a_bounded_store_stops_growing(tmp_path: Path) -> None:
    free = growth(tmp_path / "a.db", 4, None)
    kept = growth(tmp_path / "b.db", 4, DAY)
    assert free[-1] > 1.7 * free[1]
    assert max(kept) <= 1.1 * kept[1]
    store = Store(tmp_path / "b.db")
    (source,) = store.sources()
    minutes = [i.begin for i in store.minutes(source.id)]
    assert min(minutes) == max(minutes) - DAY  # and the newest is there
    assert max(minutes) == 4 * DAY - STEP_S and len(minutes) == HOSTS * (DAY // STEP_S + 1)
    (points,) = all_of(store, "site").values()
    assert points[-1][0] == (4 * DAY - 1) * 1_000_000
    assert DAY <= (points[-1][0] - points[0][0]) / 1_000_000 < DAY + BLOCK
    assert len(points) == len(range(points[0][0], points[-1][0] + 1, 1_000_000))  # no gap
    assert min(steps_of(store)) >= points[0][0] // STEP_US - BLOCK  # steps go with the points


def test_a_record_of_the_future_makes_only_its_hosts_past_old() -> None:
    store, records = Store(None), Records()
    for host, minute in (("a", 0), ("a", 6 * 10**9), ("b", 0), ("b", 60), ("b", 600)):
        found = Minute(host, "NGRID", minute, 1, 1, 1, 1, 1, 1, 0, None)
        records.minutes[found.key] = found
    store.put_records("site", "native", records)
    store.put("site", "native", recorded((0, 1), (60_000_000, 2)))
    store.put("other", "native", recorded((0, 1)))
    store.forget("site", 540)
    store.forget("nobody", 1)
    (site, _) = store.sources()
    assert [(i.host, i.begin) for i in store.minutes(site.id)] == [
        *(("a", 6 * 10**9), ("b", 60), ("b", 600)),
    ]
    assert all_of(store, "other") == {ACKS: [(0, 1)]}


def test_minutes_one_by_one_are_those_of_the_sums() -> None:
    """Another query has them, as most pages ask for them."""
    store, records = Store(None), Records()
    for number, (host, feed, minute) in enumerate(product("ab", ("EXP", "NGRID"), (0, 60, 600))):
        found = Minute(host, feed, minute, 5, 4, 3, 2, 1, number, 0, None)
        records.minutes[found.key] = found
    store.put_records("site", "native", records)
    for chosen in ((None, None), ("a", None), (None, "EXP"), ("b", "NGRID")):
        summed = store._select(minute_tables.MINUTES, (1, 60, *chosen))
        assert store.minutes(1, 60, *chosen) == list(map(minute_tables.interval, summed))
        assert len(summed) == 12 / 2 ** (2 - chosen.count(None))


def test_all_or_nothing() -> None:
    store = Store(None)
    store.put("run", "native", recorded((1, 1)))
    wrong = recorded((2, 2))
    wrong.points[Series("acks", "gauge", 0, "", ACKS.labels)] = recorded((3, 3)).points[ACKS]
    with pytest.raises(StoreError, match="found gauge with 0 decimals; valid: counter with 0"):
        store.put("run", "native", wrong)
    assert all_of(store) == {ACKS: [(1, 1)]}


def test_files_that_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path / "junk")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="found version 0; valid: 4"):
        Store(tmp_path / "other")
    store = Store(tmp_path / "damaged")
    store.put("run", "native", recorded((1, 1)))
    store._db.execute("UPDATE block SET data = x'00'")
    with pytest.raises(StoreError, match="a damaged block: found 1 bytes"):
        store.recording(1)


@pytest.mark.parametrize("labels", ["[", "[" * 100_000, "5", '[["a"]]', '[[[], "b"]]', "[[1, 2]]"])
def test_damaged_labels(tmp_path: Path, labels: str) -> None:
    store = Store(tmp_path / "damaged")
    store.put("run", "native", recorded((1, 1)))
    store._db.execute("UPDATE series SET labels = ?", (labels,))
    with pytest.raises(StoreError, match="damaged labels of a series: "):
        store.recording(1)


def test_a_store_without_its_tables(tmp_path: Path) -> None:
    store = Store(tmp_path / "damaged")
    store._db.execute("DROP TABLE series")
    with pytest.raises(StoreError, match="no such table: series"):
        store.recording(1)


def test_a_full_disk_takes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put("run", "native", recorded((1, 1)))
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    many = recorded(*((n, n * n * 7919 % 1_000_003) for n in range(2, 50_000)))
    with pytest.raises(StoreRoomError, match="disk is full; valid: room on the disk"):
        store.put("run", "native", many)
    assert all_of(store) == {ACKS: [(1, 1)]}


def test_nothing_is_put_for_a_series_without_points() -> None:
    store = Store(None)
    recording = recorded((1, 5), series=LAG)
    recording.points[ACKS] = Points()
    store.put("run", "native", recording)
    assert all_of(store) == {LAG: [(1, 5)]}
