# SPDX-License-Identifier: Apache-2.0
"""Compare packets seen at a sender's and a receiver's interface: how long each took, in which order
they arrived, and what became of them. Pure; `topologies.watch.taps` sees the packets.

Only packets whose IPv4 identification is in the sample count, the same packets at both ends: `RUN`
consecutive packets of every `period`. A sender that forbids fragmentation need not number its
packets (QUIC's have 0, or 0, 1, 2 and so on in each burst). So among packets numbered below `RUN`,
the bytes at `ATOMIC_AT` choose as large a share. A packet is identified by all of its content; its
key only serves to find the departure of a packet whose content has changed. Both times are
CLOCK_REALTIME of the same machine.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

BLOCK_S: Final = 10.0
RUN: Final = 4  # consecutive packets of a sample, which show their order
LEAST_PERIOD: Final = 16
MOST_PERIOD: Final = 1 << 14
SAMPLES_PER_S: Final = 150.0  # from a sender at its full rate; bounds the cost of watching
PACKET_BYTES: Final = 1500
LEAST_SAMPLES: Final = 32  # of all that a sender will send
LOOK_S: Final = 0.2  # between two looks at what was seen
MOST_SAMPLES: Final = 8192  # that can wait for a look
SEGMENTED_S: Final = 1e-3  # a fast sender passes on segments of as much time as one packet, up to:
SEGMENTED_BYTES: Final = 65_536
REMEMBERED_S: Final = 90.0  # a packet that has not arrived by then counts as lost
PUT_AWAY_S: Final = 600.0
STRANGER_S: Final = 5.0  # an arrival counts as a stranger if no departure has been read by then
IPV4_LEAST_BYTES: Final = 20
FRAGMENT: Final = 0x3FFF  # more fragments, or an offset
ATOMIC_AT: Final = 52  # after UDP's header, and QUIC's own: ciphertext
NS: Final = 1_000_000_000
CE: Final = 0b11  # ECN in the traffic class (RFC 3168): congestion experienced
CAPABLE: Final = (0b01, 0b10)
_RECORD: Final = struct.Struct("=HHqQdddd")

PATH, CONTROL = "path", "control"  # networks: of NIC1 and of NIC2


def period_of(rate_bps: float, size_bytes: float = math.inf) -> int:
    """Return the period, a power of two: `RUN` of that many packets are sampled, at most
    `SAMPLES_PER_S` of a sender at `rate_bps`. A sender of only `size_bytes` has a shorter one that
    gives about `LEAST_SAMPLES`, also if its packets are as large as segmentation offload allows."""
    largest = min(max(rate_bps / 8 * SEGMENTED_S, PACKET_BYTES), SEGMENTED_BYTES)
    enough = size_bytes / largest / LEAST_SAMPLES * RUN
    wanted = min(rate_bps / 8 / PACKET_BYTES / SAMPLES_PER_S * RUN, enough)
    wanted = max(wanted, samples_most(rate_bps, 1) / MOST_SAMPLES)
    power = 1 << math.ceil(math.log2(wanted)) if wanted > 1 else 1
    return max(LEAST_PERIOD, min(MOST_PERIOD, power))


def samples_most(rate_bps: float, period: int) -> int:
    """Return how many samples a sender at `rate_bps` may see between two looks, rounded up: its
    packets, if they are small, and an acknowledgement of each."""
    return math.ceil(2 * rate_bps / 8 / PACKET_BYTES * RUN / period * LOOK_S)


@dataclass(frozen=True)
class Station:
    """An interface of a host at which packets are seen. `address`: its IPv4 address."""

    node: str
    interface: str
    address: str
    network: str  # PATH or CONTROL


class Packet(NamedTuple):
    """The parts of a packet that are compared between two stations."""

    key: bytes  # addresses, protocol, identification and the first 8 bytes after the header
    flow: bytes  # addresses, protocol, ports
    source: bytes
    destination: bytes
    tos: int
    ttl: int
    fragment: bool
    digest: int  # of everything except what routers and ECN change


def parse_ipv4(data: bytes) -> Packet | None:
    """Return a packet that begins with its IPv4 header; None if the data is not one."""
    if len(data) < IPV4_LEAST_BYTES or data[0] >> 4 != 4:
        return None
    at = 4 * (data[0] & 15)
    total = int.from_bytes(data[2:4], "big")
    first = data[at : at + 8]
    digest = zlib.crc32(data[at:total], zlib.crc32(data[2:8]))
    return Packet(
        data[4:6] + data[9:10] + data[12:20] + first,
        data[9:10] + data[12:20] + first[:4],
        data[12:16],
        data[16:20],
        data[1],
        data[8],
        bool(int.from_bytes(data[6:8], "big") & FRAGMENT),
        digest,
    )


class Block(NamedTuple):
    """Delays of the packets of one flight that left within one block of time."""

    begin_s: float  # since watching began
    packets: int
    least_ms: float
    median_ms: float
    late_ms: float  # of the packets, 99 % are no later than this
    most_ms: float


@dataclass
class Flight:
    """All sampled packets from one station to another."""

    source: str
    target: str
    network: str
    packets: int = 0
    lost: int = 0  # left, but did not arrive where they should have
    out_of_order: int = 0  # arrived after a packet of the same flow that left later
    duplicates: int = 0  # arrived again
    marked: int = 0  # arrived with another traffic class or ECN field, except for:
    congestion_marks: int = 0  # ECN-capable packets that a queue marked
    changed: int = 0  # with other content
    hops: int = 0  # largest number of routers crossed (by the time to live)
    fragments: int = 0
    strangers: int = 0  # arrived with an address of the source, which did not send them
    delays_ms: dict[int, array[float]] = field(default_factory=dict)  # by number of the block
    put_away: list[tuple[int, Figures]] = field(default_factory=list)  # of earlier blocks

    def blocks(self, block_s: float) -> list[Block]:
        """Summarize the delays of each block."""
        rest = ((number, summary(delays)) for number, delays in self.delays_ms.items())
        every = sorted([*self.put_away, *rest])
        return [Block(number * block_s, *figures) for number, figures in every]


Figures = tuple[int, float, float, float, float]  # of a block, without its start


def summary(delays_ms: Collection[float]) -> Figures:
    """Return a block's figures."""
    ordered = sorted(delays_ms)
    n = len(ordered)
    at = (0, n // 2, max(0, math.ceil(0.99 * n) - 1), n - 1)
    least, median, late, most = (round(ordered[i], 6) for i in at)
    return n, least, median, late, most


@dataclass(slots=True, eq=False)
class _Departure:
    station: int
    at_ns: int
    number: int  # of the flow's packets at this station
    packet: Packet
    expected: Collection[int]
    seen: dict[int, int] = field(default_factory=dict)  # station -> how often it came


class Flights:
    """Matches departures with arrivals."""

    def __init__(
        self,
        stations: Sequence[Station],
        groups: Mapping[bytes, Collection[int]],
        begin_ns: int,
        block_s: float = BLOCK_S,
        make_file: Callable[[], BinaryIO] = io.BytesIO,
    ) -> None:
        """`groups`: multicast address -> stations that should get what is sent to it. `make_file`:
        makes a file for finished blocks, so that days of watching take no more memory than
        minutes."""
        self._file: BinaryIO | None = None
        self._make_file, self._put_away_ns = make_file, begin_ns
        self._stations, self._begin_ns, self._block_s = stations, begin_ns, block_s
        self._expected: dict[bytes, Collection[int]] = dict(groups)
        self._own: dict[bytes, int] = {}
        for number, station in enumerate(stations):
            address = bytes(map(int, station.address.split(".")))
            self._own[address] = number
            self._expected[address] = (number,)
        # By the packet's key and digest: IGMP reports, for example, leave again unchanged.
        self._sent: dict[tuple[bytes, int], list[_Departure]] = {}
        self._named: dict[bytes, list[_Departure]] = {}  # by the key alone
        self._waiting: list[tuple[int, int, Packet]] = []  # arrivals: time, station, packet
        self._numbers: dict[tuple[int, bytes], tuple[int, int]] = {}  # with the last one's time
        self._highest: dict[tuple[int, bytes], int] = {}
        self._flights: dict[tuple[int, int], Flight] = {}

    def note(self, station: int, at_ns: int, *, leaves: bool, data: bytes) -> None:
        """Record a packet that leaves a station or arrives there."""
        packet = parse_ipv4(data)
        if packet is None:
            return
        if not leaves:
            self._waiting.append((at_ns, station, packet))
            return
        if self._own.get(packet.source) != station:
            return  # forwarded, or with an unknown address
        key = (station, packet.flow)
        number = self._numbers.get(key, (0, 0))[0] + 1
        self._numbers[key] = number, at_ns
        expected = self._expected.get(packet.destination, ())
        departure = _Departure(station, at_ns, number, packet, expected)
        self._sent.setdefault((packet.key, packet.digest), []).append(departure)
        self._named.setdefault(packet.key, []).append(departure)

    def settle(self, now_ns: int) -> None:
        """Find the departures of the arrivals; drop what is too old."""
        waiting, self._waiting = self._waiting, []
        for arrival in waiting:
            at_ns, station, packet = arrival
            departures = self._sent.get((packet.key, packet.digest))
            if departures is None and now_ns - at_ns >= STRANGER_S * NS:
                departures = self._named.get(packet.key)  # with other content
            if departures:
                new = (d for d in departures if station not in d.seen)
                self._arrive(next(new, departures[-1]), at_ns, station, packet)
            elif now_ns - at_ns < STRANGER_S * NS:
                self._waiting.append(arrival)
            else:
                self._strange(at_ns, station, packet)
        self._forget(now_ns - int(REMEMBERED_S * NS))
        if now_ns - self._put_away_ns > PUT_AWAY_S * NS:
            self._put_away_ns = now_ns
            self._put_away(now_ns - int(REMEMBERED_S * NS))

    def _forget(self, too_old_ns: int) -> None:
        while self._sent:
            key, departures = next(iter(self._sent.items()))
            if departures[0].at_ns >= too_old_ns:
                return
            departure = departures.pop(0)
            self._missing(departure)
            del self._sent[key]
            if departures:
                self._sent[key] = departures
            named = self._named[key[0]]
            named.remove(departure)  # the first, or nearly
            if not named:
                del self._named[key[0]]

    def _put_away(self, too_old_ns: int) -> None:
        """Write the blocks that will get no more packets; drop flows that have ended."""
        left_ns = (d.at_ns for departures in self._sent.values() for d in departures)
        oldest_ns = min(too_old_ns, min(left_ns, default=too_old_ns))
        first_open = self._block(oldest_ns)
        self._file = file = self._file or self._make_file()
        for (source, target), flight in self._flights.items():
            for number in [n for n in flight.delays_ms if n < first_open]:
                figures = summary(flight.delays_ms[number])
                file.write(_RECORD.pack(source, target, number, *figures))
                del flight.delays_ms[number]  # kept if the disk is full
        over = [key for key, (_, last_ns) in self._numbers.items() if last_ns < oldest_ns]
        flows = {flow for _, flow in over}
        for key in over:
            del self._numbers[key]
        for key in [key for key in self._highest if key[1] in flows]:
            del self._highest[key]

    def _take_back(self) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        for source, target, number, *figures in _RECORD.iter_unpack(self._file.read()):
            n, least, median, late, most = figures
            flight = self._flights[source, target]
            flight.put_away.append((number, (n, least, median, late, most)))
        self._file.close()

    def _block(self, at_ns: int) -> int:
        return int((at_ns - self._begin_ns) / (self._block_s * NS))

    def close(self, now_ns: int, patience_ms: Mapping[tuple[str, str, str], float]) -> list[Flight]:
        """Return what was seen. A packet that left less than `patience_ms` (of source, target,
        network) ago may still be in transit."""
        self.settle(now_ns + int(STRANGER_S * NS))
        for departure in (d for departures in self._sent.values() for d in departures):
            source = self._stations[departure.station]
            departure.expected = [
                number
                for number in departure.expected
                if now_ns - departure.at_ns
                > 1e6
                * patience_ms.get((source.node, self._stations[number].node, source.network), 0.0)
            ]
            self._missing(departure)
        self._sent.clear()
        self._named.clear()
        self._take_back()
        return [flight for _, flight in sorted(self._flights.items())]

    def _flight(self, source: int, target: int) -> Flight:
        if (source, target) not in self._flights:
            a, b = self._stations[source], self._stations[target]
            self._flights[source, target] = Flight(a.node, b.node, a.network)
        return self._flights[source, target]

    def _arrive(self, departure: _Departure, at_ns: int, station: int, packet: Packet) -> None:
        flight = self._flight(departure.station, station)
        times = departure.seen[station] = departure.seen.get(station, 0) + 1
        if times > 1:
            flight.duplicates += 1
            return
        flight.packets += 1
        block = self._block(departure.at_ns)
        flight.delays_ms.setdefault(block, array("d")).append((at_ns - departure.at_ns) / 1e6)
        left = departure.packet
        if packet.tos != left.tos:
            marks = (left.tos & CE) in CAPABLE and packet.tos == left.tos | CE
            flight.congestion_marks += marks
            flight.marked += not marks
        flight.changed += packet.digest != left.digest
        flight.fragments += packet.fragment and not left.fragment
        flight.hops = max(flight.hops, left.ttl - packet.ttl)
        key = (station, left.flow)
        highest = self._highest.get(key, 0)
        if departure.number < highest:
            flight.out_of_order += 1
        else:
            self._highest[key] = departure.number

    def _strange(self, at_ns: int, station: int, packet: Packet) -> None:
        source = self._own.get(packet.source)
        # What arrived in the first second may have left before the sender was watched.
        if source is not None and source != station and at_ns > self._begin_ns + NS:
            self._flight(source, station).strangers += 1

    def _missing(self, departure: _Departure) -> None:
        if departure.at_ns < self._begin_ns:
            return
        for station in departure.expected:
            if station not in departure.seen and station != departure.station:
                self._flight(departure.station, station).lost += 1
