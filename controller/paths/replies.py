# SPDX-License-Identifier: Apache-2.0
"""Decode OpenFlow 1.3 messages of switches to values. Pure; the sender may be hostile.

The framework's parser loops forever on a multipart entry of length 0 and costs five times as much.
So this module decodes multipart replies and packet-ins; `check` vets the structure of the few other
messages before the framework sees them. Layouts: OpenFlow 1.3.5, section 7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from controller.paths.entries import Kind, cookie_of

VERSION = 4
HEADER = struct.Struct("!BBHI")
_MULTIPART = struct.Struct("!HH4x")
_PACKET_IN = struct.Struct("!IHBBQ")
_TLV = struct.Struct("!HH")

_REPORTS = cookie_of(Kind.IGMP) >> 24  # of flows of any path

PORT_LENGTH = 64
PORT_STATS_LENGTH = 112
HELLO_LENGTH_MAX = 1024
MORE = 1  # OFPMPF_REPLY_MORE
OXM_BASIC = 0x8000
MATCH_OXM = 1


class Type(IntEnum):
    """Messages that a switch may send. Any other type ends its connection."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FEATURES_REPLY = 6
    PACKET_IN = 10
    FLOW_REMOVED = 11
    PORT_STATUS = 12
    MULTIPART_REPLY = 19
    BARRIER_REPLY = 21
    ROLE_REPLY = 25


class Multipart(IntEnum):
    FLOW = 1
    PORT_STATS = 4
    GROUP = 6
    GROUP_DESC = 7
    METER = 9
    METER_CONFIG = 10
    PORT_DESC = 13


class Malformed(ValueError):
    """Bytes that no correct switch sends. The text says what is wrong."""


@dataclass(frozen=True)
class Header:
    version: int
    type: int
    length: int
    xid: int


@dataclass(frozen=True)
class Part:
    """One message of a multipart reply."""

    kind: int
    more: bool
    body: bytes


@dataclass(frozen=True)
class PacketIn:
    in_port: int
    cookie: int
    frame: bytes


@dataclass(frozen=True)
class Oxm:
    """A match field of class OPENFLOW_BASIC; for other classes, `field` is -1."""

    field: int
    value: bytes
    mask: bytes | None


@dataclass(frozen=True)
class Tlv:
    """An instruction, action, or meter band: its type and all of its bytes."""

    type: int
    data: bytes


@dataclass(frozen=True)
class FlowStats:
    table: int
    priority: int
    idle_timeout_s: int
    hard_timeout_s: int
    cookie: int
    packets: int
    size_bytes: int
    match: tuple[Oxm, ...]
    instructions: tuple[Tlv, ...]


@dataclass(frozen=True)
class GroupDescription:
    type: int
    number: int
    buckets: tuple[tuple[Tlv, ...], ...]  # the actions of each


@dataclass(frozen=True)
class GroupCounts:
    number: int
    packets: int
    size_bytes: int
    buckets: tuple[tuple[int, int], ...]  # packets, bytes


@dataclass(frozen=True)
class MeterConfig:
    flags: int
    number: int
    bands: tuple[Tlv, ...]


@dataclass(frozen=True)
class MeterCounts:
    number: int
    flows: int
    packets_in: int
    bytes_in: int
    bands: tuple[tuple[int, int], ...]  # packets, bytes


@dataclass(frozen=True)
class PortCounts:
    number: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


def header(message: bytes) -> Header:
    """Return the header.

    Raises Malformed unless `message` is exactly one OpenFlow 1.3 message (a HELLO may be of any
    version).
    """
    if len(message) < HEADER.size:
        raise Malformed(f"{len(message)} bytes are not an OpenFlow header")
    found = Header(*HEADER.unpack_from(message))
    if found.length != len(message):
        raise Malformed(f"length field {found.length} of a message of {len(message)} bytes")
    if found.version != VERSION and found.type != Type.HELLO:
        raise Malformed(f"version {found.version:#04x} instead of {VERSION:#04x}")
    return found


