# SPDX-License-Identifier: Apache-2.0
"""IGMP: which hosts want which groups (RFC 3376 for version 3, RFC 2236 for 2 and 1). Pure; frames
may be hostile.

A report of version 1 or 2, and a leave, are read as the records of version 3 that mean the same
(RFC 3376, 7.3.2). Addresses are IPv4, times are in seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final

from common.counting import counted
from controller.paths.entries import mac_text

ETH_TYPE_IPV4: Final = 0x0800
ETH_TYPE_VLAN: Final = 0x8100
PROTOCOL: Final = 2
FRAME_MAX_BYTES: Final = 1522  # with a VLAN tag and the FCS
FRAME_MIN_BYTES: Final = 60
ROUTER_ALERT: Final = bytes.fromhex("94040000")  # RFC 2113

ANY: Final = IPv4Address(0)
ALL_SYSTEMS: Final = IPv4Address("224.0.0.1")
ALL_ROUTERS: Final = IPv4Address("224.0.0.2")
ALL_IGMPV3_ROUTERS: Final = IPv4Address("224.0.0.22")

_QUERY, _V1_REPORT, _V2_REPORT, _V2_LEAVE, _V3_REPORT = 0x11, 0x12, 0x16, 0x17, 0x22
_IPV4 = struct.Struct("!BBHHHBBHII")
_HEAD = struct.Struct("!BBHI")  # type, maximum response code, checksum, group
_QUERY_TAIL = struct.Struct("!BBH")  # S and QRV, QQIC, number of sources
_V3_HEAD = struct.Struct("!BxHxxH")  # type, checksum, number of records
_RECORD = struct.Struct("!BBHI")  # type, auxiliary words, number of sources, group
_INTERNETWORK_CONTROL = 0xC0  # type of service (RFC 3376, 4)
_DO_NOT_FRAGMENT = 0x4000
_FRAGMENT = 0x3FFF  # more fragments, or an offset
_SUPPRESS = 0x08
_CODE_MAX = 0x1F << 10  # the number of code 0xff (RFC 3376, 4.1.1)


class NotIgmp(ValueError):
    """A frame that is not a valid IGMP message; the text says why."""


class Filter(IntEnum):
    """What a record of a report says about a group (RFC 3376, 4.2.12)."""

    IS_INCLUDE = 1
    IS_EXCLUDE = 2
    TO_INCLUDE = 3
    TO_EXCLUDE = 4
    ALLOW = 5
    BLOCK = 6


@dataclass(frozen=True)
class Record:
    """What a host says about a group. `TO_INCLUDE` without sources: it leaves the group."""

    filter: Filter
    group: IPv4Address
    sources: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True)
class Report:
    """A host's report. Versions 1 and 2 have one record: IS_EXCLUDE, or TO_INCLUDE for a leave."""

    version: int
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Query:
    """A querier's query. `group` ANY: about all groups. Version 2 has only `group` and
    `response_s`; a `response_s` of 0 in version 2 is a query of version 1."""

    version: int
    group: IPv4Address = ANY
    response_s: float = 10.0
    sources: tuple[IPv4Address, ...] = ()
    is_suppressing: bool = False
    robustness: int = 2
    interval_s: float = 125.0


Message = Query | Report


@dataclass(frozen=True)
class Received:
    """An IGMP message, its sender and its destination. `vlan` None: untagged."""

    message: Message
    source_mac: str
    source: IPv4Address
    vlan: int | None
    has_router_alert: bool


def mac_of(group: IPv4Address) -> str:
    """Return the Ethernet address of a group (RFC 1112, 6.4): 32 groups share each."""
    return mac_text(_raw_mac_of(group))


# -- reading


def read(frame: bytes) -> Received:
    """Parse an Ethernet frame.

    It must have TTL 1, so that no router forwarded it. A missing Router Alert is only reported:
    some hosts of version 2 send none. Raises NotIgmp.
    """
    if not 34 <= len(frame) <= FRAME_MAX_BYTES:
        raise NotIgmp(f"{len(frame)} bytes")
    vlan, offset = None, 12
    if _u16(frame, offset) == ETH_TYPE_VLAN:
        vlan, offset = _u16(frame, 14) & 0xFFF, 16
    if _u16(frame, offset) != ETH_TYPE_IPV4:
        raise NotIgmp(f"Ethernet type {_u16(frame, offset):#06x}")
    source, destination, options, body = _packet(frame[offset + 2 :])
    message = read_message(body)
    if not isinstance(message, Report) and destination != ALL_SYSTEMS:
        if destination != message.group:
            raise NotIgmp(f"query of {message.group} to {destination}")
    elif not destination.is_multicast:
        raise NotIgmp(f"report to {destination}")
    return Received(message, mac_text(frame[6:12]), source, vlan, ROUTER_ALERT in options)


