# SPDX-License-Identifier: Apache-2.0
"""Watch a sample of the packets at hosts' interfaces, without disturbing the hosts.

A packet socket at each interface, with a filter that passes the sample (`flights`), writes into a
ring that this process maps. There is no system call and no wake-up per packet. The ring has the
time of each packet; socket time stamps instead would make the kernel stamp every packet of the
machine. The tap sees a departing packet after its queueing discipline, and an arriving packet
before filters and firewall.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import BinaryIO, Final

from common.shell import NetworkError, namespace_of
from topologies.watch.flights import (
    ATOMIC_AT,
    MOST_SAMPLES,
    NS,
    RUN,
    Flight,
    Flights,
    Station,
)

FRAME_BYTES: Final = 2048
LEAST_FRAMES: Final = 512
PAGE_BYTES: Final = 65_536  # of the ring: a multiple of the machine's page size

# linux/if_packet.h, linux/filter.h
ETH_P_ALL: Final = 0x0003
SOL_PACKET: Final = 263
PACKET_RX_RING: Final = 5
PACKET_STATISTICS: Final = 6
PACKET_VERSION: Final = 10
TPACKET_V2: Final = 1
TP_STATUS_KERNEL: Final = 0
TP_STATUS_USER: Final = 1
PACKET_OUTGOING: Final = 4
PACKET_OTHERHOST: Final = 3
SO_ATTACH_FILTER: Final = 26
SKF_AD_PROTOCOL: Final = 0xFFFFF000
ETHERTYPE_IPV4: Final = 0x0800
_REQUEST: Final = struct.Struct("@IIII")  # tpacket_req
_HEADER: Final = struct.Struct("=IIIHHII")  # tpacket2_hdr, to tp_nsec
_SLL_PACKET_TYPE: Final = 32 + 10  # sockaddr_ll follows the header, aligned to 16 bytes


def sample_filter(period: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return classic BPF, from the IPv4 header on. It passes packets whose identification, modulo
    `period`, is below `RUN`. If the identification itself is below `RUN`, it passes as large a
    share by content; packets too short for that are not in the sample."""
    return (
        (0x28, 0, 0, SKF_AD_PROTOCOL),
        (0x15, 0, 9, ETHERTYPE_IPV4),
        (0x28, 0, 0, 4),
        (0x54, 0, 0, 0xFFFF & ~(RUN - 1)),
        (0x15, 2, 0, 0),
        (0x54, 0, 0, period - 1),
        (0x05, 0, 0, 2),
        (0x28, 0, 0, ATOMIC_AT),
        (0x54, 0, 0, period // RUN - 1),
        (0x15, 0, 1, 0),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    )


def frames_for(packets: int) -> int:
    """Return the frames of a ring that has room for that many packets: a power of two."""
    return min(MOST_SAMPLES, max(LEAST_FRAMES, 1 << (packets - 1).bit_length()))


class Ring:
    """The packets of one interface."""

    def __init__(self, pid: int, interface: str, period: int, frames: int = LEAST_FRAMES) -> None:
        """Open the tap. `pid`: a process in the interface's namespace. `frames`: room for as many
        packets. Raises NetworkError."""
        self._frames = frames
        with namespace_of(pid):
            try:
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
            except OSError as error:
                raise NetworkError(f"packet socket: {error.strerror}") from error
            try:
                self._open(interface, period)
            except OSError as error:
                self._socket.close()
                raise NetworkError(f"ring at {interface}: {error.strerror}") from error
        self._at = 0

    def _open(self, interface: str, period: int) -> None:
        one, size = self._socket, FRAME_BYTES * self._frames
        lines = sample_filter(period)
        program = ctypes.create_string_buffer(
            b"".join(struct.pack("@HBBI", *line) for line in lines)
        )
        described = struct.pack("@HP", len(lines), ctypes.addressof(program))
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
        one.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        request = _REQUEST.pack(PAGE_BYTES, size // PAGE_BYTES, FRAME_BYTES, self._frames)
        one.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self._ring = mmap.mmap(one.fileno(), size, mmap.MAP_SHARED)
        one.bind((interface, ETH_P_ALL))

    def read(self) -> list[tuple[int, bool, bytes]]:
        """Return (time in ns, leaves, packet) of all packets since the last call."""
        found = []
        ring = self._ring
        for _ in range(self._frames):
            offset = self._at * FRAME_BYTES
            status, _, kept, _, net, seconds, nanoseconds = _HEADER.unpack_from(ring, offset)
            if not status & TP_STATUS_USER:
                break
            kind = ring[offset + _SLL_PACKET_TYPE]
            if kind != PACKET_OTHERHOST:
                data = ring[offset + net : offset + net + kept]
                found.append((seconds * NS + nanoseconds, kind == PACKET_OUTGOING, data))
            struct.pack_into("=I", ring, offset, TP_STATUS_KERNEL)
            self._at = (self._at + 1) % self._frames
        return found

    def close(self) -> int:
        """Stop; return how many packets the ring had no room for."""
        _, dropped = struct.unpack("@II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._ring.close()
        self._socket.close()
        return int(dropped)


class Taps:
    """The rings at a network's stations."""

    def __init__(
        self,
        stations: Sequence[Station],
        pids: Mapping[str, int],
        groups: Mapping[str, Collection[str]],
        period: int,
        make_file: Callable[[], BinaryIO] = io.BytesIO,
        frames: int = LEAST_FRAMES,
    ) -> None:
        """Open the taps. `pids`: node -> a process in its namespace. `groups`: multicast address ->
        nodes that should get what is sent to it. `make_file`: for finished blocks (`Flights`).
        `frames`: room of each ring. Raises NetworkError."""
        self.period, self.stations = period, stations
        self._rings: list[Ring] = []
        try:
            for station in stations:
                self._rings.append(Ring(pids[station.node], station.interface, period, frames))
        except NetworkError:
            self._close()
            raise
        members = {
            bytes(map(int, group.split("."))): tuple(
                number
                for number, station in enumerate(stations)
                if station.node in nodes and station.network == "path"
            )
            for group, nodes in groups.items()
        }
        self.begin_ns = time.time_ns()
        self._flights = Flights(stations, members, self.begin_ns, make_file=make_file)

    def look(self) -> None:
        """Read the rings."""
        for number, ring in enumerate(self._rings):
            for at_ns, leaves, data in ring.read():
                self._flights.note(number, at_ns, leaves=leaves, data=data)
        self._flights.settle(time.time_ns())

    def close(self, patience_ms: Mapping[tuple[str, str, str], float]) -> tuple[list[Flight], int]:
        """Stop; return what was seen, and how many packets were missed because a ring was full."""
        self.look()
        flights = self._flights.close(time.time_ns(), patience_ms)
        return flights, self._close()

    def _close(self) -> int:
        rings, self._rings = self._rings, []
        return sum(ring.close() for ring in rings)
