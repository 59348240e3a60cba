# SPDX-License-Identifier: Apache-2.0
"""Parts on two machines: what each accepts from the other, with fake kernels and machines, and the
self-test between two network namespaces."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.places import ROOT
from virtual.guest import GuestSpec
from virtual.parts import desk, machines
from virtual.parts.calendar import CalendarError
from virtual.parts.links import LinkFile, LinkFiles
from virtual.parts.messages import BATCH_BYTES, BATCH_HEAD, LINK_BYTES, Ended, Kind, Message, Stream
from virtual.tests.test_desk import MS, WINDOW, PlayedKernel
from virtual.tests.two_machines import PORT, two_machines

LINKS = [LinkFile("1-down", 0, 1), LinkFile("1-up", 1, 0)]
DOWN, UP = range(2)
HEAD = struct.Struct("!IIIQQ")


# -- bytes ------------------------------------------------------------------------------------
MESSAGES = st.builds(
    Message,
    st.sampled_from([Kind.ORDER, Kind.GONE, Kind.BATCH, Kind.PROBLEM]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=200),
)


@given(st.lists(MESSAGES, max_size=5), st.integers(1, 50))
def test_messages_arrive_however_they_are_cut(sent: list[Message], step: int) -> None:
    data = b"".join(message.to_bytes() for message in sent)
    stream, found = Stream("b"), []
    for at in range(0, len(data), step):
        found += stream.feed(data[at : at + step])
    assert found == sent


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_are_messages_or_refused(pieces: list[bytes]) -> None:
    stream = Stream("b")
    with contextlib.suppress(CalendarError):
        for piece in pieces:
            for message in stream.feed(piece):
                assert message.text.isprintable()


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (
            b"GET / HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n",
            "a message of kind 1195725856; valid: 1 to 7",
        ),
        (HEAD.pack(0, 0, 0, 0, 0), "a message of kind 0; valid: 1 to 7"),
        (HEAD.pack(Kind.WAIT, 0, 1, 0, 0), "WAIT with 1 bytes; valid: at most 0"),
        (
            HEAD.pack(Kind.BATCH, 0, BATCH_BYTES + 1, 0, 0),
            f"BATCH with {BATCH_BYTES + 1} bytes; valid: at most {BATCH_BYTES}",
        ),
    ],
)
def test_what_is_no_message_is_refused_before_it_is_held(data: bytes, refused: str) -> None:
    with pytest.raises(CalendarError, match=f"^b: found {re.escape(refused)}$"):
        Stream("b").feed(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
WORK = machines.Work(
    {"kernel": "ab"}, WINDOW, LINKS, {1: GuestSpec(("true", "x"), seed=7)}, {"parts.json": "{}"}
)


def test_an_order_arrives_as_it_was_sent() -> None:
    found = machines.Work.from_json(WORK.to_json())
    assert dataclasses.replace(found, parts={}) == dataclasses.replace(WORK, parts={})
    assert (found.parts[1].argv, found.parts[1].seed) == (("true", "x"), 7)


@given(st.sampled_from(["same", "window_ns", "links", "parts", "files"]), JSON)
def test_any_order_is_one_or_refused(key: str, value: Any) -> None:
    raw = {**json.loads(WORK.to_json()), key: value}
    with contextlib.suppress(ValueError):
        machines.Work.from_json(json.dumps(raw).encode())


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("files", {"../x": ""}, "valid: a name such as 1-down, parts.json"),
        ("files", {"init": ""}, "found ''init''; valid: a name"),
        ("links", [{"name": "a/b", "writer": 0, "reader": 1}], "valid: a name"),
        ("parts", [], "found 0 parts and 2 links; valid: up to 16 parts"),
        ("window_ns", 0, "found '0'; valid: a number from 1 to"),
    ],
)
def test_an_order_stays_in_its_place(key: str, value: Any, refused: str) -> None:
    raw = {**json.loads(WORK.to_json()), key: value}
    with pytest.raises(ValueError, match=refused):
        machines.Work.from_json(json.dumps(raw).encode())


def test_only_whole_batches_of_the_other_machines_links_are_written(tmp_path: Path) -> None:
    for link in LINKS:
        (tmp_path / link.name).write_bytes(b"")
        os.truncate(tmp_path / link.name, LINK_BYTES)
    files = LinkFiles(tmp_path, LINKS, {0})

    def write(index: int, number: int, body: bytes) -> None:
        files.write(Message(Kind.BATCH, index, number, body=body), {1}, "b")

    body = BATCH_HEAD.pack(5, 3, 0) + b"abc"
    write(UP, 5, body)
    assert (tmp_path / "1-up").read_bytes()[BATCH_BYTES:][: len(body)] == body
    for index, number, wrong in [
        (DOWN, 6, BATCH_HEAD.pack(6, 0, 0)),  # written here
        (9, 6, BATCH_HEAD.pack(6, 0, 0)),
        (UP, 5, body),  # again
        (UP, 6, body),
        (UP, 6, BATCH_HEAD.pack(6, 4, 0) + b"abc"),
        (UP, 6, b""),
    ]:
        with pytest.raises(CalendarError, match="^b: found "):
            write(index, number, wrong)


# -- fake kernels and machines ------------------------------------------------------------------
class PlayedMachine:
    """The other end of a process's connection to another machine."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self._stream, self._found = end, Stream("played"), list[Message]()
        end.settimeout(20)

    def send(self, *messages: Message) -> None:
        self.socket.sendall(b"".join(message.to_bytes() for message in messages))

    def message(self) -> Message:
        while not self._found:
            data = self.socket.recv(1 << 16)
            assert data
            self._found += self._stream.feed(data)
        return self._found.pop(0)