def _packet(packet: bytes) -> tuple[IPv4Address, IPv4Address, bytes, bytes]:
    """Return source, destination, options and payload of an IPv4 packet of IGMP."""
    if len(packet) < _IPV4.size:
        raise NotIgmp(f"{len(packet)} bytes of IPv4")
    first, _, total, _, fragment, ttl, protocol, _, source, destination = _IPV4.unpack_from(packet)
    head = (first & 0x0F) * 4
    if first >> 4 != 4 or head < _IPV4.size or not head <= total <= len(packet):
        raise NotIgmp(f"IPv4 header {first:#04x}, {total} of {len(packet)} bytes")
    if protocol != PROTOCOL:
        raise NotIgmp(f"IP protocol {protocol}")
    if fragment & _FRAGMENT:
        raise NotIgmp("a fragment")
    if ttl != 1:
        raise NotIgmp(f"TTL {ttl}")
    if checksum(packet[:head]):
        raise NotIgmp("wrong checksum of the IPv4 header")
    options = packet[_IPV4.size : head]
    return IPv4Address(source), IPv4Address(destination), options, packet[head:total]


def read_message(body: bytes) -> Message:
    """Parse an IGMP message. Raises NotIgmp."""
    if len(body) < _HEAD.size:
        raise NotIgmp(f"{len(body)} bytes of IGMP")
    if checksum(body):
        raise NotIgmp("wrong checksum")
    kind, code, _, group_number = _HEAD.unpack_from(body)
    group = IPv4Address(group_number)
    if kind == _V3_REPORT:
        return Report(3, _records(body))
    if kind == _QUERY:
        return _query(body, code, group)
    if kind not in (_V1_REPORT, _V2_REPORT, _V2_LEAVE):
        raise NotIgmp(f"type {kind:#04x}")
    _check_group(group)
    what = Filter.TO_INCLUDE if kind == _V2_LEAVE else Filter.IS_EXCLUDE
    return Report(1 if kind == _V1_REPORT else 2, (Record(what, group),))


def _query(body: bytes, code: int, group: IPv4Address) -> Query:
    if group != ANY:
        _check_group(group)
    if len(body) < _HEAD.size + _QUERY_TAIL.size:  # RFC 3376, 7.1
        if len(body) != _HEAD.size:
            raise NotIgmp(f"query of {len(body)} bytes")
        return Query(2, group, code / 10)
    flags, interval_code, count = _QUERY_TAIL.unpack_from(body, _HEAD.size)
    sources = _addresses(body, _HEAD.size + _QUERY_TAIL.size, count)
    return Query(
        3,
        group,
        from_code(code) / 10,
        sources,
        bool(flags & _SUPPRESS),
        flags & 7,
        float(from_code(interval_code)),
    )


def _records(body: bytes) -> tuple[Record, ...]:
    _, _, count = _V3_HEAD.unpack_from(body)
    records: list[Record] = []
    offset = _V3_HEAD.size
    for _ in range(count):
        if len(body) - offset < _RECORD.size:
            raise NotIgmp(f"{counted(count, 'record')} in {len(body)} bytes")
        kind, auxiliary, sources, group_number = _RECORD.unpack_from(body, offset)
        offset += _RECORD.size
        found = _addresses(body, offset, sources)
        offset += 4 * (sources + auxiliary)
        if offset > len(body):
            raise NotIgmp(f"{4 * auxiliary} auxiliary bytes beyond the end")
        group = IPv4Address(group_number)
        _check_group(group)
        if kind in _FILTERS:  # others are ignored (RFC 3376, 4.2.12)
            records.append(Record(Filter(kind), group, found))
    return tuple(records)


_FILTERS = frozenset(Filter)


def _addresses(body: bytes, offset: int, count: int) -> tuple[IPv4Address, ...]:
    if offset + 4 * count > len(body):
        raise NotIgmp(f"{counted(count, 'source')} in {len(body) - offset} bytes")
    return tuple(map(IPv4Address, struct.unpack_from(f"!{count}I", body, offset)))


def _check_group(group: IPv4Address) -> None:
    if not group.is_multicast:
        raise NotIgmp(f"group {group} is not a multicast address")


