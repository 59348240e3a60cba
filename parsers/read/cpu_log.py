# SPDX-License-Identifier: Apache-2.0
"""Parse blocks of `pid name ns` into the time that each process has been on a CPU.

A block begins with `@ <seconds since 1970>`. `ns` counts from the process's start. A process is in
no block after its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from parsers.base.problems import Lines, Problem
from parsers.read.blocks import in_block, parse_blocks


@dataclass(frozen=True, slots=True)
class RunTimeSample:
    time_s: float
    pid: int
    name: str
    run_ns: int

    @property
    def cpu_s(self) -> float:
        """Return the processor time used so far, seconds."""
        return self.run_ns / 1e9


@dataclass(frozen=True, slots=True)
class CpuLog:
    file: str
    times_s: tuple[float, ...]  # one for each block, including blocks without processes
    samples: tuple[RunTimeSample, ...]
    problems: tuple[Problem, ...]


def _row(time_s: float, line: str) -> RunTimeSample:
    time_s = in_block(time_s)
    words = line.split()
    if len(words) != 3 or not (words[0].isdecimal() and words[2].isdecimal()):
        raise ValueError("expected PID NAME NANOSECONDS")
    pid, run_ns = int(words[0]), int(words[2])
    return RunTimeSample(time_s, pid, words[1], run_ns)


def parse_cpu_log(text: Lines, file: str) -> CpuLog:
    """Parse all blocks. Never raises."""
    return CpuLog(file, *parse_blocks(text, file, _row))
