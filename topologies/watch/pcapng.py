# SPDX-License-Identifier: Apache-2.0
"""Convert tcpdump's files (pcap) to one pcapng file (draft-ietf-opsawg-pcapng), which says what was
captured where and how many frames were missed. Pure: bytes in, bytes out."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D
# pcap's magic number, as the first four bytes show it -> (byte order, nanoseconds per unit)
_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
FILE_HEADER_BYTES, RECORD_HEADER_BYTES = 24, 16


@dataclass(frozen=True)
class Frame:
    """`size_bytes`: on the wire; `data` may be shorter (snap length)."""

    time_ns: int
    size_bytes: int
    data: bytes


@dataclass(frozen=True)
class Interface:
    """What the pcapng file says about its origin."""

    name: str
    description: str
    snap_bytes: int  # 0: whole frames
    link_type: int = 1  # Ethernet


def frames(pcap: bytes) -> Iterator[Frame]:
    """Yield the frames of a pcap file, without a truncated last one; none from other bytes."""
    kind = _PCAP.get(pcap[:4])
    if kind is None:
        return
    order, unit_ns = kind
    header = struct.Struct(f"{order}IIII")
    position = FILE_HEADER_BYTES
    while position + RECORD_HEADER_BYTES <= len(pcap):
        seconds, fraction, kept, size = header.unpack_from(pcap, position)
        position += RECORD_HEADER_BYTES
        if position + kept > len(pcap):
            return
        yield Frame(
            seconds * 1_000_000_000 + fraction * unit_ns, size, pcap[position : position + kept]
        )
        position += kept


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def beginning(interface: Interface) -> bytes:
    """Return the blocks before the frames."""
    end = _option(0, b"")
    section = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + _option(4, b"Downpour") + end
    described = (
        struct.pack("<HHI", interface.link_type, 0, interface.snap_bytes)
        + _option(2, interface.name.encode())
        + _option(3, interface.description.encode())
        + _option(9, b"\x09")  # time stamps count nanoseconds
        + end
    )
    return _block(SECTION, section) + _block(INTERFACE, described)


def packet(frame: Frame) -> bytes:
    """Return a frame's block."""
    head = struct.pack(
        "<IIIII",
        0,
        frame.time_ns >> 32,
        frame.time_ns & 0xFFFFFFFF,
        len(frame.data),
        frame.size_bytes,
    )
    return _block(PACKET, head + _padded(frame.data))


def statistics(time_ns: int, received: int, dropped: int) -> bytes:
    """Return the block after the frames: how many passed, and how many of these the kernel dropped
    because they were not read in time."""
    body = struct.pack("<III", 0, time_ns >> 32, time_ns & 0xFFFFFFFF)
    body += _option(4, struct.pack("<Q", received)) + _option(7, struct.pack("<Q", dropped))
    return _block(STATISTICS, body + _option(0, b""))


def pcapng(
    pcaps: Iterable[bytes], interface: Interface, received: int, dropped: int
) -> Iterator[bytes]:
    """Yield the pcapng file in pieces. `pcaps`: the files of one capture, in order."""
    yield beginning(interface)
    last_ns = 0
    for pcap in pcaps:
        for frame in frames(pcap):
            last_ns = max(last_ns, frame.time_ns)
            yield packet(frame)
    yield statistics(last_ns, received, dropped)