def _u16(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "big")


# -- writing


def frame_of(
    message: Message, source_mac: str, source: IPv4Address = ANY, vlan: int | None = None
) -> bytes:
    """Return the Ethernet frame of a message, with TTL 1 and Router Alert, padded to 60 bytes.

    `source` ANY: as RFC 4541, 2.1.1 requires of a sender that is not a router. Raises ValueError
    for a message that its version cannot express.
    """
    body = bytes_of(message)
    destination = destination_of(message)
    total = _IPV4.size + len(ROUTER_ALERT) + len(body)
    fields = (0x46, _INTERNETWORK_CONTROL, total, 0, _DO_NOT_FRAGMENT, 1, PROTOCOL)
    head = _IPV4.pack(*fields, 0, int(source), int(destination)) + ROUTER_ALERT
    head = _IPV4.pack(*fields, checksum(head), int(source), int(destination)) + ROUTER_ALERT
    ethernet = _raw_mac_of(destination) + bytes.fromhex(source_mac.replace(":", ""))
    if vlan is not None:
        ethernet += struct.pack("!HH", ETH_TYPE_VLAN, vlan)
    return (ethernet + struct.pack("!H", ETH_TYPE_IPV4) + head + body).ljust(FRAME_MIN_BYTES, b"\0")


def destination_of(message: Message) -> IPv4Address:
    """Return where a message goes (RFC 3376, 4.1.12 and 4.2.14; RFC 2236, 3)."""
    if isinstance(message, Query):
        return ALL_SYSTEMS if message.group == ANY else message.group
    if message.version == 3:
        return ALL_IGMPV3_ROUTERS
    record = message.records[0]
    return ALL_ROUTERS if record.filter is Filter.TO_INCLUDE else record.group


def bytes_of(message: Message) -> bytes:
    """Return the IGMP message. Raises ValueError if its version cannot express it."""
    body = _bytes_of_query(message) if isinstance(message, Query) else _bytes_of_report(message)
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def _bytes_of_query(query: Query) -> bytes:
    tenths = round(query.response_s * 10)
    if query.version == 2:
        return _HEAD.pack(_QUERY, min(tenths, 0xFF), 0, int(query.group))
    flags = (_SUPPRESS if query.is_suppressing else 0) | min(query.robustness, 7)
    head = _HEAD.pack(_QUERY, to_code(tenths), 0, int(query.group))
    tail = _QUERY_TAIL.pack(flags, to_code(round(query.interval_s)), len(query.sources))
    return head + tail + _packed(query.sources)


def _bytes_of_report(report: Report) -> bytes:
    if report.version == 3:
        parts = [_V3_HEAD.pack(_V3_REPORT, 0, len(report.records))]
        for record in report.records:
            count = len(record.sources)
            parts.append(_RECORD.pack(record.filter, 0, count, int(record.group)))
            parts.append(_packed(record.sources))
        return b"".join(parts)
    kinds = {(1, Filter.IS_EXCLUDE): _V1_REPORT, (2, Filter.IS_EXCLUDE): _V2_REPORT}
    kinds[2, Filter.TO_INCLUDE] = _V2_LEAVE
    if len(report.records) != 1 or report.records[0].sources:
        raise ValueError(f"IGMP of version {report.version} cannot express {report.records}")
    record = report.records[0]
    if (report.version, record.filter) not in kinds:
        raise ValueError(f"IGMP of version {report.version} cannot express {record.filter.name}")
    return _HEAD.pack(kinds[report.version, record.filter], 0, 0, int(record.group))


def _packed(addresses: Iterable[IPv4Address]) -> bytes:
    return b"".join(address.packed for address in addresses)


# -- numbers


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): 0 for data that contains a correct one."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def from_code(code: int) -> int:
    """Return the number that a maximum response code or QQIC encodes (RFC 3376, 4.1.1)."""
    if code < 0x80:
        return code
    return (code & 0x0F | 0x10) << ((code >> 4 & 7) + 3)


def to_code(number: int) -> int:
    """Return the code of the greatest encodable number that is not above `number`."""
    number = min(number, _CODE_MAX)
    if number < 0x80:
        return max(number, 0)
    exponent = number.bit_length() - 8
    return 0x80 | exponent << 4 | number >> (exponent + 3) & 0x0F


def _raw_mac_of(group: IPv4Address) -> bytes:
    return b"\x01\x00\x5e" + (int(group) & 0x7FFFFF).to_bytes(3, "big")
