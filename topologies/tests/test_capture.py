# SPDX-License-Identifier: Apache-2.0
"""Captures: names of links, tcpdump's command and counts, the pcapng file, and a real capture."""

from __future__ import annotations

import signal
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from common.shell import NetworkError
from topologies.model.load import find, load
from topologies.watch import capture
from topologies.watch.capture import (
    Capture,
    Tap,
    await_listening,
    counts,
    ordered,
    tap_of,
    tcpdump_argv,
)
from topologies.watch.pcapng import (
    Frame,
    Interface,
    frames,
    pcapng,
)

NETWORK = load(find("geni5"), {"receivers": 4})


def test_a_link_is_captured_at_the_end_named_first() -> None:
    link = next(k for k in NETWORK.links if k.name == "tor-wsu:chic")
    assert tap_of(NETWORK, "tor-wsu:chic") == Tap(
        "tor-wsu:chic", "tor-wsu", link.a.interface, "tor-wsu:chic"
    )
    turned = tap_of(NETWORK, "chic:tor-wsu")
    assert (turned.link, turned.at, turned.interface) == ("tor-wsu:chic", "chic", link.b.interface)
    assert turned.stem == "chic-tor-wsu"


def test_an_unknown_link_names_the_valid_ones() -> None:
    with pytest.raises(NetworkError, match=r"found link 'core-chi:frgp'; valid.*tor-wsu:chic, "):
        tap_of(NETWORK, "core-chi:frgp")


def test_tcpdump_is_bounded() -> None:
    """Two files of 24 x 10^6 bytes. With the smallest frames (60 bytes: 76 of pcap, 92 of pcapng)
    that makes 58 x 10^6 bytes, below the limit of 64 x 10^6."""
    argv = tcpdump_argv(Tap("a:b", "a", "eth9", "a:b"), Path("/x/a-b.pcap"), 64_000_000, 96)
    words = " ".join(argv)
    for expected in ("-i eth9", "-C 24 -W 2 -w /x/a-b.pcap", "-s 96", "precision=nano"):
        assert expected in words
    assert 2 * 24_000_000 / 76 * 92 < 64_000_000


def test_counts() -> None:
    said = "tcpdump: listening on x\n12 packets captured\n14 packets received by filter\n"
    assert counts(said + "2 packets dropped by kernel\n") == (12, 2)
    assert counts(
        "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel"
    ) == (
        1,
        0,
    )
    with pytest.raises(NetworkError, match="No such device"):
        counts("tcpdump: eth9: No such device exists\n")


