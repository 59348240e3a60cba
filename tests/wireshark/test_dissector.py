# SPDX-License-Identifier: Apache-2.0
"""tshark with tools/wireshark/fmtp.lua reads what the project's own encoder wrote."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.wireshark.packets import (
    BOP,
    BOP_REQ,
    EOP,
    EOP_REQ,
    MEM_DATA,
    PARITY,
    REPAIR,
    REPAIR_REQ,
    RETX_BOP,
    RETX_DATA,
    RETX_END,
    RETX_EOP,
    RETX_REJ,
    RETX_REQ,
    ROOT,
    Encoder,
    End,
    Tcp,
    pcap,
    udp,
)

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="no tshark (make test-setup installs it)"
)

LUA = ROOT / "tools/wireshark/fmtp.lua"
SENDER, GROUP = End("10.0.0.1", 40_000), End("224.0.0.1", 38_800)
SERVER, RECEIVER = End("10.0.0.1", 46_423), End("10.0.0.2", 52_698)
START_S = 1_795_226_400  # 2026-11-21 02:00:00 UTC
PEM = "-----BEGIN RSA PUBLIC KEY-----\n" + "A" * 300 + "\n-----END RSA PUBLIC KEY-----\n"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder(tmp_path_factory.mktemp("wire"))


def tshark(path: Path, *options: str) -> str:
    """Its standard output; what Lua says of its own errors fails the test."""
    done = subprocess.run(
        ["tshark", "-n", "-X", f"lua_script:{LUA}", "-r", str(path), *options],
        capture_output=True,
        text=True,
        timeout=120,
        # Neither the user's settings nor another FMTP dissector.
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(path.parent), "LC_ALL": "C"},
    )
    assert "Lua" not in done.stdout, done.stdout[-2000:]
    assert "fmtpv3.lua" not in done.stderr, done.stderr[-2000:]
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def rows(path: Path, fields: Sequence[str], *options: str) -> list[list[str]]:
    arguments = [word for field in fields for word in ("-e", field)]
    out = tshark(path, *options, "-T", "fields", "-E", "separator=|", *arguments)
    return [line.split("|") for line in out.splitlines()]


def write(path: Path, frames: Sequence[bytes]) -> Path:
    path.write_bytes(pcap(frames))
    return path


def multicast(encoder: Encoder) -> list[bytes]:
    """Product 7 (layout 2017) without its second block, then product 9 (layout 2021, with a MAC)
    without its last one, then what extension 1 adds."""
    m, mac = encoder.message, bytes(32)
    return [
        udp(SENDER, GROUP, data)
        for data in (
            m(BOP, 7, 0, encoder.bop(2017, 3000, b"test metadata\0")),
            m(MEM_DATA, 7, 0, bytes(1448)),
            m(MEM_DATA, 7, 2896, bytes(104)),
            m(EOP, 7),
            m(BOP, 9, 0, encoder.bop(2021, 2000, bytes(range(16)), START_S)) + mac,
            m(MEM_DATA, 9, 0, bytes(1416)) + mac,
            m(EOP, 9) + mac,
            m(PARITY, 9, 3 << 16 | 1 << 8 | 2, bytes(1416)) + mac,
            m(REPAIR, 9, 1416, bytes(584)) + bytes(64),
        )
    ]


@pytest.mark.slow
def test_multicast(encoder: Encoder, tmp_path: Path) -> None:
    path = write(tmp_path / "m.pcap", multicast(encoder))
    header = [f"fmtpv3.{n}" for n in ("flags", "prodindex", "seqnum", "payloadlen")]
    gaps = ("fmtpv3.gap", "fmtpv3.gap.blocks", "fmtpv3.gap.products", "fmtpv3.mac.kind")
    bop = [f"fmtpv3.bop.{n}" for n in ("layout", "size", "metasize", "meta", "start")]
    parity = [f"fmtpv3.parity.{n}" for n in ("group", "number", "end")]
    found = rows(path, (*header, *gaps, *bop, *parity, "_ws.col.Protocol", "_ws.col.Info"))
    assert [row[:8] for row in found] == [
        ["0x0001", "7", "0", "20", "", "", "", ""],
        ["0x0004", "7", "0", "1448", "", "", "", ""],
        ["0x0004", "7", "2896", "104", "1448", "1", "", ""],
        ["0x0002", "7", "0", "0", "", "", "", ""],
        ["0x0001", "9", "0", "34", "", "", "1", "HMAC-SHA256"],
        ["0x0004", "9", "0", "1416", "", "", "", "HMAC-SHA256"],
        ["0x0002", "9", "0", "0", "584", "1", "", "HMAC-SHA256"],
        ["0x0800", "9", "196866", "1416", "", "", "", "HMAC-SHA256"],
        ["0x1000", "9", "1416", "584", "", "", "", "Ed25519"],
    ]
    assert [row[8:12] for row in found if row[8]] == [
        ["2017", "3000", "14", b"test metadata\0".hex()],
        ["2021", "2000", "16", bytes(range(16)).hex()],
    ]
    (start,) = (row[12] for row in found if row[12])
    assert "2026" in start and "02:00:00.005000000" in start
    assert [row[13:16] for row in found if row[13]] == [["3", "1", "2"]]
    assert [" ".join(row[16:]).split() for row in found[:4]] == [
        ["FMTP", "BOP", "7", "size=3000"],
        ["FMTP", "MEM_DATA", "7", "seq=0", "len=1448"],
        ["FMTP", "MEM_DATA", "7", "seq=2896", "len=104", "[blocks", "missing", "before:", "1]"],
        ["FMTP", "EOP", "7"],
    ]


def connection(encoder: Encoder, with_key: bool) -> list[bytes]:
    """All that goes by TCP. Messages share segments, and are split over two."""
    m, tcp = encoder.message, Tcp(RECEIVER, SERVER)
    if with_key:
        offer = PEM.encode() + b"FMTP-Extensions: 1\n"
        offer = struct.pack(">I", len(offer)) + offer
        tcp.send(RECEIVER, offer[:100])
        tcp.send(RECEIVER, offer[100:])
        answer = struct.pack(">I", 256) + bytes(range(256))
        tcp.send(SERVER, answer[:50])
        tcp.send(SERVER, answer[50:])
    request = encoder.repair_req(2, 1, 2, bytes([0b1001, 0b10]), 10)
    tcp.send(
        RECEIVER,
        m(RETX_REQ, 7, 1448, wanted=1448) + m(BOP_REQ, 8) + m(REPAIR_REQ, 9, 4, request),
    )
    data = m(RETX_DATA, 7, 1448, bytes(1448))
    tcp.send(SERVER, data[:700])
    tcp.send(SERVER, data[700:] + m(RETX_BOP, 8, 0, encoder.bop(2021, 5, b"", START_S)))
    tcp.send(SERVER, m(RETX_EOP, 9) + m(RETX_REJ, 10))
    tcp.send(RECEIVER, m(RETX_END, 7, 5) + m(EOP_REQ, 8))
    return tcp.segments


EXPECTED_ON_TCP = [
    ["0x0008,0x0080,0x2000", "7,8,9", "1448,0,4"],
    ["0x0040,0x0100", "7,8", "1448,0"],
    ["0x0400,0x0010", "9,10", "0,0"],
    ["0x0020,0x0200", "7,8", "5,0"],
]


@pytest.mark.slow
@pytest.mark.parametrize("with_key", [True, False])
def test_connection(encoder: Encoder, tmp_path: Path, with_key: bool) -> None:
    path = write(tmp_path / "c.pcap", connection(encoder, with_key))
    header = ("fmtpv3.flags", "fmtpv3.prodindex", "fmtpv3.seqnum")
    others = ("fmtpv3.wanted", "fmtpv3.retx_end.not_multicast", "fmtpv3.bop.size")
    names = ("group", "high", "round", "need", "bitmap", "missing")
    repair = [f"fmtpv3.repair_req.{n}" for n in names]
    keys = ("fmtpv3.key.length", "fmtpv3.key.extensions", "fmtpv3.key.answer")
    found = rows(path, (*header, *others, *repair, *keys), "-Y", "fmtpv3")
    messages = [row for row in found if row[0]]
    assert [row[:3] for row in messages] == EXPECTED_ON_TCP
    assert [row[3:6] for row in messages] == [
        ["1448", "", ""],
        ["", "", "5"],
        ["", "", ""],
        ["", "5", ""],
    ]
    assert [row[6:12] for row in messages if row[6]] == [["4", "2", "1", "2", "0902", "3"]]
    length = str(len(PEM) + len("FMTP-Extensions: 1\n"))
    answer = ["256", "", bytes(range(256)).hex()]
    expected = [[length, "1", ""], answer] if with_key else []
    assert [row[12:] for row in found if row[12]] == expected


@pytest.mark.slow
def test_both_passes_agree(encoder: Encoder, tmp_path: Path) -> None:
    """tshark -2 dissects each packet twice, as Wireshark does."""
    path = write(tmp_path / "b.pcap", [*multicast(encoder), *connection(encoder, True)])
    fields = ("fmtpv3.flags", "fmtpv3.gap", "fmtpv3.gap.products", "fmtpv3.key.length")
    assert rows(path, fields, "-2") == rows(path, fields)


@pytest.mark.slow
def test_ports_where_the_form_is_not_trusted(encoder: Encoder, tmp_path: Path) -> None:
    path = write(tmp_path / "m.pcap", multicast(encoder))
    off = ("-o", "fmtpv3.heuristic:FALSE")
    assert rows(path, ["fmtpv3.flags"], *off, "-Y", "fmtpv3") == []
    assert (
        len(rows(path, ["fmtpv3.flags"], *off, "-o", "fmtpv3.udp_ports:38800", "-Y", "fmtpv3")) == 9
    )


@pytest.mark.slow
def test_other_traffic_is_left_alone(tmp_path: Path) -> None:
    other = [udp(SENDER, GROUP, b"hello, world, how are you?"), udp(SENDER, GROUP, bytes(200))]
    tcp = Tcp(RECEIVER, SERVER)
    tcp.send(RECEIVER, b"GET / HTTP/1.0\r\n\r\n")
    path = write(tmp_path / "o.pcap", [*other, *tcp.segments])
    assert rows(path, ["frame.number"], "-Y", "fmtpv3") == []


@pytest.mark.slow
def test_malformed_messages_are_told_and_break_nothing(encoder: Encoder, tmp_path: Path) -> None:
    """Every message truncated and with bytes changed, by ports: no error of Lua's."""
    chosen = random.Random(1)
    frames = []
    for frame in multicast(encoder):
        data = frame[42:]
        cut = data[: chosen.randrange(1, len(data))]
        changed = bytearray(data)
        for _ in range(3):
            changed[chosen.randrange(min(len(changed), 30))] = chosen.randrange(256)
        frames += [udp(SENDER, GROUP, cut), udp(SENDER, GROUP, bytes(changed))]
    streams = []
    for number in range(40):
        tcp = Tcp(End("10.0.0.2", 7000 + number), SERVER)
        ends = (End("10.0.0.2", 7000 + number), SERVER)
        for segment in connection(encoder, number % 2 == 0):
            stream = bytearray(segment[54:])
            for _ in range(2):
                stream[chosen.randrange(min(len(stream), 30))] = chosen.randrange(256)
            tcp.send(
                ends[chosen.randrange(2)], bytes(stream[: chosen.randrange(1, len(stream) + 1)])
            )
        streams += tcp.segments
    path = write(tmp_path / "x.pcap", [*frames, *streams])
    ports = ("-o", "fmtpv3.udp_ports:38800", "-o", "fmtpv3.tcp_ports:46423")
    tshark(path, *ports, "-V", "-2")
    assert len(rows(path, ["frame.number"], *ports, "-Y", "fmtpv3.malformed")) >= 5
