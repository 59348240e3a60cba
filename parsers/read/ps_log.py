# SPDX-License-Identifier: Apache-2.0
"""Parse blocks of `ps -eo pid,ppid,pcpu,cputimes,etimes,rss,args` into samples per process.

A block begins with `@ <seconds since 1970>`; ps's header and lines follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from parsers.base.problems import Lines, Problem
from parsers.read.blocks import in_block, parse_blocks


@dataclass(frozen=True, slots=True)
class ProcessSample:
    time_s: float
    pid: int
    ppid: int
    pcpu: float  # percent of one core, averaged over the process's life
    cputimes_s: int  # whole seconds
    etimes_s: int  # whole seconds since the process started
    rss_kib: int
    args: str

    @property
    def cpu_s(self) -> float:
        """Return the CPU seconds that the process has used so far.

        ps gives CPU time only in whole seconds (`cputimes`). That is too coarse for a process that
        uses a few percent of a core for a minute; `pcpu` has three more digits. pcpu/100 x etimes
        is too low by at most one second's worth of pcpu, since etimes is cut to whole seconds.
        cputimes bounds it from both sides.
        """
        estimate = self.pcpu / 100.0 * self.etimes_s
        highest = math.nextafter(self.cputimes_s + 1.0, 0.0)
        return min(max(estimate, float(self.cputimes_s)), highest)


@dataclass(frozen=True, slots=True)
class PsLog:
    file: str
    times_s: tuple[float, ...]  # one for each block, including blocks without processes
    samples: tuple[ProcessSample, ...]
    problems: tuple[Problem, ...]


def _row(time_s: float, line: str) -> ProcessSample | None:
    words = line.split(maxsplit=6)
    if words[:2] == ["PID", "PPID"]:
        return None
    time_s = in_block(time_s)
    try:
        pcpu = float(words[2])
        numbers = [int(words[i]) for i in (0, 1, 3, 4, 5)]
        args = words[6].strip()
    except (IndexError, ValueError):
        raise ValueError("expected PID PPID %CPU TIME ELAPSED RSS COMMAND") from None
    if not math.isfinite(pcpu) or pcpu < 0 or min(numbers) < 0:
        raise ValueError("a negative or infinite number")
    pid, ppid, cputimes, etimes, rss = numbers
    return ProcessSample(time_s, pid, ppid, pcpu, cputimes, etimes, rss, args)


def parse_ps_log(text: Lines, file: str) -> PsLog:
    """Parse all blocks. Never raises."""
    return PsLog(file, *parse_blocks(text, file, _row))
