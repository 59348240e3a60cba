# SPDX-License-Identifier: Apache-2.0
"""Parse text of `sar -n DEV -u 1` into interface rates and CPU shares.

The format is that of sysstat 12.6 (the header's date is ISO with S_TIME_FORMAT=ISO, else
month/day/year), with a 24-hour or AM/PM clock and repeated headers. Columns are found by their
names in the latest header.

sysstat's kB is 1024 bytes: the kernel counted 10 026 156 bytes on the loopback interface, and the
rates summed to 9 758 kB. Rows have the local time without its zone; `shift_to` finds the zone from
a known instant.
"""

from __future__ import annotations

import calendar
import dataclasses
import datetime
import re
from dataclasses import dataclass

from parsers.base.problems import (
    Lines,
    Problem,
    cut_off,
    numbered_lines,
    problem,
)

KILOBYTE = 1024
_DAY_S = 86_400
_ZONE_STEP_S = 900  # all zones in use are multiples of a quarter of an hour
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)", re.ASCII)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b", re.ASCII)
_US_DATE = re.compile(r"\b(\d\d)/(\d\d)/(\d{4}|\d\d)\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class InterfaceSample:
    """Mean rates over the `interval_s` seconds that end at `time_s`."""

    time_s: float
    interval_s: float
    interface: str
    rx_bytes_per_s: float
    tx_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Shares of the whole machine's CPU time (percent) over the interval that ends at `time_s`."""

    time_s: float
    interval_s: float
    cpu: str  # "all" or a number
    user: float
    nice: float
    system: float
    iowait: float
    steal: float
    idle: float


@dataclass(frozen=True, slots=True)
class SarLog:
    """The samples' `time_s` is the local wall clock, as seconds since 1970 as if it were UTC."""

    file: str
    interfaces: tuple[InterfaceSample, ...]
    cpus: tuple[CpuSample, ...]
    problems: tuple[Problem, ...]


_CPU_COLUMNS = ("%user", "%nice", "%system", "%iowait", "%steal", "%idle")


def _date_epoch(line: str) -> int | None:
    if iso := _ISO_DATE.search(line):
        year, month, day = (int(g) for g in iso.groups())
    elif us := _US_DATE.search(line):
        month, day, year = (int(g) for g in us.groups())
        year += 2000 if year < 100 else 0
    else:
        return None
    return calendar.timegm(datetime.date(year, month, day).timetuple())


def _clock(words: list[str]) -> tuple[int, int]:
    """Return (second of the day, words used) for `13:05:09` or `01:05:09 PM`. Raises ValueError for
    anything else."""
    match = _CLOCK.fullmatch(words[0])
    if match is None:
        raise ValueError("expected a time hh:mm:ss")
    hour, minute, second = (int(g) for g in match.groups())
    used = 1
    if len(words) > 1 and words[1] in ("AM", "PM"):
        if not 1 <= hour <= 12:
            raise ValueError(f"hour {hour} is not one of a 12-hour clock")
        hour = hour % 12 + (12 if words[1] == "PM" else 0)
        used = 2
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError(f"{words[0]!r} is not a time of day")
    return hour * 3600 + minute * 60 + second, used


def _numbers(words: list[str]) -> list[float]:
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f"expected numbers: {error}") from None


class _Days:
    """Turns times of day into a continuous time: a step back of over half a day is midnight."""

    def __init__(self) -> None:
        self.midnight_s = 0
        self._last_s: int | None = None

    def start(self, midnight_s: int) -> None:
        self.midnight_s = midnight_s
        self._last_s = None

    def at(self, second_of_day: int) -> int:
        if self._last_s is not None:
            if self._last_s - second_of_day > _DAY_S // 2:
                self.midnight_s += _DAY_S
            elif second_of_day - self._last_s > _DAY_S // 2:
                self.midnight_s -= _DAY_S  # a header after midnight that names 23:59:59
        self._last_s = second_of_day
        return self.midnight_s + second_of_day


