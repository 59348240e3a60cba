# SPDX-License-Identifier: Apache-2.0
"""Records of rtstats in SQLite: tables, insertions and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from monitor.records import FeedPath, Minute
from parsers.measure.metrics import FmtpSums

SCHEMA: Final = """
CREATE TABLE minute (source INTEGER NOT NULL REFERENCES source, host TEXT NOT NULL,
  feed TEXT NOT NULL, minute INTEGER NOT NULL, version INTEGER NOT NULL,
  n_all INTEGER NOT NULL, bytes_all INTEGER NOT NULL, n_fmtp INTEGER NOT NULL,
  bytes_fmtp INTEGER NOT NULL, n_mc INTEGER NOT NULL, bytes_mc INTEGER NOT NULL,
  delay_us INTEGER NOT NULL, delay_us_mc INTEGER NOT NULL, blocks INTEGER NOT NULL,
  age_us INTEGER NOT NULL, age_max_us INTEGER NOT NULL, negative INTEGER NOT NULL,
  PRIMARY KEY (source, host, feed, minute)) STRICT, WITHOUT ROWID;
CREATE TABLE hour (source INTEGER NOT NULL REFERENCES source, host TEXT NOT NULL,
  feed TEXT NOT NULL, origin TEXT NOT NULL, hour INTEGER NOT NULL, n_all INTEGER NOT NULL,
  bytes_all INTEGER NOT NULL, latest_s REAL NOT NULL, mean_s REAL NOT NULL, max_s INTEGER NOT NULL,
  received INTEGER NOT NULL, PRIMARY KEY (source, host, feed, origin, hour)) STRICT, WITHOUT ROWID;
"""
PATHS_SCHEMA: Final = """
CREATE TABLE path (source INTEGER NOT NULL REFERENCES source, host TEXT NOT NULL,
  path TEXT NOT NULL, minute INTEGER NOT NULL, feed TEXT NOT NULL, rate_bps INTEGER NOT NULL,
  leaves INTEGER NOT NULL, PRIMARY KEY (source, host, path, minute)) STRICT, WITHOUT ROWID;
"""
LATEST_S: Final = 253_402_300_799  # the year 9999
_COLUMNS: Final = (
    "version, n_all, bytes_all, n_fmtp, bytes_fmtp, n_mc, bytes_mc, delay_us, delay_us_mc, blocks, "
    "age_us, age_max_us, negative"
)
_SET: Final = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", "))
# A record that arrives again, late or in part, counts once.
PUT_MINUTE: Final = (
    f"INSERT INTO minute (source, host, feed, minute, {_COLUMNS}) "
    f"VALUES ({', '.join('?' * 17)}) ON CONFLICT DO UPDATE SET {_SET} "
    "WHERE (excluded.n_all, excluded.version) >= (n_all, version)"
)
PUT_HOUR: Final = (
    f"INSERT INTO hour VALUES ({', '.join('?' * 11)}) ON CONFLICT DO UPDATE SET "
    "n_all = excluded.n_all, bytes_all = excluded.bytes_all, latest_s = excluded.latest_s, "
    "mean_s = excluded.mean_s, max_s = excluded.max_s, received = excluded.received "
    "WHERE excluded.n_all >= n_all"
)
PUT_PATH: Final = "INSERT OR REPLACE INTO path VALUES (?, ?, ?, ?, ?, ?, ?)"
# By host, so that a record from the future ages only its own host's records.
NEWEST: Final = (
    ("SELECT host, max(minute) FROM minute WHERE source = ? GROUP BY host",
     "DELETE FROM minute WHERE source = ? AND host = ? AND minute < ?"),
    ("SELECT host, max(hour) FROM hour WHERE source = ? GROUP BY host",
     "DELETE FROM hour WHERE source = ? AND host = ? AND hour < ?"),
    ("SELECT host, max(minute) FROM path WHERE source = ? GROUP BY host",
     "DELETE FROM path WHERE source = ? AND host = ? AND minute < ?"),
)  # fmt: skip
_CHOSEN: Final = "WHERE source = ?1 AND (?3 IS NULL OR host = ?3) AND (?4 IS NULL OR feed = ?4) "
MINUTES: Final = (
    "SELECT host, feed, minute / ?2 * ?2 AS begin, count(*), min(version), sum(n_all), "
    "sum(bytes_all), sum(n_fmtp), sum(bytes_fmtp), sum(n_mc), sum(bytes_mc), sum(delay_us), "
    "sum(delay_us_mc), sum(blocks), sum(age_us), max(age_max_us), sum(negative), max(minute) "
    f"FROM minute {_CHOSEN}GROUP BY host, feed, begin ORDER BY host, feed, begin"
)
# MINUTES in steps of one minute, where each row is a sum. This takes half the time.
EACH_MINUTE: Final = (
    f"SELECT host, feed, minute, 1, {_COLUMNS}, minute FROM minute {_CHOSEN}"
    "ORDER BY host, feed, minute"
)
# SQLite takes the other columns from the row with the maximum.
PATHS: Final = (
    "SELECT host, feed, max(minute), path, rate_bps, leaves, minute / ?2 * ?2 AS begin FROM path "
    "WHERE source = ?1 AND (?3 IS NULL OR host = ?3) GROUP BY host, path, begin "
    "ORDER BY host, path, begin"
)


@dataclass(frozen=True)
class Interval:
    """Sums of minutes. `begin`: the first second; `last`: the newest minute; both since 1970.
    `whole`: all records are of version 2, so `sums` is complete."""

    host: str
    feed: str
    begin: int
    minutes: int
    whole: bool
    sums: FmtpSums
    age_us: int
    age_max_us: int
    negative: int
    last: int


def path_of(values: Sequence[Any]) -> FeedPath:
    """Return a publisher's record from a row of PATHS. Raises ValueError for a damaged row."""
    host, feed, minute, path, rate_bps, leaves, _ = values
    checked((host, feed, path, minute, rate_bps, leaves), 3, (3,))
    return FeedPath(host, feed, minute, path, rate_bps, leaves)


