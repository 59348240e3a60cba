# SPDX-License-Identifier: Apache-2.0
"""Count the connections and requests that the REST interface refused, by reason.

The counters belong to the process: all its listeners add to them, and `/v1/metrics` shows them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """The first group ends connections; the second answers a request."""

    ADDRESS_FULL = "address-full"  # one address has all the connections it may have
    ALL_FULL = "all-full"  # all connections are in use, and none is idle
    DISPLACED = "displaced"  # it was idle, and a newer connection needed its place
    TOO_SLOW = "too-slow"  # no whole request in time
    UNREAD = "unread"  # the client does not read its answers
    HANDSHAKE_DISPLACED = "handshake-displaced"  # the oldest of too many TLS handshakes
    HANDSHAKE_FAILED = "handshake-failed"  # TLS: abandoned, or without a trusted certificate
    NOT_HTTP = "not-http"
    HEAD_TOO_LARGE = "head-too-large"  # 431
    NO_TOKEN = "no-token"  # 401
    TOO_OFTEN = "too-often"  # 429


class Counts:
    """Counters by reason. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = dict.fromkeys(Reason, 0)

    def add(self, reason: Reason) -> None:
        """Count one more."""
        with self._lock:
            self._counts[reason] += 1

    def all(self) -> Mapping[str, int]:
        """Return all counters."""
        with self._lock:
            return dict(self._counts)


REFUSED: Final = Counts()
