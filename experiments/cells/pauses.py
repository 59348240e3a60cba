# SPDX-License-Identifier: Apache-2.0
"""Simulate a receiver that cannot keep up: its ldmd stops for a part of each second (SIGSTOP), so
that datagrams wait in its UDP buffer, and those that do not fit are lost there (DRFSM21 2.1)."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from typing import Final

from common.virtual_time import Clock
from experiments.cells import samplers
from experiments.design.shaping import Setting

PERIOD_S: Final = 1.0
# How much longer or shorter pauses may be on average. Native threads wake late on a busy machine.
TOLERANCE_MS: Final[dict[Clock, float]] = {"native": 10.0, "virtual": 0.1}


def send_all(pids: list[int], number: signal.Signals) -> list[int]:
    """Send a signal to processes; return those that existed."""
    reached = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            reached.append(pid)
    return reached


class Stop:
    """Stops the programs below `ancestor` once, for `length_s`, `at_s` after its creation."""

    def __init__(self, ancestor: int, at_s: float, length_s: float) -> None:
        self._ancestor, self._at_s, self._length_s = ancestor, at_s, length_s
        self._found_s: float | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        if self._ending.wait(self._at_s):
            return
        stopped = send_all(samplers.descendants(self._ancestor), signal.SIGSTOP)
        begin = time.monotonic()
        cut_short = self._ending.wait(self._length_s)
        send_all(stopped, signal.SIGCONT)
        if not cut_short:
            self._found_s = time.monotonic() - begin

    def stop(self) -> None:
        """Let the programs continue."""
        self._ending.set()
        self._thread.join()

    def read_back(self, host: str, clock: Clock) -> Setting:
        """Compare how long the programs were stopped with what was asked, after `stop`."""
        tolerance_s = TOLERANCE_MS[clock] / 1000
        return Setting(f"{host} stop, s", self._length_s, self._found_s, tolerance_s)


class Pauses:
    """Stops the programs below `ancestor` for `pause_ms` of each second, from its creation until
    `stop`, after which they run."""

    def __init__(self, ancestor: int, pause_ms: float) -> None:
        self._ancestor, self._pause_ms = ancestor, pause_ms
        self._lengths_ms: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            stopped = send_all(samplers.descendants(self._ancestor), signal.SIGSTOP)
            begin = time.monotonic()
            cut_short = self._ending.wait(self._pause_ms / 1000)
            send_all(stopped, signal.SIGCONT)
            if not cut_short:
                self._lengths_ms.append(1000 * (time.monotonic() - begin))
            due += PERIOD_S

    def stop(self) -> None:
        """End the pauses; the programs continue."""
        self._ending.set()
        self._thread.join()

    def read_back(self, host: str, clock: Clock) -> Setting:
        """Compare the mean length of the pauses with what was asked, after `stop`."""
        name, found = f"{host} pause in each second, ms", self._lengths_ms
        mean = statistics.fmean(found) if found else None
        return Setting(name, self._pause_ms, mean, TOLERANCE_MS[clock])
