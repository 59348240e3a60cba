# SPDX-License-Identifier: Apache-2.0
"""Blocks of `pid name ns` -> the time each process has been on a CPU.

A block begins with `@ <seconds since 1970>`. `ns` counts from the process's beginning. A process
that ended is in no further block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from parsers.problems import Problem, numbered_lines, problem


@dataclass(frozen=True, slots=True)
class RunTimeSample:
    time_s: float
    pid: int
    name: str
    run_ns: int

    @property
    def cpu_s(self) -> float:
        return self.run_ns / 1e9


@dataclass(frozen=True, slots=True)
class CpuLog:
    file: str
    times_s: tuple[float, ...]  # one per block, also of blocks without processes
    samples: tuple[RunTimeSample, ...]
    problems: tuple[Problem, ...]


def parse_cpu_log(text: str, file: str) -> CpuLog:
    """Parses all blocks. Never raises."""
    times: list[float] = []
    samples: list[RunTimeSample] = []
    problems: list[Problem] = []
    for number, raw, complete in numbered_lines(text):
        if not complete:
            problems.append(problem(file, number, raw, "the last line is cut off (no newline)"))
            continue
        words = raw.split()
        if not words:
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
            if len(words) != 3:
                raise ValueError("expected PID NAME NANOSECONDS")
            pid, run_ns = int(words[0]), int(words[2])
            if pid < 0 or run_ns < 0:
                raise ValueError("a negative number")
            samples.append(RunTimeSample(times[-1], pid, words[1], run_ns))
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return CpuLog(file, tuple(times), tuple(samples), tuple(problems))
