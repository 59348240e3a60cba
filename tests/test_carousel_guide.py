# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/guide/fcast.md work as written, each on its own machines."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from common.places import BUILD
from tests.prose import ROOT

PAGE: Final = ROOT / "docs/guide/fcast.md"
PROGRAMS: Final = BUILD / "fcast"
SERVER, RECEIVER = 1, 7  # 10.0.0.N of the page
CLASS: Final = 30
LIMIT_S: Final = 120.0

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    pytest.mark.skipif(
        not (PROGRAMS / "fcast-send").exists(), reason="SKIPPED: the C programs are not built"
    ),
]


def recipe(name: str) -> list[str]:
    """Return the blocks of commands below a recipe's name."""
    _, _, text = PAGE.read_text().partition(f"**{name}")
    section = re.split(r"^(?:\*\*|## )", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def wait_for(what: str, done: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < until, f"no {what} within {LIMIT_S:g} s"
        time.sleep(0.02)


@dataclass(frozen=True)
class Machine:
    """A network namespace with an address, and a directory."""

    number: int
    pid: int
    directory: Path

    def start(self, commands: str) -> subprocess.Popen[bytes]:
        """Start the page's commands, with this machine's address in place of the receiver's."""
        own = commands.replace(f"10.0.0.{RECEIVER} ", f"10.0.0.{self.number} ")
        with (self.directory / "said").open("ab") as said:
            return subprocess.Popen(
                ["nsenter", "-t", str(self.pid), "-n", "bash", "-e", "-c", own],
                env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
                cwd=self.directory, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return (self.directory / "said").read_text()


def holder(stack: ExitStack) -> int:
    """Make a network namespace that lasts as long as `stack`; return its process."""
    process = stack.enter_context(subprocess.Popen(["unshare", "-n", "sleep", "600"]))
    stack.callback(process.kill)
    here = Path("/proc/self/ns/net").stat().st_ino
    wait_for("namespace", lambda: Path(f"/proc/{process.pid}/ns/net").stat().st_ino != here)
    return process.pid


def ip(pid: int, *lines: str) -> None:
    subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "ip", "-batch", "-"],
        input="\n".join(lines), text=True, check=True,
    )  # fmt: skip


@contextmanager
def machines(top: Path, numbers: list[int]) -> Iterator[dict[int, Machine]]:
    """Connect machines to one switch: a bridge of the kernel, in its own namespace."""
    with ExitStack() as stack:
        switch = holder(stack)
        try:
            ip(switch, "link add br0 type bridge mcast_snooping 0", "link set br0 up")
        except subprocess.CalledProcessError:
            pytest.skip("SKIPPED: this kernel has no bridge: NO recipe was tested")
        found = {}
        for number in numbers:
            pid = holder(stack)
            ip(
                switch,
                f"link add p{number} type veth peer name eth0 netns {pid}",
                f"link set p{number} master br0 up",
            )
            ip(pid, f"addr add 10.0.0.{number}/24 dev eth0", "link set eth0 up", "link set lo up")
            (top / f"{number}").mkdir()
            found[number] = Machine(number, pid, top / f"{number}")
        yield found


def end(process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGTERM) -> None:
    if process.poll() is None:
        os.killpg(process.pid, by)
    process.wait(LIMIT_S)


def symbols(said: str) -> list[int]:
    """Return how many datagrams each run received until it had the file, if it has it."""
    return [int(n) for n in re.findall(r"^toi=.* received=(\d+)", said, re.MULTILINE)]


@pytest.mark.long
def test_software_for_a_class_and_a_late_joiner(tmp_path: Path) -> None:
    to_send, to_receive = recipe("Software for a class")
    assert str(CLASS) in PAGE.read_text()
    image = os.urandom(12_000_000)
    numbers = list(range(SERVER, SERVER + CLASS + 1))
    with machines(tmp_path, numbers) as found, ExitStack() as stack:
        server = found.pop(SERVER)
        (server.directory / "image.iso").write_bytes(image)
        sender = server.start(to_send)
        stack.callback(end, sender)
        wait_for("session file", (server.directory / "image.sdp").exists)
        for machine in found.values():
            shutil.copy(server.directory / "image.sdp", machine.directory)
        late = found.pop(numbers[-1])
        waiting = {m.number: m.start(to_receive) for m in found.values()}
        for number, process in waiting.items():
            stack.callback(end, process)
            assert process.wait(LIMIT_S) == 0, found[number].said()
        for machine in found.values():
            assert (machine.directory / "images/image.iso").read_bytes() == image

        # A receiver starts after the others have left, loses power, and starts again.
        first = late.start(to_receive)
        stack.callback(end, first)
        parts = late.directory / "images/.fcast"
        wait_for("part", lambda: any(p.stat().st_size > 2e6 for p in parts.rglob("*")))
        time.sleep(0.5)
        end(first, signal.SIGKILL)
        assert not (late.directory / "images/image.iso").exists()
        second = late.start(to_receive)
        stack.callback(end, second)
        assert second.wait(LIMIT_S) == 0, late.said()
        assert (late.directory / "images/image.iso").read_bytes() == image
        (needed,) = symbols(late.said())
        others = [symbols(m.said())[0] for m in found.values()]
        assert needed < 0.9 * min(others), "it continues with what it had"
        assert sender.poll() is None, server.said()


@pytest.mark.long
def test_a_satellite_feed(tmp_path: Path) -> None:
    to_send, to_receive = recipe("A satellite feed")
    make_key, send = to_send.splitlines()
    with machines(tmp_path, [SERVER, RECEIVER]) as found, ExitStack() as stack:
        server, receiver = found[SERVER], found[RECEIVER]
        assert server.start(make_key).wait(LIMIT_S) == 0
        shutil.copy(server.directory / "feed.key", receiver.directory)
        stays = receiver.start(to_receive)
        stack.callback(end, stays, signal.SIGKILL)
        today = server.directory / "today"
        for day in range(2):
            shutil.rmtree(today, ignore_errors=True)
            today.mkdir()
            for name in ("map", "news"):
                (today / f"{name}{day}").write_bytes(os.urandom(100_000))
            sender = server.start(send)
            stack.callback(end, sender)
            assert sender.wait(LIMIT_S) == 0, server.said()
            for file in today.iterdir():
                got = receiver.directory / "feed" / file.name
                wait_for(f"file {file.name}", got.exists)
                assert got.read_bytes() == file.read_bytes()
        assert stays.poll() is None, receiver.said()
        end(stays)
        assert stays.returncode == 0, receiver.said()
