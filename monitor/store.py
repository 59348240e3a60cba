# SPDX-License-Identifier: Apache-2.0
"""Recordings in SQLite: sources, their series, and blocks of points (`columns`).

A point that comes twice, or late, counts once: series and time identify it. Writing also keeps the
last value of every 10 s, so that a view of many series reads a tenth of the points.
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
from monitor.columns import BlockError, Numbers, decode, encode, lasts, merge
from monitor.minute_tables import Interval
from monitor.recording import (
    GONE,
    KINDS,
    MOST_DECIMALS,
    Points,
    Recording,
    Series,
    labels_of,
    wrong_name,
)
from monitor.records import FeedPath, Records

VERSION: Final = 4
BLOCK: Final = 4096  # points in a full block
STEP_US: Final = 10_000_000  # of the table coarse
LAST_US: Final = 2**63 - 1
_SCHEMA: Final = """
CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, clock TEXT NOT NULL) STRICT;
CREATE TABLE series (id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES source,
  name TEXT NOT NULL, labels TEXT NOT NULL, kind TEXT NOT NULL, decimals INTEGER NOT NULL,
  help TEXT NOT NULL, UNIQUE (source, name, labels)) STRICT;
CREATE TABLE block (series INTEGER NOT NULL REFERENCES series, first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (series, first_us)) STRICT, WITHOUT ROWID;
"""
# Its times are numbers of steps since 1970.
_COARSE: Final = """
CREATE TABLE coarse (series INTEGER NOT NULL REFERENCES series, first INTEGER NOT NULL,
  last INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (series, first)) STRICT, WITHOUT ROWID;
"""
# Keyed by the last version without it.
_ADDED: Final = {
    0: _SCHEMA, 1: minute_tables.SCHEMA, 2: _COARSE, 3: minute_tables.PATHS_SCHEMA
}  # fmt: skip


@dataclass(frozen=True)
class _Table:
    """A table of blocks. `news_win`: a later value replaces an earlier one with the same time."""

    name: str
    first: str
    last: str
    news_win: bool


_BLOCK: Final = _Table("block", "first_us", "last_us", news_win=False)
_STEPS: Final = _Table("coarse", "first", "last", news_win=True)


class StoreError(Exception):
    """A file that is not a store, or a damaged one. The message is one line."""


class StoreRoomError(StoreError):
    """The disk is full. The message is one line."""


# A damaged file also has texts that are not UTF-8, and numbers that do not fit.
_BROKEN: Final = (sqlite3.Error, UnicodeDecodeError, OverflowError)


def _wrong(path: Path | None, error: Exception) -> StoreError:
    """Return SQLite's error as one line. A full disk under the journal is an I/O error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended code
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreRoomError(f"{path}: {error}; valid: room on the disk")
    return StoreError(f"{path}: {error}")


@dataclass(frozen=True)
class Source:
    """Where series come from. `clock`: native or virtual, never drawn on one axis."""

    id: int
    name: str
    clock: str


_NONE: Final = (np.empty(0, np.int64), np.empty(0, np.int64))


