# SPDX-License-Identifier: Apache-2.0
"""A ring of the newest events for watchers, sent as server-sent events (WHATWG HTML, 9.2).

A watcher is only a position in the ring, so slow watchers and many watchers cost nothing. A watcher
that falls behind the ring, or has a position of an earlier process, gets `resync` first: what it
knows may be out of date, so it must get the paths again.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

RING_EVENTS = 10_000
_ID = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,18})")


class EventKind(StrEnum):
    PATH_CREATED = "path-created"
    PATH_CHANGED = "path-changed"
    PATH_DELETED = "path-deleted"
    PATH_DEGRADED = "path-degraded"
    PATH_UP = "path-up"
    PATH_EXPIRED = "path-expired"
    LEAF_ADDED = "leaf-added"
    LEAF_REMOVED = "leaf-removed"
    REROUTED = "rerouted"
    LINK_DOWN = "link-down"
    LINK_UP = "link-up"
    SWITCH_UP = "switch-up"
    SWITCH_DOWN = "switch-down"
    RESYNC = "resync"


@dataclass(frozen=True)
class Event:
    """What happened.

    `workgroup`: the owner of the path it concerns; "": the network (admins and peers see it).
    """

    sequence: int
    kind: EventKind
    time: float  # epoch seconds
    workgroup: str
    data: Mapping[str, object]


class EventLog:
    """The latest events. Thread-safe. `boot` distinguishes the positions of processes."""

    def __init__(self, boot: str, ring_events: int = RING_EVENTS) -> None:
        self._boot = boot
        self._ring: deque[Event] = deque(maxlen=ring_events)
        self._last = 0
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    @property
    def last(self) -> int:
        """Return the position of the newest event."""
        return self._last

    def add(self, kind: EventKind, now: float, workgroup: str = "", **data: object) -> Event:
        """Add an event that happened at `now` (epoch seconds)."""
        with self._lock:
            self._last += 1
            event = Event(self._last, kind, now, workgroup, data)
            self._ring.append(event)
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()
        return event

    def after(self, position: int, limit: int = 1000) -> tuple[list[Event], bool]:
        """Return the oldest events after `position`, at most `limit`, and whether earlier ones
        after `position` were dropped."""
        with self._lock:
            first = self._last - len(self._ring) + 1
            start = max(position + 1, first)
            events = [
                self._ring[i - first] for i in range(start, min(start + limit, self._last + 1))
            ]
            return events, position + 1 < first

    def id_of(self, event: Event) -> str:
        """Return an event's id for `Last-Event-ID`."""
        return self.id_at(event.sequence)

    def id_at(self, position: int) -> str:
        """Return the id of a position."""
        return f"{self._boot}-{position}"

    def position_of(self, last_event_id: str) -> int | None:
        """Return the position that a `Last-Event-ID` names; None if it is from another process."""
        match = _ID.fullmatch(last_event_id)
        if match is None or match[1] != self._boot or int(match[2]) > self._last:
            return None
        return int(match[2])

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each event, in the thread that added it. `wake` must not block."""
        with self._lock:
            self._wakers.append(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        """Reverse `subscribe`."""
        with self._lock:
            self._wakers.remove(wake)


def as_sse(event_id: str, kind: EventKind, data: Mapping[str, object]) -> bytes:
    """Return an event as a server-sent event (WHATWG HTML, 9.2)."""
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {event_id}\nevent: {kind}\ndata: {text}\n\n".encode()
