# SPDX-License-Identifier: Apache-2.0
"""Reading FMTP from captures: frames built by hand, with everything that TCP does to messages."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from labs import fmtp_capture as fmtp
from labs.fmtp_capture import CaptureError, messages
from topologies.watch.pcapng import (
    Frame,
    Interface,
    beginning,
    packet,
)

SENDER, RECEIVER, GROUP = "10.10.1.1", "10.10.1.2", "239.10.1.1"
KEY = b"-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----\n"
TAG = b"\x81\x00\x04\x4d"  # VLAN 1101
SYN, ACK = 0x02, 0x10


def address(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def frame(source: str, target: str, protocol: int, transport: bytes) -> bytes:
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0)
    # Ethernet pads short frames: what follows the IP packet is no data.
    return (
        bytes(12) + TAG + b"\x08\x00" + ip + address(source) + address(target) + transport
    ).ljust(64, b"\xee")


def udp(message: bytes) -> bytes:
    head = struct.pack("!HHHH", 40000, 38800, 8 + len(message), 0)
    return frame(SENDER, GROUP, 17, head + message)


def tcp(
    source: str, target: str, ports: tuple[int, int], at: int, data: bytes, flags: int
) -> bytes:
    head = struct.pack("!HHIIBBHHH", *ports, at % 2**32, 0, 0x50, flags, 1000, 0, 0)
    return frame(source, target, 6, head + data)


def ask(at: int, data: bytes, flags: int = ACK) -> bytes:
    return tcp(RECEIVER, SENDER, (5000, 46423), at, data, flags)


def answer(at: int, data: bytes, flags: int = ACK) -> bytes:
    return tcp(SENDER, RECEIVER, (46423, 5000), at, data, flags)


def message(kind: int, index: int, seq: int = 0, length: int = 0, body: bytes = b"") -> bytes:
    return struct.pack("!IIHH", index, seq, length or len(body), kind) + body


def capture(path: Path, frames: list[bytes]) -> Path:
    data = beginning(Interface("eth0", "a link", 0))
    for number, text in enumerate(frames):
        data += packet(Frame(1_000_000_000 + number * 1_000_000, len(text), text))
    path.write_bytes(data)
    return path


def kinds(path: Path) -> list[tuple[int, int, int, int]]:
    """Return (ms after the first frame, kind, index, length)."""
    return [
        ((m.time_ns - 1_000_000_000) // 1_000_000, m.kind, m.index, m.length)
        for m in messages(path)
    ]


def test_datagrams_behind_a_vlan_tag(tmp_path: Path) -> None:
    block = message(fmtp.MEM_DATA, 7, 1448, body=bytes(100))
    path = capture(tmp_path / "c", [udp(message(fmtp.BOP, 7, body=bytes(34))), udp(block)])
    first, second = messages(path)
    assert (first.kind, first.index, first.length) == (fmtp.BOP, 7, 34)
    assert (second.kind, second.seq, second.length) == (fmtp.MEM_DATA, 1448, 100)
    assert second.header == block[:12]
    assert (second.source, second.destination) == (SENDER, GROUP)
    assert second.time_ns - first.time_ns == 1_000_000


START = 2**32 - 20  # so that sequence numbers pass 2^32


def connection(begin: int = START) -> tuple[list[bytes], int, int]:
    """Return the handshake with the key exchange, and where both directions continue."""
    key = struct.pack("!I", len(KEY)) + KEY
    frames = [
        ask(begin, b"", SYN),
        answer(77, b"", SYN | ACK),
        ask(begin + 1, key),
        answer(78, struct.pack("!I", 4) + b"wxyz"),
    ]
    return frames, begin + 1 + len(key), 78 + 8


def test_messages_in_one_segment_and_in_pieces(tmp_path: Path) -> None:
    frames, mine, theirs = connection()
    two = message(fmtp.RETX_REQ, 1, 0, 2896) + message(fmtp.BOP_REQ, 2)
    data = message(fmtp.RETX_DATA, 1, 0, body=bytes(1448))
    frames += [ask(mine, two), answer(theirs, data[:5]), answer(theirs + 5, data[5:])]
    found = kinds(capture(tmp_path / "c", frames))
    assert found == [
        (4, fmtp.RETX_REQ, 1, 2896),
        (4, fmtp.BOP_REQ, 2, 0),
        (6, fmtp.RETX_DATA, 1, 1448),  # when its last byte passed
    ]


def test_segments_out_of_order_and_twice(tmp_path: Path) -> None:
    frames, mine, _ = connection()
    first, second, third = (message(fmtp.RETX_REQ, n, 0, 100 + n) for n in (1, 2, 3))
    frames += [ask(mine + 12, second), ask(mine, first), ask(mine, first), ask(mine + 6, first[6:])]
    frames += [ask(mine + 24, third)]
    found = kinds(capture(tmp_path / "c", frames))
    assert found == [
        (5, fmtp.RETX_REQ, 1, 101),
        (5, fmtp.RETX_REQ, 2, 102),
        (8, fmtp.RETX_REQ, 3, 103),
    ]


def test_what_is_not_fmtp_is_left_out(tmp_path: Path) -> None:
    ports = (5001, 388)
    frames = [
        tcp(RECEIVER, SENDER, ports, 10, b"", SYN),
        tcp(RECEIVER, SENDER, ports, 11, message(fmtp.RETX_REQ, 1, 0, 9), ACK),
        udp(b"hello"),
        udp(message(fmtp.RETX_DATA, 1, body=b"x")),
        bytes(60),
    ]
    assert messages(capture(tmp_path / "c", frames)) == []


def test_a_file_that_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("hello, this is no capture")
    with pytest.raises(CaptureError, match="found no pcapng file; valid: a capture of a run"):
        messages(tmp_path / "c")
    with pytest.raises(CaptureError, match="No such file"):
        messages(tmp_path / "d")


def test_a_capture_that_is_cut_off(tmp_path: Path) -> None:
    path = capture(tmp_path / "c", [udp(message(fmtp.EOP, n)) for n in range(3)])
    path.write_bytes(path.read_bytes()[:-10])
    assert [m.index for m in messages(path)] == [0, 1]
