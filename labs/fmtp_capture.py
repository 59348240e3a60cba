# SPDX-License-Identifier: Apache-2.0
"""Read a capture's FMTP messages without Wireshark, to compare them with a student's reading.

Reads pcapng as `topologies.watch.pcapng` writes it: Ethernet, perhaps a VLAN tag, IPv4, UDP and
TCP. FMTP's messages: docs/reference/fmtp.md; layout 2021, without extension 1's bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
RESOLUTION_OPTION: Final = 9  # if_tsresol
ETHERNET_BYTES, TAG_BYTES, UDP_BYTES, HEADER_BYTES = 14, 4, 8, 12
VLAN_TYPE, IPV4_TYPE, UDP, TCP = 0x8100, 0x0800, 17, 6
SYN: Final = 0x02
BOP, EOP, MEM_DATA, RETX_REQ, RETX_REJ, RETX_END = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
RETX_DATA, BOP_REQ, RETX_BOP, EOP_REQ, RETX_EOP = 0x40, 0x80, 0x100, 0x200, 0x400
BY_UDP: Final = frozenset({BOP, EOP, MEM_DATA})
BY_TCP: Final = frozenset(
    {RETX_REQ, RETX_REJ, RETX_END, RETX_DATA, BOP_REQ, RETX_BOP, EOP_REQ, RETX_EOP}
)
BODY_ON_TCP: Final = frozenset({RETX_DATA, RETX_BOP})
KEY_BEGINS: Final = b"-----BEGIN"
MAX_KEY_BYTES: Final = 65_504


class CaptureError(Exception):
    """The file is not a readable capture; the text says why."""


@dataclass(frozen=True)
class Message:
    """One FMTP message as it passed the tap. `source`, `destination`: IPv4 addresses; `length`: the
    header's field, which in a RETX_REQ is the number of bytes wanted; `header`: its 12 bytes."""

    time_ns: int
    source: str
    destination: str
    kind: int
    index: int
    seq: int
    length: int
    header: bytes


@dataclass
class _Stream:
    """One direction of a TCP connection: the data that arrived in order, and what came too
    early."""

    expected: int | None = None
    early: dict[int, bytes] = field(default_factory=dict)
    text: bytes = b""
    begun: bool = False  # the key exchange is over
    known: bool = False  # it is FMTP


Flow = tuple[str, int, str, int]


def messages(path: Path) -> list[Message]:
    """Return all FMTP messages of a capture, in its order. The time of a message over TCP is that
    of the segment that completed it. Raises CaptureError."""
    streams: dict[Flow, _Stream] = {}
    found: list[Message] = []
    for time_ns, frame in frames(path):
        found += _of_frame(time_ns, frame, streams)
    return found


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (time in ns, frame starting with its Ethernet header). Raises CaptureError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from None
    if len(data) < 12 or struct.unpack_from("<I", data)[0] != SECTION:
        raise CaptureError(f"{path}: found no pcapng file; valid: a capture of a run")
    at, unit_ns = 0, 1000
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or at + length > len(data):
            return  # cut off
        if kind == INTERFACE:
            unit_ns = _unit_ns(data[at + 16 : at + length - 4], path)
        elif kind == PACKET:
            _, high, low, kept, _ = struct.unpack_from("<IIIII", data, at + 8)
            yield (high << 32 | low) * unit_ns, data[at + 28 : at + 28 + kept]
        at += length


def _unit_ns(options: bytes, path: Path) -> int:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from("<HH", options, at)
        if code == RESOLUTION_OPTION:
            digits = options[at + 4]
            if digits > 9:
                raise CaptureError(f"{path}: found times in units of 10^-{digits} s; valid: ns")
            return int(10 ** (9 - digits))
        at += 4 + (length + 3) // 4 * 4
    return 1000


def _of_frame(time_ns: int, frame: bytes, streams: dict[Flow, _Stream]) -> list[Message]:
    at = ETHERNET_BYTES
    kind = int.from_bytes(frame[at - 2 : at], "big")
    if kind == VLAN_TYPE:
        at += TAG_BYTES
        kind = int.from_bytes(frame[at - 2 : at], "big")
    if kind != IPV4_TYPE or len(frame) < at + 20:
        return []
    end = at + int.from_bytes(frame[at + 2 : at + 4], "big")
    source, destination = (".".join(map(str, frame[at + k : at + k + 4])) for k in (12, 16))
    transport = frame[at + 9]
    at += (frame[at] & 15) * 4
    if transport == UDP:
        return _datagram(time_ns, source, destination, frame[at + UDP_BYTES : end])
    if transport != TCP or len(frame) < at + 20:
        return []
    source_port, destination_port, sequence = struct.unpack_from("!HHI", frame, at)
    flags, begin = frame[at + 13], at + (frame[at + 12] >> 4) * 4
    flow = (source, source_port, destination, destination_port)
    stream = streams.setdefault(flow, _Stream())
    if flags & SYN:
        streams[flow] = _Stream(expected=(sequence + 1) % 2**32)
        return []
    _take(stream, sequence, frame[begin:end])
    back = streams.get((destination, destination_port, source, source_port))
    return _parse(time_ns, source, destination, stream, back)


def _datagram(time_ns: int, source: str, destination: str, payload: bytes) -> list[Message]:
    message = _message(time_ns, source, destination, payload)
    return [message] if message is not None and message.kind in BY_UDP else []


def _message(time_ns: int, source: str, destination: str, text: bytes) -> Message | None:
    if len(text) < HEADER_BYTES:
        return None
    header = text[:HEADER_BYTES]
    index, seq, length, kind = struct.unpack("!IIHH", header)
    return Message(time_ns, source, destination, kind, index, seq, length, header)


def _take(stream: _Stream, sequence: int, data: bytes) -> None:
    """Add a segment. Repeated bytes count once; data after a gap waits."""
    if stream.expected is None or not data:
        return
    stream.early[sequence] = max(data, stream.early.get(sequence, b""), key=len)
    moved = True
    while moved:
        moved = False
        for begin, segment in sorted(stream.early.items()):
            skip = (stream.expected - begin) % 2**32
            if skip >= 2**31:
                continue  # it comes after a gap
            del stream.early[begin]
            if skip < len(segment):
                stream.text += segment[skip:]
                stream.expected = (begin + len(segment)) % 2**32
                moved = True


def _parse(
    time_ns: int, source: str, destination: str, stream: _Stream, back: _Stream | None
) -> list[Message]:
    if not stream.begun and not _skip_key(stream, back):
        return []
    found = []
    while (message := _message(time_ns, source, destination, stream.text)) is not None:
        if message.kind not in BY_TCP:
            raise CaptureError(
                f"found a message of type {message.kind:#06x} from {source}; valid: FMTP by TCP"
            )
        size = HEADER_BYTES + (message.length if message.kind in BODY_ON_TCP else 0)
        if len(stream.text) < size:
            break
        stream.text = stream.text[size:]
        found.append(message)
    return found


def _skip_key(stream: _Stream, back: _Stream | None) -> bool:
    """Return whether the key exchange is over. A connection is taken for FMTP's if one side begins
    with a key."""
    offers = stream.text[4 : 4 + len(KEY_BEGINS)] == KEY_BEGINS
    stream.known = stream.known or offers or (back is not None and back.known)
    if not stream.known or len(stream.text) < 4:
        return False
    length = int.from_bytes(stream.text[:4], "big")
    if length > MAX_KEY_BYTES or len(stream.text) < 4 + length:
        return False
    stream.text = stream.text[4 + length :]
    stream.begun = True
    return True
