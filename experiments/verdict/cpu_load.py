# SPDX-License-Identifier: Apache-2.0
"""Measure what a run's processors and processes did in a period, from two readings of the kernel's
accounts."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
CLOCKSOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


class CoreTimes(NamedTuple):
    """A processor core's time since boot, by proc_stat(5)."""

    busy_s: float
    idle_s: float
    steal_s: float


class Scheduled(NamedTuple):
    """A process's time since its start, for all threads: on a CPU, runnable but waiting for one,
    and how often it got one (/proc/PID/task/*/schedstat)."""

    run_ns: int
    wait_ns: int
    times: int


class Process(NamedTuple):
    place: str  # the host whose namespace it is in; "": the run's own
    name: str
    scheduled: Scheduled


@dataclass(frozen=True)
class ProcessLoad:
    """One process between two readings."""

    place: str
    name: str
    pid: int
    cpu_s: float
    wait_s: float
    times: int

    @property
    def mean_wait_ms(self) -> float:
        """Return how long the process waited for a CPU each time it had something to do."""
        return 1000 * self.wait_s / self.times if self.times else 0.0


@dataclass(frozen=True)
class CoreLoad:
    """One core between two readings: shares of the time."""

    core: str
    busy: float
    steal: float


class LoadJson(TypedDict):
    """load.json."""

    elapsed_s: float
    cores: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    sampling_cpu_s: float
    clocksource: str


@dataclass(frozen=True)
class Load:
    """What this machine's cores and processes did between two readings."""

    elapsed_s: float
    cores: tuple[CoreLoad, ...]
    processes: tuple[ProcessLoad, ...]
    # The programs that drive and watch: this process and its children that ended, hostlag, sysstat.
    sampling_cpu_s: float
    clocksource: str

    def to_dict(self) -> dict[str, object]:
        """Return the load as load.json has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: LoadJson) -> Load:
        """Return the load that `to_dict` described."""
        return cls(
            raw["elapsed_s"],
            tuple(CoreLoad(**core) for core in raw["cores"]),
            tuple(ProcessLoad(**process) for process in raw["processes"]),
            raw["sampling_cpu_s"],
            raw["clocksource"],
        )


class Shares(NamedTuple):
    """Shares of the time of all processors, from 0 to 1."""

    own: float  # the run's processes, and what drives and watches it
    stolen: float  # by the hypervisor
    others: float  # by the hypervisor and by other processes


def shares(load: Load) -> Shares:
    """Return the shares. Processes that ended between the readings count as others'."""
    available_s = len(load.cores) * load.elapsed_s
    own = (sum(p.cpu_s for p in load.processes) + load.sampling_cpu_s) / available_s
    busy = sum(core.busy for core in load.cores) / len(load.cores)
    stolen = sum(core.steal for core in load.cores) / len(load.cores)
    return Shares(own, stolen, max(0.0, busy - own) + stolen)


@dataclass(frozen=True)
class Ended:
    """A program of the cell that has ended, and that this process has waited for."""

    place: str
    name: str
    pid: int
    cpu_s: float  # of its whole life, including the programs that it waited for


@dataclass(frozen=True)
class LoadReading:
    """All of these at one instant."""

    time_s: float  # CLOCK_MONOTONIC
    cores: Mapping[str, CoreTimes]
    processes: Mapping[int, Process]
    own_cpu_s: float


WATCHERS: Final = ("hostlag", "sar", "sadc", "pidstat")


def parse_cores(stat: str) -> dict[str, CoreTimes]:
    """Return core -> times, from /proc/stat. Guests' time is already part of `user`."""
    found = {}
    for line in stat.splitlines():
        words = line.split()
        if len(words) >= 9 and words[0].startswith("cpu") and words[0] != "cpu":
            user, nice, system, idle, wait, irq, softirq, steal = (
                int(word) / TICKS_PER_S for word in words[1:9]
            )
            found[words[0]] = CoreTimes(user + nice + system + irq + softirq, idle + wait, steal)
    return found


def scheduled(pid: int, proc: Path = Path("/proc")) -> Scheduled | None:
    """Return a process's times; None if it ended or the kernel does not report them."""
    run = wait = times = 0
    seen = False
    try:
        for thread in (proc / str(pid) / "task").iterdir():
            try:
                words = (thread / "schedstat").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            run, wait, times = run + int(words[0]), wait + int(words[1]), times + int(words[2])
            seen = True
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Scheduled(run, wait, times) if seen else None


def place_names(pids: Mapping[str, int], proc: Path = Path("/proc")) -> dict[int, str]:
    """Return inode of a network namespace -> name of the node."""
    return {(proc / f"{pid}/ns/net").stat().st_ino: node for node, pid in pids.items()}


def read(pids: set[int], places: Mapping[int, str], proc: Path = Path("/proc")) -> LoadReading:
    """Read everything now. `pids`: the run's processes. `places`: of `place_names`."""
    processes = {}
    for pid in sorted(pids):
        try:
            name = (proc / f"{pid}/comm").read_text().strip()
            place = places.get((proc / f"{pid}/ns/net").stat().st_ino, "")
        except OSError:
            continue
        times = scheduled(pid, proc)
        if times is not None:
            processes[pid] = Process(place, name, times)
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return LoadReading(
        time.monotonic(),
        parse_cores((proc / "stat").read_text()),
        processes,
        sum(r.ru_utime + r.ru_stime for r in own),
    )


def between(
    start: LoadReading, end: LoadReading, clocksource: str, ended: Iterable[Ended] = ()
) -> Load:
    """Return the difference of two readings, without processes that ended meanwhile or whose times
    this kernel does not report. `ended`: programs of the cell that ended meanwhile. The kernel
    counts them as children of this process, but they are not among the programs that watch."""
    cores = []
    for name, after in end.cores.items():
        before = start.cores.get(name, CoreTimes(0, 0, 0))
        spans = [b - a for a, b in zip(before, after, strict=True)]
        total = sum(spans)
        if total > 0:
            cores.append(CoreLoad(name, spans[0] / total, spans[2] / total))
    processes, watching_s = [], end.own_cpu_s - start.own_cpu_s
    for pid, process in end.processes.items():
        known = start.processes.get(pid)
        zero = Scheduled(0, 0, 0)
        run, wait, times = (
            b - a
            for a, b in zip(known.scheduled if known else zero, process.scheduled, strict=True)
        )
        if process.name in WATCHERS:
            watching_s += run / 1e9
        else:
            processes.append(
                ProcessLoad(process.place, process.name, pid, run / 1e9, wait / 1e9, times)
            )
    for program in ended:
        watching_s -= program.cpu_s
        known = start.processes.get(program.pid)
        cpu_s = program.cpu_s - (known.scheduled.run_ns / 1e9 if known else 0.0)
        processes.append(
            ProcessLoad(program.place, program.name, program.pid, max(0.0, cpu_s), 0.0, 0)
        )
    elapsed_s = end.time_s - start.time_s
    return Load(elapsed_s, tuple(cores), tuple(processes), max(0.0, watching_s), clocksource)


def clocksource(path: Path = CLOCKSOURCE) -> str:
    """Return the kernel's clock source; "unknown" if it does not say."""
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"
