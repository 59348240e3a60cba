#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that keeps delivering while 10,000 connections that mean no good are held against it.

Usage: flood.py LDMD TOOLS_DIRECTORY [CONNECTIONS [SECONDS]]. No privileges: everything is on
loopback, the attackers come from 127.1.0.0/16 and open what is closed again and again: silent ones,
ones with half a header, garbage, calls without a request after them, and the same at the FMTP port.
Meanwhile products go by LDM7 to a subscriber that was there before, and to one that comes later.
"""

from __future__ import annotations

import hashlib
import re
import resource
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wire import AS_SELF

PRODUCTS = 60
LATE = 20  # the second subscriber comes after so many products
CLIENTS_MAX = 256  # -M
UNKNOWN_MAX = CLIENTS_MAX // 4
CALL = struct.pack(">11I", 0x80000028, 7, 0, 2, 300029, 6, 0, 0, 0, 0, 0)
SENDS = (b"", CALL[:20], b"GET / HTTP/1.0\r\nHost: ldm\r\nAccept: everything\r\n\r\n", CALL)


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Flood:
    """So many connections, renewed when they are closed."""

    def __init__(self, count: int, ports: tuple[int, int]) -> None:
        self.selector = selectors.DefaultSelector()
        self.ports = ports
        self.opened = self.closed = self.failed = 0
        self.waiting = list(range(count))

    def open(self, i: int) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        sock.bind((f"127.1.{i % 500 // 250}.{i % 250 + 1}", 0))
        sock.connect_ex(("127.0.0.1", self.ports[i % 10 == 0]))
        self.opened += 1
        self.selector.register(sock, selectors.EVENT_WRITE, i)

    def turn(self, opens: int, timeout_s: float) -> None:
        for _ in range(min(opens, len(self.waiting))):
            self.open(self.waiting.pop())
        for key, events in self.selector.select(timeout_s):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    sock.send(SENDS[key.data % len(SENDS)] or b"\x80")
                    self.selector.modify(sock, selectors.EVENT_READ, key.data)
                    continue
                if sock.recv(4096):
                    continue
                self.closed += 1
            except OSError:
                self.failed += 1
            self.selector.unregister(sock)
            sock.close()
            self.waiting.append(key.data)

    def held(self) -> int:
        return len(self.selector.get_map())

    def end(self) -> None:
        for key in list(self.selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self.selector.close()


class Daemon:
    def __init__(self, ldmd: Path, tools: Path, work: Path, name: str, conf: str) -> None:
        (work / name).mkdir()  # memories of sessions lie beside the queue
        self.tools, self.queue, self.log_path = tools, work / name / "ldm.pq", work / f"{name}.log"
        self.port = free_port()
        path = work / f"{name}.conf"
        path.write_text(conf)
        subprocess.run([tools / "pqcreate", "-s", "20m", "-S", "500", "-q", self.queue], check=True)
        self.process = subprocess.Popen(
            [
                str(ldmd),
                *AS_SELF,
                "-f",
                "-q",
                str(self.queue),
                "-P",
                str(self.port),
                "-I",
                "127.0.0.1",
            ]
            + ["-l", str(self.log_path), "-M", str(CLIENTS_MAX), str(path)]
        )

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def products(self) -> list[str]:
        argv = [str(self.tools / "pqcat"), "-q", str(self.queue), "--list"]
        out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return sorted(out.splitlines())

    def family(self) -> list[int]:
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            found.append(pid)
            todo += [int(p) for p in children.split()]
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


def anonymous_kb(pid: int) -> int:
    """Memory of its own; the queue's pages are not counted."""
    try:
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def wait_for(what: str, condition: object, timeout_s: float = 30) -> None:
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        expect(time.monotonic() < end, f"no {what} within {timeout_s} s")
        time.sleep(0.05)


def insert(server: Daemon, work: Path, number: int) -> str:
    data = hashlib.sha256(str(number).encode()).digest() * 300
    path = work / f"product.{number}"
    path.write_bytes(data)
    subprocess.run(
        [server.tools / "pqinsert", "-q", server.queue, "-f", "EXP", path], check=True, cwd=work
    )
    return hashlib.md5(data).hexdigest()


