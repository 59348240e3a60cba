#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a service manager sees of ldmd: readiness, status, heartbeat, end; and whom ldmd serves as.

Usage: supervision.py LDMD TOOLS_DIRECTORY. Over loopback; the cases of --user need root.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wire import Daemon, call, daemon, expect, feedme

HEARTBEAT_S = 0.2  # half of WATCHDOG_USEC
CONF = 'ALLOW EXP "^127[.]"\nEXEC "sleep 600"\n'


class Manager:
    """The socket of a service manager."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard: list[str] = []

    def listen(self, seconds: float) -> None:
        """Take what is said within `seconds`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.sock.settimeout(left)
            try:
                self.heard.append(self.sock.recv(4096).decode())
            except TimeoutError:
                return

    def wait_for(self, text: str, seconds: float = 20) -> None:
        """Wait until a message begins with `text`."""
        end = time.monotonic() + seconds
        while not any(one.startswith(text) for one in self.heard):
            expect(time.monotonic() < end, f"no {text} within {seconds} s, but {self.heard}")
            self.listen(0.05)

    def heartbeats(self, seconds: float) -> int:
        """Return how many heartbeats come within `seconds`, from now."""
        self.listen(0.01)
        self.heard.clear()
        self.listen(seconds)
        return self.heard.count("WATCHDOG=1")


@contextmanager
def manager(address: str, name: str) -> Iterator[Manager]:
    """`address`: of the socket; `name`: as NOTIFY_SOCKET has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        os.environ["NOTIFY_SOCKET"] = name
        os.environ["WATCHDOG_USEC"] = str(int(2e6 * HEARTBEAT_S))
        try:
            yield Manager(sock)
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]


def child_of(d: Daemon) -> int:
    end = time.monotonic() + 20
    path = Path(f"/proc/{d.process.pid}/task/{d.process.pid}/children")
    while time.monotonic() < end:
        for pid in path.read_text().split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                return int(pid)
        time.sleep(0.02)
    raise AssertionError("no EXEC child")


def life(ldmd: Path, tools: Path, listener: Manager) -> None:
    """Ready, status of a connection, heartbeat; none while ldmd is stopped; the end."""
    with daemon(ldmd, tools, CONF) as d:
        listener.wait_for("READY=1")
        listener.wait_for("STATUS=Connections: 0, processes of entries: 1, refused: 0")
        peer = d.connect()
        peer.ask(call(6, 0))
        listener.wait_for("STATUS=Connections: 1")
        several = listener.heartbeats(10 * HEARTBEAT_S)
        expect(several >= 4, f"{several} heartbeats in {10 * HEARTBEAT_S:g} s")
        d.process.send_signal(signal.SIGSTOP)
        late = listener.heartbeats(5 * HEARTBEAT_S)
        expect(late == 0, f"{late} heartbeats of a process that hangs")
        d.process.send_signal(signal.SIGCONT)
        expect(listener.heartbeats(10 * HEARTBEAT_S) >= 2, "no heartbeat after it goes on")
        environment = Path(f"/proc/{child_of(d)}/environ").read_bytes()
        for name in (b"NOTIFY_SOCKET", b"WATCHDOG_USEC"):
            expect(name not in environment, f"an EXEC command inherits {name!r}")
        listener.heard.clear()
    listener.wait_for("STOPPING=1")


def foreign_watchdog(ldmd: Path, tools: Path, work: Path) -> None:
    """WATCHDOG_PID of another process: no heartbeat is wanted."""
    path = str(work / "other")
    with manager(path, path) as listener:
        os.environ["WATCHDOG_PID"] = "1"
        try:
            with daemon(ldmd, tools, CONF):
                listener.wait_for("READY=1")
                expect(listener.heartbeats(4 * HEARTBEAT_S) == 0, "heartbeat for another process")
        finally:
            del os.environ["WATCHDOG_PID"]


def wrong_socket(ldmd: Path, tools: Path) -> None:
    """An invalid name is reported; a socket that no process has is no error."""
    for name, said in (("relative", 'NOTIFY_SOCKET: found "relative"'), ("/nowhere/x", "")):
        os.environ["NOTIFY_SOCKET"] = name
        try:
            with daemon(ldmd, tools, CONF) as d:
                expect(d.connect().ask(call(6, 0)) != b"", "serves")
                expect(said in d.log() and ("NOTIFY_SOCKET" in d.log()) == bool(said), d.log())
        finally:
            del os.environ["NOTIFY_SOCKET"]


def rotation(ldmd: Path, tools: Path) -> None:
    """SIGHUP to the top process: a connection's process, behind its walls, opens the new log."""
    with daemon(ldmd, tools, 'ALLOW EXP "^127[.]"\n') as d:
        peer = d.connect()
        expect(peer.ask(feedme()) != b"", "a feed")
        old = d.work / "log.1"
        (d.work / "log").rename(old)
        (d.work / "log").touch()
        d.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        for number in range(1000):
            d.insert(f"p.{number}", str(number).encode())
            peer.record()
            if "up6[" in d.log():
                break
            expect(time.monotonic() < end, f"up6 writes to the old log: {old.read_text()[-500:]}")
            time.sleep(0.05)


def users(ldmd: Path, tools: Path, work: Path) -> None:
    """Root must say as whom; a user that it becomes has no way back."""
    if os.geteuid() != 0:
        print("# SKIPPED: --user needs root")
        return
    conf, queue = work / "conf", work / "queue"
    conf.write_text(CONF)
    subprocess.run([tools / "pqcreate", "-s", "1m", "-S", "10", "-q", queue], check=True)
    argv = [str(ldmd), "-f", "-q", str(queue), "-P", "1", "-I", "127.0.0.1", str(conf)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    expect(
        done.returncode == 2 and done.stderr.count("\n") == 1, f"{done.returncode} {done.stderr}"
    )
    expect("found no --user, started by root; valid: --user NAME" in done.stderr, done.stderr)
    check = subprocess.run([str(ldmd), "-n", str(conf)], capture_output=True, timeout=20)
    expect(check.returncode == 0, "--check as root needs no user")


def main() -> None:
    ldmd, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="ldmdwatch") as directory:
        work = Path(directory)
        with manager(str(work / "notify"), str(work / "notify")) as listener:
            life(ldmd, tools, listener)
        abstract = f"ldmdwatch{os.getpid()}"
        with manager(f"\0{abstract}", f"@{abstract}") as listener:
            life(ldmd, tools, listener)
        foreign_watchdog(ldmd, tools, work)
        wrong_socket(ldmd, tools)
        rotation(ldmd, tools)
        users(ldmd, tools, work)
    print("ok")


if __name__ == "__main__":
    main()
