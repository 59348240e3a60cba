#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ldmd's bytes on the wire, against an independent encoder and decoder, over loopback.

Usage: wire.py LDMD TOOLS_DIRECTORY. No privileges. Expected bytes: RFC 5531, and what LDM-6.13.17
sent to these programs.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = 300029
END = struct.pack(">ii", 0x7FFFFFFF, 999999)


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def call(vers: int, proc: int, body: bytes = b"", xid: int = 7, program: int = PROGRAM) -> bytes:
    message = struct.pack(">10I", xid, 0, 2, program, vers, proc, 0, 0, 0, 0) + body
    return struct.pack(">I", 0x80000000 | len(message)) + message


def string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text + bytes(-len(text) % 4)


def feedme(
    pattern: bytes = b".*", feed: int = 0x40000000, since: int = 0, sig: bytes = b""
) -> bytes:
    specs = struct.pack(">I", feed) + string(pattern)
    if sig:
        specs += struct.pack(">I", 0) + string(b"SIG=" + sig.hex().encode())
    head = struct.pack(">ii", since, 0) + END + struct.pack(">I", 2 if sig else 1)
    return call(6, 4, head + specs + b"\xff\xff\xff\xff")


def product(data: bytes, ident: bytes, creation: int | None = None) -> bytes:
    when = int(time.time()) if creation is None else creation
    return (
        struct.pack(">ii", when, 5)
        + hashlib.md5(data).digest()
        + string(b"origin")
        + struct.pack(">II", 0x40000000, 3)
        + string(ident)
        + struct.pack(">I", len(data))
        + data
        + bytes(-len(data) % 4)
    )


def announced(data: bytes, ident: bytes) -> bytes:
    """Arguments of COMINGSOON: prod_info and the packet size."""
    info = product(data, ident)
    return info[: len(info) - len(data) - (-len(data) % 4)] + struct.pack(">I", len(data))