def pcap(stamps_ns: Sequence[int], data: bytes, order: str = "<") -> bytes:
    out = struct.pack(f"{order}IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
    for stamp in stamps_ns:
        seconds, rest = divmod(stamp, 10**9)
        out += struct.pack(f"{order}IIII", seconds, rest, len(data), 1460) + data
    return out


@pytest.mark.parametrize("order", ["<", ">"])
def test_frames_of_either_byte_order_without_one_cut_off(order: str) -> None:
    text = pcap([10**18 + 7, 10**18 + 9], b"abcde", order)
    assert list(frames(text)) == [
        Frame(10**18 + 7, 1460, b"abcde"),
        Frame(10**18 + 9, 1460, b"abcde"),
    ]
    assert len(list(frames(text[:-1]))) == 1
    assert list(frames(b"rubbish")) == []


def blocks(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of each block, whose two lengths must agree."""
    at = 0
    while at < len(text):
        kind, length = struct.unpack_from("<II", text, at)
        assert length % 4 == 0
        assert struct.unpack_from("<I", text, at + length - 4) == (length,)
        yield kind, text[at + 8 : at + length - 4]
        at += length


def test_pcapng() -> None:
    """As in the draft: section, interface, a packet block for each frame, statistics."""
    stamp = 1_795_226_400_123_456_789
    files = [pcap([stamp], b"abcde"), pcap([stamp + 1], b"abcde")]
    text = b"".join(pcapng(files, Interface("eth9", "link a:b at a", 96), 14, 2))
    found = list(blocks(text))
    assert [kind for kind, _ in found] == [0x0A0D0D0A, 1, 6, 6, 5]
    assert found[0][1][:4] == bytes([0x4D, 0x3C, 0x2B, 0x1A])
    assert struct.unpack_from("<HHI", found[1][1]) == (1, 0, 96)
    assert b"eth9" in found[1][1] and b"link a:b at a" in found[1][1]
    assert b"\x09\x00\x01\x00\x09\x00\x00\x00" in found[1][1]  # nanoseconds
    number, high, low, kept, size = struct.unpack_from("<IIIII", found[2][1])
    assert (number, high << 32 | low, kept, size) == (0, stamp, 5, 1460)
    assert found[2][1][20:] == b"abcde\0\0\0"
    assert struct.pack("<HHQ", 4, 8, 14) in found[4][1]  # received
    assert struct.pack("<HHQ", 7, 8, 2) in found[4][1]  # dropped


def test_the_ring_is_put_in_order(tmp_path: Path) -> None:
    base = tmp_path / "a-b.pcap"
    Path(f"{base}0").write_bytes(pcap([2 * 10**9 + 5], b"x"))
    assert ordered(base) == [Path(f"{base}0")]
    Path(f"{base}1").write_bytes(pcap([2 * 10**9 + 4], b"x"))
    assert ordered(base) == [Path(f"{base}1"), Path(f"{base}0")]
    Path(f"{base}1").write_bytes(pcap([], b"x"))
    assert ordered(base) == [Path(f"{base}0"), Path(f"{base}1")]


def test_a_capture_too_small_is_refused(tmp_path: Path) -> None:
    def start(_node: str, _argv: Sequence[str], _errors: Any) -> subprocess.Popen[bytes]:
        raise AssertionError("must not start")

    with pytest.raises(NetworkError, match="found a capture of 10 bytes; valid: 3000000"):
        Capture(Tap("a:b", "a", "lo", "a:b"), tmp_path, start, 10, 0)


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"capture-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True, timeout=60)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, timeout=60)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True, timeout=60)


def in_namespace(name: str) -> capture.Start:
    def start(_node: str, argv: Sequence[str], errors: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["ip", "netns", "exec", name, *argv], stdout=subprocess.DEVNULL, stderr=errors
        )

    return start


@pytest.mark.root
def test_a_capture_for_real(namespace: str, tmp_path: Path) -> None:
    """Three pings over the loopback interface make six frames of 98 bytes (14 of Ethernet)."""
    running = Capture(Tap("a:b", "a", "lo", "a:b"), tmp_path, in_namespace(namespace), 3_000_000, 0)
    await_listening([running])
    ping = ["ping", "-n", "-c", "3", "-i", "0.05", "127.0.0.1"]
    subprocess.run(["ip", "netns", "exec", namespace, *ping], check=True, timeout=60)
    deadline = time.monotonic() + 60
    said = tmp_path / "a-b.tcpdump"
    while "6 packets captured" not in said.read_text():
        assert time.monotonic() < deadline, said.read_text()
        running._process.send_signal(signal.SIGUSR1)  # asks tcpdump for its counts
        time.sleep(0.05)
    running.tell_to_stop()
    found = running.finish()
    assert (found.frames, found.dropped, found.ring, found.problem) == (6, 0, False, "")
    assert [p.name for p in tmp_path.iterdir()] == ["a-b.pcapng"] == [found.file]
    packets = [body for kind, body in blocks((tmp_path / found.file).read_bytes()) if kind == 6]
    assert [struct.unpack_from("<I", body, 16)[0] for body in packets] == [98] * 6


@pytest.mark.root
def test_a_capture_that_cannot_begin_says_why(namespace: str, tmp_path: Path) -> None:
    running = Capture(
        Tap("a:b", "a", "no9", "a:b"), tmp_path, in_namespace(namespace), 3 * 10**6, 0
    )
    with pytest.raises(
        NetworkError, match="capture of a:b: tcpdump: no9: .*; valid: a host's"
    ) as why:
        await_listening([running])
    assert "\n" not in str(why.value)
    running.tell_to_stop()
    assert "no9" in running.finish().problem
