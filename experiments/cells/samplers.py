# SPDX-License-Identifier: Apache-2.0
"""Sample the sender while products are in transit: its processes and its shaper."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from common import looking
from experiments.verdict import ShaperSample

PS_HEAD: Final = "  PID  PPID %CPU     TIME ELAPSED   RSS COMMAND"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
LONG_RUN_S: Final = 1800.0


def interval_s(duration_s: float) -> int:
    """Return the seconds between samples: 1 in short runs, 60 in long ones, as in the papers.
    Raises NetworkError."""
    return round(looking.every_s(60 if duration_s >= LONG_RUN_S else 1))


def descendants(ancestor: int, proc: Path = Path("/proc")) -> list[int]:
    """Return `ancestor` and its descendants, in order of their ids."""
    listed = (proc / f"{ancestor}/task/{ancestor}/children").exists()
    children = _children_listed if listed else _children_by_parent(proc)
    wanted, queue = {ancestor}, [ancestor]
    while queue:
        found = set(children(queue.pop(), proc)) - wanted
        wanted |= found
        queue += found
    return sorted(wanted)


def _children_listed(pid: int, proc: Path) -> list[int]:
    found = []
    for listed in (proc / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(word) for word in listed.read_text().split()]
    return found


def _children_by_parent(proc: Path) -> Callable[[int, Path], list[int]]:
    """Return the same for kernels that do not list a task's children."""
    found: dict[int, list[int]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(stat.parent.name))
    return lambda pid, _: found.get(pid, [])


def run_time_ns(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the time a process has been on a CPU, in ns; None if it ended or is a zombie.

    /proc/PID/schedstat covers only the first thread, so this is the sum over PID's threads. A
    kernel without schedstat gives utime + stime of /proc/PID/stat, in clock ticks.
    """
    home = proc / str(pid)
    total = 0
    seen = False
    try:
        fields = (home / "stat").read_text().rpartition(")")[2].split()
        if fields[0] in "ZX":  # its threads and their times are gone from /proc
            return None
        for thread in (home / "task").iterdir():
            try:
                total += int((thread / "schedstat").read_text().split()[0])
                seen = True
            except (FileNotFoundError, ProcessLookupError):
                continue
    except (FileNotFoundError, ProcessLookupError):
        return None
    if seen:
        return total
    return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def cpu_block(ps_lines: Iterable[str], proc: Path = Path("/proc")) -> str:
    """Return `@ <epoch_s>` and `pid name ns` for each process of these lines of `ps_line`."""
    lines = [f"@ {time.time():.3f}"]
    for line in ps_lines:
        words = line.split(None, 7)
        used = run_time_ns(int(words[0]), proc)
        if used is not None and len(words) >= 7:
            lines.append(f"{words[0]} {words[6].rpartition('/')[2] or '?'} {used}")
    return "\n".join(lines) + "\n"


def ps_line(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return a process's line of `ps -o pid,ppid,pcpu,cputimes,etimes,rss,args`; None if it ended.
    Starting ps each second would cost more than most of what is observed."""
    home = proc / str(pid)
    try:
        name, _, rest = (home / "stat").read_text().partition("(")[2].rpartition(")")
        words = (home / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        memory = (home / "status").read_text().partition("VmRSS:")[2].split()
        uptime_s = float((proc / "uptime").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    ticks, age_s = int(fields[11]) + int(fields[12]), int(uptime_s - int(fields[19]) / TICKS_PER_S)
    tenths = 1000 * ticks // TICKS_PER_S // age_s if age_s > 0 else 0
    args = b" ".join(words).decode(errors="replace").replace("\n", " ")
    ended = " <defunct>" if fields[0] == "Z" else ""
    return (
        f"{pid:5d} {fields[1]:>5} {tenths / 10:4.1f} {ticks // TICKS_PER_S:8d} {age_s:7d}"
        f" {memory[0] if memory else '0':>5} {args or f'[{name}]'}{ended}"
    )


def process_blocks(ancestor: int) -> tuple[str, str]:
    """Return the family's processes now: (block of ps.log, block of cpu.log).

    The papers used ps; it cuts a process's share to 0.1 % of a core, which cpu.log does not.
    """
    now = time.time()
    lines = [line for pid in descendants(ancestor) if (line := ps_line(pid)) is not None]
    return "\n".join([f"@ {now:.3f}", PS_HEAD, *lines]) + "\n", cpu_block(lines)


class Repeater:
    """A thread that calls `action` every `interval_s` seconds. A failed call is left out."""

    def __init__(self, name: str, interval_s: float, action: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._action = action
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failed = 0

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling and wait for the last sample."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._action()
            except (OSError, ValueError, subprocess.SubprocessError):
                self.failed += 1
            due = max(due + self._interval_s, time.monotonic())
            if self._stop.wait(due - time.monotonic()):
                return


class Sampler(Repeater):
    """Appends what `sample` returns to a file."""

    def __init__(self, path: Path, interval_s: float, sample: Callable[[], str]) -> None:
        super().__init__(path.name, interval_s, self._write)
        self._sample = sample
        self._stream = path.open("w", encoding="utf-8")

    def stop(self) -> None:
        """Stop sampling and wait for the last sample."""
        super().stop()
        self._stream.close()

    def _write(self) -> None:
        self._stream.write(self._sample())
        self._stream.flush()


def shaper_line(sample: ShaperSample) -> str:
    """Return this sample's line of shaper.log."""
    return f"{sample.time_s:.6f} {sample.sent_bytes} {sample.backlog_bytes}\n"
