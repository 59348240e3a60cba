# SPDX-License-Identifier: Apache-2.0
"""A class of thirty at the machine's queue, with stand-ins for guests: one process for each sweep,
which takes its turn as `downpour lab measure` does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from common.places import ROOT
from virtual.turns import Turns, tickets

SEATS: Final = tuple(range(50001, 50031))
GREEDY: Final = SEATS[0]  # starts three sweeps
KILLED_WAITING, KILLED_RUNNING = SEATS[10], SEATS[20]
PLACES: Final = 2
GUEST_S: Final = 0.3
WAITS_S: Final = 240.0  # on a busy machine

# One sweep of a user: the second word is the log, which all append to.
SWEEP: Final = """
import os, sys, time
from pathlib import Path
directory, log, uid, guest_s = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
file = os.open(log, os.O_WRONLY | os.O_APPEND)
def say(what):
    os.write(file, f"{time.monotonic()} {uid} {os.getpid()} {what}\\n".encode())
os.setuid(uid)
from virtual.turns import Turns
turn = Turns(directory).wait(lambda text: None)
say("begin")
time.sleep(guest_s)
say("end")
turn.end()
"""


class Log:
    """What the sweeps have written: when, who, which process, what."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self, what: str) -> list[tuple[float, int, int]]:
        """Return time (monotonic, s), user and process of each line of that kind, in order."""
        rows = (line.split() for line in self.path.read_text().splitlines())
        return [(float(at), int(uid), int(pid)) for at, uid, pid, kind in rows if kind == what]


def until(true: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WAITS_S
    while not true():
        assert time.monotonic() < ends, f"after {WAITS_S} s: not {what}"
        time.sleep(0.05)


@pytest.fixture
def machine() -> Iterator[Path]:
    """A machine's queue in a directory that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="downpour-class-") as top:
        directory = Path(top)
        directory.chmod(0o755)
        (directory / "tickets").mkdir()
        (directory / "tickets").chmod(0o1777)
        (directory / "places").mkdir()
        (directory / "home").mkdir()
        for place in range(PLACES):
            (directory / "places" / str(place)).touch()
        yield directory


def sweep(machine: Path, log: Log, uid: int, guest_s: float = GUEST_S) -> subprocess.Popen[bytes]:
    words = [str(machine), str(log.path), str(uid), str(guest_s)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", SWEEP, *words], cwd=ROOT, env=environment)


def status(machine: Path) -> str:
    """Return what `downpour class status` prints, with single blanks."""
    printed = subprocess.run(
        [sys.executable, "-m", "downpour", "class", "status", str(machine / "home")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DOWNPOUR_TURNS": str(machine)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return " ".join(printed.split())


def most_at_once(log: Log) -> int:
    """Return how many guests ran at once at most, without the one that was killed."""
    changes = [(at, 1) for at, uid, _ in log.lines("begin") if uid != KILLED_RUNNING]
    changes += [(at, -1) for at, _, _ in log.lines("end")]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_thirty_sweeps_share_two_places(machine: Path) -> None:
    """All thirty wait; one student has started three sweeps first. One is killed while it waits,
    one while its guest runs, which would have run for an hour."""
    log = Log(machine / "log")
    held = [turn for turn in (Turns(machine).take() for _ in range(PLACES)) if turn is not None]
    assert len(held) == PLACES
    everybody = (GREEDY, GREEDY, *SEATS)
    sweeps = [
        (uid, sweep(machine, log, uid, 3600 if uid == KILLED_RUNNING else GUEST_S))
        for uid in everybody
    ]
    try:
        until(lambda: sum(not t.runs for t in tickets(machine)) == len(sweeps), "all waiting")
        shown = status(machine)
        assert f"places for guests: {PLACES}, taken: {PLACES}; waiting: " in shown
        counts = {int(uid): int(n) for uid, n in re.findall(r"user-(\d+) \((\d)\)", shown)}
        assert counts == {uid: everybody.count(uid) for uid in SEATS}

        killed = dict(sweeps)
        killed[KILLED_WAITING].kill()
        killed[KILLED_WAITING].wait()
        for turn in held:
            turn.end()
        until(lambda: any(u == KILLED_RUNNING for _, u, _ in log.lines("begin")), "running")
        killed[KILLED_RUNNING].kill()
        for _, process in sweeps:
            process.wait(WAITS_S)
    finally:
        for _, process in sweeps:
            process.kill()
            process.wait()

    order = [uid for _, uid, _ in log.lines("begin")]
    assert sorted(order) == sorted(uid for uid in everybody if uid != KILLED_WAITING)
    assert len(log.lines("end")) == len(order) - 1
    firsts = [order.index(uid) for uid in SEATS if uid != KILLED_WAITING]
    second = order.index(GREEDY, order.index(GREEDY) + 1)
    assert max(firsts) < second, f"{GREEDY} had a second turn before all had one: {order}"
    assert most_at_once(log) <= PLACES
    assert tickets(machine) == []
