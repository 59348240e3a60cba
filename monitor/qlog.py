# SPDX-License-Identifier: Apache-2.0
"""Read the events that ldmd, fmtp-send and fmtp-recv write with --qlog: JSON text sequences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

SEPARATOR: Final = b"\x1e"
MOST_RECORD: Final = 1 << 16
SCHEMA: Final = "urn:downpour:qlog:fmtp-1"  # fmtp/include/fmtp_events.h
_LATEST_US: Final = 2**53
_MOST_NESTED: Final = 400  # brackets; Python's limit of nested calls is 1,000


class QlogError(Exception):
    """A file that is not Downpour's qlog. The message is one line."""


@dataclass(frozen=True)
class Event:
    """What happened. `time_us`: since 1970."""

    time_us: int
    name: str  # without its namespace
    data: dict[str, Any]


@dataclass(frozen=True)
class Qlog:
    """A file's events. `bad`: records that are cut off or malformed."""

    program: str
    events: tuple[Event, ...]
    bad: int


def _finite(text: str) -> float:
    """Return a number that JSON can express: a trace's reader refuses others."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _object(record: bytes) -> dict[str, Any] | None:
    if len(record) > MOST_RECORD or record.count(b"{") + record.count(b"[") > _MOST_NESTED:
        return None
    try:
        found = json.loads(record, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _event(record: bytes) -> Event | None:
    found = _object(record)
    if found is None:
        return None
    time_ms, name, data = found.get("time"), found.get("name"), found.get("data")
    if not isinstance(time_ms, int | float) or isinstance(time_ms, bool):
        return None
    if not 0 <= time_ms * 1000 <= _LATEST_US:  # also refuses NaN
        return None
    if not isinstance(name, str) or not name.startswith("fmtp:") or not isinstance(data, dict):
        return None
    return Event(round(time_ms * 1000), name.removeprefix("fmtp:"), data)


def parse(data: bytes) -> Qlog:
    """Return the events of a file. A killed program may leave its last record cut off. Raises
    QlogError."""
    first, *records = data.removeprefix(SEPARATOR).split(SEPARATOR)
    trace: Any = (_object(first) or {}).get("trace")
    if not isinstance(trace, dict) or trace.get("event_schemas") != [SCHEMA]:
        raise QlogError(f"found no header of qlog with {SCHEMA}; valid: a file of --qlog")
    point = trace.get("vantage_point")
    program = point.get("name") if isinstance(point, dict) else None
    events = [_event(record) for record in records]
    known = tuple(event for event in events if event is not None)
    return Qlog(str(program or "?"), known, len(events) - len(known))


# -- Chrome's trace events -------------------------------------------------------------------------
_ENDS: Final = {
    "product_completed": "completed",
    "product_missed": "missed",
    "product_withdrawn": "withdrawn",
    "product_released": "released",
}
_WITHIN: Final = frozenset(  # marks within a slice
    {"block_lost", "repair_requested", "repair_sent", "timer_expired", "queue_full"}
)


def trace_events(files: list[Qlog]) -> Iterator[dict[str, object]]:
    """Yield a process for each file, a slice for each product, and a mark for each other event, in
    microseconds after the first event."""
    begin_us = min((event.time_us for file in files for event in file.events), default=0)
    for pid, file in enumerate(files, 1):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": file.program}}
        names: dict[tuple[str, str], str] = {}
        for event in file.events:
            key = str(event.data.get("feed", 0)), str(event.data.get("index"))
            same = {"pid": pid, "tid": pid, "ts": event.time_us - begin_us, "args": event.data}
            slice_ = {**same, "cat": "product", "id": f"{pid}.{key[0]}.{key[1]}"}
            if event.name == "product_started":
                names[key] = str(event.data.get("name") or key[1])
                yield {**slice_, "ph": "b", "name": names[key]}
            elif event.name in _ENDS and key in names:
                yield {**slice_, "ph": "e", "name": names.pop(key)}
            elif event.name in _WITHIN and key in names:
                yield {**slice_, "ph": "n", "name": event.name}
            else:
                yield {**same, "ph": "i", "s": "p", "name": event.name}
