# SPDX-License-Identifier: Apache-2.0
"""Turns on a shared machine: places, the order of users, and what ends with a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from common.places import ROOT
from virtual.cores import at_place, available_cores, one_core
from virtual.turns import Ticket, Turn, Turns, configured, in_order, tickets

# Take a turn as a user, report it, and wait for permission to continue.
TAKER = """
import os, sys, time
from pathlib import Path
os.setuid(int(sys.argv[2]))
from virtual.turns import Turns
turn = Turns(Path(sys.argv[1])).wait(lambda text: print(text, flush=True))
print("place", turn.place, flush=True)
sys.stdin.readline()
turn.end()
print("ended", flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that makes a directory with places."""

    def make(count: int) -> Path:
        (tmp_path / "tickets").mkdir()
        (tmp_path / "tickets").chmod(0o1777)
        (tmp_path / "places").mkdir()
        for place in range(count):
            (tmp_path / "places" / str(place)).touch()
        return tmp_path

    return make


def test_without_a_directory_everybody_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOWNPOUR_TURNS", str(tmp_path / "none"))
    assert configured() is None
    assert Turns().take() == Turn()


def test_places_are_taken_and_given_back(machine: Callable[[int], Path]) -> None:
    directory = machine(2)
    first, second, third = (Turns(directory) for _ in range(3))
    a, b = first.take(), second.take()
    assert a is not None and b is not None
    assert [a.place, b.place] == [0, 1]
    assert third.take() is None
    assert third.text == "waiting for a place: 2 guests run on this machine, 0 come first"
    a.end()
    c = taken(third)
    assert c.place == 0 and third.text == ""
    b.end()
    b.end()
    c.end()
    assert tickets(directory) == []


def test_a_user_with_fewer_guests_comes_first() -> None:
    """Ann has two guests and has waited longest, Bob has one, Cy and Di have none."""
    found = [
        Ticket("run-1-0", 1, True, 1),
        Ticket("run-1-1", 1, True, 2),
        Ticket("run-2-0", 2, True, 3),
        Ticket("wait-1-2", 1, False, 4),
        Ticket("wait-2-1", 2, False, 5),
        Ticket("wait-4-0", 4, False, 7),
        Ticket("wait-3-0", 3, False, 6),
    ]
    assert [ticket.uid for ticket in in_order(found)] == [3, 4, 2, 1]


def test_a_users_other_guests_go_to_the_end_of_the_queue(
    machine: Callable[[int], Path],
) -> None:
    directory = machine(1)
    holder, first, second = (Turns(directory) for _ in range(3))
    held = holder.take()
    assert held is not None and first.take() is None and second.take() is None
    held.end()
    assert first.take() is None  # they go to the end, one after the other
    time.sleep(0.05)  # a few ticks of the file system's clock
    assert second.take() is None
    turn = first.take()
    assert turn is not None
    time.sleep(0.05)
    assert second.take() is None
    since = {ticket.runs: ticket.since_ns for ticket in tickets(directory)}
    assert since[False] >= since[True]
    turn.end()
    taken(second).end()


def taken(turns: Turns) -> Turn:
    """Return the turn, which comes at the second attempt at the latest: at the first, a ticket of a
    user whose guest has ended goes to the end of the queue."""
    turn = turns.take() or turns.take()
    assert turn is not None
    return turn


def taker(directory: Path, uid: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TAKER, str(directory), str(uid)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_held_is_free(
    machine: Callable[[int], Path], how: signal.Signals
) -> None:
    directory = machine(1)
    holder = taker(directory, os.getuid())
    assert line(holder) == "place 0"
    turns = Turns(directory)
    assert turns.take() is None
    holder.send_signal(how)
    holder.communicate()
    turn = taken(turns)
    assert turn.place == 0
    turn.end()


def test_one_that_waits_no_longer_stands_in_nobodys_way(machine: Callable[[int], Path]) -> None:
    """The next in order has stopped waiting, or was stopped (Ctrl-Z), or was killed."""
    directory = machine(1)
    holder = Turns(directory).take()
    assert holder is not None
    quitter, last = Turns(directory), Turns(directory)
    assert quitter.take() is None
    stopped, killed = taker(directory, os.getuid()), taker(directory, os.getuid())
    for process in (stopped, killed):
        assert line(process).startswith("waiting for a place: 1 guests run")
    assert last.take() is None
    stopped.send_signal(signal.SIGSTOP)
    os.waitpid(stopped.pid, os.WUNTRACED)
    end(killed)
    quitter.stop()
    holder.end()
    taken(last).end()
    end(stopped)


def place_of(process: subprocess.Popen[str]) -> str:
    """Return the first line that does not say what the process waits for: two that come at once may
    compete for the same place."""
    while (text := line(process)).startswith("waiting"):
        pass
    return text


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_users_share_the_places(machine: Callable[[int], Path]) -> None:
    """User 50001 has both places and waits with two more guests; 50002, who comes last, gets the
    first place that becomes free."""
    directory = machine(2)
    directory.chmod(0o755)
    for above in directory.parents:
        if above.stat().st_uid == os.getuid() and above.is_relative_to("/tmp"):
            above.chmod(above.stat().st_mode | 0o011)
    running = [taker(directory, 50001) for _ in range(2)]
    assert sorted(place_of(process) for process in running) == ["place 0", "place 1"]
    greedy = [taker(directory, 50001) for _ in range(2)]
    for process in greedy:
        assert "come first" in line(process)
    late = taker(directory, 50002)
    assert "come first" in line(late)
    assert running[0].stdin is not None
    running[0].stdin.write("\n")
    running[0].stdin.flush()
    assert line(running[0]) == "ended"
    assert place_of(late).startswith("place ")
    assert {t.uid for t in tickets(directory) if t.runs} == {50001, 50002}
    for process in (*running, *greedy, late):
        end(process)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_a_user_with_many_processes_takes_turns_with_others(
    machine: Callable[[int], Path],
) -> None:
    """Three processes of 50001 come before the one of 50002; the second place is for 50002."""
    directory = machine(1)
    directory.chmod(0o755)
    for above in directory.parents:
        if above.stat().st_uid == os.getuid() and above.is_relative_to("/tmp"):
            above.chmod(above.stat().st_mode | 0o011)
    holder = Turns(directory)
    held = holder.take()
    assert held is not None
    many = [taker(directory, 50001) for _ in range(3)]
    for process in many:
        assert line(process).startswith("waiting")
    late = taker(directory, 50002)
    assert line(late).startswith("waiting")
    held.end()
    began = []
    for _ in range(4):
        while not (running := [ticket for ticket in tickets(directory) if ticket.runs]):
            time.sleep(0.1)
        time.sleep(1)  # the others look for a place
        began.append(running[0].uid)
        pid = int(running[0].name.split("-")[1])
        end(next(process for process in (*many, late) if process.pid == pid))
    assert began == [50001, 50002, 50001, 50001]


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_who_had_no_turn_comes_before_who_had_one(machine: Callable[[int], Path]) -> None:
    """50001 has the place and waits for another before 50002 comes; the next turn is 50002's."""
    directory = machine(1)
    directory.chmod(0o755)
    for above in directory.parents:
        if above.stat().st_uid == os.getuid() and above.is_relative_to("/tmp"):
            above.chmod(above.stat().st_mode | 0o011)
    first = taker(directory, 50001)
    assert place_of(first) == "place 0"
    second = taker(directory, 50001)
    assert line(second).startswith("waiting")
    late = taker(directory, 50002)
    assert line(late).startswith("waiting")
    assert first.stdin is not None
    first.stdin.write("\n")
    first.stdin.flush()
    assert line(first) == "ended"
    assert place_of(late) == "place 0"
    assert [ticket.uid for ticket in tickets(directory) if ticket.runs] == [50002]
    for process in (first, second, late):
        end(process)


def test_a_place_is_a_core() -> None:
    cores = available_cores()
    for place in range(2 * len(cores)):
        with at_place(place), one_core() as core:
            assert core == cores[::-1][place % len(cores)]