def check_greeting(first: bytes) -> None:
    """Raise Malformed if a connection's first bytes cannot be those of a HELLO."""
    length = int.from_bytes(first[2:4], "big") if len(first) >= 4 else HEADER.size
    if first[:1] > b"\x06" or first[:1] == b"\0" or first[1:2] not in (b"", b"\0"):
        raise Malformed(f"bytes {first[:4].hex()} instead of a HELLO")
    if not HEADER.size <= length <= HELLO_LENGTH_MAX:
        raise Malformed(f"HELLO of length {length}")


def check(message: bytes) -> Type:
    """Raise Malformed if the message must not be given to the framework's parser."""
    head = header(message)
    try:
        kind = Type(head.type)
    except ValueError:
        raise Malformed(f"message type {head.type} is not for a controller") from None
    size = len(message)
    if kind is Type.HELLO:
        # Each element is padded to 8 bytes, which its length does not count.
        for _ in _tlvs(message[HEADER.size :], 4, 8):
            pass
    elif kind is Type.ERROR:
        _exactly(size >= 12, kind, size)
    elif kind is Type.FEATURES_REPLY:
        _exactly(size == 32, kind, size)
    elif kind is Type.PORT_STATUS:
        _exactly(size == 16 + PORT_LENGTH, kind, size)
    elif kind is Type.BARRIER_REPLY:
        _exactly(size == HEADER.size, kind, size)
    elif kind is Type.ROLE_REPLY:
        _exactly(size == 24, kind, size)
    elif kind is Type.MULTIPART_REPLY:
        part = multipart(message)
        if part.kind == Multipart.PORT_DESC:
            _exactly(len(part.body) % PORT_LENGTH == 0, kind, size)
    elif kind is Type.PACKET_IN:
        _exactly(size >= 32, kind, size)
    return kind


def _exactly(is_valid: bool, kind: Type, size: int) -> None:
    if not is_valid:
        raise Malformed(f"{size} bytes are not a {kind.name}")


def multipart(message: bytes) -> Part:
    """Parse a part of a multipart reply. Raises Malformed."""
    if len(message) < HEADER.size + _MULTIPART.size:
        raise Malformed(f"{len(message)} bytes are not a MULTIPART_REPLY")
    kind, flags = _MULTIPART.unpack_from(message, HEADER.size)
    return Part(kind, bool(flags & MORE), message[HEADER.size + _MULTIPART.size :])


def packet_in(message: bytes) -> PacketIn:
    """Parse a PACKET_IN. Raises Malformed, also without an in_port field."""
    if len(message) < 32:
        raise Malformed(f"{len(message)} bytes are not a PACKET_IN")
    _, _, _, _, cookie = _PACKET_IN.unpack_from(message, HEADER.size)
    fields, end = _match(message, 24)
    frame = message[end + 2 :]
    for field in fields:
        if field.field == 0 and len(field.value) == 4:
            return PacketIn(int.from_bytes(field.value, "big"), cookie, frame)
    raise Malformed("PACKET_IN without in_port")


def is_report(message: bytes) -> bool:
    """Return whether a PACKET_IN that passed `check` comes from a flow for leaves' IGMP."""
    (_, _, _, _, cookie) = _PACKET_IN.unpack_from(message, HEADER.size)
    return bool(cookie >> 24 == _REPORTS)


def flows(body: bytes) -> Iterator[FlowStats]:
    """Parse a part of a flow statistics reply. Raises Malformed."""
    for entry in _entries(body, 56):
        (_, table, _, _, priority, idle, hard, _, cookie, packets, size) = struct.unpack_from(
            "!HBxIIHHHH4xQQQ", entry
        )
        match, end = _match(entry, 48)
        instructions = tuple(_tlvs(entry[end:], 8))
        yield FlowStats(table, priority, idle, hard, cookie, packets, size, match, instructions)


def group_descriptions(body: bytes) -> Iterator[GroupDescription]:
    """Parse a part of a group description reply. Raises Malformed."""
    for entry in _entries(body, 8):
        _, kind, number = struct.unpack_from("!HBxI", entry)
        buckets = tuple(tuple(_tlvs(bucket[16:], 8)) for bucket in _entries(entry[8:], 16))
        yield GroupDescription(kind, number, buckets)