@contextmanager
def beside_a_machine(
    directory: Path, module: str, here: int
) -> Iterator[tuple[subprocess.Popen[str], PlayedKernel, PlayedMachine]]:
    """Start a desk or a proxy with a played kernel, part `here`, and a played machine with the
    other of two parts."""
    for link in LINKS:
        (directory / link.name).touch()
        os.truncate(directory / link.name, LINK_BYTES)
    for output in ("stdout", "stderr"):
        (directory / output).write_text("said\n")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(directory / "calendar"))
        listener.listen(1)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ours = stack.enter_context(socket.create_connection(server.getsockname()))
        theirs = stack.enter_context(server.accept()[0])
        place = desk.Place(here, listener.fileno(), str(directory / "exit"))
        far = desk.Machine("far", theirs.fileno(), [1 - here])
        order = desk.Order(WINDOW, True, [place], [far], str(directory), LINKS)
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-S", "-m", module, json.dumps(dataclasses.asdict(order))],
                cwd=ROOT,
                pass_fds=[listener.fileno(), theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        theirs.close()
        kernel = PlayedKernel(directory / "calendar")
        kernel.start()
        yield process, kernel, PlayedMachine(ours)


def put_batch(directory: Path, link: str, number: int, text: bytes) -> bytes:
    body = BATCH_HEAD.pack(number, len(text), 0) + text
    with (directory / link).open("r+b") as stream:
        stream.seek(number % 2 * BATCH_BYTES)
        stream.write(body)
    return body


def test_a_desk_and_another_machine_share_windows(tmp_path: Path) -> None:
    with beside_a_machine(tmp_path, "virtual.parts.desk", 0) as (process, kernel, far):
        kernel.wait(3 * MS)
        assert kernel.is_held()
        up = BATCH_HEAD.pack(1, 4, 0) + b"up 1"
        down = put_batch(tmp_path, "1-down", 1, b"down 1")
        far.send(Message(Kind.BATCH, UP, 1, body=up), Message(Kind.WAIT, 1, 4 * MS))
        assert kernel.runs() == (3 * MS, WINDOW)
        assert far.message() == Message(Kind.BATCH, DOWN, 1, body=down)
        assert far.message() == Message(Kind.RUN, 1, 4 * MS, WINDOW)
        assert (tmp_path / "1-up").read_bytes()[BATCH_BYTES:][: len(up)] == up
        ended = json.dumps(dataclasses.asdict(Ended(0, "rows", ""))).encode()
        far.send(Message(Kind.GONE, 1, body=ended))
        far.socket.close()
        kernel.wait(15 * MS)
        assert kernel.runs() == (15 * MS, 2 * WINDOW)
        (tmp_path / "exit").write_text("0\n")
        kernel.socket.close()
        out, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert json.loads(out)["ended"] == {"1": {"code": 0, "stdout": "rows", "stderr": ""}}


FAILED = json.dumps(dataclasses.asdict(Ended(3, "", "no\nnetwork\n"))).encode()
LIES = {
    "past": (Message(Kind.WAIT, 1, 1), r"part 1 wants to run at 1 ns; valid: from 10000000 ns on"),
    "twice": (Message(Kind.WAIT, 1, WINDOW), "part 1 waits, but it did not run"),
    "another part": (Message(Kind.WAIT, 0, WINDOW), r"far: found part 0; valid: \[1\]"),
    "kind": (Message(Kind.RUN, 1), "far: found RUN; valid: WAIT, GONE, BATCH"),
    "batch": (Message(Kind.BATCH, DOWN, 1), "far: found a batch of link 0; valid: its own"),
    "code": (Message(Kind.GONE, 1, body=b"[" * 90000), "far: found .*; valid: a part's code .*"),
    "failed": (Message(Kind.GONE, 1, body=FAILED), "part 1: exit code 3: network"),
    "problem": (Message(Kind.PROBLEM, body=b"no\n\x1b[2J memory"), r"far: no \?\[2J memory"),
}


@pytest.mark.parametrize("lie", [*LIES, "gone", "bytes"])
def test_a_machine_that_lies_or_dies_ends_the_calendar(tmp_path: Path, lie: str) -> None:
    with beside_a_machine(tmp_path, "virtual.parts.desk", 0) as (process, kernel, far):
        kernel.wait(3 * MS)
        far.send(Message(Kind.WAIT, 1, 4 * MS))
        kernel.runs()
        far.message()
        if lie == "gone":
            far.socket.close()
            expected = "far: it is gone"
        elif lie == "bytes":
            far.socket.sendall(b"x" * 100)
            expected = "far: found a message of kind .*"
        else:
            message, expected = LIES[lie]
            far.send(*[message] * (2 if lie == "twice" else 1))
        _, said = process.communicate(timeout=20)
        assert kernel.socket.recv(1) == b""
    assert process.returncode == 1
    assert re.fullmatch(f"{expected}\n", said), said


def test_a_proxy_passes_on_windows_and_batches(tmp_path: Path) -> None:
    with beside_a_machine(tmp_path, "virtual.parts.proxy", 1) as (process, kernel, far):
        up = put_batch(tmp_path, "1-up", 1, b"up 1")
        kernel.wait(3 * MS)
        assert far.message() == Message(Kind.BATCH, UP, 1, body=up)
        assert far.message() == Message(Kind.WAIT, 1, 3 * MS)
        down = BATCH_HEAD.pack(1, 6, 0) + b"down 1"
        far.send(Message(Kind.BATCH, DOWN, 1, body=down), Message(Kind.RUN, 1, 3 * MS, WINDOW))
        assert kernel.runs() == (3 * MS, WINDOW)
        assert (tmp_path / "1-down").read_bytes()[BATCH_BYTES:][: len(down)] == down
        kernel.wait(None)
        assert far.message() == Message(Kind.FOREVER, 1)
        (tmp_path / "exit").write_text("4\n")
        kernel.socket.close()
        gone = far.message()
        assert (gone.kind, gone.index) == (Kind.GONE, 1)
        assert Ended.from_json(gone.body, "") == Ended(4, "said\n", "said\n")
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said


@pytest.mark.parametrize("fault", ["gone", "time", "part", "kernel"])
def test_a_proxy_ends_with_the_calendars_machine(tmp_path: Path, fault: str) -> None:
    with beside_a_machine(tmp_path, "virtual.parts.proxy", 1) as (process, kernel, far):
        kernel.wait(3 * MS)
        far.message()
        match fault:
            case "gone":
                far.socket.close()
                expected = "far: it is gone"
            case "time":
                far.send(Message(Kind.RUN, 1, 2 * MS, WINDOW))
                expected = "far: found a run from 2000000 to 10000000 ns; valid: from when"
            case "part":
                far.send(Message(Kind.RUN, 0, 3 * MS, WINDOW))
                expected = "far: found RUN of part 0; valid: RUN of a part that waits: [1]"
            case _:
                kernel.socket.close()
                expected = "part 1: its kernel ended without a result"
        _, said = process.communicate(timeout=20)
        if fault != "gone":
            assert expected in far.message().text
    assert process.returncode == 1
    assert said.startswith(expected)
    assert said.count("\n") == 1


# -- guests on two machines -----------------------------------------------------------------------
def kernels_below(pid: int) -> list[int]:
    """Return the kernels of guests that a process started."""
    above = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                above[int(entry.name)] = int(stat[1])
    wardens = {one for one, parent in above.items() if parent == pid}
    found = [one for one, parent in above.items() if parent in wardens]
    return [one for one in found if b"time-travel" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.emulated
@pytest.mark.root
@pytest.mark.usefixtures("kernel")
def test_guests_on_two_machines_are_those_of_one() -> None:
    """The row `on two machines` compares every arrival at both guests, in nanoseconds. The machines
    share no directory for guests; what a window costs is in the table's last line."""
    with two_machines() as (a, b), b.popen("virtual", "parts", f"{b.address}:{PORT}") as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"waiting for parts at {b.address}:{PORT}\n"
            argv = ("virtual", "selftest", "--parts", "--machine", f"{b.address}:{PORT}")
            with a.popen(*argv) as test:
                said, _ = test.communicate(timeout=1200)
            assert test.returncode == 0, said
            assert re.search(r"on two machines: other arrivals of 8000 +results +0 +0", said), said
            assert re.search(r"real time of a window: [\d.]+ ms at once, [\d.]+ ms on two", said)
            print(said)
            assert server.stdout.readline() == f"{a.address}: ended: exit codes [0]\n"
        finally:
            server.kill()


@pytest.mark.emulated
@pytest.mark.root
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("victim", ["proxy", "calendar"])
def test_a_machine_that_dies_ends_all_guests(victim: str) -> None:
    argv = ("virtual", "selftest", "--parts", "--machine")
    with (
        two_machines() as (a, b),
        b.popen("virtual", "parts", f"{b.address}:{PORT}") as server,
        a.popen(*argv, f"{b.address}:{PORT}") as test,
    ):
        try:
            deadline = time.monotonic() + 300
            while not (there := kernels_below(server.pid)):
                assert time.monotonic() < deadline and test.poll() is None
                time.sleep(0.1)
            watched = {os.pidfd_open(pid) for pid in there + kernels_below(test.pid)}
            os.kill((server if victim == "proxy" else test).pid, signal.SIGKILL)
            while watched:
                ready, _, _ = select.select(list(watched), [], [], 30)
                assert ready
                watched -= set(ready)
            assert test.stdout is not None and server.stdout is not None
            if victim == "proxy":
                assert test.stdout.read().endswith(f"\nvirtual: {b.address}:{PORT}: it is gone\n")
                assert test.wait() == 1
            else:
                server.stdout.readline()
                assert server.stdout.readline() == f"{a.address}: it is gone\n"
                assert server.poll() is None  # it serves on
        finally:
            test.kill()
            server.kill()
