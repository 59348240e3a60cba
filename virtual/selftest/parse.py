# SPDX-License-Identifier: Apache-2.0
"""Read what the measured programs print (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_PING: Final = re.compile(
    r"^(\d+) packets transmitted, (\d+) received,.* time (\d+)ms$", re.MULTILINE
)
_SAR: Final = re.compile(r"^(\d\d:\d\d:\d\d)\s+all\s", re.MULTILINE)
_SEGMENT: Final = re.compile(
    r"^(?P<time>\d+\.\d{9}) IP (?P<source>\S+) > (?P<target>\S+): Flags \[(?P<flags>[^\]]+)\]"
    r"(?:, seq (?P<sequence>\d+)(?::\d+)?)?(?:, ack (?P<ack>\d+))?.*length (?P<length>\d+)$"
)


@dataclass(frozen=True)
class Probe:
    """A line of selftest-timers."""

    name: str
    asked_ns: int
    measured_ns: int


@dataclass(frozen=True)
class Arrival:
    """A line of `selftest-udp receive`: wall clocks of the sender and of the arrival."""

    sequence: int
    sent_ns: int
    arrived_ns: int


@dataclass(frozen=True)
class Ping:
    sent: int
    received: int
    ms: int


@dataclass(frozen=True)
class Segment:
    """A TCP segment as tcpdump prints it; `ns` since the epoch, `source` with the port."""

    ns: int
    source: str
    target: str
    flags: str
    sequence: int | None
    ack: int | None
    length: int


def probes(text: str) -> list[Probe]:
    """Return the probes in a text. Raises ValueError for an invalid line."""
    found = []
    for line in text.splitlines():
        match line.split():
            case [name, asked, measured] if asked.isdigit() and measured.isdigit():
                found.append(Probe(name, int(asked), int(measured)))
            case _:
                raise ValueError(f"found '{line}'; valid: NAME ASKED_NS MEASURED_NS")
    return found


def arrivals(text: str) -> list[Arrival]:
    """Return the arrivals in a text. Raises ValueError for an invalid line."""
    found = []
    for line in text.splitlines():
        parts = line.split()
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise ValueError(f"found '{line}'; valid: SEQUENCE SENT_NS ARRIVED_NS")
        found.append(Arrival(int(parts[0]), int(parts[1]), int(parts[2])))
    return found


def ping(text: str) -> Ping:
    """Return iputils' statistics; `ms` is from its first to its last packet. Raises ValueError."""
    match = _PING.search(text)
    if match is None:
        raise ValueError(f"found '{text.strip()[-200:]}'; valid: ping's statistics")
    return Ping(*(int(group) for group in match.groups()))


def sar_times_s(text: str) -> list[int]:
    """Return the second of the day of each line of `sar -u`."""
    times = [datetime.strptime(found, "%H:%M:%S") for found in _SAR.findall(text)]
    return [t.hour * 3600 + t.minute * 60 + t.second for t in times]


def segments(text: str) -> list[Segment]:
    """Return the TCP segments of `tcpdump -tt -n --nano -S tcp`; other lines are left out."""
    found = []
    for line in text.splitlines():
        match = _SEGMENT.match(line)
        if match is None:
            continue
        seconds, nanoseconds = match["time"].split(".")
        found.append(
            Segment(
                ns=int(seconds) * 10**9 + int(nanoseconds),
                source=match["source"],
                target=match["target"],
                flags=match["flags"],
                sequence=None if match["sequence"] is None else int(match["sequence"]),
                ack=None if match["ack"] is None else int(match["ack"]),
                length=int(match["length"]),
            )
        )
    return found


def transmissions(found: list[Segment], source: str) -> list[Segment]:
    """Return each transmission of the segment that `source` sent most often: a SYN or the first
    data."""
    ours = [s for s in found if s.source == source and (s.length > 0 or "S" in s.flags)]
    counts: dict[tuple[int | None, int], list[Segment]] = {}
    for segment in ours:
        counts.setdefault((segment.sequence, segment.length), []).append(segment)
    return max(counts.values(), key=len, default=[])


def ack_delays_s(found: list[Segment], receiver: str) -> list[float]:
    """Return, for each segment with data to `receiver`, the time until all of it was
    acknowledged."""
    delays = []
    for index, data in enumerate(found):
        if data.target != receiver or data.length == 0 or data.sequence is None:
            continue
        end = data.sequence + data.length
        for later in found[index + 1 :]:
            if later.source == receiver and later.ack is not None and later.ack >= end:
                delays.append((later.ns - data.ns) / 1e9)
                break
    return delays
