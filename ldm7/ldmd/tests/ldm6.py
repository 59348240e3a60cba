#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LDM6 in full on the wire: alternate feeds, HIYA, redundant upstreams, resuming, and the client
programs, over loopback against an independent encoder and decoder.

Usage: ldm6.py LDMD TOOLS_DIRECTORY. No privileges. Expected bytes and rules: RFC 5531 and the
reference, sections 3.2 to 3.4.
"""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wire import (
    END,
    Daemon,
    Peer,
    accepted,
    announced,
    call,
    daemon,
    expect,
    feedme,
    product,
    string,
)

OK, DONT_SEND, RECLASS = (struct.pack(">I", n) for n in (0, 3, 7))
CONF = "ALLOW EXP ^127\\.\nACCEPT EXP ^h 127\\.0\nACCEPT PPS .* 127\\.0\n"


def answer(peer: Peer, record: bytes, body: bytes = b"") -> None:
    reply = accepted(0, body, xid=int.from_bytes(record[:4], "big"))
    peer.sock.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)


def clazz(feed: int, pattern: bytes) -> bytes:
    specs = struct.pack(">II", 1, feed) + string(pattern)
    return struct.pack(">ii", 0, 0) + END + specs


def line(data: bytes, ident: str) -> str:
    return f"{hashlib.md5(data).hexdigest()} {len(data)} {ident}"


def alternate(d: Daemon) -> None:
    """COMINGSOON, then BLKDATA or not, as the subscriber says; max_hereis 2^31 - 1 is alternate."""
    d.insert("a.1", b"one")
    d.insert("a.2", b"")
    d.insert("a.3", b"three")
    peer = d.connect()
    request = feedme(b"^a")
    reply = peer.ask(request[:-4] + b"\x7f\xff\xff\xff")
    expect(reply[24:28] == OK, "FEEDME")
    for data, ident, want in (
        (b"one", b"a.1", OK),
        (b"", b"a.2", OK),
        (b"three", b"a.3", DONT_SEND),
    ):
        coming = peer.record()
        expect(coming[4:40] == call(6, 12)[8:], "COMINGSOON")
        size = struct.pack(">I", len(data))
        expect(coming.endswith(string(ident) + size + size), f"COMINGSOON of {ident!r}")
        answer(peer, coming, want)
        if want == OK:
            block = peer.record()
            expect(block[4:40] == call(6, 13)[8:], "BLKDATA")
            head = hashlib.md5(data).digest() + bytes(4) + size
            expect(block[40:] == head + data + bytes(-len(data) % 4), f"BLKDATA of {ident!r}")
    expect(peer.record()[4:] == call(6, 0)[8:], "NULLPROC when all is offered")
    wrong = d.connect()
    wrong.ask(request[:-4] + bytes(4))
    answer(wrong, wrong.record(), struct.pack(">I", 77))
    expect(wrong.closed(), "an invalid answer")


def one_feed(d: Daemon) -> None:
    """Anti-DOS: a covered older feed of the address ends; what an older one covers is not sent."""
    narrow, wide, again = d.connect(), d.connect(), d.connect()
    expect(narrow.ask(feedme(b"^x"))[24:28] == OK, "first feed")
    expect(wide.ask(feedme(b".*"))[24:28] == OK, "a feed that covers it")
    expect(narrow.closed(), "the older feed ends")
    denied = again.ask(feedme(b"^x"))
    expect(denied == accepted(0, RECLASS + bytes(20)), "all of it is being sent already")
    wide.sock.close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if d.connect().ask(feedme(b"^x"))[24:28] == OK:
            return
        time.sleep(0.1)
    raise AssertionError("the address stays refused after its feed ended")


def notify(d: Daemon) -> None:
    peer = d.connect()
    expect(peer.ask(call(6, 9, clazz(0x40000000, b"^a")))[24:28] == OK, "NOTIFYME")
    for data, ident in ((b"one", b"a.1"), (b"", b"a.2"), (b"three", b"a.3")):
        got = peer.record()
        expect(got[4:40] == call(6, 8)[8:], "NOTIFICATION")
        expect(got.endswith(string(ident) + struct.pack(">I", len(data))), f"of {ident!r}")
        xid = int.from_bytes(got[:4], "big")  # the original answers it by PROC_UNAVAIL
        unavailable = accepted(3, xid=xid)
        peer.sock.sendall(struct.pack(">I", 0x80000000 | len(unavailable)) + unavailable)
    d.insert("a.4", b"later")
    while b"a.4" not in (got := peer.record()):
        expect(got[4:] == call(6, 0)[8:], "NULLPROC")


def hiya(d: Daemon) -> None:
    before = d.listing()
    expect(
        d.connect().ask(call(6, 5, clazz(8, b".*"))) == struct.pack(">5I", 7, 1, 1, 1, 5),
        "HIYA without an ACCEPT: AUTH_TOOWEAK",
    )
    peer = d.connect()
    expect(
        peer.ask(call(6, 5, clazz(0x40000000, b".*")))
        == accepted(0, RECLASS + clazz(0x40000000, b"^h") + b"\xff" * 4),
        "HIYA: RECLASS",
    )
    expect(
        peer.ask(call(6, 5, clazz(0x40000000, b"^h"))) == accepted(0, OK + b"\xff" * 4), "HIYA: OK"
    )
    big = b"0123456789abcdef" * 40000
    body = call(6, 1, product(big, b"h.big"))[4:]
    for at in range(0, len(body), 262212):  # fragments as the original's
        piece = body[at : at + 262212]
        last = 0x80000000 if at + 262212 >= len(body) else 0
        peer.sock.sendall(struct.pack(">I", last | len(piece)) + piece)
    peer.sock.sendall(call(6, 1, product(b"no", b"other")))  # not accepted: dropped
    expect(peer.ask(call(6, 12, announced(big, b"h.big"))) == accepted(0, DONT_SEND), "duplicate")
    expect(peer.ask(call(6, 12, announced(b"blocks", b"h.blocks"))) == accepted(0, OK), "wanted")
    for n, part in enumerate((b"blo", b"cks")):
        head = hashlib.md5(b"blocks").digest() + struct.pack(">II", n, len(part))
        peer.sock.sendall(call(6, 13, head + part + b"\0"))
    expect(peer.ask(call(6, 0)) == accepted(0), "NULLPROC flushes")
    expect(
        d.listing() == [*before, line(big, "h.big"), line(b"blocks", "h.blocks")], "pushed products"
    )
    expect("_v_" in notified(d, "^h"), "the origin names who sent it")
    peer.ask(call(6, 12, announced(b"torn", b"h.torn")))
    peer.sock.sendall(call(6, 13, bytes(16) + struct.pack(">II", 0, 4) + b"torn"))
    expect(peer.closed(), "a block of another product")
    peer = d.connect()
    peer.ask(call(6, 5, clazz(0x40000000, b"^h")))
    true, false = product(b"true", b"h.true"), product(b"fals", b"h.true")
    peer.sock.sendall(call(6, 1, false[:8] + true[8:24] + false[24:]))
    expect(peer.ask(call(6, 0)) == accepted(0), "a forged product is dropped, not the connection")
    peer.sock.sendall(call(6, 1, true))
    expect(peer.ask(call(6, 0)) == accepted(0), "NULLPROC")
    expect(d.listing()[-1] == line(b"true", "h.true"), "the true product under its signature")
    flood = d.connect()
    flood.sock.sendall(call(6, 1, product(b"x", b"h.x")))
    expect(flood.closed(), "HEREIS without HIYA")


def program(d: Daemon, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [str(d.tools / "ldmd" / name), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=d.work)


def notified(d: Daemon, pattern: str, seconds: float = 2.5) -> str:
    argv = [str(d.tools / "ldmd" / "notifyme"), "-h", "127.0.0.1", "-P", str(d.port)]
    argv += ["-o", "1000", "-O", "-p", pattern]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as p:
        time.sleep(seconds)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=10)
    expect(p.returncode == 0, f"notifyme ends by SIGTERM with 0, not {p.returncode}")
    return err


def programs(d: Daemon) -> None:
    at = ("-P", str(d.port))
    ping = program(d, "ldmping", "-i", "0", *at, "127.0.0.1")
    row = rf"RESPONDING +\d+\.\d{{6}} +{d.port}   127\.0\.0\.1"
    expect(ping.returncode == 0 and re.search(row, ping.stderr) is not None, f"ldmping: {ping}")
    expect("State    Elapsed Port   Remote_Host           rpc_stat" in ping.stderr, "its head")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ping = program(d, "ldmping", "-i", "0", f"127.0.0.1:{probe.getsockname()[1]}")
    expect(ping.returncode == 1 and "SVC_UNAVAIL" in ping.stderr, f"no server listens: {ping}")
    ping = program(d, "ldmping", "-q", "-i", "0", "localhost:x")
    expect(ping.returncode == 2 and '"x"' in ping.stderr, f"a bad port: {ping}")
    before = d.listing()
    contents = {"h.file": b"f" * 300001, "h.tiny": b"t", "i.refused": b"r"}
    for name, data in contents.items():
        (d.work / name).write_bytes(data)
    sent = program(d, "ldmsend", "-v", "-h", "127.0.0.1", *at, "-s", "5", *contents)
    expect(sent.returncode == 0 and "accepts only" in sent.stderr, f"ldmsend: {sent}")
    want = [line(contents[n], n) for n in ("h.file", "h.tiny")]
    expect(d.listing() == before + want, "ldmsend's products")
    expect("EXP 006  h.tiny" in notified(d, "^h"), "sequence numbers count from -s")
    sent = program(d, "ldmsend", "-h", "127.0.0.1", *at, "-f", "WMO", "h.file")
    expect(sent.returncode == 0, "WMO contains PPS, which is accepted; the product is PPS too")
    sent = program(d, "ldmsend", "-h", "127.0.0.1", *at, "-f", "HDS", "h.file")
    expect(sent.returncode == 1 and "not authorized" in sent.stderr, f"refused: {sent}")
    sent = program(d, "ldmsend", "-h", "127.0.0.1", *at, "nothing.here")
    expect(sent.returncode == 2 and '"nothing.here"' in sent.stderr, f"no such file: {sent}")
    denied = program(d, "notifyme", "-h", "127.0.0.1", *at, "-f", "HDS")
    expect(denied.returncode == 1 and "denies" in denied.stderr, f"notifyme: {denied}")
    bad = program(d, "notifyme", "-p", "(", *at)
    expect(bad.returncode == 2 and '"("' in bad.stderr, f"notifyme: {bad}")
    for name in ("ldmping", "ldmsend", "notifyme"):
        text = program(d, name, "--help")
        expect(text.returncode == 0 and text.stdout.startswith(f"Usage: {name}"), f"{name} --help")


class Upstream:
    """An upstream LDM in this test: one listening socket, one connection at a time."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(15)
        self.port = self.server.getsockname()[1]

    def accept(self, body: bytes) -> tuple[Peer, bytes]:
        peer = Peer(self.server.accept()[0])
        asked = peer.record()
        expect(asked[8:40] == call(6, 4)[12:], "FEEDME")
        answer(peer, asked, body)
        return peer, asked


