# SPDX-License-Identifier: Apache-2.0
"""What is seen of the programs in a node: here of this process and its children."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topologies.emulate import census

THREAD = """
import os, sys, threading
def work():
    {work}
    print("ready", flush=True)
    sys.stdin.read()
threading.Thread(target=work).start()
"""


Started = Callable[[str], int]


@pytest.fixture
def started() -> Iterator[Started]:
    """Return what starts a program, and returns its process once that is ready."""
    children: list[subprocess.Popen[str]] = []

    def start(text: str) -> int:
        argv = [sys.executable, "-c", text]
        pipe = subprocess.PIPE
        child = subprocess.Popen(argv, text=True, stdin=pipe, stdout=pipe)
        children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        return child.pid

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("work", "also"),
    [
        ("pass", ""),
        ("os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)", "nice 7"),
        ("os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))", "policy 5"),
        (
            "open(f'/proc/{threading.get_native_id()}/timerslack_ns', 'w').write('20000000')",
            "timer slack 20000000 ns",
        ),
        ("open(f'/proc/{threading.get_native_id()}/timerslack_ns', 'w').write('1')", ""),
    ],
)
def test_every_thread_counts(started: Started, work: str, also: str) -> None:
    """A timer slack of 1 ns is hostlag's; only a larger one than the kernel's makes timers late."""
    pid = started(THREAD.format(work=work))
    (program,) = [one for one in census.programs({"here": os.getpid()}) if one.pid == pid]
    others = program.scheduling - {census.scheduling(os.getpid())}
    assert len(others) == bool(also)
    assert all(also in way for way in others)


ENDING = """
import sys, threading, time
def end_soon():
    while True:
        threads = [threading.Thread(target=time.sleep, args=(0.002,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
threading.Thread(target=end_soon, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
# Its first thread ends as pthread_exit(3) does; the other one goes on.
LEADERLESS = """
import ctypes, os, sys, threading
def go_on():
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


def test_threads_that_end_are_no_others(started: Started) -> None:
    """The kernel shows one that ends in the root of the control groups."""
    pid = started(ENDING)
    mine = {census.scheduling(os.getpid())}
    for _ in range(300):
        assert set(census._of_threads(pid, Path("/proc"))) <= mine


def test_a_program_without_its_first_thread_is_seen(started: Started) -> None:
    pid = started(LEADERLESS)
    (program,) = [one for one in census.programs({"here": os.getpid()}) if one.pid == pid]
    assert all("nice 7" in way for way in program.scheduling) and program.scheduling
    assert program.name.startswith("python")