def _text_of(value: object) -> str:
    """Return a text as it is. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}; valid: a text")
    return value


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _numbers(points: Points) -> tuple[Numbers, Numbers]:
    times = np.frombuffer(points.times_us, np.int64)
    values = np.frombuffer(points.values, np.int64)
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


def _window(parts: list[tuple[Numbers, Numbers]], first: int, last: int) -> tuple[Numbers, Numbers]:
    """Return the points up to `last`, beginning with the last one at or before `first`."""
    if not parts:
        return _NONE
    times = np.concatenate([t for t, _ in parts]) if len(parts) > 1 else parts[0][0]
    values = np.concatenate([v for _, v in parts]) if len(parts) > 1 else parts[0][1]
    begin = max(int(np.searchsorted(times, first, side="right")) - 1, 0)
    end = int(np.searchsorted(times, last, side="right"))
    return times[begin:end], values[begin:end]


class Store:
    """One file. `path` None: in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            if self._version() != VERSION:
                self._upgrade()
        except _BROKEN as error:
            raise _wrong(path, error) from None

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _upgrade(self) -> None:
        """Make the tables that the file does not have yet. Raises StoreError."""
        with self._transaction():
            version = self._version()
            is_empty = not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()
            if not (is_empty or 0 < version <= VERSION):
                raise StoreError(f"{self._path}: found version {version}; valid: {VERSION}")
            for step in range(version, VERSION):
                for statement in filter(str.strip, _ADDED[step].split(";")):
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            if version > 2:
                return
            for (series,) in self._db.execute("SELECT id FROM series").fetchall():
                times, values = self.points(series)
                if len(times):
                    self._add(_STEPS, series, lasts(times, values, STEP_US))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except _BROKEN as error:
            raise _wrong(self._path, error) from None
        except (TypeError, ValueError) as error:  # rows of other types than the tables'
            raise StoreError(f"{self._path}: a damaged row: {error}") from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def put(self, name: str, clock: str, recording: Recording) -> None:
        """Add a recording to the source with that name, completely or not at all. Raises
        StoreError."""
        with self._transaction():
            source = self._source_id(name, clock)
            for series, points in recording.points.items():
                if len(points.times_us):
                    self._put_points(self._series_id(source, series), _numbers(points))

    def put_records(self, name: str, clock: str, records: Records) -> None:
        """Add records to the source with that name, completely or not at all. If there are several
        for one minute, the one with the highest count is used. Raises StoreError."""
        with self._transaction():
            source = self._source_id(name, clock)
            self._db.executemany(
                minute_tables.PUT_MINUTE,
                [minute_tables.row(source, minute) for minute in records.minutes.values()],
            )
            self._db.executemany(
                minute_tables.PUT_PATH,
                [minute_tables.path_row(source, path) for path in records.paths.values()],
            )
            self._db.executemany(
                minute_tables.PUT_HOUR,
                [(source, *astuple(hour)) for hour in records.hours.values()],
            )

    def forget(self, name: str, keep_s: float) -> None:
        """Delete, from the source with that name, what is more than `keep_s` seconds older than the
        newest value of its series, or its host's newest record. Later recordings reuse the
        space."""
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
                self._db.executemany(
                    "DELETE FROM coarse WHERE series = ? AND last < ?",
                    [(series, (last_us - keep_us) // STEP_US) for series, last_us in newest],
                )
                for select, delete in minute_tables.NEWEST:
                    hosts = self._db.execute(select, (source,)).fetchall()
                    rows = [(source, host, last - keep_us // 1_000_000) for host, last in hosts]
                    self._db.executemany(delete, rows)

    def minutes(
        self, source: int, step_s: int = 60, host: str | None = None, feed: str | None = None
    ) -> list[Interval]:
        """Return each host's and feed's sums of minutes in steps of whole minutes."""
        query = minute_tables.EACH_MINUTE if step_s == 60 else minute_tables.MINUTES
        chosen = (source, step_s, host, feed)
        try:
            try:
                rows = self._select(query, chosen)
            except StoreError as error:
                if "integer overflow" not in str(error):
                    raise
                # One host's huge numbers hide no other host.
                rows = minute_tables.summed(self._select(minute_tables.EACH_MINUTE, chosen), step_s)
            return [minute_tables.interval(row) for row in rows]
        except ValueError as error:
            raise StoreError(f"{self._path}: a damaged record: {error}") from None

    def paths(self, source: int, step_s: int = 60, host: str | None = None) -> list[FeedPath]:
        """Return the newest record of each path of each publisher in steps of whole minutes."""
        rows = self._select(minute_tables.PATHS, (source, step_s, host))
        try:
            return list(map(minute_tables.path_of, rows))
        except ValueError as error:
            raise StoreError(f"{self._path}: a damaged record: {error}") from None

    def _source_id(self, name: str, clock: str) -> int:
        if not _is_name(name):
            raise StoreError(f"found source {name!r:.60}; valid: a name of printable characters")
        self._db.execute(
            "INSERT INTO source (name, clock) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, clock)
        )
        source, known = self._db.execute(
            "SELECT id, clock FROM source WHERE name = ?", (name,)
        ).fetchone()
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
        number, kind, decimals = self._db.execute(
            "SELECT id, kind, decimals FROM series WHERE source = ? AND name = ? AND labels = ?",
            (source, series.name, labels),
        ).fetchone()
        if (kind, decimals) != (series.kind, series.decimals):
            raise StoreError(
                f"series {series.name}: found {series.kind} with {series.decimals} decimals; "
                f"valid: {kind} with {decimals}, as before"
            )
        return int(number)

    def _put_points(self, series: int, points: tuple[Numbers, Numbers]) -> None:
        times, values = self._add(_BLOCK, series, points)  # all points from the first new one on
        since = int(np.searchsorted(times, points[0][0] // STEP_US * STEP_US))
        self._add(_STEPS, series, lasts(times[since:], values[since:], STEP_US))

    def _add(
        self, table: _Table, series: int, points: tuple[Numbers, Numbers]
    ) -> tuple[Numbers, Numbers]:
        """Add points in order of time; return what was written. Besides the blocks that they touch,
        this rewrites earlier blocks that are not much larger than the new points: so each point is
        rewritten about twelve times until its block is full, however many come at once."""
        first, total = int(points[0][0]), len(points[0])
        rows = []
        for block_first, last, count, data in self._db.execute(
            f"SELECT {table.first}, {table.last}, count, data FROM {table.name} "
            f"WHERE series = ? ORDER BY {table.first} DESC",
            (series,),
        ):
            if last < first and (count >= BLOCK or count > 2 * total):
                break
            rows.append((block_first, data))
            total += count
        parts = [self._decoded(data) for _, data in rows]
        times, values = merge([points, *parts] if table.news_win else [*parts, points])
        self._db.executemany(
            f"DELETE FROM {table.name} WHERE series = ? AND {table.first} = ?",
            [(series, first) for first, _ in rows],
        )
        self._db.executemany(
            f"INSERT INTO {table.name} VALUES (?, ?, ?, ?, ?)",
            [
                (series, int(t[0]), int(t[-1]), len(t), encode(t, values[at : at + BLOCK]))
                for at in range(0, len(times), BLOCK)
                for t in (times[at : at + BLOCK],)
            ],
        )
        return times, values

    def _decoded(self, data: object) -> tuple[Numbers, Numbers]:
        try:
            times, values = decode(data if isinstance(data, bytes) else b"")
            if times[0] < 0 or (np.diff(times) <= 0).any() or (values < GONE).any():
                raise BlockError("times that do not grow, or values below 0")
            return times, values
        except BlockError as error:
            raise StoreError(f"{self._path}: a damaged block: {error}") from None

    def sources(self) -> list[Source]:
        """Return all sources."""
        found = [Source(*row) for row in self._select("SELECT id, name, clock FROM source")]
        for source in found:
            if not _is_name(source.name):
                raise StoreError(f"{self._path}: a damaged source: {source.name!r:.60}")
        return found

    def _select(self, query: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(query, parameters).fetchall()
        except _BROKEN as error:
            raise _wrong(self._path, error) from None

    def series(
        self, source: int, name: str | None = None, labels: Mapping[str, str] | None = None
    ) -> dict[int, Series]:
        """Return number -> series, for series with that name and at least these labels."""
        wanted = set(labels_of(labels or {}))
        found = {}
        for number, own, text, kind, decimals, about in self._select(
            "SELECT id, name, labels, kind, decimals, help FROM series "
            "WHERE source = ? AND (?2 IS NULL OR name = ?2)",
            (source, name),
        ):
            series = self._series(own, kind, decimals, about, text)
            if wanted <= set(series.labels):
                found[number] = series
        return found

    def _series(self, name: str, kind: str, decimals: int, about: str, text: str) -> Series:
        """Return a series from a row, which a stranger may have written."""
        if kind not in KINDS or not (isinstance(decimals, int) and 0 <= decimals <= MOST_DECIMALS):
            raise StoreError(f"{self._path}: a damaged series: {kind!r}, {decimals!r} decimals")
        try:
            pairs = tuple((_text_of(key), _text_of(value)) for key, value in json.loads(text))
            series = Series(_text_of(name), kind, decimals, _text_of(about), pairs)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{self._path}: damaged labels of a series: {error}") from None
        if wrong := wrong_name(series):
            raise StoreError(f"{self._path}: a damaged series: {wrong}")
        return series

    def points(
        self, series: int, from_us: int = 0, to_us: int = LAST_US
    ) -> tuple[Numbers, Numbers]:
        """Return times and values up to `to_us`, from the last one at or before `from_us` on."""
        rows = self._select(
            "SELECT data FROM block WHERE series = ?1 AND first_us <= ?3 AND last_us >= coalesce("
            "(SELECT max(first_us) FROM block WHERE series = ?1 AND first_us <= ?2), 0) "
            "ORDER BY first_us",
            (series, from_us, to_us),
        )
        return _window([self._decoded(data) for (data,) in rows], from_us, to_us)

    def coarse(
        self, source: int, from_us: int = 0, to_us: int = LAST_US
    ) -> dict[int, tuple[Numbers, Numbers]]:
        """Return, by number of a source's series, the steps of STEP_US since 1970 that have points,
        and the last value in each: from the last step at or before `from_us` up to `to_us`."""
        first, last = from_us // STEP_US, to_us // STEP_US
        parts: dict[int, list[tuple[Numbers, Numbers]]] = {}
        for number, data in self._select(
            "SELECT series, data FROM series JOIN coarse AS c ON series = id "
            "WHERE source = ?1 AND first <= ?3 AND last >= coalesce("
            "(SELECT max(first) FROM coarse WHERE series = c.series AND first <= ?2), 0) "
            "ORDER BY series, first",
            (source, first, last),
        ):
            parts.setdefault(number, []).append(self._decoded(data))
        return {number: _window(found, first, last) for number, found in parts.items()}

    def recording(self, source: int, step_us: int | None = None) -> Recording:
        """Return a source's whole recording. With `step_us`, a multiple of STEP_US: the value at
        the end of each step that has one."""
        recording = Recording()
        coarse = self.coarse(source) if step_us is not None else {}
        for number, series in self.series(source).items():
            points = recording.of(series)
            if step_us is None:
                times, values = self.points(number)
            else:
                steps, values = coarse.get(number, _NONE)
                if len(steps):
                    steps, values = lasts(steps, values, step_us // STEP_US)
                times = (steps + 1) * step_us
            points.times_us.frombytes(times.tobytes())
            points.values.frombytes(values.tobytes())
        return recording
