# SPDX-License-Identifier: Apache-2.0
"""Each lab with a network, in one guest: its start state fails, its solution passes, and typical
wrong answers fail with the hint that the solution's file names (`# fails: CHECK HINT`)."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labs import session
from labs.checking import CheckResult, Context, Status, exit_code
from labs.session import Connection, SessionError
from labs.spec import ROOM, Lab, find_lab
from labs.workdir import Work, open_work
from topologies.emulate import marks
from virtual.guest import CHECKOUT
from virtual.kernel_build import Kernel

pytestmark = pytest.mark.emulated
FAILS = re.compile(r"^# fails: (\S+) (\S+)$", re.MULTILINE)
# Lab -> checks that the start state passes: what exists before the student does anything.
AT_START: dict[int, set[str]] = {1: set(), 2: set(), 3: {"path"}, 7: {"whole"}}


@contextmanager
def up(lab: Lab, directory: Path) -> Iterator[tuple[Work, Connection]]:
    work, _ = open_work(lab, directory, "test student")
    session.start(lab, work, "virtual", print)
    try:
        connection = session.connect(lab, work)
        yield work, connection
    finally:
        session.stop(lab, work)


def run(connection: Connection, line: str) -> str:
    out = io.BytesIO()
    code = connection.run(line, out, out)
    text = out.getvalue().decode()
    assert code == 0, f"{line}\n{text}"
    return text


def by_name(results: list[CheckResult]) -> dict[str, CheckResult]:
    return {r.name: r for r in results}


@pytest.mark.parametrize("number", AT_START)
def test_start_solution_and_wrong_answers(number: int, kernel: Kernel, tmp_path: Path) -> None:
    del kernel
    lab = find_lab(number)
    solutions = ROOM / "solutions" / lab.folder.name
    there = CHECKOUT / "labs/solutions" / lab.folder.name
    with up(lab, tmp_path / "work") as (work, connection):
        before = connection.check(None, print)
        assert exit_code(before) == 1
        assert {r.name for r in before if r.status is Status.PASSED} == AT_START[number]
        assert all(r.hint for r in before if r.status is not Status.PASSED)
        if number == 2:  # nothing is changed yet, and nothing is left behind
            assert "All is as asked." in run(connection, "verify")

        run(connection, f"SOLUTION={there}; . $SOLUTION/solution.sh")
        after = connection.check(None, print)
        assert exit_code(after) == 0, [r for r in after if r.status is not Status.PASSED]

        wrongs = sorted(solutions.glob("wrong-*.sh"))
        assert len(wrongs) >= 2
        for wrong in wrongs:
            match = FAILS.search(wrong.read_text())
            assert match is not None, wrong
            name, key = match.groups()
            run(connection, f". $SOLUTION/{wrong.name}")
            (found,) = connection.check(name, print)
            own = lab.parameters(work.student)
            context = Context(lab, work.directory, work.student, own, {})
            (check,) = (c for c in lab.spec.checks if c.name == name)
            assert found.status is Status.FAILED, f"{wrong.name}: {found}"
            assert found.hint == context.shown(" ".join(check.hints[key].split())), wrong.name
            run(connection, "undo")


def descendants(pid: int) -> list[Path]:
    """Return the directories below /proc of a process's children, their children, and so on."""
    found = [
        p for p in Path("/proc").iterdir()
        if p.name.isdigit() and marks.parent_of(int(p.name)) == pid
    ]  # fmt: skip
    return [*found, *(q for p in found for q in descendants(int(p.name)))]


def test_time_stands_still_and_a_shell_lasts(kernel: Kernel, tmp_path: Path) -> None:
    """In lab 1's network no time passes between commands, what a line leaves is there for the next,
    background commands continue, and an interrupt ends a line; nothing uses a processor while
    idle."""
    del kernel
    lab = find_lab(1)
    with up(lab, tmp_path / "work") as (work, connection):
        run(connection, "x=17; cd /; date +%s.%N >/tmp/first")
        was = connection.now_s
        time.sleep(1.0)
        text = run(connection, "echo $x $PWD; cat /tmp/first; date +%s.%N")
        assert connection.now_s - was < 0.3, "a second of thinking took no time of the lab's"
        words = text.split()
        assert words[:2] == ["17", "/"]
        assert 0.1 <= float(words[3]) - float(words[2]) < 0.2

        run(connection, "(sleep 5; echo late >/tmp/late) &")
        assert run(connection, "ls /tmp/late 2>/dev/null; true") == ""
        assert run(connection, "sleep 6; cat /tmp/late") == "late\n"

        state = session.read_state(1)
        assert state is not None
        # The walls' own process, which waits for the kernel, always sleeps.
        kernels = [p for p in descendants(state["pid"]) if (p / "comm").read_text() == "kernel\n"]
        assert kernels, [(p / "comm").read_text() for p in descendants(state["pid"])]
        for process in kernels:
            assert (process / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        busy = [(p / "stat").read_text().rpartition(")")[2].split()[11:13] for p in kernels]
        time.sleep(1.0)
        assert busy == [(p / "stat").read_text().rpartition(")")[2].split()[11:13] for p in kernels]
        argv = [
            sys.executable,
            "-m",
            "downpour",
            "lab",
            "run",
            "1",
            "--dir",
            str(work.directory),
            "--",
        ]
        endless = subprocess.Popen(
            [*argv, "echo begun; while :; do sleep 1; done"],
            cwd=ROOM.parent,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert endless.stdout is not None
        assert endless.stdout.readline() == b"begun\n"
        with pytest.raises(SessionError, match="another command runs in this lab"):
            connection.hello()
        os.killpg(endless.pid, signal.SIGINT)
        assert endless.wait(timeout=120) == 130
        endless.stdout.close()
        assert run(connection, "echo $x") == "17\n", "the shell is the same"

        argv[4] = "check"
        checks = subprocess.Popen(
            argv[:-1], cwd=ROOM.parent, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert checks.stderr is not None
        assert "..." in checks.stderr.readline()
        os.killpg(checks.pid, signal.SIGINT)
        rest = checks.communicate(timeout=120)[1]
        assert checks.returncode == 2 and "interrupted; no result is written" in rest
        assert rest.count("...") < len(lab.spec.checks) - 1
        assert not (work.directory / "result-1.json").exists()

        (work.directory / "mine").write_text("from outside\n")
        assert run(connection, f"cat {work.directory}/mine") == "from outside\n"
        run(connection, f"echo from inside >{work.directory}/yours")
        assert (work.directory / "yours").read_text() == "from inside\n"
    assert session.read_state(1) is None
