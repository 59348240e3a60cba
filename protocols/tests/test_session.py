# SPDX-License-Identifier: Apache-2.0
"""A session whose programs fail: what is told, and that none of them is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest

from protocols.adapter import Adapter, Setup, Station
from protocols.session import Session, SessionError

STAYS = "exec sleep 60"
Make = Callable[[str, str], Session]


def launch(
    host: int, argv: Sequence[str], *, stdin: int | IO[bytes], stdout: IO[bytes], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    assert host >= 0
    return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes a session of a sender and a receiver, both shell scripts."""

    def session(sender: str, receiver: str) -> Session:
        adapter = Adapter(
            name="toy",
            title="Toy",
            feed="stdin",
            needs=("sh",),
            ready="ready",
            settle_s=0.1,
            sender=lambda _s, _files: ["sh", "-c", sender],
            receiver=lambda _s, _i: ["sh", "-c", receiver],
        )
        station = Station("10.1.0.1", "eth0")
        setup = Setup(
            build=tmp_path,
            work=tmp_path / "work",
            sender=station,
            receivers=(station,),
            group="232.1.1.1",
            port=1,
            rate_bps=0,
        )
        return Session(adapter, setup, launch, tmp_path)

    return session


@pytest.mark.parametrize(
    ("sender", "receiver", "told"),
    [
        ("echo no such group >&2; exit 3", STAYS, "exit code 3; sender0 says: no such group"),
        (STAYS, "echo no route >&2; exit 4", "exit code 4; receiver0 says: no route"),
    ],
)
def test_a_program_that_fails_at_its_start_is_quoted(
    make: Make, sender: str, receiver: str, told: str
) -> None:
    session = make(sender, receiver)
    with pytest.raises(SessionError, match=told):
        session.get_ready()
    session.stop()
    assert all(program.code is not None for program in session.programs)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("echo disk full >&2; exit 7", "sender0 ended with 7; sender0 says: disk full"),
        ("kill -9 $$", "sender0 ended with -9; sender0 says: ready"),
    ],
)
def test_a_sender_that_ends_while_files_come_is_quoted(make: Make, end: str, told: str) -> None:
    session = make(f"echo ready >&2; read line; {end}", STAYS)
    session.get_ready()
    session.send(Path("a"))
    deadline = time.monotonic() + 10
    with pytest.raises(SessionError, match=told):
        while time.monotonic() < deadline:
            session.send(Path("b"))
            time.sleep(0.01)
    session.stop()
    assert all(program.code is not None for program in session.programs)


def test_a_receiver_that_leaves_is_told(make: Make) -> None:
    session = make("echo ready >&2; cat >/dev/null", "sleep 0.7; echo done >&2")
    session.get_ready()
    session.receivers[0].wait(10)
    assert session.failed() == "receiver0 ended with 0: done"
    session.stop()