def redundant(ldmd: Path, tools: Path) -> None:
    """The first REQUEST of two begins as primary, the second as alternate; each resumes after what
    came by it, also after kill -9."""
    first, second = Upstream(), Upstream()
    conf = "".join(f"REQUEST EXP ^d 127.0.0.1:{u.port}\n" for u in (first, second))
    with daemon(ldmd, tools, conf) as d:
        one, asked = first.accept(struct.pack(">II", 0, 1))
        expect(asked.endswith(b"\xff\xff\xff\xff"), "the first is primary")
        two, asked = second.accept(struct.pack(">II", 0, 2))
        expect(asked.endswith(b"\0\0\0\0") and b"SIG=" not in asked, "the second is alternate")
        one.sock.sendall(call(6, 1, product(b"by one", b"d.1")))
        expect(one.ask(call(6, 0)) == accepted(0), "taken")
        expect(two.ask(call(6, 12, announced(b"by one", b"d.1"))) == accepted(0, DONT_SEND), "dup")
        expect(two.ask(call(6, 12, announced(b"by two", b"d.2"))) == accepted(0, OK), "new")
        head = hashlib.md5(b"by two").digest() + struct.pack(">II", 0, 6)
        two.sock.sendall(call(6, 13, head + b"by two\0\0"))
        expect(two.ask(call(6, 0)) == accepted(0), "taken too")
        d.await_listing([line(b"by one", "d.1"), line(b"by two", "d.2")])
        two.sock.close()
        two, asked = second.accept(struct.pack(">II", 0, 3))
        sig = hashlib.md5(b"by two").hexdigest().encode()
        expect(b"SIG=" + sig in asked, "the second resumes after its own last product")
        name = f"127.0.0.1:{second.port} EXP ^d"
        info = d.work / f".{hashlib.md5(name.encode()).hexdigest()}.info"
        text = info.read_text().splitlines()[-1]
        expect(f",EXP,3,{{6,origin}},6,{{3,d.2}},{sig.decode()}}}" in text, f"resume file: {text}")


