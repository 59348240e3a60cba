# SPDX-License-Identifier: Apache-2.0
"""Blocks of `ps -eo pid,ppid,pcpu,cputimes,etimes,rss,args` -> samples per process.

A block begins with `@ <seconds since 1970>`; then come ps's header and its lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from parsers.problems import Problem, numbered_lines, problem


@dataclass(frozen=True, slots=True)
class ProcessSample:
    time_s: float
    pid: int
    ppid: int
    pcpu: float  # percent of one core, averaged over the process's life
    cputimes_s: int  # whole seconds
    etimes_s: int  # whole seconds since the process began
    rss_kib: int
    args: str

    @property
    def cpu_s(self) -> float:
        """CPU seconds the process has used so far.

        ps gives CPU time in whole seconds only (`cputimes`), too coarse for a process that uses
        some per cent of a core for a minute; `pcpu` has three digits more. pcpu/100 x etimes is
        low by at most one second's worth of pcpu, as etimes is cut to whole seconds; cputimes
        bounds it from both sides.
        """
        estimate = self.pcpu / 100.0 * self.etimes_s
        highest = math.nextafter(self.cputimes_s + 1.0, 0.0)
        return min(max(estimate, float(self.cputimes_s)), highest)


@dataclass(frozen=True, slots=True)
class PsLog:
    file: str
    times_s: tuple[float, ...]  # one per block, also of blocks without processes
    samples: tuple[ProcessSample, ...]
    problems: tuple[Problem, ...]


def parse_ps_log(text: str, file: str) -> PsLog:
    """Parses all blocks. Never raises."""
    times: list[float] = []
    samples: list[ProcessSample] = []
    problems: list[Problem] = []
    for number, raw, complete in numbered_lines(text):
        if not complete:
            problems.append(problem(file, number, raw, "the last line is cut off (no newline)"))
            continue
        words = raw.split(maxsplit=6)
        if not words or words[:2] == ["PID", "PPID"]:
            continue
        try:
            if words[0] == "@":
                moment = float(words[1]) if len(words) == 2 else math.nan
                if not math.isfinite(moment):
                    raise ValueError("expected '@ SECONDS-SINCE-1970'")
                times.append(moment)
                continue
            if not times:
                raise ValueError("a process before the first '@' line")
            if len(words) < 7:
                raise ValueError("expected PID PPID %CPU TIME ELAPSED RSS COMMAND")
            pcpu = float(words[2])
            numbers = [int(words[i]) for i in (0, 1, 3, 4, 5)]
            if not math.isfinite(pcpu) or pcpu < 0 or min(numbers) < 0:
                raise ValueError("a negative or infinite number")
            pid, ppid, cputimes, etimes, rss = numbers
            samples.append(
                ProcessSample(times[-1], pid, ppid, pcpu, cputimes, etimes, rss, words[6].strip())
            )
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return PsLog(file, tuple(times), tuple(samples), tuple(problems))