def group_counts(body: bytes) -> Iterator[GroupCounts]:
    """Parse a part of a group statistics reply. Raises Malformed."""
    for entry in _entries(body, 40):
        _, number, _, packets, size, _, _ = struct.unpack_from("!H2xII4xQQII", entry)
        if (len(entry) - 40) % 16:
            raise Malformed(f"group entry of {len(entry)} bytes")
        buckets = tuple(struct.iter_unpack("!QQ", entry[40:]))
        yield GroupCounts(number, packets, size, buckets)


def meter_configs(body: bytes) -> Iterator[MeterConfig]:
    """Parse a part of a meter configuration reply. Raises Malformed."""
    for entry in _entries(body, 8):
        _, flags, number = struct.unpack_from("!HHI", entry)
        yield MeterConfig(flags, number, tuple(_tlvs(entry[8:], 12)))


def meter_counts(body: bytes) -> Iterator[MeterCounts]:
    """Parse a part of a meter statistics reply. Raises Malformed."""
    offset = 0
    while offset < len(body):
        # The meter id comes first, then the entry's length.
        if len(body) - offset < 40:
            raise Malformed(f"{len(body) - offset} bytes are not a meter entry")
        number, length, used, packets, size, _, _ = struct.unpack_from("!IH6xIQQII", body, offset)
        if length < 40 or (length - 40) % 16 or length > len(body) - offset:
            raise Malformed(f"meter entry of length {length}")
        bands = tuple(struct.iter_unpack("!QQ", body[offset + 40 : offset + length]))
        yield MeterCounts(number, used, packets, size, bands)
        offset += length


def port_counts(body: bytes) -> Iterator[PortCounts]:
    """Parse a part of a port statistics reply. Raises Malformed."""
    if len(body) % PORT_STATS_LENGTH:
        raise Malformed(f"{len(body)} bytes of port entries")
    for offset in range(0, len(body), PORT_STATS_LENGTH):
        yield PortCounts(*struct.unpack_from("!I4xQQQQQQ", body, offset))


def _entries(data: bytes, least: int) -> Iterator[bytes]:
    """Yield entries that begin with their own length in 16 bits."""
    offset = 0
    while offset < len(data):
        left = len(data) - offset
        length = int.from_bytes(data[offset : offset + 2], "big") if left >= 2 else 0
        if length < least or length > left:
            raise Malformed(f"entry of length {length} in {left} bytes, at least {least}")
        yield data[offset : offset + length]
        offset += length


def _tlvs(data: bytes, least: int, padded_to: int = 1) -> Iterator[Tlv]:
    offset = 0
    while offset < len(data):
        left = len(data) - offset
        if left < _TLV.size:
            raise Malformed(f"{left} bytes after the last element")
        kind, length = _TLV.unpack_from(data, offset)
        if length < least or length > left:
            raise Malformed(f"element of length {length} in {left} bytes, at least {least}")
        yield Tlv(kind, data[offset : offset + length])
        offset += -(-length // padded_to) * padded_to


def actions_of(instruction: Tlv) -> tuple[Tlv, ...]:
    """Return the actions of an APPLY_ACTIONS or WRITE_ACTIONS instruction. Raises Malformed."""
    return tuple(_tlvs(instruction.data[8:], 8))


def _match(data: bytes, offset: int) -> tuple[tuple[Oxm, ...], int]:
    """Return the fields of an ofp_match and where it ends (padded to 8 bytes)."""
    if len(data) - offset < 8:
        raise Malformed("no match")
    kind, length = _TLV.unpack_from(data, offset)
    end = offset + (length + 7) // 8 * 8
    if kind != MATCH_OXM or length < 4 or end > len(data):
        raise Malformed(f"match of type {kind}, length {length}")
    fields: list[Oxm] = []
    position, stop = offset + 4, offset + length
    while position < stop:
        if stop - position < 4:
            raise Malformed("half a match field")
        oxm_class, tail, size = struct.unpack_from("!HBB", data, position)
        position += 4
        if size > stop - position:
            raise Malformed(f"match field of {size} bytes in {stop - position}")
        payload = data[position : position + size]
        position += size
        value, mask = payload, None
        if tail & 1:
            if size % 2:
                raise Malformed(f"masked match field of {size} bytes")
            value, mask = payload[: size // 2], payload[size // 2 :]
        fields.append(Oxm(tail >> 1 if oxm_class == OXM_BASIC else -1, value, mask))
    return tuple(fields), end
