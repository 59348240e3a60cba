# SPDX-License-Identifier: Apache-2.0
"""What is between the student and the lab's network, tested without a network: the shell, states of
dead labs, the commands' messages and exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs import holder, session
from labs.bash import Bash
from labs.cli import main
from labs.shell import prompt
from labs.spec import ROOM, find_lab
from labs.workdir import open_work
from topologies.emulate import marks


def test_a_line_of_words() -> None:
    assert session.line_of(["echo a | wc -c"], None) == "echo a | wc -c"
    assert session.line_of(["echo", "a b", "|"], None) == "echo 'a b' '|'"
    assert session.line_of(["ip -br a | wc -l"], "pub") == "@pub bash -c 'ip -br a | wc -l'"


def test_the_prompt_tells_the_labs_time_and_its_clock() -> None:
    assert prompt(1, 12.3451, "virtual") == "lab 1 [12.345 s] > "
    assert prompt(1, 12.3451, "native") == "lab 1 [12.345 s, native] > "


def state(pid: int, ticks: int | None) -> Path:
    directory = session.state_directory(1)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / holder.SOCKET).write_text("")
    values = {"lab": 1, "work": "/w", "student": "ann", "clock": "virtual", "started": 0.0}
    path = directory / holder.STATE
    path.write_text(json.dumps({**values, "pid": pid, "start_ticks": ticks}))
    return path


def test_what_a_dead_holder_left_is_removed() -> None:
    path = state(os.getpid(), 1)  # the process id is now another process's
    assert session.read_state(1) is None
    assert not path.exists() and not (path.parent / holder.SOCKET).exists()
    path = state(os.getpid(), marks.start_time_ticks(os.getpid()))
    assert session.read_state(1) is not None
    assert session.status()[0].startswith("lab 1: virtual time")
    path.write_text("{")
    assert session.read_state(1) is None and session.status() == []


def test_of_a_dead_holder_only_a_guests_directory_is_removed(tmp_path: Path) -> None:
    for name, stays in (("downpour-guest-x1", False), ("thesis", True)):
        path = state(os.getpid(), 1)
        exchange = tmp_path / name
        exchange.mkdir()
        path.write_text(json.dumps({**json.loads(path.read_text()), "exchange": str(exchange)}))
        assert session.read_state(1) is None
        assert exchange.exists() is stays


def test_an_address_of_a_socket_below_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server, holder.directory_socket(deep / "s")() as address:
        server.bind(address)
    assert (deep / "s").is_socket()


# -- the shell in the network


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    one = Bash(tmp_path, tmp_path, {"PATH": os.environ["PATH"], "VALUE": "5"}, {"pub": 1})
    yield one
    one.close()


def wait(bash: Bash, interrupt_after_s: float | None = None, *, hard: bool = False) -> int:
    began = time.monotonic()
    with socket.socket() as nobody:
        while (code := bash.wait(0.05, nobody, lambda: None)) is None:
            if interrupt_after_s is not None and time.monotonic() > began + interrupt_after_s:
                bash.interrupt(hard=hard)
                interrupt_after_s = None
            assert time.monotonic() < began + 60
    return code


def do(bash: Bash, line: str) -> int:
    bash.begin(line)
    return wait(bash)


def test_variables_directory_and_functions_last(bash: Bash, tmp_path: Path) -> None:
    assert do(bash, "x=$VALUE; f() { return $x; }; mkdir d; cd d") == 0
    assert do(bash, 'f; echo "$? $PWD"') == 0
    assert do(bash, "false") == 1
    assert do(bash, "if then") == 2
    assert (tmp_path / "out").read_text() == f"5 {tmp_path}/d\n"
    assert "syntax error" in (tmp_path / "err").read_text()


def test_a_host_is_a_function(bash: Bash, tmp_path: Path) -> None:
    assert do(bash, "type @pub | tail -n +4") == 0
    assert 'mnexec -a 1 "${@:-hostname}"' in (tmp_path / "out").read_text()


@pytest.mark.slow
def test_an_interrupt_ends_the_line_and_nothing_behind_and(bash: Bash, tmp_path: Path) -> None:
    bash.begin("y=3; sleep 1000 & while :; do sleep 0.1; done; echo never")
    assert wait(bash, 0.5) == 130
    assert do(bash, "echo $y; kill %1") == 0
    assert (tmp_path / "out").read_text() == "3\n"


@pytest.mark.slow
def test_a_line_that_takes_no_interrupt_is_ended_with_its_shell(bash: Bash, tmp_path: Path) -> None:
    bash.begin("trap '' INT; while :; do :; done")
    assert wait(bash, 0.3, hard=True) == 128 + 9
    assert do(bash, "echo ${y:-gone}") == 0
    assert (tmp_path / "out").read_text() == "gone\n"
    assert "a new one starts" in (tmp_path / "err").read_text()


def test_exit_gives_its_code_and_a_new_shell(bash: Bash, tmp_path: Path) -> None:
    assert do(bash, "exit 7") == 7
    assert do(bash, "true") == 0
    assert not list(tmp_path.glob("line-*")), "each line is a file while it runs"


# -- commands


def labs(*arguments: str) -> int:
    return main(arguments)


@pytest.mark.slow
def test_messages_and_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labs("list") == 0
    assert labs("start", "77") == 2
    assert labs("shell", "1", "--dir", str(tmp_path / "none")) == 2
    assert labs("check", "1", "--dir", str(tmp_path / "none")) == 2
    assert labs("run", "1", "--dir", str(tmp_path)) == 2
    assert labs("grade", str(tmp_path)) == 2
    out, err = capsys.readouterr()
    assert " 1  A first multipoint VLAN by hand (network, 90 min, 100 points)" in out
    for line in (
        "lab: found '77'; valid: 1, ",
        f"lab: found no lab 1 in {tmp_path}/none; valid: start it first (make lab N=1)",
        f"nothing to check: found no lab 1 in {tmp_path}/none",
        "lab: found no command; valid: downpour lab run N -- COMMAND",
        f"lab: {tmp_path}: found no result-N.json",
    ):
        assert line in err


def test_a_lab_that_was_started_and_is_not_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from labs.spec import find_lab
    from labs.workdir import open_work

    open_work(find_lab(1), tmp_path / "w", "ann")
    assert labs("check", "1", "--dir", str(tmp_path / "w")) == 2
    assert labs("stop", "1", "--dir", str(tmp_path / "w")) == 0
    assert labs("reset", "1", "--dir", str(tmp_path / "w")) == 0
    out, err = capsys.readouterr()
    assert "nothing to check: lab 1 is not up; valid: make lab N=1" in err
    assert "lab 1: was not up" in out and "lab 1 is in its start state" in out
    assert not (tmp_path / "w/result-1.json").exists()


def test_make_lab_without_a_number_says_what_is_valid() -> None:
    done = subprocess.run(
        ["make", "-s", "lab-check"], cwd=ROOM.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "found no N; valid: make lab-check N=1" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may have native networks: NOT tested as root")
def test_native_needs_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labs("start", "1", "--dir", str(tmp_path / "w"), "--clock", "native") == 2
    assert "needs root" in capsys.readouterr().err


@pytest.mark.slow
def test_module_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "downpour", "lab", "status"], cwd=ROOM.parent,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == "no lab is up\n"


def test_what_a_killed_native_lab_left_is_removed_by_stop(tmp_path: Path) -> None:
    """It was killed before it reported where its files are."""
    lab = find_lab(1)
    work, _ = open_work(lab, tmp_path / "work", "ann")
    state = session.state_directory(1)
    left = state / "downpour-lab-abc" / "commands"
    left.mkdir(parents=True)
    (state / "lock").touch()
    assert session.stop(lab, work) is None
    assert not left.parent.exists()