class Peer:
    """One end of a connection that sends raw bytes and reads records."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(10)

    def exactly(self, n: int) -> bytes:
        got = b""
        while len(got) < n:
            more = self.sock.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def record(self) -> bytes:
        whole, last = b"", False
        while not last:
            (mark,) = struct.unpack(">I", self.exactly(4))
            last = bool(mark & 0x80000000)
            whole += self.exactly(mark & 0x7FFFFFFF)
        return whole

    def ask(self, message: bytes) -> bytes:
        self.sock.sendall(message)
        return self.record()

    def closed(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True


def accepted(stat: int, body: bytes = b"", xid: int = 7) -> bytes:
    return struct.pack(">6I", xid, 1, 0, 0, 0, stat) + body


# Who runs the test: ldmd asks root to say that it will stay root.
AS_SELF = ["--user", pwd.getpwuid(os.geteuid()).pw_name]


class Daemon:
    def __init__(self, ldmd: Path, tools: Path, work: Path, conf: str, max_clients: int) -> None:
        self.tools, self.work, self.queue = tools, work, work / "ldm.pq"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (work / "conf").write_text(conf)
        subprocess.run([tools / "pqcreate", "-s", "8m", "-S", "100", "-q", self.queue], check=True)
        self.errors = (work / "stderr").open("wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                ldmd,
                *AS_SELF,
                "-f",
                "-x",
                "-M",
                str(max_clients),
                "-q",
                self.queue,
                "-P",
                str(self.port),
                "-I",
                "127.0.0.1",
                "-l",
                work / "log",
                work / "conf",
            ],
            stderr=self.errors,
        )
        while not (work / "log").exists() or "Starting Up" not in self.log():
            time.sleep(0.02)

    def log(self) -> str:
        return (self.work / "log").read_text()

    def connect(self) -> Peer:
        return Peer(socket.create_connection(("127.0.0.1", self.port), timeout=10))

    def insert(self, name: str, data: bytes) -> None:
        (self.work / name).write_bytes(data)
        subprocess.run(
            [self.tools / "pqinsert", "-q", self.queue, "-f", "EXP", name],
            check=True,
            cwd=self.work,
        )

    def listing(self) -> list[str]:
        out = subprocess.run(
            [self.tools / "pqcat", "-q", self.queue, "--list"],
            check=True,
            capture_output=True,
            text=True,
        )
        return out.stdout.splitlines()

    def await_listing(self, want: list[str]) -> None:
        end = time.monotonic() + 10
        while self.listing() != want and time.monotonic() < end:
            time.sleep(0.05)
        expect(self.listing() == want, f"queue holds {self.listing()}, not {want}")


@contextmanager
def daemon(ldmd: Path, tools: Path, conf: str, max_clients: int = 3) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="ldmdwire") as work:
        d = Daemon(ldmd, tools, Path(work), conf, max_clients)
        try:
            yield d
            d.process.send_signal(signal.SIGTERM)
            expect(d.process.wait(20) == 0, "exit status")
            errors = (d.work / "stderr").read_text()
            expect(not errors, f"on stderr: {errors}")
        except BaseException:
            print(d.log()[-3000:], (d.work / "stderr").read_text()[:3000], sep="\n")
            raise
        finally:
            d.process.kill()
            d.process.wait()
            d.errors.close()


def rpc_errors(d: Daemon) -> None:
    expect(d.connect().ask(call(6, 0)) == accepted(0), "NULLPROC")
    expect(
        d.connect().ask(call(5, 4)) == accepted(2, struct.pack(">II", 6, 7)), "PROG_MISMATCH 6..7"
    )
    expect(d.connect().ask(call(6, 1, program=100000)) == accepted(1), "PROG_UNAVAIL")
    expect(d.connect().ask(call(6, 7)) == accepted(3), "PROC_UNAVAIL")
    expect(d.connect().ask(call(7, 1, b"\0\0\0\1")) == accepted(4), "GARBAGE_ARGS")
    alive = d.connect()
    expect(
        alive.ask(call(6, 14, struct.pack(">I", 1))) == accepted(0, bytes(4)),
        "IS_ALIVE of no session",
    )
    expect(alive.closed(), "closed after IS_ALIVE")


def hostile(d: Daemon) -> None:
    for bytes_ in (
        b"GET / HTTP/1.0\r\n\r\n" * 2000,
        b"\x80\0\0\0",
        b"\xff" * 4000,
        b"\x7f\xff\xff\xff" + bytes(40000),
        call(6, 1, product(b"x" * 9, b"i")),
        call(7, 2, b"\0\0\0\1") * 3 + b"\x80\0\0\4abcd",
    ):
        peer = d.connect()
        with suppress(ConnectionError):  # what begins wrongly is cut off while we still send
            peer.sock.sendall(bytes_)
        with suppress(OSError):
            peer.sock.shutdown(socket.SHUT_WR)
        while not peer.closed():
            pass
    time.sleep(0.3)  # until the daemon has counted the ended ones
    peers = [d.connect() for _ in range(3)]
    for peer in peers:
        peer.ask(call(6, 0))
    fourth = d.connect()
    fourth.sock.sendall(call(6, 0))
    expect(fourth.closed(), "a fourth client with -M 3")
    for peer in peers:
        peer.sock.close()
    time.sleep(0.3)
    expect(d.connect().ask(call(6, 0)) == accepted(0), "served again afterwards")


def feedme_answers(d: Daemon) -> None:
    denied = d.connect().ask(feedme(feed=0x00800000))
    expect(
        denied == accepted(0, struct.pack(">IiiiiI", 7, 0, 0, 0, 0, 0)), "RECLASS with empty class"
    )
    reduced = d.connect().ask(feedme(feed=0xFFFFFFFF))
    expect(reduced == accepted(0, struct.pack(">I", 7) + feedme(feed=0x40000000)[44:-4]), "RECLASS")
    expect(d.connect().ask(feedme(b"(")) == accepted(0, struct.pack(">I", 2)), "BADPATTERN")
    expect(
        d.connect().ask(feedme(b"(a{999}){999}")) == accepted(0, struct.pack(">I", 2)), "costly ERE"
    )


def feed(d: Daemon) -> None:
    first, second = b"first" * 1001, b"2nd"
    d.insert("p.1", first)
    d.insert("q.1", b"other")
    d.insert("p.2", second)
    peer = d.connect()
    reply = peer.ask(feedme(b"^p"))
    expect(reply[:28] == accepted(0, bytes(4)), "FEEDME: OK")
    expect(int.from_bytes(reply[28:32], "big") > 1, "FEEDME: id")
    for data, ident in ((first, b"p.1"), (second, b"p.2")):
        got = peer.record()
        expect(got[4:40] == call(6, 1)[8:], "HEREIS header")
        expect(got[48:64] == hashlib.md5(data).digest(), "signature")
        expect(got[64:68] != b"\0\0\0\0", "origin is not empty")
        tail = string(ident) + struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)
        expect(got.endswith(tail), f"HEREIS of {ident!r}")
    null = peer.record()
    expect(null[4:] == call(6, 0)[8:], "NULLPROC when all is sent")
    peer.sock.sendall(
        struct.pack(">I", 0x80000018) + accepted(0, xid=int.from_bytes(null[:4], "big"))
    )
    d.insert("p.3", b"third")
    expect(peer.record().endswith(b"\0\0\0\5third\0\0\0"), "a product inserted later")
    resumed = d.connect()
    resumed.ask(feedme(b".*", sig=hashlib.md5(second).digest()))
    expect(resumed.record().endswith(b"third\0\0\0"), "SIG= resumes after that product")
    late = d.connect()
    late.ask(feedme(since=int(time.time()) + 1000))
    expect(late.record()[4:] == call(6, 0)[8:], "'from' in the future: nothing but NULLPROC")


def subscribe(d: Daemon) -> None:
    dummy = string(b"dummy") * 2 + bytes(4)
    denied = d.connect().ask(call(7, 1, struct.pack(">I", 0x00800000) + dummy))
    expect(denied == accepted(0, struct.pack(">I", 6)), "UNAUTH")
    endpoint = string(b"sw") + string(b"p1") + struct.pack(">I", 1101)
    with_vlan = d.connect().ask(call(7, 1, struct.pack(">I", 0x40000000) + endpoint))
    address, prefix = with_vlan[-8:-4][::-1], with_vlan[-1]
    expect(address[:3] == b"\x7f\0\0" and address[3] not in (0, 1, 255), "address of the subnet")
    expect(prefix == 24, "prefix length of the subnet")
    peer = d.connect()
    reply = peer.ask(call(7, 1, struct.pack(">I", 0x40000000) + dummy))
    body = reply[24:]
    expect(body[:28] == struct.pack(">II", 0, 0x40000000) + string(b"224.0.77.9:38899"), "group")
    size = int.from_bytes(body[28:32], "big")
    expect(body[32:42] == b"127.0.0.1:" and int(body[42 : 32 + size]) > 1023, "FMTP server")
    expect(body[-8:] == b"\x01\x00\x00\x7f\x00\x00\x00\x20", "own address, bytes reversed, /32")
    again = peer.ask(call(7, 1, struct.pack(">I", 0x40000000) + dummy))
    expect(again == accepted(0, struct.pack(">I", 14)), "a second SUBSCRIBE: EXISTS")
    missing = peer.ask(call(7, 2, struct.pack(">I", 5)))
    expect(missing[4:] == call(7, 6)[8:] + struct.pack(">I", 5), "NO_SUCH_PRODUCT 5")
    for _ in range(20):  # 20,000 requests for nothing: a few lines in the log
        peer.sock.sendall(b"".join(call(7, 2, struct.pack(">I", n)) for n in range(1000)))
        for n in range(1000):
            expect(peer.record()[-4:] == struct.pack(">I", n), "NO_SUCH_PRODUCT of a flood")
    lines = d.log().count("no such product")
    expect(1 <= lines <= 5, f"{lines} lines in the log by a flood of requests")
    backlog = bytes(16) + bytes(4) + hashlib.md5(b"third").digest() + struct.pack(">I", 3600)
    peer.sock.sendall(call(7, 3, backlog) + call(7, 0))
    names = [b"p.1", b"q.1", b"p.2"]
    for name in names:
        got = peer.record()
        expect(got[4:40] == call(7, 7)[8:] and string(name) in got, f"backlog product {name!r}")
    expect(peer.record() == accepted(0), "NULLPROC is answered behind the backlog")
    peer.sock.sendall(call(7, 4))
    expect(peer.ask(call(7, 0)) == accepted(0), "TEST_CONNECTION is not answered, NULLPROC is")


def fmtp(index: int, flags: int, payload: bytes = b"", seq: int = 0) -> bytes:
    return struct.pack(">IIHH", index, seq, len(payload), flags) + payload


def bop(index: int, whole: bytes) -> bytes:
    """Layout of 2017; `whole`: prod_info (its signature is the metadata) and data."""
    return fmtp(index, 1, struct.pack(">IH", len(whole), 16) + whole[8:24])


class Memory:
    """What a downstream remembers on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> bytes:
        text = self.path.read_text() if self.path.exists() else ""
        _, found, rest = text.partition("Last Multicast Product Signature: ")
        return bytes.fromhex(rest[:32]) if found else b""

    def becomes(self, want: bytes, timeout_s: float = 20) -> bool:
        end = time.monotonic() + timeout_s
        while self.last() != want and time.monotonic() < end:
            time.sleep(0.05)
        return self.last() == want