def row(source: int, found: Minute) -> tuple[object, ...]:
    """Return the row of a record."""
    version = 1 if found.sums is None else 2
    sums = found.sums or FmtpSums(found.products, found.bytes, found.fmtp, found.fmtp_bytes)
    own = (found.age_us, found.age_max_us, found.negative)
    return (source, *found.key, version, *astuple(sums), *own)


def path_row(source: int, found: FeedPath) -> tuple[object, ...]:
    """Return the row of a publisher's record."""
    return (source, found.host, found.path, found.minute, found.feed, found.rate_bps, found.leaves)


def checked(row: Sequence[Any], texts: int, times: Sequence[int]) -> Sequence[Any]:
    """Return a row of so many texts and then whole numbers, if it is one. `times`: the places of
    its seconds since 1970. Raises ValueError: a stranger may have written the file."""
    kinds = {*map(type, row[:texts])}, {*map(type, row[texts:])}
    is_good = kinds == ({str}, {int}) and all(map(str.isprintable, row[:texts]))
    if not is_good or any(abs(row[place]) > LATEST_S for place in times):
        raise ValueError(f"found {row!r:.100}")
    return row


def summed(rows: Sequence[Any], step_s: int) -> list[Any]:
    """Return rows of EACH_MINUTE as MINUTES would, of numbers whose sum SQLite does not take."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        host, feed, minute, count, version, *rest = checked(row, 2, (2,))
        key = host, feed, minute // step_s * step_s
        if (known := found.get(key)) is None:
            found[key] = [*key, count, version, *rest]
            continue
        known[3:5] = known[3] + count, min(known[4], version)
        ages, last = known[-3], max(known[-1], rest[-1])
        sums = [a + b for a, b in zip(known[5:], rest, strict=True)]
        known[5:] = [*sums[:-3], max(ages, rest[-3]), sums[-2], last]
    return list(found.values())


def interval(values: Sequence[Any]) -> Interval:
    """Return an interval from a row of MINUTES. Raises ValueError for a damaged row."""
    host, feed, begin, count, version, *rest = checked(values, 2, (2, -1))
    *sums, age_us, age_max_us, negative, last = rest
    return Interval(
        host, feed, begin, count, version == 2, FmtpSums(*sums), age_us, age_max_us, negative, last
    )
