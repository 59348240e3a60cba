# SPDX-License-Identifier: Apache-2.0
"""Sample the sender while products are in transit: its processes and its shaper."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from common import looking
from experiments.verdict import ShaperSample

PS_COLUMNS: Final = "pid,ppid,pcpu,cputimes,etimes,rss,args"
LONG_RUN_S: Final = 1800.0


def interval_s(duration_s: float) -> int:
    """Return the seconds between samples: 1 in short runs, 60 in long ones, as in the papers.
    Raises NetworkError."""
    return round(looking.every_s(60 if duration_s >= LONG_RUN_S else 1))


def family(lines: Iterable[str], ancestor: int) -> list[str]:
    """Return the `ps` lines (pid and ppid first) of `ancestor` and its descendants."""
    parsed: list[tuple[int, int, str]] = []
    for line in lines:
        words = line.split(None, 2)
        if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
            parsed.append((int(words[0]), int(words[1]), line))
    children: dict[int, list[int]] = {}
    for pid, parent, _ in parsed:
        children.setdefault(parent, []).append(pid)
    wanted, queue = {ancestor}, [ancestor]
    while queue:
        for child in children.get(queue.pop(), []):
            if child not in wanted:
                wanted.add(child)
                queue.append(child)
    return [line for pid, _, line in parsed if pid in wanted]


def descendants(ancestor: int, proc: Path = Path("/proc")) -> list[int] | None:
    """Return `ancestor` and its descendants, in order of their ids; None if this kernel does not
    list a task's children."""
    if not (proc / f"{ancestor}/task/{ancestor}/children").exists():
        return None
    wanted, queue = {ancestor}, [ancestor]
    while queue:
        for listed in (proc / str(queue.pop()) / "task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found = {int(word) for word in listed.read_text().split()} - wanted
                wanted |= found
                queue += found
    return sorted(wanted)


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
    """Return `@ <epoch_s>` and `pid name ns` for each process of these lines of `ps`
    (PS_COLUMNS)."""
    lines = [f"@ {time.time():.3f}"]
    for line in ps_lines:
        words = line.split(None, 7)
        used = run_time_ns(int(words[0]), proc)
        if used is not None and len(words) >= 7:
            lines.append(f"{words[0]} {words[6].rpartition('/')[2] or '?'} {used}")
    return "\n".join(lines) + "\n"


def process_blocks(ancestor: int) -> tuple[str, str]:
    """Return the family's processes now: (block of ps.log, block of cpu.log).

    The papers used ps; it cuts a process's share to 0.1 % of a core, which cpu.log does not.
    """
    now = time.time()
    # Only these (-q): otherwise ps would read some files of every process of the machine, every
    # second.
    processes = descendants(ancestor)
    which = ["-e"] if processes is None else ["-q", ",".join(map(str, processes))]
    argv = ["ps", *which, "-o", PS_COLUMNS, "--cols", "400"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    lines = done.stdout.splitlines()
    chosen = family(lines[1:], ancestor)
    return "\n".join([f"@ {now:.3f}", *lines[:1], *chosen]) + "\n", cpu_block(chosen)


def parse_shaper(text: str, classid: str | None) -> tuple[int, int] | None:
    """Return (sent bytes, backlog bytes) of one class in `tc -s class show`, or of the root qdisc
    in `tc -s qdisc show` (classid None)."""
    start = rf"class htb {re.escape(classid)} " if classid else r"qdisc tbf \S+ root "
    found = re.search(
        rf"^{start}.*?Sent (\d+) bytes.*?backlog (\d+)([KMG]?)b", text, re.MULTILINE | re.DOTALL
    )
    if found is None:
        return None
    scale = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}[found[3]]
    return int(found[1]), int(found[2]) * scale


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
