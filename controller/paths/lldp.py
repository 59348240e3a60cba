# SPDX-License-Identifier: Apache-2.0
"""Link probes: LLDP frames (IEEE 802.1AB) between switches. Pure; frames may be hostile.

A probe names the switch and the port that it left. One organisationally specific TLV has a sequence
number and a tag, made with the sending controller's key, which no other program can make.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from controller.paths.entries import (
    CONTROLLER,
    LLDP_METER,
    PRIORITY_LLDP,
    Entries,
    Flow,
    Kind,
    Match,
    Meter,
    Output,
    cookie_of,
)

ETH_TYPE = 0x88CC
DESTINATION = bytes.fromhex("0180c200000e")  # nearest bridge
CHASSIS_ID, PORT_ID, TTL, ORGANISATION, END = 1, 2, 3, 127, 0
LOCAL = 7  # subtype of chassis and port ids: locally assigned
TTL_S = 2
OUI = bytes.fromhex("024450")  # locally administered; "DP"
SUBTYPE = 1
TAG_BYTES = 8
_ORGANISATION = struct.Struct("!3sBI")
FRAME_MAX_BYTES = 1500
# For each port: about 10 probes of 70 bytes a second, more in a burst. Anything above is a flood.
RATE_KBPS_PER_PORT = 100
BURST_KBIT_MIN = 200


class NotAProbe(ValueError):
    """A frame that is not a probe of this kind; the text says why."""


@dataclass(frozen=True)
class Probe:
    dpid: int
    port: int
    sequence: int


@dataclass(frozen=True)
class Received:
    """A probe and what its tag covers; `is_ours` checks the tag."""

    probe: Probe
    signed: bytes
    tag: bytes

    def is_ours(self, key: bytes) -> bool:
        """Return whether a controller with this key sent the probe."""
        return self.tag == _tag(key, self.signed)


def frame_of(probe: Probe, key: bytes) -> bytes:
    """Return the Ethernet frame of a probe.

    Raises OverflowError, struct.error for numbers out of range.
    """
    source = b"\x02\x44" + (probe.dpid & 0xFFFFFFFF).to_bytes(4, "big")
    signed = (
        _tlv(CHASSIS_ID, bytes([LOCAL]) + probe.dpid.to_bytes(8, "big"))
        + _tlv(PORT_ID, bytes([LOCAL]) + probe.port.to_bytes(4, "big"))
        + _tlv(TTL, TTL_S.to_bytes(2, "big"))
        + _ORGANISATION.pack(OUI, SUBTYPE, probe.sequence)
    )
    body = _tlv(ORGANISATION, signed[-_ORGANISATION.size :] + _tag(key, signed))
    unit = signed[: -_ORGANISATION.size] + body + _tlv(END, b"")
    return (DESTINATION + source + ETH_TYPE.to_bytes(2, "big") + unit).ljust(60, b"\0")


def read(frame: bytes) -> Received:
    """Parse a probe. Raises NotAProbe."""
    if len(frame) > FRAME_MAX_BYTES:
        raise NotAProbe(f"{len(frame)} bytes")
    if frame[:6] != DESTINATION or frame[12:14] != ETH_TYPE.to_bytes(2, "big"):
        raise NotAProbe("not LLDP to the nearest bridge")
    chassis = port = None
    received: Received | None = None
    unit = frame[14:]
    for position, (kind, offset, value) in enumerate(_tlvs(unit)):
        if position < 3 and kind != (CHASSIS_ID, PORT_ID, TTL)[position]:
            raise NotAProbe(f"TLV {kind} at position {position}")
        if kind == CHASSIS_ID and position == 0:
            chassis = _local(value, 8)
        elif kind == PORT_ID and position == 1:
            port = _local(value, 4)
        elif kind == ORGANISATION and len(value) == _ORGANISATION.size + TAG_BYTES:
            oui, subtype, sequence = _ORGANISATION.unpack_from(value)
            if (oui, subtype) == (OUI, SUBTYPE) and chassis is not None and port is not None:
                signed = unit[:offset] + value[: _ORGANISATION.size]
                probe = Probe(chassis, port, sequence)
                received = Received(probe, signed, value[_ORGANISATION.size :])
    if received is None:
        raise NotAProbe("LLDP of someone else")
    return received


def _local(value: bytes, size: int) -> int:
    if len(value) != 1 + size or value[0] != LOCAL:
        raise NotAProbe("LLDP of someone else")
    return int.from_bytes(value[1:], "big")


def _tlvs(unit: bytes) -> Iterable[tuple[int, int, bytes]]:
    """Yield (type, offset, value) up to the END. Raises NotAProbe."""
    offset = 0
    while True:
        if len(unit) - offset < 2:
            raise NotAProbe("no END")
        head = int.from_bytes(unit[offset : offset + 2], "big")
        kind, length = head >> 9, head & 0x1FF
        if length > len(unit) - offset - 2:
            raise NotAProbe(f"TLV of {length} bytes in {len(unit) - offset - 2}")
        if kind == END:
            return
        yield kind, offset, unit[offset + 2 : offset + 2 + length]
        offset += 2 + length


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def _tag(key: bytes, signed: bytes) -> bytes:
    return hashlib.blake2b(signed, key=key, digest_size=TAG_BYTES).digest()


def entries(ports: Iterable[int]) -> Entries:
    """Return the entries by which a switch sends the probes that arrive at `ports` to the
    controller, rate limited."""
    numbers = sorted(ports)
    if not numbers:
        return frozenset()
    rate_kbps = RATE_KBPS_PER_PORT * len(numbers)
    flows = (
        Flow(
            Match(in_port=port, eth_type=ETH_TYPE),
            PRIORITY_LLDP,
            cookie_of(Kind.LLDP),
            (Output(CONTROLLER),),
            LLDP_METER,
        )
        for port in numbers
    )
    return frozenset([Meter(LLDP_METER, rate_kbps, max(BURST_KBIT_MIN, rate_kbps)), *flows])