def parse_sar_log(text: Lines, file: str) -> SarLog:
    """Parse the text of one sar run. Never raises; averages at the end are left out.

    An interval's length is the difference between a row's time and that of the previous sample (or
    of the header above, which has the interval's beginning).
    """
    reader = _Reader()
    problems: list[Problem] = []
    for number, raw, complete in numbered_lines(text):
        words = raw.split()
        if not complete:
            problems.append(cut_off(file, number, raw))
            continue
        if not words or words[0] == "Average:" or "RESTART" in words:
            continue
        try:
            reader.line(raw, words)
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
        except KeyError as error:
            problems.append(problem(file, number, raw, f"no column {error.args[0]!r}"))
    return SarLog(file, tuple(reader.interfaces), tuple(reader.cpus), tuple(problems))


class _Reader:
    """The state after the lines so far. Its methods raise ValueError, or KeyError for a column."""

    def __init__(self) -> None:
        self.interfaces: list[InterfaceSample] = []
        self.cpus: list[CpuSample] = []
        self._days = _Days()
        self._columns: list[str] = []
        self._began: dict[str, int] = {}  # kind of row (IFACE, CPU) -> beginning of its interval
        self._current: dict[str, int] = {}  # kind of row -> time of its latest sample

    def line(self, raw: str, words: list[str]) -> None:
        """Take one line that is neither empty nor an average."""
        if not _CLOCK.fullmatch(words[0]):
            midnight = _date_epoch(raw)
            if midnight is None:
                raise ValueError("expected a sar header, or a row that begins with a time")
            self._days.start(midnight)
            return
        second_of_day, used = _clock(words)
        time_s = self._days.at(second_of_day)
        rest = words[used:]
        if rest and rest[0] in ("CPU", "IFACE"):
            self._columns = rest
            # A header repeated in the middle has the time of the previous sample.
            self._began[rest[0]] = time_s
            self._current.pop(rest[0], None)
        else:
            self._row(time_s, rest)

    def _row(self, time_s: int, rest: list[str]) -> None:
        if not self._columns:
            raise ValueError("a row before any header")
        if len(rest) != len(self._columns):
            raise ValueError(f"expected {len(self._columns)} columns, found {len(rest)}")
        interval_s = self._interval_s(self._columns[0], time_s)
        named = dict(zip(self._columns[1:], _numbers(rest[1:]), strict=True))
        if self._columns[0] == "IFACE":
            received, sent = named["rxkB/s"] * KILOBYTE, named["txkB/s"] * KILOBYTE
            sample = InterfaceSample(float(time_s), interval_s, rest[0], received, sent)
            self.interfaces.append(sample)
        else:
            shares = [named[name] for name in _CPU_COLUMNS]
            self.cpus.append(CpuSample(float(time_s), interval_s, rest[0], *shares))

    def _interval_s(self, kind: str, time_s: int) -> float:
        if kind in self._current and self._current[kind] != time_s:
            self._began[kind] = self._current[kind]
        self._current[kind] = time_s
        interval_s = float(time_s - self._began[kind])
        if interval_s <= 0:
            raise ValueError("the interval is not longer than 0 s")
        return interval_s


def shift_to(log: SarLog, reference_s: float) -> SarLog:
    """Return the log with its local times shifted by whole quarters of an hour to seconds since
    1970.

    `reference_s`: an instant (seconds since 1970) within a few minutes of the first sample, such as
    the start of the run. A log without samples is returned unchanged.
    """
    times = [s.time_s for s in log.interfaces] + [s.time_s for s in log.cpus]
    if not times:
        return log
    first = min(times)
    offset = round((reference_s - first) / _ZONE_STEP_S) * _ZONE_STEP_S
    return dataclasses.replace(
        log,
        interfaces=tuple(dataclasses.replace(s, time_s=s.time_s + offset) for s in log.interfaces),
        cpus=tuple(dataclasses.replace(s, time_s=s.time_s + offset) for s in log.cpus),
    )
