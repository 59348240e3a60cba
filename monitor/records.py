# SPDX-License-Identifier: Apache-2.0
"""Read rtstats' lines of statistics: minute records with 14 or 19 fields, a publisher's with 6
(rtstats(1)), and the classic lines of LDM 6's rtstats. An invalid record raises an error that says
why.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from time import strptime
from typing import Final

from common.counting import counted
from parsers.measure.metrics import FmtpSums

MOST_LINE: Final = 1024
MOST_RECORDS: Final = 1 << 20  # an hour of 570 sites with 30 feeds
MOST_NUMBER: Final = 2**53
FIELDS: Final = (14, 19)
PATH_FIELDS: Final = 6
COLUMNS: Final = 11
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:\-]{0,254}", re.ASCII)
_FEED: Final = re.compile(r"[A-Z0-9][\w|.\- ()]{0,319}", re.ASCII)
_SLOWEST: Final = re.compile(r"(\d{1,9})@\d{4}", re.ASCII)


class RecordError(Exception):
    """A line that is not a record. The message is one line."""


@dataclass(frozen=True)
class Minute:
    """What one host received of one feed in one minute. `minute`: its first second, since 1970."""

    host: str
    feed: str
    minute: int
    products: int
    bytes: int
    fmtp: int
    fmtp_bytes: int
    age_us: int  # sum of arrival - creation, over the products that FMTP delivered
    age_max_us: int
    negative: int  # products without a positive age: not in the two above
    sums: FmtpSums | None  # version 2

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the key that distinguishes minutes."""
        return self.host, self.feed, self.minute


@dataclass(frozen=True)
class FeedPath:
    """A publisher's multipoint path in one minute. `minute`: its first second, since 1970."""

    host: str
    feed: str
    minute: int
    path: str
    rate_bps: int
    leaves: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the key that distinguishes records."""
        return self.host, self.path, self.minute


@dataclass(frozen=True)
class Hour:
    """A classic line: products of one feed and origin that were created in one hour."""

    host: str
    feed: str
    origin: str
    hour: int  # its first second, since 1970
    products: int
    bytes: int
    latest_s: float  # latency of the newest product
    mean_s: float
    max_s: int
    received: int  # when the newest product was inserted, since 1970


def _time(text: str, pattern: str) -> int:
    try:
        return timegm(strptime(text, pattern))
    except ValueError:
        raise RecordError(f"found time {text!r}; valid: as {pattern}") from None


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= MOST_NUMBER):
        raise RecordError(f"{name}: found {text!r}; valid: 0 to {MOST_NUMBER}")
    return int(text)


def _micros(text: str, name: str) -> int:
    try:
        value = Decimal(text).scaleb(6)
    except InvalidOperation:
        raise RecordError(f"{name}: found {text!r}; valid: seconds") from None
    if not value.is_finite() or abs(value) > MOST_NUMBER:
        raise RecordError(f"{name}: found {text!r}; valid: at most {MOST_NUMBER} us")
    return int(value.to_integral_value())


def _matching(pattern: re.Pattern[str], text: str, name: str) -> str:
    if not pattern.fullmatch(text):
        raise RecordError(f"{name}: found {text[:60]!r}; valid: a name")
    return text


def _place(words: list[str]) -> tuple[str, str, int]:
    """Return host, feed and minute from the first three fields. Raises RecordError."""
    end = _time(words[0], "%Y%m%dT%H%M%SZ")
    if end % 60:
        raise RecordError(f"found time {words[0]!r}; valid: the end of a minute")
    return _matching(_NAME, words[1], "host"), _matching(_FEED, words[2], "feed"), end - 60


def path_record(words: list[str]) -> FeedPath:
    """Return a publisher's record. Raises RecordError."""
    host, feed, minute = _place(words)
    rate_bps, leaves = _whole(words[4], "field 5"), _whole(words[5], "field 6")
    return FeedPath(host, feed, minute, _matching(_NAME, words[3], "path"), rate_bps, leaves)


