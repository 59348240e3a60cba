# SPDX-License-Identifier: Apache-2.0
"""Recordings in SQLite: sources, their series, and blocks of points (`columns`).

A point that comes twice, or late, counts once: series and time identify it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from monitor import minute_tables
from monitor.columns import BlockError, Numbers, decode, encode, merge
from monitor.minute_tables import Interval
from monitor.recording import Points, Recording, Series, labels_of
from monitor.records import Records

VERSION: Final = 2
BLOCK: Final = 4096  # points in a full block
_SCHEMA: Final = """
CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, clock TEXT NOT NULL) STRICT;
CREATE TABLE series (id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES source,
  name TEXT NOT NULL, labels TEXT NOT NULL, kind TEXT NOT NULL, decimals INTEGER NOT NULL,
  help TEXT NOT NULL, UNIQUE (source, name, labels)) STRICT;
CREATE TABLE block (series INTEGER NOT NULL REFERENCES series, first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (series, first_us)) STRICT, WITHOUT ROWID;
"""


class StoreError(Exception):
    """A file that is not a store, or a damaged one. One line."""


class StoreRoomError(StoreError):
    """The disk has no room for it. One line."""


def _wrong(path: Path | None, error: sqlite3.Error) -> StoreError:
    """Put SQLite's error into one line. A journal without room is an I/O error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what says more of it
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreRoomError(f"{path}: {error}; valid: room on the disk")
    return StoreError(f"{path}: {error}")


@dataclass(frozen=True)
class Source:
    """Where series come from. `clock`: native or virtual, never drawn on one axis."""

    id: int
    name: str
    clock: str


