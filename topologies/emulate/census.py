# SPDX-License-Identifier: Apache-2.0
"""List the programs that run in a network's nodes, and what determines their share of the
processors."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.files import contents

# Programs that only observe a network, programs that start these, and programs that end during a
# run.
PASSING: Final = frozenset(
    {
        *("tc", "ip", "ps", "ping", "iptables", "iptables-save", "iptables-restore", "ethtool"),
        *("pqinsert", "sysctl", "mnexec", "sh", "ovs-ofctl", "ovs-vsctl", "nsenter"),
        *("xtables-nft-mul", "sadc", "sar", "pidstat", "tcpdump", "iperf3"),
    }
)
PRELOAD: Final = "LD_PRELOAD"
KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD of linux/sched.h: it has no environment to read
EXITING: Final = 0x00000004  # PF_EXITING
TIMER_SLACK_NS: Final = 50_000  # the kernel's default; PR_SET_TIMERSLACK(2const)


@dataclass(frozen=True)
class Program:
    """One process of a node. `outermost`: it was started from outside the node."""

    node: str
    pid: int
    name: str
    outermost: bool
    started_ticks: int
    scheduling: frozenset[str]  # its threads' niceness, policy, cores, control group, timer slack
    stopped: bool


def programs(
    pids: Mapping[str, int], proc: Path = Path("/proc"), *, without: Collection[int] = ()
) -> list[Program]:
    """Return the processes in the namespaces of the nodes, threads, zombies and those `without`
    left out."""
    nodes = {}
    for node, pid in pids.items():
        with contextlib.suppress(OSError):
            nodes[(proc / f"{pid}/ns/net").stat().st_ino] = node
    inside: dict[int, tuple[str, Path]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) not in without:
            for thread in _threads(entry):
                with contextlib.suppress(OSError):
                    inode = (thread / "ns/net").stat().st_ino
                    if inode in nodes:
                        inside[int(entry.name)] = (nodes[inode], thread)
                    break
    return list(_described(inside, proc))


def _threads(process: Path) -> Iterator[Path]:
    """Yield the process itself, then its threads: the first has ended in some that live on."""
    yield process
    with contextlib.suppress(OSError):
        yield from (process / "task").iterdir()


def _described(inside: Mapping[int, tuple[str, Path]], proc: Path) -> Iterator[Program]:
    for pid, (node, thread) in sorted(inside.items()):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = stat_of(thread)
            if _is_ending(fields) or int(fields[6]) & KERNEL_THREAD:
                continue
            parent = int(fields[1])
            yield Program(
                node,
                pid,
                _name(thread, proc / str(pid)),
                inside.get(parent, ("", proc))[0] != node,
                int(stat_of(proc / str(pid))[19]),
                frozenset(_of_threads(pid, proc)),
                fields[0] in "Tt",
            )


def stat_of(thread: Path) -> list[str]:
    """Return the fields of stat after the name: the state, the parent, ..."""
    return contents(thread / "stat").rpartition(")")[2].split()


def _is_ending(fields: Sequence[str]) -> bool:
    return fields[0] in "ZX" or bool(int(fields[6]) & EXITING)


def _name(thread: Path, process: Path) -> str:
    """Return a program's name, and whether a preloaded library replaces the system's functions."""
    name = contents(process / "comm").strip()
    variables = contents(thread / "environ").split("\0")
    preloaded = any(v.startswith("LD_PRELOAD=") and len(v) > 11 for v in variables)
    return f"{name} with {PRELOAD}" if preloaded else name


def _own_clock(pid: int, proc: Path) -> bool:
    """Return whether a process's clock starts at another time than this one's."""
    places = [proc / f"{pid}/ns/time", Path("/proc/self/ns/time")]
    return all(p.exists() for p in places) and len({p.stat().st_ino for p in places}) > 1


def _of_threads(pid: int, proc: Path) -> Iterator[str]:
    for thread in (proc / f"{pid}/task").iterdir():
        with contextlib.suppress(OSError, IndexError):  # it has ended
            found = scheduling(int(thread.name), proc)
            if not _is_ending(stat_of(thread)):  # it has left its control group
                yield found


def scheduling(pid: int, proc: Path = Path("/proc")) -> str:
    """Return what determines a thread's share of the processors, and by how much its timers may be
    late. Raises OSError if it is gone."""
    fields = stat_of(proc / str(pid))
    cores = ",".join(map(str, sorted(os.sched_getaffinity(pid))))
    groups = contents(proc / f"{pid}/cgroup").splitlines()
    own = sorted({g.split(":", 2)[2] for g in groups if _shares_processors(g)})
    clock = ", a time namespace" if _own_clock(pid, proc) else ""
    share = f"nice {fields[16]}, policy {fields[38]}, cores {cores}, "
    return f"{share}cgroup {' '.join(own) or '/'}{_timer_slack(pid, proc)}{clock}"


def _timer_slack(pid: int, proc: Path) -> str:
    """Return what a timer slack above the kernel's default is, if this process may read it."""
    with contextlib.suppress(OSError, ValueError):
        slack_ns = int(contents(proc / f"{pid}/timerslack_ns"))
        if slack_ns > TIMER_SLACK_NS:
            return f", timer slack {slack_ns} ns"
    return ""


def _shares_processors(line: str) -> bool:
    _, controllers, _ = line.split(":", 2)
    return controllers == "" or bool({"cpu", "cpuset"} & set(controllers.split(",")))


def summary(found: list[Program]) -> dict[str, str]:
    """Return by "<node> programs" and "<node> scheduling" what runs there and how, without
    short-lived programs."""
    lasting = [p for p in found if p.name not in PASSING]
    texts = {}
    for node in dict.fromkeys(p.node for p in lasting):
        here = [p for p in lasting if p.node == node]
        counts = Counter(p.name for p in here if p.outermost)
        texts[f"{node} programs"] = ", ".join(f"{n} x {name}" for name, n in sorted(counts.items()))
        ways = {way for p in here for way in p.scheduling}
        ways |= {f"stopped: {p.name} {p.pid}" for p in here if p.stopped}
        texts[f"{node} scheduling"] = "; ".join(sorted(ways))
    return texts


def throttled() -> int:
    """Return how often this process's control group was throttled because its quota was used up."""
    total = 0
    for line in Path("/proc/self/cgroup").read_text().split():
        if not _shares_processors(line):
            continue
        _, controllers, path = line.split(":", 2)
        for root in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            file = Path(root + path) / "cpu.stat"
            with contextlib.suppress(OSError):
                words = file.read_text().split()
                if "nr_throttled" in words:
                    total += int(words[words.index("nr_throttled") + 1])
    return total
