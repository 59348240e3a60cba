# SPDX-License-Identifier: Apache-2.0
"""The client of a lab's network: start it, run commands and checks in it, end it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from common.files import os_error_text
from common.places import ROOT
from labs.checking import CheckResult
from labs.holder import LOCK, SOCKET, STATE, directory_socket, remove_leftovers
from labs.spec import Lab
from labs.workdir import Work
from topologies.emulate import background_process, marks
from virtual.cores import cache_directory

STOP_S: Final = 30.0
ANSWER_S: Final = 10.0
INTERRUPTS: Final = 3  # the third one gives up on the command


class SessionError(Exception):
    """The lab's network failed; the text says why."""


class NotRunning(SessionError):
    """The lab is not up."""


def state_root() -> Path:
    """Return this user's state directory, which must not survive a reboot."""
    if given := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(given) / "downpour-labs"
    return cache_directory() / "labs"


def state_directory(number: int) -> Path:
    """Return the directory in which a running lab keeps its state."""
    return state_root() / str(number)


def read_state(number: int) -> dict[str, Any] | None:
    """Return what the lab's holder says about itself; None if the lab is not up. Removes what a
    dead holder left behind."""
    directory = state_directory(number)
    state: dict[str, Any] = {}
    try:
        state = json.loads((directory / STATE).read_text(encoding="utf-8"))
        alive = marks.start_time_ticks(int(state["pid"])) == state["start_ticks"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        alive = False
    if alive:
        return state
    for name in (STATE, SOCKET):
        (directory / name).unlink(missing_ok=True)
    exchange = Path(str(state.get("exchange", "")))
    if exchange.name.startswith(("downpour-guest-", "downpour-lab-")):
        shutil.rmtree(exchange, ignore_errors=True)
    return None


def line_of(words: Sequence[str], host: str | None) -> str:
    """Return a line for the lab's shell. A single word counts as a whole line, as with `ssh`."""
    line = words[0] if len(words) == 1 else shlex.join(words)
    return line if host is None else f"@{host} bash -c {shlex.quote(line)}"


def start(lab: Lab, work: Work, clock: str, say: Callable[[str], None]) -> None:
    """Bring the lab's network up in the background; return when it is ready. Raises
    SessionError."""
    running = read_state(lab.number)
    if running is not None:
        if running["work"] != str(work.directory):
            raise SessionError(
                f"lab {lab.number} is up with the files in {running['work']}; valid: end it first "
                f"(make lab-stop N={lab.number} DIR={running['work']})"
            )
        say(f"the network is already up ({running['clock']} time)")
        return
    directory = state_directory(lab.number)
    log = directory / "holder.log"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.write_bytes(b"")
    except OSError as error:
        raise SessionError(os_error_text(error)) from None
    began = time.monotonic()
    failure = background_process.start(
        [
            *(sys.executable, "-m", "labs", "_hold"),
            *(str(lab.number), str(directory), str(work.directory), clock),
        ],
        lambda text: say(f"  [{time.monotonic() - began:4.1f} s] {text}"),
        _end_holder,
        log=log,
        cwd=ROOT,
    )
    if failure is not None:
        raise SessionError(failure)
    say(f"the network is up after {time.monotonic() - began:.1f} s")


def _end_holder(holder: subprocess.Popen[bytes]) -> None:
    _end(holder.pid)
    holder.wait()


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def connect(lab: Lab, work: Work) -> Connection:
    """Connect to the lab's holder. Raises NotRunning, SessionError."""
    state = read_state(lab.number)
    if state is None or state["work"] != str(work.directory):
        raise NotRunning(f"lab {lab.number} is not up; valid: make lab N={lab.number}")
    return Connection(lab.number, str(state["clock"]))


def stop(lab: Lab, work: Work) -> str | None:
    """End the network; return the clock it had, None if it was not up. Raises SessionError."""
    state = read_state(lab.number)
    if state is None:
        _end_starting(lab, work)
    if state is None or state["work"] != str(work.directory):
        return None
    pid, ticks = int(state["pid"]), state["start_ticks"]
    _end(pid)
    deadline = time.monotonic() + STOP_S
    while marks.start_time_ticks(pid) == ticks:
        if time.monotonic() > deadline:
            raise SessionError(f"lab {lab.number}: process {pid} does not end")
        time.sleep(0.05)
    read_state(lab.number)
    return str(state["clock"])


def _end_starting(lab: Lab, work: Work) -> None:
    """End a network that was still starting when its starter was killed."""
    place = os.fsencode(f"_hold\0{lab.number}\0{state_directory(lab.number)}\0{work.directory}\0")
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and place in (entry / "cmdline").read_bytes():
                pid = int(entry.name)
                ticks, deadline = marks.start_time_ticks(pid), time.monotonic() + STOP_S
                _end(pid)
                while marks.start_time_ticks(pid) == ticks and time.monotonic() < deadline:
                    time.sleep(0.05)
    with contextlib.suppress(OSError), (state_directory(lab.number) / LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_leftovers(state_directory(lab.number))
        (state_directory(lab.number) / SOCKET).unlink()  # left by a network that was killed


def status() -> list[str]:
    """Return a line for each running lab of this user."""
    lines = []
    root = state_root()
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if path.name.isdigit() and (state := read_state(int(path.name))) is not None:
            minutes = (time.time() - float(state["started"])) / 60
            lines.append(
                f"lab {path.name}: {state['clock']} time, {minutes:.0f} min old, of "
                f"'{state['student']}', files in {state['work']}, process {state['pid']}"
            )
    return lines


@contextmanager
def _interrupts_sent(connection: socket.socket) -> Iterator[None]:
    """Pass Ctrl-C to the command; the third one raises KeyboardInterrupt here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    number = 0

    def send(_number: int, _frame: object) -> None:
        nonlocal number
        number += 1
        if number >= INTERRUPTS:
            raise KeyboardInterrupt
        with contextlib.suppress(OSError):
            connection.sendall(b"interrupt\n")

    old = signal.signal(signal.SIGINT, send)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


class Connection:
    """A connection to the holder of a running lab; each request has its own socket."""

    def __init__(self, number: int, clock: str) -> None:
        self.number, self.clock = number, clock
        self.now_s = 0.0  # the lab's time when the last request had ended

    def hello(self) -> None:
        """Ask for the time. Raises SessionError."""
        self._request({"kind": "hello"}, lambda _: None)

    def run(self, line: str, out: BinaryIO, err: BinaryIO) -> int:
        """Run a line in the lab's shell, copy its output, and return its exit code. Ctrl-C
        interrupts the line, a second one ends its shell. Raises SessionError."""

        def show(answer: dict[str, Any]) -> None:
            for name, stream in (("out", out), ("err", err)):
                if name in answer:
                    stream.write(answer[name].encode("latin-1"))
                    stream.flush()

        return int(self._request({"kind": "run", "line": line}, show)["code"])

    def check(self, only: str | None, progress: Callable[[str], None]) -> list[CheckResult]:
        """Run the checks, or the one named `only`. Raises SessionError."""

        def show(answer: dict[str, Any]) -> None:
            if "progress" in answer:
                progress(str(answer["progress"]))

        answer = self._request({"kind": "check", "only": only}, show)
        if "problem" in answer:
            raise SessionError(str(answer["problem"]))
        return [CheckResult.from_dict(raw) for raw in answer["results"]]

    def _request(
        self, request: dict[str, Any], show: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Send a request; return the last answer, and pass the others to `show`."""
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
            ExitStack() as stack,
        ):
            try:
                with directory_socket(state_directory(self.number) / SOCKET)() as address:
                    connection.connect(address)
                stack.enter_context(_interrupts_sent(connection))
                connection.sendall((json.dumps(request) + "\n").encode())
                rest = b""
                while True:
                    part = connection.recv(65536)
                    if not part:
                        raise self._gone()
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        answer: dict[str, Any] = json.loads(line)
                        if "failed" in answer:
                            raise SessionError(str(answer["failed"]))
                        if "done" in answer:
                            self.now_s = float(answer.get("now_s", self.now_s))
                            return answer
                        show(answer)
            except OSError:
                raise self._gone() from None

    def _gone(self) -> SessionError:
        log = state_directory(self.number) / "holder.log"
        text = log.read_text(errors="replace").strip()[-1000:] if log.exists() else ""
        return NotRunning(f"lab {self.number} has ended{': ' + text if text else ''}")
