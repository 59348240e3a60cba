# SPDX-License-Identifier: Apache-2.0
"""A switch's flows, groups and meters as the bytes of its answers (OpenFlow 1.3.5, 7.3.5), without
counters and ages: equal bytes are equal entries. Pure, but for `ask`, which reads a socket.

`ovs-ofctl` shows entries as text, but starting it costs more than most of what a network does in
the meantime. So it is started only for a switch whose bytes have changed (`switch_reading`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

VERSION: Final = 4  # OpenFlow 1.3
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, REQUEST, REPLY = 0, 1, 2, 3, 18, 19
FLOWS, GROUPS, METERS = 1, 7, 10  # ofp_multipart_type: FLOW, GROUP_DESC, METER_CONFIG
MORE: Final = 1
_HEADER: Final = struct.Struct("!BBHI")
_MULTIPART: Final = struct.Struct("!HH4x")
_LENGTH: Final = struct.Struct("!H")
_ALL_TABLES, _ANY = 0xFF, 0xFFFFFFFF
_EVERY_MATCH: Final = struct.pack("!HHI", 1, 4, 0)
_BODIES: Final = {
    FLOWS: struct.pack("!B3xII4xQQ", _ALL_TABLES, _ANY, _ANY, 0, 0) + _EVERY_MATCH,
    GROUPS: b"",
    METERS: struct.pack("!I4x", _ANY),
}
# In ofp_flow_stats: seconds and nanoseconds since it was made; packets and bytes.
_VOLATILE: Final = (slice(4, 12), slice(32, 48))

Entries = tuple[bytes, ...]


def request(kind: int, question: bytes) -> bytes:
    """Return the message that asks for everything of a kind; its number is the kind."""
    body = _MULTIPART.pack(kind, 0) + question
    return _HEADER.pack(VERSION, REQUEST, _HEADER.size + len(body), kind) + body


def lasting(flow: bytes) -> bytes:
    """Return a flow's bytes without what changes by itself."""
    kept = bytearray(flow)
    for part in _VOLATILE:
        kept[part] = bytes(part.stop - part.start)
    return bytes(kept)


def flows_in(body: bytes) -> Iterator[bytes]:
    """Return each flow of an answer's body. Raises ValueError if it is cut off."""
    while body:
        (length,) = _LENGTH.unpack_from(body) if len(body) >= _LENGTH.size else (0,)
        if length < _VOLATILE[-1].stop or length > len(body):
            raise ValueError(f"found a flow of {length} bytes in {len(body)}")
        yield body[:length]
        body = body[length:]


def ask(path: str) -> Entries:
    """Return what the switch at a management socket has: flows in order of their bytes, groups,
    meters. Raises as `ask_for`."""
    return entries(ask_for(path, _BODIES))


def entries(bodies: Mapping[int, bytes]) -> Entries:
    """Return the entries in the bodies of answers. Raises ValueError."""
    flows = sorted(map(lasting, flows_in(bodies[FLOWS])))
    return (*flows, bodies[GROUPS], bodies[METERS])


def ask_for(path: str, questions: Mapping[int, bytes], timeout_s: float = 10.0) -> dict[int, bytes]:
    """Return the body of the answer to each question (ofp_multipart_type -> body) to the switch at
    a management socket. Raises OSError, and ValueError for what is not OpenFlow 1.3."""
    with socket.socket(socket.AF_UNIX) as switch:
        switch.settimeout(timeout_s)
        switch.connect(path)
        hello = _HEADER.pack(VERSION, HELLO, _HEADER.size, 0)
        switch.sendall(hello + b"".join(request(*question) for question in questions.items()))
        return answers(switch, questions)


def answers(switch: socket.socket, kinds: Iterable[int] = _BODIES) -> dict[int, bytes]:
    """Return the bodies of the answers of these kinds. Raises as `ask_for`."""
    bodies = dict.fromkeys(kinds, b"")
    waiting = set(bodies)
    while waiting:
        version, what, length, number = _HEADER.unpack(_received(switch, _HEADER.size))
        body = _received(switch, length - _HEADER.size)
        if what == HELLO:
            continue
        if version != VERSION:
            raise ValueError(f"found OpenFlow version {version}; valid: {VERSION}")
        if what == ECHO_REQUEST:
            switch.sendall(_HEADER.pack(VERSION, ECHO_REPLY, length, number) + body)
        elif what == ERROR and number in waiting:
            raise ValueError(f"the switch refuses question {number}: {body[:4].hex()}")
        elif what == REPLY and number in waiting:
            _, flags = _MULTIPART.unpack_from(body)
            bodies[number] += body[_MULTIPART.size :]
            if not flags & MORE:
                waiting.discard(number)
    return bodies


def _received(switch: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = switch.recv(size - len(found))
        if not part:
            raise ValueError(f"the switch closed the connection after {len(found)} of {size} bytes")
        found += part
    return found