def answer(peer: Peer, to: bytes, body: bytes = b"") -> None:
    reply = accepted(0, body, xid=int.from_bytes(to[:4], "big"))
    peer.sock.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)


def downstream7(ldmd: Path, tools: Path) -> None:
    """We are the upstream and its FMTP sender. The memory must not pass what is open."""
    group = ("224.0.77.12", 38912)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        server.settimeout(10)
        sender.settimeout(10)
        here = socket.inet_aton("127.0.0.1")
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
        port, fmtp_port = server.getsockname()[1], sender.getsockname()[1]
        conf = f"RECEIVE EXP 127.0.0.1:{port} 127.0.0.1 sw p7 5\nSET fmtp.layout 2017\n"
        with daemon(ldmd, tools, conf) as d:
            memory = Memory(d.work / f"127.0.0.1:{port}_EXP.yaml")
            peer = Peer(server.accept()[0])
            asked = peer.record()
            want = struct.pack(">I", 0x40000000) + string(b"sw") + string(b"p7")
            expect(asked[4:] == call(7, 1)[8:] + want + struct.pack(">I", 5), "SUBSCRIBE")
            where = [f"{group[0]}:{group[1]}".encode(), f"127.0.0.1:{fmtp_port}".encode()]
            body = struct.pack(">II", 0, 0x40000000) + b"".join(map(string, where))
            answer(peer, asked, body + b"\x01\0\0\x7f" + struct.pack(">I", 32))
            path = sender.accept()[0]
            backlog = call(7, 3)[8:] + bytes(16) + bytes(4)
            expect(peer.record()[4:] == backlog + bytes(16) + struct.pack(">I", 3600), "backlog")
            fence = peer.record()
            expect(fence[4:] == call(7, 0)[8:], "NULLPROC behind it")
            old = product(b"backlog", b"d.0")
            peer.sock.sendall(call(7, 7, old))
            answer(peer, fence)
            expect(memory.becomes(old[8:24]), "the backlog is complete and remembered")

            opened, complete = product(b"a" * 3000, b"d.1"), product(b"b" * 900, b"d.2")
            for datagram in (
                bop(7, opened),
                bop(8, complete),
                fmtp(8, 4, complete),
                fmtp(8, 2),
            ):
                udp.sendto(datagram, group)
            second = call(7, 3)[8:] + old[8:24] + struct.pack(">I", 1) + opened[8:24]
            expect(peer.record()[4:-4] == second, "backlog between the two")
            answer(peer, peer.record())
            names = [(b"backlog", "d.0"), (b"b" * 900, "d.2")]
            d.await_listing([f"{hashlib.md5(x).hexdigest()} {len(x)} {n}" for x, n in names])
            expect(not memory.becomes(complete[8:24], 3), "remembered past an open product")
            expect(memory.last() == old[8:24], "memory before the open product")
            for seq in range(0, len(opened), 1448):
                udp.sendto(fmtp(7, 4, opened[seq : seq + 1448], seq), group)
            udp.sendto(fmtp(7, 2), group)
            expect(memory.becomes(complete[8:24]), "remembered when nothing is open")
            path.close()


