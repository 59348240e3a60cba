# SPDX-License-Identifier: Apache-2.0
"""With sockets of this process, over loopback: drops of a full buffer are counted, and a larger
buffer drops nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from topologies.emulate import packet_sockets

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: packet sockets"),
]
FRAMES = 300
PROTOCOL = 0x88B5  # IEEE 802 local experimental


def exchange(receiver: socket.socket) -> int:
    """Send FRAMES frames over loopback, then count what `receiver` holds (loopback shows each frame
    twice: going out and coming in)."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind(("lo", 0))
        frame = bytes(12) + PROTOCOL.to_bytes(2, "big") + bytes(1000)
        for _ in range(FRAMES):
            sender.send(frame)
    count = 0
    receiver.setblocking(False)
    while True:
        try:
            receiver.recv(2000)
        except BlockingIOError:
            return count
        count += 1


def test_drops_are_counted_and_a_larger_buffer_has_none() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(PROTOCOL)) as receiver:
        receiver.bind(("lo", PROTOCOL))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        seen = exchange(receiver)
        lost = packet_sockets.drops(os.getpid())["lo"]
        assert lost > 0
        total = seen + lost
        assert total % FRAMES == 0 and total > 0  # every frame was seen or counted

        granted = packet_sockets.enlarge(os.getpid(), 4_000_000)
        assert granted["lo"] == 4_000_000
        assert exchange(receiver) == total
        assert packet_sockets.drops(os.getpid())["lo"] == lost


def test_other_sockets_are_left_alone() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        before = other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        packet_sockets.enlarge(os.getpid(), 1_000_000)
        assert other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before


def test_one_that_closes_while_they_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    readlink = Path.readlink
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        number = other.fileno()

        def closes(path: Path) -> Path:
            found = readlink(path)
            if path.name == str(number):
                other.close()
            return found

        monkeypatch.setattr(Path, "readlink", closes)
        assert all(found.fileno() >= 0 for found in packet_sockets.sockets_of(os.getpid()))
        assert other.fileno() == -1  # it was listed
