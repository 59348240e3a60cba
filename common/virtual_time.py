# SPDX-License-Identifier: Apache-2.0
"""The clock of a machine, and fresh beginnings in virtual time: what a program does after one does
not depend on what happened before."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from pathlib import Path
from typing import Final, Literal

Clock = Literal["native", "virtual"]
TIME_TRAVEL: Final = "time-travel=inf-cpu"  # UML: time passes only while all processes sleep
EXTERNAL_TIME: Final = "time-travel=ext:"  # the same, as far as a calendar at a socket allows
RNDRESEEDCRNG: Final = 0x5207  # linux/random.h: a new key for the kernel's random generator
SECOND_NS: Final = 1_000_000_000
LINKS: Final = "DOWNPOUR_LINKS"  # a guest's environment: where the batches of its cut links are


def clock_of(command_line: str) -> Clock:
    """Return the clock of a kernel with this command line (the text of /proc/cmdline)."""
    words = command_line.split()
    travels = TIME_TRAVEL in words or any(word.startswith(EXTERNAL_TIME) for word in words)
    return "virtual" if travels else "native"


@functools.cache
def this_clock() -> Clock:
    """Return the clock of this machine or guest."""
    return clock_of(Path("/proc/cmdline").read_text(encoding="utf-8", errors="replace"))


def rest_s(now_ns: int, step_ns: int = SECOND_NS) -> float:
    """Return the time to the next multiple of `step_ns` on a clock that shows `now_ns`.

    It is half a nanosecond less: time.sleep rounds up, and a rounding error must not add a
    nanosecond.
    """
    return (step_ns - now_ns % step_ns - 0.5) / SECOND_NS


def begin_afresh(step_ns: int = SECOND_NS) -> None:
    """In virtual time, sleep until the next multiple of `step_ns`, then draw new random keys.

    Programs start before an experiment begins. Their failing system calls (Python looks for a
    module in several places) take a microsecond each, and they draw random bytes. Such differences
    must not move the experiment's packets or TCP's initial numbers. In virtual time the wait takes
    no real time. With the native clock it would, so nothing is done.
    """
    if this_clock() == "native":
        return
    time.sleep(rest_s(time.time_ns(), step_ns))
    device = os.open("/dev/urandom", os.O_RDONLY)
    try:
        fcntl.ioctl(device, RNDRESEEDCRNG)
    finally:
        os.close(device)