def downstream6(ldmd: Path, tools: Path) -> None:
    """We are the upstream: fragments as the original sends them, then other calls."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        with daemon(ldmd, tools, f"REQUEST EXP ^d 127.0.0.1:{port}\n") as d:
            peer = Peer(server.accept()[0])
            asked = peer.record()
            expect(asked[8:40] == call(6, 4)[12:], "FEEDME header")
            expect(
                asked[48:] == END + struct.pack(">II", 1, 0x40000000) + string(b"^d") + b"\xff" * 4,
                "FEEDME class",
            )
            age = time.time() - int.from_bytes(asked[40:44], "big")
            expect(3590 < age < 3610, f"from = now - 3600 s, not {age}")
            ok = accepted(0, struct.pack(">II", 0, 99), xid=int.from_bytes(asked[:4], "big"))
            peer.sock.sendall(struct.pack(">I", 0x80000000 | len(ok)) + ok)
            big = b"0123456789abcdef" * 40000
            body = call(6, 1, product(big, b"d.big"))[4:]
            pieces = [body[i : i + 262212] for i in range(0, len(body), 262212)]
            for i, piece in enumerate(pieces):
                last = 0x80000000 if i == len(pieces) - 1 else 0
                peer.sock.sendall(struct.pack(">I", last | len(piece)) + piece)
            peer.sock.sendall(call(6, 1, product(big, b"d.big")))  # duplicate: ignored
            peer.sock.sendall(call(6, 1, product(b"x", b"other")))  # not requested: ignored
            peer.sock.sendall(call(6, 1, product(b"old", b"d.old", creation=1000)))
            expect(
                peer.ask(call(6, 12, announced(big, b"d.big")))
                == accepted(0, struct.pack(">I", 3)),
                "COMINGSOON of a duplicate: DONT_SEND",
            )
            peer.sock.sendall(call(6, 1, product(b"small", b"d.small")))
            expect(peer.ask(call(6, 0)) == accepted(0), "NULLPROC is answered")
            want = [
                f"{hashlib.md5(x).hexdigest()} {len(x)} {n}"
                for x, n in ((big, "d.big"), (b"small", "d.small"))
            ]
            d.await_listing(want)
            half = call(6, 1, product(b"y" * 50000, b"d.half"))
            peer.sock.sendall(half[:30000])
            peer.sock.close()
            again = Peer(server.accept()[0]).record()
            expect(
                b"SIG=" + hashlib.md5(b"small").hexdigest().encode() in again,
                "resumes after d.small",
            )
            d.await_listing(want)


def main() -> int:
    ldmd, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    conf = "ALLOW EXP ^127\\.\nMULTICAST EXP 224.0.77.9:38899 127.0.0.1 24 0 s p\n"
    with daemon(ldmd, tools, conf) as d:
        for part in (rpc_errors, hostile, feedme_answers, feed, subscribe):
            # Each part leaves closed connections; their processes need a moment to end (-M 3).
            part(d)
            time.sleep(0.3)
            print(f"ok {part.__name__}", flush=True)
    downstream7(ldmd, tools)
    print("ok downstream7", flush=True)
    downstream6(ldmd, tools)
    print("ok downstream6", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
