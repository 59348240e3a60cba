# SPDX-License-Identifier: Apache-2.0
"""Bound what a connection from a switch (or from a stranger) may cost. Decisions only, no I/O.

Each message is checked before anything parses it. A malformed message ends its connection, and no
other. Packet-ins above a rate are dropped. Other messages above a rate are delayed, so that TCP
slows down their sender. Connections that have not said which switch they are have a time limit, and
share a table of fixed size in which a newer one displaces the oldest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.paths import replies
from controller.paths.replies import Type

PACKET_INS_PER_S = 2000.0
PACKET_IN_BURST = 1000.0
MESSAGES_PER_S = 1000.0
MESSAGE_BURST = 4000.0
ERROR_LENGTH_MAX = 4096
HANDSHAKE_S = 10.0
STRANGERS_MAX = 32


@dataclass
class Bucket:
    """A token bucket; `take` never waits."""

    rate_per_s: float
    burst: float
    tokens: float = field(init=False)
    updated_s: float | None = None

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def take(self, now_s: float) -> bool:
        """Take a token, if there is one; return whether there was."""
        if self.delay_s(now_s) > 0:
            return False
        self.tokens -= 1
        return True

    def delay_s(self, now_s: float) -> float:
        """Return the time until there is a token."""
        if self.updated_s is not None:
            elapsed_s = max(0.0, now_s - self.updated_s)
            self.tokens = min(self.burst, self.tokens + elapsed_s * self.rate_per_s)
        self.updated_s = now_s
        missing = 1 - self.tokens
        return missing / self.rate_per_s if missing > 1e-9 else 0.0


class Counts:
    """Counters of all connections, thread-safe."""

    NAMES = (
        "connections",
        "displaced",
        "duplicate_switches",
        "handshake_timeouts",
        "malformed_messages",
        "packet_ins_dropped",
        "messages_delayed",
        "tls_failures",
        "unknown_switches",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(self.NAMES, 0)

    def add(self, name: str) -> int:
        """Increment a counter; return its new value."""
        with self._lock:
            self._counts[name] += 1
            return self._counts[name]

    def all(self) -> Mapping[str, int]:
        """Return all counters by name."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True)
class Verdict:
    """What to do with a message: pass it on, or drop it, after a pause."""

    kind: Type
    passes: bool = True
    pause_s: float = 0.0


class Inlet:
    """The messages of one connection. `refused`: the malformed message that ended it."""

    def __init__(self, counts: Counts) -> None:
        self.refused: replies.Malformed | None = None
        self._counts = counts
        self._packet_ins = Bucket(PACKET_INS_PER_S, PACKET_IN_BURST)
        self._reports = Bucket(PACKET_INS_PER_S, PACKET_IN_BURST)  # reports never cost probes
        self._others = Bucket(MESSAGES_PER_S, MESSAGE_BURST)
        self._first = b""

    def vet(self, data: bytes) -> None:
        """Check incoming data, piece by piece.

        A connection must begin with a HELLO; anything else is refused without waiting for its rest.
        Raises replies.Malformed, and counts it.
        """
        if len(self._first) >= 4:
            return
        self._first += data[:4]
        try:
            replies.check_greeting(self._first)
        except replies.Malformed:
            self._counts.add("malformed_messages")
            raise

    def judge(self, message: bytes, now_s: float) -> Verdict:
        """Return what to do with a message. Raises replies.Malformed, and counts it."""
        try:
            kind = replies.check(message)
            if kind is Type.ERROR and len(message) > ERROR_LENGTH_MAX:
                raise replies.Malformed(f"ERROR of {len(message)} bytes")
        except replies.Malformed:
            self._counts.add("malformed_messages")
            raise
        if kind is Type.FLOW_REMOVED:  # never requested
            return Verdict(kind, False)
        if kind is Type.PACKET_IN:
            bucket = self._reports if replies.is_report(message) else self._packet_ins
            if bucket.take(now_s):
                return Verdict(kind)
            self._counts.add("packet_ins_dropped")
            return Verdict(kind, False)
        pause_s = self._others.delay_s(now_s)
        self._others.tokens -= 1
        if pause_s > 0:
            self._counts.add("messages_delayed")
        return Verdict(kind, True, pause_s)


class Strangers:
    """Connections that have not said yet which switch they are, oldest first; thread-safe."""

    def __init__(self, limit: int = STRANGERS_MAX) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: OrderedDict[int, object] = OrderedDict()

    def enter(self, connection: object) -> object | None:
        """Add a stranger; return the connection that must be closed for it, if any."""
        with self._lock:
            self._waiting[id(connection)] = connection
            if len(self._waiting) <= self._limit:
                return None
            return self._waiting.popitem(last=False)[1]

    def leave(self, connection: object) -> None:
        """Remove a connection that is now known, or closed."""
        with self._lock:
            self._waiting.pop(id(connection), None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting)
