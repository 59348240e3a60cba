# SPDX-License-Identifier: Apache-2.0
"""A switch's counters of ports, groups and meters, from the bytes of its answers (OpenFlow 1.3.5,
7.3.5). Pure, but for `ask`, which reads a socket: starting `ovs-ofctl` costs more."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from topologies.watch import raw_entries
from topologies.watch.counters import Record

PORTS, GROUPS, METERS = 4, 6, 9  # ofp_multipart_type
_EVERY: Final = struct.Struct("!I4x")
QUESTIONS: Final = {
    PORTS: _EVERY.pack(0xFFFFFFFF),
    GROUPS: _EVERY.pack(0xFFFFFFFC),
    METERS: _EVERY.pack(0xFFFFFFFF),
}
MOST_PORT: Final = 0xFFFFFF00  # larger numbers are reserved, such as LOCAL
_UNKNOWN: Final = 0xFFFFFFFFFFFFFFFF  # a counter that this kind of port or group does not have
_PORT: Final = struct.Struct("!I4x12Q8x")
_GROUP: Final = struct.Struct("!H2xI8xQQ8x")
_METER: Final = struct.Struct("!IH10xQQ8x")
_PAIR: Final = struct.Struct("!QQ")  # packets, bytes


@dataclass(frozen=True)
class SwitchCounters:
    """Counters by the number of the port, group or meter."""

    ports: Mapping[int, Record]
    groups: Mapping[int, Record]
    meters: Mapping[int, Record]


def ask(path: str) -> SwitchCounters:
    """Return the counters of the switch at a management socket. Raises OSError, and ValueError for
    what is not OpenFlow 1.3."""
    bodies = raw_entries.ask_for(path, QUESTIONS)
    return SwitchCounters(ports(bodies[PORTS]), groups(bodies[GROUPS]), meters(bodies[METERS]))


def ports(body: bytes) -> dict[int, Record]:
    """Read ofp_port_stats. Counters that a kind of port does not have are 0. Raises ValueError."""
    if len(body) % _PORT.size:
        raise ValueError(f"found ports of {len(body)} bytes; valid: multiples of {_PORT.size}")
    found: dict[int, Record] = {}
    for number, *values in _PORT.iter_unpack(body):
        rx_packets, tx_packets, _, _, rx_dropped, tx_dropped, _, tx_errors = map(_count, values[:8])
        if number <= MOST_PORT:
            found[number] = {
                "rx_packets": rx_packets,
                "rx_dropped": rx_dropped,
                "tx_packets": tx_packets,
                "tx_dropped": tx_dropped,
                "tx_errors": tx_errors,
            }
    return found


def groups(body: bytes) -> dict[int, Record]:
    """Read ofp_group_stats, each with its buckets. Raises ValueError."""
    found: dict[int, Record] = {}
    for part in _parts(body, 0, _GROUP.size):
        _, number, packets, size = _GROUP.unpack_from(part)
        found[number] = {
            "bytes": _count(size),
            "packets": _count(packets),
            "buckets": [
                {"bytes": _count(b), "packets": _count(p)}
                for p, b in _PAIR.iter_unpack(part[_GROUP.size :])
            ],
        }
    return found


def meters(body: bytes) -> dict[int, Record]:
    """Read ofp_meter_stats. All bands are drop bands. Raises ValueError."""
    found: dict[int, Record] = {}
    for part in _parts(body, 4, _METER.size):
        number, _, packets, size = _METER.unpack_from(part)
        bands = list(_PAIR.iter_unpack(part[_METER.size :]))
        found[number] = {
            "in_bytes": _count(size),
            "in_packets": _count(packets),
            "drop_bytes": sum(_count(b) for _, b in bands),
            "drop_packets": sum(_count(p) for p, _ in bands),
        }
    return found


def _parts(body: bytes, length_at: int, head_bytes: int) -> Iterator[bytes]:
    """Yield the parts of a body; each has its length, in bytes, at `length_at`."""
    while body:
        known = len(body) >= head_bytes
        (length,) = struct.unpack_from("!H", body, length_at) if known else (0,)
        pairs, rest = divmod(length - head_bytes, _PAIR.size)
        if pairs < 0 or rest or length > len(body):
            raise ValueError(f"found counters of {length} bytes in {len(body)}")
        yield body[:length]
        body = body[length:]


def _count(value: int) -> int:
    return 0 if value == _UNKNOWN else value
