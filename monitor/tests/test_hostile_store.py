# SPDX-License-Identifier: Apache-2.0
"""Stores that are damaged, or that a stranger wrote: all commands read or refuse them in a line."""

from __future__ import annotations

import contextlib
import io
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from monitor import minute_tables, minute_text, openmetrics, remote_write, table
from monitor.recording import Recording, Series
from monitor.records import MOST_NUMBER, FeedPath, Minute, Records
from monitor.store import STEP_US, Store, StoreError
from parsers.measure.metrics import FmtpSums

TABLES = ("source", "series", "block", "coarse", "minute", "hour", "path")
VALUES: tuple[Any, ...] = (
    -1, 0, 1, 2, 10, -(2**63), 2**63 - 1, 10**17, 0.5, float("inf"), None, "", "a\nb", "gauge",
    "\x1b[31m", "[]", '[["a b", "c"]]', "x" * 5000, b"", b"DPB1", b"DPB1" + b"\xff" * 40,
)  # fmt: skip


def minute(host: str, at: int, number: int) -> Minute:
    sums = FmtpSums(number, number, number, number, 1, 1, number, 1, 3)
    return Minute(host, "NGRID", at, number, number, number, number, 2, 1, 0, sums)


def make(path: Path) -> None:
    """Write a store with something in each table."""
    store, recording, records = Store(path), Recording(), Records()
    for name in ("a", "b"):
        points = recording.of(Series(name, "counter", 3, "H.", (("host", "uva"),)))
        for i in range(50):
            points.add(i * 1_000_000, i * i)
    for host, at in (("uva", 0), ("uva", 60), ("umd", 60)):
        found = minute(host, at, 9)
        records.minutes[found.key] = found
    path_found = FeedPath("umass", "NGRID", 60, "p1", 20_000_000, 6)
    records.paths[path_found.key] = path_found
    store.put("run", "virtual", recording)
    store.put_records("run", "virtual", records)
    store.close()


def use(path: Path) -> str:
    """Do all that the commands do with a store; return what they print. Raises StoreError."""
    out = io.StringIO()
    store = Store(path)
    with contextlib.closing(store):
        for source in store.sources():
            for step_us in (None, STEP_US, 6 * STEP_US):
                recording = store.recording(source.id, step_us)
                out.writelines(openmetrics.lines(recording))
                table.write(recording, out)
                list(remote_write.requests(recording, str(source.name)))
            for step_s in (60, 3600, 10**11):
                found, paths = store.minutes(source.id, step_s), store.paths(source.id, step_s)
                text = minute_text.table(found, paths, with_time=step_s < 10**11)
                assert text.replace("\n", "").isprintable()  # a terminal takes it
                out.write(text)
        store.forget("run", 30)
        records = Records()
        records.minutes["uva", "NGRID", 120] = minute("uva", 120, 5)
        store.put_records("run", "virtual", records)
        recording = Recording()
        recording.of(Series("a", "counter", 3, "H.", (("host", "uva"),))).add(99_000_000, 9)
        store.put("run", "virtual", recording)
    return out.getvalue()


def test_an_undamaged_one(tmp_path: Path) -> None:
    make(tmp_path / "m.db")
    assert 'downpour_a_total{host="uva"} 2.401 49.000000' in use(tmp_path / "m.db")


@pytest.mark.slow
def test_any_damage_is_read_or_refused(tmp_path: Path) -> None:
    make(tmp_path / "good.db")
    good, dice = (tmp_path / "good.db").read_bytes(), random.Random(20)
    path, refused = tmp_path / "m.db", 0
    for _ in range(100):
        data = bytearray(good)
        for _ in range(dice.randrange(1, 12)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(1, 9)] = dice.randbytes(dice.randrange(1, 9))
        path.write_bytes(data[: dice.choice((len(data), dice.randrange(len(data))))])
        for rest in ("m.db-wal", "m.db-shm"):
            (tmp_path / rest).unlink(missing_ok=True)
        try:
            use(path)
        except StoreError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 20


def loosened(path: Path, dice: random.Random) -> None:
    """Write a store whose tables take any value, and some that no monitor writes."""
    with sqlite3.connect(path) as db:
        for name in TABLES:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
            rows = db.execute(f"SELECT * FROM {name}").fetchall()
            db.execute(f"DROP TABLE {name}")
            db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        for _ in range(dice.randrange(1, 4)):
            name = dice.choice(TABLES)
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
            db.execute(f"UPDATE {name} SET {dice.choice(columns)} = ?", (dice.choice(VALUES),))
    db.close()


@pytest.mark.slow
def test_strange_values_are_read_or_refused(tmp_path: Path) -> None:
    dice = random.Random(21)
    make(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    for number in range(100):
        path = tmp_path / f"{number}.db"
        path.write_bytes(good)
        loosened(path, dice)
        try:
            use(path)
        except StoreError as error:
            assert str(error).isprintable()
        path.unlink()


def test_a_hosts_huge_numbers_hide_no_other_host() -> None:
    """Their sum is more than SQLite's numbers hold."""
    store, records = Store(None), Records()
    for at in range(2000):
        for host, number in (("evil", MOST_NUMBER), ("good", at)):
            found = minute(host, 60 * at, number)
            records.minutes[found.key] = found
    store.put_records("site", "native", records)
    evil, good = store.minutes(1, 10**11)
    assert (evil.host, evil.sums.bytes) == ("evil", 2000 * MOST_NUMBER)
    assert (good.sums.files_all, good.minutes, good.last) == (sum(range(2000)), 2000, 60 * 1999)
    assert good.age_max_us == 1 and good.age_us == 2 * 2000
    assert "good" in minute_text.table([evil, good], [], with_time=False)


@pytest.mark.parametrize("step_s", [60, 120, 3600])
def test_sums_in_either_way_are_the_same(step_s: int) -> None:
    store, records = Store(None), Records()
    for number, at in enumerate((0, 60, 600, 3540, 3600, 7200)):
        for host in "ab":
            found = minute(host, at, 50 + number)
            records.minutes[found.key] = found
    store.put_records("site", "native", records)
    each = store._select(minute_tables.EACH_MINUTE, (1, 60, None, None))
    by_hand = [minute_tables.interval(row) for row in minute_tables.summed(each, step_s)]
    assert by_hand == store.minutes(1, step_s)