def _text_of(value: object) -> str:
    """Return a text as it is. TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}; valid: a text")
    return value


def _numbers(points: Points) -> tuple[Numbers, Numbers]:
    times = np.frombuffer(points.times_us, np.int64)
    values = np.frombuffer(points.values, np.int64)
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


class Store:
    """One file. `path` None: in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
                new = _SCHEMA + minute_tables.SCHEMA
                self._db.executescript(f"BEGIN; {new} PRAGMA user_version = {VERSION}; COMMIT")
            elif version == 1:  # had no minutes
                new = minute_tables.SCHEMA
                self._db.executescript(f"BEGIN; {new} PRAGMA user_version = {VERSION}; COMMIT")
            elif version != VERSION:
                raise StoreError(f"{path}: found version {version}; valid: {VERSION}")
        except sqlite3.Error as error:
            raise _wrong(path, error) from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise _wrong(self._path, error) from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def put(self, name: str, clock: str, recording: Recording) -> None:
        """Add a recording to the source of that name, all of it or nothing. StoreError."""
        with self._transaction():
            source = self._source_id(name, clock)
            for series, points in recording.points.items():
                if len(points.times_us):
                    self._add(self._series_id(source, series), _numbers(points))

    def put_records(self, name: str, clock: str, records: Records) -> None:
        """Add records to the source of that name, all or nothing. If there are several for one
        minute, the one with the highest count holds. StoreError."""
        with self._transaction():
            source = self._source_id(name, clock)
            self._db.executemany(
                minute_tables.PUT_MINUTE,
                [minute_tables.row(source, minute) for minute in records.minutes.values()],
            )
            self._db.executemany(
                minute_tables.PUT_HOUR,
                [(source, *astuple(hour)) for hour in records.hours.values()],
            )

    def forget(self, name: str, keep_s: float) -> None:
        """Delete what is more than `keep_s` seconds older than the newest of its series, or its
        host's newest record, in the source of that name. Later recordings use its room."""
        keep_us = round(keep_s * 1_000_000)
        with self._transaction():
            found = self._db.execute("SELECT id FROM source WHERE name = ?", (name,)).fetchone()
            for (source,) in [found] if found else []:
                newest = self._db.execute(
                    "SELECT series, max(last_us) FROM block JOIN series ON series.id = series "
                    "WHERE source = ? GROUP BY series",
                    (source,),
                ).fetchall()
                self._db.executemany(
                    "DELETE FROM block WHERE series = ? AND last_us < ?",
                    [(series, last_us - keep_us) for series, last_us in newest],
                )
                for select, delete in minute_tables.NEWEST:
                    hosts = self._db.execute(select, (source,)).fetchall()
                    rows = [(source, host, last - keep_us // 1_000_000) for host, last in hosts]
                    self._db.executemany(delete, rows)

    def minutes(
        self, source: int, step_s: int = 60, host: str | None = None, feed: str | None = None
    ) -> list[Interval]:
        """Return each host's and feed's sums of minutes in steps of whole minutes."""
        rows = self._select(minute_tables.MINUTES, (source, step_s, host, feed))
        return [minute_tables.interval(row) for row in rows]

    def _source_id(self, name: str, clock: str) -> int:
        self._db.execute(
            "INSERT INTO source (name, clock) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, clock)
        )
        ((source, known),) = self._db.execute(
            "SELECT id, clock FROM source WHERE name = ?", (name,)
        )
        if known != clock:
            raise StoreError(f"source {name}: found clock {clock}; valid: {known}, as before")
        return int(source)

    def _series_id(self, source: int, series: Series) -> int:
        labels = json.dumps(series.labels)
        self._db.execute(
            "INSERT INTO series (source, name, labels, kind, decimals, help) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (source, series.name, labels, series.kind, series.decimals, series.help),
        )
        ((number, kind, decimals),) = self._db.execute(
            "SELECT id, kind, decimals FROM series WHERE source = ? AND name = ? AND labels = ?",
            (source, series.name, labels),
        )
        if (kind, decimals) != (series.kind, series.decimals):
            raise StoreError(
                f"series {series.name}: found {series.kind} with {series.decimals} decimals; "
                f"valid: {kind} with {decimals}, as before"
            )
        return int(number)

    def _add(self, series: int, points: tuple[Numbers, Numbers]) -> None:
        """Points in order of time. Rewrites the blocks that they touch, and before these the
        blocks that are not much larger than what comes: each point is rewritten about twelve
        times until its block is full, however many come at once."""
        first_us, total = int(points[0][0]), len(points[0])
        rows = []
        for first, last, count, data in self._db.execute(
            "SELECT first_us, last_us, count, data FROM block WHERE series = ? "
            "ORDER BY first_us DESC",
            (series,),
        ):
            if last < first_us and (count >= BLOCK or count > 2 * total):
                break
            rows.append((first, data))
            total += count
        parts = [self._decoded(data) for _, data in rows]
        times, values = merge([*parts, points])
        self._db.executemany(
            "DELETE FROM block WHERE series = ? AND first_us = ?",
            [(series, first) for first, _ in rows],
        )
        self._db.executemany(
            "INSERT INTO block VALUES (?, ?, ?, ?, ?)",
            [
                (series, int(t[0]), int(t[-1]), len(t), encode(t, values[at : at + BLOCK]))
                for at in range(0, len(times), BLOCK)
                for t in (times[at : at + BLOCK],)
            ],
        )

    def _decoded(self, data: bytes) -> tuple[Numbers, Numbers]:
        try:
            return decode(data)
        except BlockError as error:
            raise StoreError(f"{self._path}: a damaged block: {error}") from None

    def sources(self) -> list[Source]:
        """Return all sources."""
        return [Source(*row) for row in self._select("SELECT id, name, clock FROM source")]

    def _select(self, query: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise _wrong(self._path, error) from None

    def series(
        self, source: int, name: str | None = None, labels: Mapping[str, str] | None = None
    ) -> dict[int, Series]:
        """Return number -> series: of that name, with at least these labels."""
        wanted = set(labels_of(labels or {}))
        found = {}
        for number, own, text, kind, decimals, about in self._select(
            "SELECT id, name, labels, kind, decimals, help FROM series "
            "WHERE source = ? AND (?2 IS NULL OR name = ?2)",
            (source, name),
        ):
            series = Series(own, kind, decimals, about, self._labels(text))
            if wanted <= set(series.labels):
                found[number] = series
        return found

    def _labels(self, text: str) -> tuple[tuple[str, str], ...]:
        try:
            pairs = json.loads(text)
            return tuple((_text_of(key), _text_of(value)) for key, value in pairs)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{self._path}: damaged labels of a series: {error}") from None

    def points(
        self, series: int, from_us: int = 0, to_us: int = 2**63 - 1
    ) -> tuple[Numbers, Numbers]:
        """Return times and values from the last one at or before `from_us` up to `to_us`."""
        rows = self._select(
            "SELECT data FROM block WHERE series = ?1 AND first_us <= ?3 AND last_us >= coalesce("
            "(SELECT max(first_us) FROM block WHERE series = ?1 AND first_us <= ?2), 0) "
            "ORDER BY first_us",
            (series, from_us, to_us),
        )
        parts = [self._decoded(data) for (data,) in rows]
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        times = np.concatenate([t for t, _ in parts])
        values = np.concatenate([v for _, v in parts])
        first = max(int(np.searchsorted(times, from_us, side="right")) - 1, 0)
        last = int(np.searchsorted(times, to_us, side="right"))
        return times[first:last], values[first:last]

    def recording(self, source: int) -> Recording:
        """Return all of a source."""
        recording = Recording()
        for number, series in self.series(source).items():
            points = recording.of(series)
            times, values = self.points(number)
            points.times_us.frombytes(times.tobytes())
            points.values.frombytes(values.tobytes())
        return recording
