# SPDX-License-Identifier: Apache-2.0
"""Parse text of `ovs-ofctl dump-flows`, `dump-groups`, `dump-group-stats`, `dump-meters` and
`meter-stats` into records. Each line shows its dump, so a file may contain several dumps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from parsers.base.problems import (
    Lines,
    Problem,
    cut_off,
    numbered_lines,
    problem,
)

_REPLY = re.compile(r"(?:OFPST|NXST|OFPMP)_\w+ reply(?: \(\S+\))? \(xid=0x[0-9a-f]+\):.*", re.ASCII)
_FLOW = re.compile(
    r"\s*cookie=0x([0-9a-f]+), duration=([\d.]+)s, table=(\w+), n_packets=(\d+), n_bytes=(\d+), "
    r"((?:\w+=\d+, )*)(.*?) ?actions=(.*)",
    re.ASCII,
)
_GROUP = re.compile(r"\s*group_id=(\d+),type=(\w+)((?:,.*)?)", re.ASCII)
_GROUP_STATS = re.compile(
    r"\s*group_id=(\d+),(?:duration=([\d.]+)s,)?ref_count=(\d+),packet_count=(\d+),"
    r"byte_count=(\d+)((?:,bucket\d+:packet_count=\d+,byte_count=\d+)*)",
    re.ASCII,
)
_BUCKET_STATS = re.compile(r"bucket\d+:packet_count=(\d+),byte_count=(\d+)", re.ASCII)
_METER = re.compile(r"meter=(\d+) (.*?) ?bands=", re.ASCII)
_BAND = re.compile(r"type=(\w+) rate=(\d+)(?: burst_size=(\d+))?.*", re.ASCII)
_METER_STATS = re.compile(
    r"meter:(\d+) flow_count:(\d+) packet_in_count:(\d+) byte_in_count:(\d+)"
    r" duration:([\d.]+)s bands:",
    re.ASCII,
)
_BAND_STATS = re.compile(r"(\d+): packet_count:(\d+) byte_count:(\d+)", re.ASCII)
DEFAULT_PRIORITY = 32768  # ovs-ofctl does not print it
EXPECTED = (
    "a line of ovs-ofctl's dump-flows, dump-groups, dump-group-stats, dump-meters, meter-stats"
)


@dataclass(frozen=True, slots=True)
class Flow:
    cookie: int
    duration_s: float
    table: str
    packets: int
    bytes: int
    priority: int
    timeouts: str  # idle_timeout=60, ...
    match: str
    actions: str


@dataclass(frozen=True, slots=True)
class Group:
    group: int
    kind: str  # all, select, indirect, fast_failover
    buckets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupStats:
    """`buckets`: (packets, bytes) of each bucket."""

    group: int
    duration_s: float | None
    packets: int
    bytes: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Band:
    kind: str
    rate: int  # kbit/s, or packets/s if the meter's flags say pktps
    burst: int | None


@dataclass(frozen=True, slots=True)
class Meter:
    meter: int
    flags: tuple[str, ...]  # kbps or pktps, burst, stats
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class MeterStats:
    """`bands`: (packets, bytes) that each band dropped or marked."""

    meter: int
    flows: int
    packets_in: int
    bytes_in: int
    duration_s: float
    bands: tuple[tuple[int, int], ...]


OvsRecord = Flow | Group | GroupStats | Meter | MeterStats


@dataclass(frozen=True, slots=True)
class OvsDump:
    file: str
    records: tuple[OvsRecord, ...]
    problems: tuple[Problem, ...]


def _flow(found: re.Match[str]) -> Flow:
    priority, match = DEFAULT_PRIORITY, []
    # Flags (send_flow_rem) precede the match, with a blank between.
    for item in found[7].rpartition(" ")[2].split(","):
        name, _, value = item.partition("=")
        if name == "priority":
            priority = int(value)
        elif item:
            match.append(item)
    timeouts = found[6].rstrip(", ")
    return Flow(
        int(found[1], 16),
        float(found[2]),
        found[3],
        int(found[4]),
        int(found[5]),
        priority,
        timeouts,
        ",".join(match),
        found[8],
    )


def _group(found: re.Match[str]) -> Group:
    return Group(int(found[1]), found[2], tuple(found[3].split(",bucket=")[1:]))


def _group_stats(found: re.Match[str]) -> GroupStats:
    buckets = tuple((int(p), int(b)) for p, b in _BUCKET_STATS.findall(found[6]))
    duration = float(found[2]) if found[2] else None
    return GroupStats(int(found[1]), duration, int(found[4]), int(found[5]), buckets)


def _meter(found: re.Match[str]) -> Meter:
    return Meter(int(found[1]), tuple(found[2].split()), ())


def _meter_stats(found: re.Match[str]) -> MeterStats:
    flows, packets, size = (int(found[i]) for i in (2, 3, 4))
    return MeterStats(int(found[1]), flows, packets, size, float(found[5]), ())


_LINES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], OvsRecord]], ...] = (
    (_FLOW, _flow),
    (_GROUP, _group),
    (_GROUP_STATS, _group_stats),
    (_METER, _meter),
    (_METER_STATS, _meter_stats),
)


def _with_band(last: OvsRecord | None, line: str) -> OvsRecord | None:
    """Return the previous meter with this line's band; None if the line is not one of its
    bands."""
    if isinstance(last, Meter) and (band := _BAND.fullmatch(line)):
        burst = int(band[3]) if band[3] else None
        return replace(last, bands=(*last.bands, Band(band[1], int(band[2]), burst)))
    if isinstance(last, MeterStats) and (band := _BAND_STATS.fullmatch(line)):
        return replace(last, bands=(*last.bands, (int(band[2]), int(band[3]))))
    return None


def parse_ovs_ofctl(text: Lines, file: str) -> OvsDump:
    """Parse dumps. Never raises."""
    records: list[OvsRecord] = []
    problems: list[Problem] = []
    for number, raw, complete in numbered_lines(text):
        line = raw.strip()
        if not complete:
            problems.append(cut_off(file, number, raw))
        elif not line or _REPLY.fullmatch(line):
            continue
        elif (meter := _with_band(records[-1] if records else None, line)) is not None:
            records[-1] = meter
        else:
            for pattern, build in _LINES:
                if found := pattern.fullmatch(line):
                    records.append(build(found))
                    break
            else:
                problems.append(problem(file, number, raw, f"expected {EXPECTED}"))
    return OvsDump(file, tuple(records), tuple(problems))
