# SPDX-License-Identifier: Apache-2.0
"""What is seen of the programs in a node: here of this process and its children."""

from __future__ import annotations

import os
import subprocess
import sys

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


def ways_of(work: str) -> frozenset[str]:
    """Return how the threads of a program are scheduled whose second thread does `work` first."""
    argv = [sys.executable, "-c", THREAD.format(work=work)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        found = census.programs({"here": os.getpid()})
        child.communicate()
    (program,) = [one for one in found if one.pid == child.pid]
    return program.scheduling


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
def test_every_thread_counts(work: str, also: str) -> None:
    """A timer slack of 1 ns is hostlag's; only a larger one than the kernel's makes timers late."""
    mine = census.scheduling(os.getpid())
    others = ways_of(work) - {mine}
    assert len(others) == bool(also)
    assert all(also in way for way in others)