def reclass(ldmd: Path, tools: Path) -> None:
    """A reduced class is asked for again on the same connection; an empty one is a denial."""
    up = Upstream()
    with daemon(ldmd, tools, f"REQUEST EXP|PPS ^d 127.0.0.1:{up.port}\n") as d:
        peer, asked = up.accept(RECLASS + clazz(0x40000000, b"^d"))
        expect(struct.pack(">I", 0x40000001) in asked, "what is configured")
        again = peer.record()
        expect(again[40:-4] == clazz(0x40000000, b"^d"), "what is left")
        answer(peer, again, RECLASS + clazz(0x40000000, b"^d$"))
        answer(peer, peer.record(), struct.pack(">II", 0, 9))
        peer.sock.sendall(call(6, 1, product(b"no", b"d.no")) + call(6, 1, product(b"y", b"d")))
        d.await_listing([line(b"y", "d")])
        peer.sock.close()
        time.sleep(0.2)
        up.accept(RECLASS + bytes(20))[0].sock.settimeout(1)
        end = time.monotonic() + 10
        while "Request denied" not in d.log() and time.monotonic() < end:
            time.sleep(0.05)
        expect("Request denied" in d.log(), "denied")


def small_hereis(_: Path, tools: Path) -> None:
    """ldmsend to a server that takes at most 4 bytes at once: larger products are announced."""
    up = Upstream()
    with tempfile.TemporaryDirectory(prefix="ldmdwire") as work:
        for name, data in (("a", b"1234"), ("b", b"12345"), ("c", b"123456")):
            (Path(work) / name).write_bytes(data)
        argv = [
            str(tools / "ldmd" / "ldmsend"),
            "-P",
            str(up.port),
            "-h",
            "127.0.0.1",
            "a",
            "b",
            "c",
        ]
        with subprocess.Popen(argv, cwd=work, stderr=subprocess.PIPE) as p:
            peer = Peer(up.server.accept()[0])
            asked = peer.record()
            expect(asked[4:] == call(6, 5, clazz(0x40000000, b".*"))[8:], "HIYA")
            answer(peer, asked, OK + struct.pack(">I", 4))
            here = peer.record()
            expect(here[4:40] == call(6, 1)[8:] and here.endswith(b"\0\0\0\x041234"), "HEREIS")
            coming = peer.record()
            expect(coming[4:40] == call(6, 12)[8:], "COMINGSOON")
            expect(coming.endswith(string(b"b") + struct.pack(">II", 5, 5)), "announced")
            answer(peer, coming, OK)
            head = hashlib.md5(b"12345").digest() + struct.pack(">II", 0, 5)
            expect(peer.record()[4:] == call(6, 13, head + b"12345\0\0\0")[8:], "BLKDATA")
            answer(peer, peer.record(), DONT_SEND)
            null = peer.record()
            expect(null[4:] == call(6, 0)[8:], "NULLPROC")
            answer(peer, null)
            err = p.communicate(timeout=10)[1]
            expect(p.returncode == 0, f"ldmsend: {err!r}")


