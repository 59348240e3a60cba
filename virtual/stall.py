# SPDX-License-Identifier: Apache-2.0
"""Notice when a guest's virtual time stands still although it has a processor of the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

STALL_PROGRESS_S: Final = 0.010
LOOK_S: Final = 1.0  # between two readings of how long processes have waited
NANOSECONDS: Final = 1_000_000_000
AWAY_S: Final = 5.0  # between two readings; who looks more rarely was stopped meanwhile


class Awake:
    """Real time less that during which the process that reads it was stopped itself, and the guest
    with it: by a signal, the freezer of a cgroup, or the suspension of the machine."""

    def __init__(self, now: float) -> None:
        self._last = now
        self.so_far_s = 0.0

    def at(self, now: float) -> float:
        """Return the seconds awake until `now`. Of a longer gap, AWAY_S count."""
        self.so_far_s += min(now - self._last, AWAY_S)
        self._last = now
        return self.so_far_s


class Stall:
    """Notices that virtual time stands still while the guest is running. In the second half of the
    limit, the time that its processes wait for a processor does not count: programs that start need
    a few seconds of one, which a busy host takes minutes to give them. `waits` returns how long
    each process has waited so far, in seconds."""

    def __init__(
        self, limit_s: float, now: float, waits: Callable[[], Mapping[int, float]] = dict
    ) -> None:
        self._limit_s = limit_s
        self._since = now
        self._virtual_s = 0.0
        self._waits = waits
        self._seen: Mapping[int, float] | None = None  # at the last reading of this standstill
        self._looked = now
        self._waited_s = 0.0

    def stalled(self, virtual_s: float, now: float) -> bool:
        """Return whether, at `now` (real time), virtual time has stood still for longer than the
        limit."""
        if virtual_s - self._virtual_s >= STALL_PROGRESS_S:
            self._virtual_s, self._since = virtual_s, now
            self._seen, self._waited_s = None, 0.0
        if now - self._since > self._limit_s / 2:
            self._look(now)
        return now - self._since - self._waited_s > self._limit_s

    def _look(self, now: float) -> None:
        """Add what the processes have waited since the last reading, but no more than has
        passed."""
        if self._seen is None:
            self._seen, self._looked = self._waits(), now
        elif now - self._looked >= LOOK_S:
            seen, was = self._waits(), self._seen
            waited_s = sum(value - was.get(pid, 0.0) for pid, value in seen.items())
            self._waited_s += min(max(waited_s, 0.0), now - self._looked)
            self._seen, self._looked = seen, now


def processor_waits(session: int) -> dict[int, float]:
    """Return how long each process of a session has waited for a processor since its start, in
    seconds (the second number of /proc/PID/schedstat)."""
    found: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if os.getsid(int(entry.name)) == session:
                    waited_ns = int((entry / "schedstat").read_text().split()[1])
                    found[int(entry.name)] = waited_ns / NANOSECONDS
    return found