def attack(
    server: Daemon, flood: Flood, work: Path, seconds: float, late: object
) -> dict[str, int]:
    """Inserts during the flood. The greatest numbers seen."""
    assert callable(late)
    start, inserted = time.monotonic(), 0
    peak = {"top_kb": 0, "all_kb": 0, "processes": 0}
    while inserted < PRODUCTS or time.monotonic() < start + seconds:
        flood.turn(400, 0.005)
        if inserted < PRODUCTS and time.monotonic() >= start + inserted * seconds / PRODUCTS:
            insert(server, work, inserted)
            inserted += 1
            if inserted == LATE:
                late()
            family = server.family()
            sizes = [anonymous_kb(pid) for pid in family]
            now = {"top_kb": sizes[0], "all_kb": sum(sizes), "processes": len(family)}
            peak = {key: max(value, now[key]) for key, value in peak.items()}
    return peak


def run(ldmd: Path, tools: Path, connections: int, seconds: float, work: Path) -> None:
    server = Daemon(
        ldmd, tools, work, "server",
        'ALLOW EXP "^127[.]0[.]0[.]1$"\nMULTICAST EXP 224.0.77.7:38807 127.0.0.1 32 101 sw p1\n'
        "SET fmtp.r_mc_bps 100000000\n",
    )  # fmt: skip
    receive = f"RECEIVE EXP 127.0.0.1:{server.port} 127.0.0.1 dummy dummy\n"
    daemons = [server]
    flood = None

    def another(name: str) -> Daemon:
        daemons.append(Daemon(ldmd, tools, work, name, receive))
        return daemons[-1]

    try:
        first = another("first")
        wait_for("first subscriber", lambda: " Receiving\n" in first.log())
        before_kb = anonymous_kb(server.process.pid)
        found = re.search(r"fmtpSrvr=127\.0\.0\.1:(\d+)", server.log())
        assert found is not None
        flood = Flood(connections, (server.port, int(found[1])))
        while flood.waiting and flood.opened < connections:
            flood.turn(400, 0)
        peak = attack(server, flood, work, seconds, lambda: another("second"))
        held = flood.held()
        second = daemons[2]
        want = server.products()
        expect(len(want) == PRODUCTS, f"{len(want)} products at the server")
        for receiver in (first, second):
            wait_for("all products", lambda r=receiver: receiver_has(r, want), 60)
        by_multicast = first.log().count("Missed: ") == 0
        print(
            f"connections held={held} opened={flood.opened} closed by the server="
            f"{flood.closed + flood.failed}; ldmd: own memory {before_kb} kB before, at most "
            f"{peak['top_kb']} kB; with children at most {peak['all_kb']} kB in "
            f"{peak['processes']} processes; {PRODUCTS} products at both subscribers"
            f"{'' if by_multicast else ', some by the backstop'}",
            flush=True,
        )
        expect(peak["top_kb"] < before_kb + 2048, "memory of ldmd grows with the connections")
        # top, mldm, two up7, and what strangers may have at most
        expect(peak["processes"] <= 4 + UNKNOWN_MAX, "processes grow with the connections")
        expect(flood.closed + flood.failed > connections / 4, "the server turned hardly any away")
        expect("Connections turned away: " in server.log(), "the flood is not logged")
        expect(len(server.log()) < 200_000, "the flood fills the log")
    finally:
        if flood is not None:
            flood.end()
        for daemon in daemons:
            daemon.end()


def receiver_has(receiver: Daemon, want: list[str]) -> bool:
    return receiver.products() == want


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    connections = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 6
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < connections + 100:
        print(f"SKIPPED: {hard} open files are allowed, {connections + 100} needed", flush=True)
        return 77
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, connections + 100), hard))
    with tempfile.TemporaryDirectory(prefix="ldmdflood") as work:
        try:
            run(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), connections, seconds,
                Path(work))  # fmt: skip
        except (AssertionError, subprocess.CalledProcessError) as error:
            print(f"not ok: {error}", flush=True)
            for path in sorted(Path(work).glob("*.log")):
                print(f"--- {path.name}", *path.read_text().splitlines()[-12:], sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
