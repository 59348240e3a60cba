# SPDX-License-Identifier: Apache-2.0
"""Measure the delay of each impaired link, in each direction, with probe frames.

A probe is sent out of the interface at one end of a link and seen at the interface at the other
end. So the measurement does not include switches, hosts' stacks or the rest of a path. The probe
has an EtherType for local experiments and VLAN id 4095, which 802.1Q forbids on a wire, so that it
matches no flow of a switch and no host takes it. Use probes only in a network without traffic.

One-way delay = the kernel's time stamp of the arrival - the time just before the probe was sent,
both CLOCK_REALTIME of the same machine. The machine can only add to it, so the minimum of several
probes is the link's delay.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from typing import Final

from common.shell import NetworkError, namespace_of
from topologies.model.wire_plan import WirePlan

PROBES: Final = 10  # per direction
INTERVAL_S: Final = 0.01
PATIENCE_S: Final = 1.0  # added to a link's delay, for a busy machine
ETHERTYPE: Final = 0x88B5  # IEEE 802: local experimental
ETHERTYPE_VLAN: Final = 0x8100
NO_VLAN: Final = 4095
MAGIC: Final = b"Downpour link probe"
_HEADER: Final = struct.Struct("!6s6sHHH19sHHQ")  # up to direction, number and send time
_PAYLOAD: Final = struct.Struct("!19sHHQ")
LEAST_FRAME_BYTES: Final = 60
_DESTINATION: Final = bytes.fromhex("02d000000002")
_SOURCE: Final = bytes.fromhex("02d000000001")

ETH_P_ALL: Final = 0x0003
PACKET_OUTGOING: Final = 4
SO_ATTACH_FILTER: Final = 26
SO_TIMESTAMPNS: Final = 35
# Accept frames with the probes' EtherType, in its place without or with a VLAN tag.
_FILTER: Final = (
    (0x28, 0, 0, 12),
    (0x15, 3, 0, ETHERTYPE),
    (0x15, 0, 3, ETHERTYPE_VLAN),
    (0x28, 0, 0, 16),
    (0x15, 0, 1, ETHERTYPE),
    (0x06, 0, 0, 0xFFFF),
    (0x06, 0, 0, 0),
)


@dataclass(frozen=True)
class LinkProbe:
    """The results of one direction's probes. One-way delays in ms; None: no probe arrived."""

    link: str
    direction: str  # "forward" or "backward"
    asked_ms: float
    jitter_ms: float
    loss: float  # asked
    sent: int
    received: int
    least_ms: float | None
    median_ms: float | None
    most_ms: float | None

    def to_dict(self) -> dict[str, object]:
        """Return the results for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Way:
    """One direction: where its probes leave and arrive, as indices of sockets."""

    link: str
    direction: str
    asked_ms: float
    jitter_ms: float
    loss: float
    sender: int
    receiver: int


def frame(way: int, number: int, sent_ns: int) -> bytes:
    """Return the probe with this number, for direction `way`."""
    packed = _HEADER.pack(
        *(_DESTINATION, _SOURCE, ETHERTYPE_VLAN, NO_VLAN, ETHERTYPE),
        *(MAGIC, way, number, sent_ns),
    )
    return packed.ljust(LEAST_FRAME_BYTES, b"\0")


def parse(data: bytes) -> tuple[int, int, int] | None:
    """Return (way, number, send time) of a probe, with its tag or without (as the kernel delivers
    it); None for any other frame."""
    at = data.find(MAGIC)
    if at < 0 or len(data) < at + _PAYLOAD.size:
        return None
    _, way, number, sent_ns = _PAYLOAD.unpack_from(data, at)
    return way, number, sent_ns


def summarize(
    ways: Sequence[Way], delays_ns: Mapping[int, Sequence[int]], sent: int
) -> tuple[LinkProbe, ...]:
    """Return the results. `delays_ns`: by index of the direction, of the probes that arrived."""
    found = []
    for index, way in enumerate(ways):
        delays = sorted(d / 1e6 for d in delays_ns.get(index, ()))
        found.append(
            LinkProbe(
                way.link,
                way.direction,
                way.asked_ms,
                way.jitter_ms,
                way.loss,
                sent,
                len(delays),
                round(delays[0], 6) if delays else None,
                round(delays[len(delays) // 2], 6) if delays else None,
                round(delays[-1], 6) if delays else None,
            )
        )
    return tuple(found)


def probe(
    wire: WirePlan,
    pids: Mapping[str, int],
    *,
    without: Iterable[str] = (),
    probes: int = PROBES,
    interval_s: float = INTERVAL_S,
) -> tuple[LinkProbe, ...]:
    """Probe both directions of all impaired links at once. `pids`: node -> a process in its
    namespace; the ports of other nodes (switches) are in the caller's. `without`: links that are
    cut. Raises NetworkError if an interface is missing."""
    left_out = set(without)
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        ways: list[Way] = []
        for w in wire.links:
            if w.link.name in left_out:
                continue
            first = len(sockets)
            for port in (w.link.a, w.link.b):
                opened = _open(pids.get(port.node), port.interface)
                sockets.append(stack.enter_context(opened))
            for d, sender, receiver in zip(
                w.directions, (first, first + 1), (first + 1, first), strict=True
            ):
                asked = d.asked
                ways.append(
                    Way(
                        *(d.link, d.direction, asked.delay_ms, asked.jitter_ms, asked.loss),
                        *(sender, receiver),
                    )
                )
        return summarize(ways, _exchange(sockets, ways, probes, interval_s), probes)


def _exchange(
    sockets: Sequence[socket.socket], ways: Sequence[Way], probes: int, interval_s: float
) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    seen: set[tuple[int, int]] = set()
    poll = select.poll()
    by_fd = {}
    for index, one in enumerate(sockets):
        poll.register(one, select.POLLIN)
        by_fd[one.fileno()] = index

    def receive_until(deadline: float) -> None:
        while len(seen) < probes * len(ways):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            for fd, _ in poll.poll(left * 1000):
                index = by_fd[fd]
                for arrived_ns, data in _receive(sockets[index]):
                    parsed = parse(data)
                    if parsed is None or parsed[0] >= len(ways):
                        continue
                    way, number, sent_ns = parsed
                    if ways[way].receiver == index and (way, number) not in seen:
                        seen.add((way, number))
                        found.setdefault(way, []).append(arrived_ns - sent_ns)

    for number in range(probes):
        due = time.monotonic() + interval_s
        for index, way in enumerate(ways):
            sockets[way.sender].send(frame(index, number, time.time_ns()))
        receive_until(due)
        time.sleep(max(0.0, due - time.monotonic()))
    most_ms = max((w.asked_ms + w.jitter_ms for w in ways), default=0.0)
    receive_until(time.monotonic() + most_ms / 1000 + PATIENCE_S)
    return found


def _receive(one: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield (arrival time, frame) for all waiting frames, except those that this side sent."""
    while True:
        try:
            data, ancillary, _, address = one.recvmsg(2048, 256, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if address[2] == PACKET_OUTGOING:
            continue
        arrived_ns = time.time_ns()
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= 16:
                seconds, nanoseconds = struct.unpack("@qq", value[:16])
                arrived_ns = seconds * 1_000_000_000 + nanoseconds
        yield arrived_ns, data


def _open(pid: int | None, interface: str) -> socket.socket:
    """Return a packet socket at an interface, in the namespace of `pid` (None: here)."""
    with nullcontext() if pid is None else namespace_of(pid):
        try:
            # No protocol yet, so that nothing is received before the filter is set.
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except OSError as error:
            raise NetworkError(f"packet socket: {error.strerror}") from error
        try:
            program = ctypes.create_string_buffer(
                b"".join(struct.pack("@HBBI", *line) for line in _FILTER)
            )
            described = struct.pack("@HP", len(_FILTER), ctypes.addressof(program))
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
            one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            one.bind((interface, ETH_P_ALL))
        except OSError as error:
            one.close()
            raise NetworkError(f"interface {interface}: {error.strerror}") from error
    return one