def killed(ldmd: Path, tools: Path) -> None:
    """kill -9 before anything was noted: the queue knows what came by this upstream."""
    up = Upstream()
    with daemon(ldmd, tools, f"REQUEST EXP .* 127.0.0.1:{up.port}\n") as d:
        peer, asked = up.accept(struct.pack(">II", 0, 1))
        peer.sock.sendall(call(6, 1, product(b"mine", b"d.mine")))
        d.await_listing([line(b"mine", "d.mine")])
        d.insert("d.local", b"not by that upstream")
        pid = re.search(r"down6\[(\d+)\]", d.log())
        expect(pid is not None, "down6's process id")
        assert pid is not None
        subprocess.run(["kill", "-9", pid[1]], check=True)
        peer, asked = up.accept(struct.pack(">II", 0, 2))
        expect(b"SIG=" + hashlib.md5(b"mine").hexdigest().encode() in asked, "resumed")


def private_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(n) for n in re.findall(r"Private_Dirty: +(\d+) kB", text))


def slow_reader(ldmd: Path, tools: Path) -> None:
    """A subscriber that does not read takes little memory and little of the queue, and costs the
    others nothing: 20 MB go through a queue of 8 MB past it."""
    with daemon(ldmd, tools, "ALLOW EXP ^127\\.\n") as d:
        peers = []
        for n in (2, 3):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.bind((f"127.0.0.{n}", 0))
            sock.connect(("127.0.0.1", d.port))
            peers.append(Peer(sock))
        slow, quick = peers
        child = int.from_bytes(slow.ask(feedme())[28:32], "big")
        quick.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        expect(quick.ask(feedme())[24:28] == OK, "FEEDME")
        time.sleep(1.2)  # both connections have turned around
        before = private_kib(child)
        for i in range(40):
            data = bytes([i]) * 500000
            d.insert(f"p.{i}", data)
            while not (got := quick.record()).endswith(data):
                expect(got[4:] == call(6, 0)[8:], f"product {i} arrives at the other subscriber")
                answer(quick, got)
        grown = private_kib(child) - before
        expect(grown < 1024, f"the slow one's process grew by {grown} KiB")
        expect(len(d.listing()) >= 13, f"the queue holds {len(d.listing())} products")
        late = [slow.record() for _ in range(10)]
        held = [record[-1] for record in late if len(record) > 500000]
        expect(held[:1] == [0] and held == sorted(held), f"it goes on in order: {held}")


def late(d: Daemon) -> None:
    """From INT32_MIN on is from 2038 on, without a sign: no arithmetic of it overflows."""
    reply = d.connect().ask(feedme(since=-(2**31)))
    expect(reply[:28] == accepted(0, bytes(4)), "FEEDME: OK")
    expect("20380119031408.000000 TS_ENDT" in d.log(), "the time in the log")
    stderr = (d.work / "stderr").read_text()
    expect("runtime error" not in stderr, stderr)


def main() -> int:
    ldmd, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with daemon(ldmd, tools, CONF, max_clients=30) as d:
        for part in (alternate, one_feed, notify, hiya, late, programs):
            part(d)
            time.sleep(0.3)
            print(f"ok {part.__name__}", flush=True)
    for case in (redundant, reclass, small_hereis, killed, slow_reader):
        case(ldmd, tools)
        print(f"ok {case.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