def minute_record(words: list[str]) -> Minute:
    """Return a minute record of either version. Raises RecordError."""
    if len(words) not in FIELDS:
        valid = f"{PATH_FIELDS}, {FIELDS[0]} or {FIELDS[1]}"
        raise RecordError(f"found {len(words)} fields; valid: {valid}")
    host, feed, minute = _place(words)
    size, fmtp_size, count, fmtp = (_whole(w, f"field {i}") for i, w in enumerate(words[3:7], 4))
    if fmtp > count or fmtp_size > size:
        raise RecordError("found more received than complete")
    age, oldest = _micros(words[7], "field 8"), _micros(words[9], "field 10")
    negative = _whole(words[13], "field 14")
    sums = None
    if len(words) == FIELDS[1]:
        alone, alone_size = _whole(words[14], "field 15"), _whole(words[15], "field 16")
        delay_alone, delay = _micros(words[16], "field 17"), _micros(words[18], "field 19")
        blocks = _whole(words[17], "field 18")
        if alone > fmtp or alone_size > fmtp_size:
            raise RecordError("found more by multicast alone than received")
        sums = FmtpSums(count, size, fmtp, fmtp_size, alone, alone_size, delay, delay_alone, blocks)
    return Minute(host, feed, minute, count, size, fmtp, fmtp_size, age, oldest, negative, sums)


def _seconds(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -1e9 < value < 1e9:
        raise RecordError(f"{name}: found {text!r}; valid: seconds")
    return value


def classic_line(line: str) -> Hour:
    """Return a line of LDM's rtstats (LDM 6.15, rtstats/binstats.c). Raises RecordError."""
    words = line.split()
    if len(words) != COLUMNS:
        raise RecordError(f"found {counted(len(words), 'column')}; valid: {COLUMNS}")
    created, inserted = (_time(w, "%Y%m%d%H%M%S") for w in words[:2])
    slowest = _SLOWEST.fullmatch(words[9])
    if slowest is None:
        raise RecordError(f"column 10: found {words[9]!r}; valid: SECONDS@mmss")
    return Hour(
        _matching(_NAME, words[2], "host"),
        _matching(_FEED, words[3], "feed"),
        words[4][:255],
        created // 3600 * 3600,
        _whole(words[5], "column 6"),
        _whole(words[6], "column 7"),
        _seconds(words[7], "column 8"),
        _seconds(words[8], "column 9"),
        int(slowest[1]),
        inserted,
    )


def record(line: str) -> Minute | FeedPath | Hour:
    """Return the record in a line. Raises RecordError."""
    if len(line) > MOST_LINE:
        raise RecordError(f"found {len(line)} characters; valid: at most {MOST_LINE}")
    if "," not in line:
        return classic_line(line)
    words = line.rstrip("\n").split(",")
    return path_record(words) if len(words) == PATH_FIELDS else minute_record(words)


@dataclass
class Records:
    """Records of many lines. If there are several for one minute, the one with the highest count is
    used: a record that arrives again, or late, counts once. For a path, the last one is used."""

    minutes: dict[tuple[str, str, int], Minute] = field(default_factory=dict)
    paths: dict[tuple[str, str, int], FeedPath] = field(default_factory=dict)
    hours: dict[tuple[str, str, str, int], Hour] = field(default_factory=dict)
    taken: int = 0
    bad: int = 0
    first_bad: str = ""

    def take(self, lines: Iterable[str]) -> None:
        """Add lines; count those that are not records."""
        for line in lines:
            try:
                self._take(record(line))
                self.taken += 1
            except RecordError as error:
                self.bad += 1
                self.first_bad = self.first_bad or f"found {line.strip()[:60]!r}: {error}"

    def _want_room(self, known: Minute | FeedPath | Hour | None) -> None:
        """Bound the names, which anybody can invent, at a kilobyte each. Raises RecordError."""
        count = len(self.minutes) + len(self.paths) + len(self.hours)
        if known is None and count >= MOST_RECORDS:
            raise RecordError(f"more than {MOST_RECORDS} records; valid: a file of less time")

    def _take(self, found: Minute | FeedPath | Hour) -> None:
        if isinstance(found, FeedPath):
            self._want_room(self.paths.get(found.key))
            self.paths[found.key] = found
            return
        if isinstance(found, Hour):
            hour_key = (found.host, found.feed, found.origin, found.hour)
            before = self.hours.get(hour_key)
            self._want_room(before)
            if before is None or found.products >= before.products:
                self.hours[hour_key] = found
            return
        known = self.minutes.get(found.key)
        self._want_room(known)
        if known is None or _rank(found) >= _rank(known):
            self.minutes[found.key] = found


def _rank(minute: Minute) -> tuple[int, bool]:
    return minute.products, minute.sums is not None
