# SPDX-License-Identifier: Apache-2.0
"""A running program whose processor time is read while it runs and after its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SCHEDULER_CLOCK: Final = 2  # CPUCLOCK_SCHED of the kernel's per-process clocks


@dataclass(frozen=True)
class Usage:
    """Usage of the whole process. `total_s` is exact; user and system are in ticks of 10 ms."""

    total_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    peak_bytes: int = 0

    def minus(self, earlier: Usage) -> Usage:
        """Return what was used since `earlier`. The peak stays."""
        return Usage(
            self.total_s - earlier.total_s,
            self.user_s - earlier.user_s,
            self.system_s - earlier.system_s,
            self.peak_bytes,
        )


def parse_stat(text: str) -> tuple[float, float]:
    """Return user and system seconds from /proc/PID/stat; the name may contain any character."""
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def parse_peak(text: str) -> int:
    """Return VmHWM of /proc/PID/status in bytes; 0 without one (a zombie)."""
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Program:
    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log = log  # its standard error; standard output beside it
        self.began = Usage()
        self._ended: Usage | None = None

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.popen.pid

    @property
    def code(self) -> int | None:
        """Return the exit code; None while it runs."""
        if self.popen.returncode is None:
            peak = self._peak()
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.popen.returncode = os.waitstatus_to_exitcode(status)
                total = usage.ru_utime + usage.ru_stime
                peak = max(peak, usage.ru_maxrss * 1024)
                self._ended = Usage(total, usage.ru_utime, usage.ru_stime, peak)
        return self.popen.returncode

    def _peak(self) -> int:
        with contextlib.suppress(OSError):
            return parse_peak(Path(f"/proc/{self.pid}/status").read_text())
        return 0

    @property
    def lifetime_s(self) -> float | None:
        """Return the processor time of its whole life; None while it runs."""
        return None if self.code is None or self._ended is None else self._ended.total_s

    @property
    def name(self) -> str:
        """Return the name of its file."""
        args = self.popen.args
        return Path(str(args[0] if isinstance(args, (list, tuple)) else args)).name

    def usage(self) -> Usage:
        """Return the usage since `mark`, or since the start."""
        if self.code is not None:
            assert self._ended is not None
            return self._ended.minus(self.began)
        total_s = time.clock_gettime(~self.pid << 3 | SCHEDULER_CLOCK)
        user_s, system_s = parse_stat(Path(f"/proc/{self.pid}/stat").read_text())
        return Usage(total_s, user_s, system_s, self._peak()).minus(self.began)

    def mark(self) -> None:
        """Count the usage from now on."""
        self.began = Usage()
        self.began = self.usage()

    def said(self) -> str:
        """Return its standard error so far."""
        return self.log.read_text(errors="replace")

    def printed(self) -> str:
        """Return what the program has printed."""
        return self.log.with_suffix(".out").read_text(errors="replace")

    def wait(self, limit_s: float) -> bool:
        """Return whether it has ended, after waiting at most `limit_s`."""
        end = time.monotonic() + limit_s
        while self.code is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.code is not None

    def stop(self) -> None:
        """End the program: SIGTERM, then SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.code is None:
                os.kill(self.pid, number)
                self.wait(5)
