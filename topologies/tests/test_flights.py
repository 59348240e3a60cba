# SPDX-License-Identifier: Apache-2.0
"""Departures and arrivals are matched, whatever happens in between."""

from __future__ import annotations

import errno
import io
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from topologies.watch import taps
from topologies.watch.flights import (
    BLOCK_S,
    CONTROL,
    LEAST_PERIOD,
    MOST_PERIOD,
    MOST_SAMPLES,
    NS,
    PATH,
    PUT_AWAY_S,
    REMEMBERED_S,
    Flight,
    Flights,
    Station,
    parse_ipv4,
    period_of,
    samples_most,
)

STATIONS = (
    Station("p", "p-nic1", "10.9.1.1", PATH),
    Station("q", "q-nic1", "10.9.1.2", PATH),
    Station("s", "s-nic1", "10.9.1.3", PATH),
    Station("p", "p-nic2", "10.8.1.2", CONTROL),
)
GROUP = bytes((239, 9, 1, 1))
BEGIN = 1_000 * NS
MS = 1_000_000


def packet(
    number: int, to: str = "239.9.1.1", *, tos: int = 0, ttl: int = 8, body: bytes = b"x"
) -> bytes:
    payload = struct.pack("!HHHH", 1, 2, 8 + len(body), 0) + body
    addresses = bytes((10, 9, 1, 1)) + bytes(map(int, to.split(".")))
    head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(payload), number, 0x4000, ttl, 17, 0)
    return head + addresses + payload


def fly(*events: tuple[int, int, bytes]) -> dict[tuple[str, str], Flight]:
    """Observe events: (station, ms after the beginning, packet); those at station 0 leave."""
    flights = Flights(STATIONS, {GROUP: (1, 2)}, BEGIN)
    for station, at_ms, data in events:
        flights.note(station, BEGIN + at_ms * MS, leaves=station == 0, data=data)
    found = flights.close(BEGIN + 60 * NS, {})
    return {(f.source, f.target): f for f in found}


def sent(*numbers: int) -> list[tuple[int, int, bytes]]:
    return [(0, n, packet(n)) for n in numbers]


def test_delays_by_block() -> None:
    late = [(0, 10_000 + n, packet(100 + n)) for n in range(3)]
    come = [(1, at + 18 + i, data) for i, (_, at, data) in enumerate([*sent(1, 2, 3), *late])]
    found = fly(*sent(1, 2, 3), *late, *come)["p", "q"]
    assert found.packets == 6
    assert [list(block) for block in found.blocks(10.0)] == [
        [0.0, 3, 18.0, 19.0, 20.0, 20.0],
        [10.0, 3, 21.0, 22.0, 23.0, 23.0],
    ]
    assert found.out_of_order == found.duplicates == found.lost == found.strangers == 0


def test_an_arrival_may_be_read_before_its_departure() -> None:
    assert fly((1, 19, packet(1)), *sent(1))["p", "q"].packets == 1


def test_order_copies_and_losses() -> None:
    come = [(1, 30 + i, packet(n)) for i, n in enumerate((2, 1, 3, 3))]
    found = fly(*sent(1, 2, 3, 4), *come)
    assert (found["p", "q"].out_of_order, found["p", "q"].duplicates) == (1, 1)
    assert (found["p", "q"].lost, found["p", "s"].lost) == (1, 4)


def test_what_leaves_twice_may_come_twice() -> None:
    """IGMP reports have identification 0 and are repeated: if read together, they are no copies."""
    twice = [(0, 0, packet(0)), (0, 500, packet(0))]
    found = fly(*twice, (1, 20, packet(0)), (1, 521, packet(0)))["p", "q"]
    assert (found.packets, found.duplicates, found.lost) == (2, 0, 0)
    assert found.blocks(10.0)[0].most_ms == 21.0
    found = fly(*twice, (1, 20, packet(0)), (1, 521, packet(0)), (1, 522, packet(0)))["p", "q"]
    assert (found.packets, found.duplicates) == (2, 1)
    found = fly(*twice, (1, 20, packet(0)))["p", "q"]
    assert (found.packets, found.duplicates, found.lost) == (1, 0, 1)


@pytest.mark.parametrize(
    ("arrived", "what"),
    [
        (packet(1, tos=3), "marked"),
        (packet(1, tos=2), "marked"),  # a queue does not make a packet ECN-capable
        (packet(1, ttl=7), "hops"),
        (packet(1, body=b"y"), "changed"),
    ],
)
def test_what_is_written_into_a_packet(arrived: bytes, what: str) -> None:
    found = fly(*sent(1), (1, 19, arrived))["p", "q"]
    assert [n for n in ("marked", "hops", "changed") if getattr(found, n)] == [what]


@pytest.mark.parametrize(
    ("left", "arrived", "what"),
    [
        (0b10, 0b11, "congestion_marks"),  # RFC 3168, section 5
        (0b01, 0b11, "congestion_marks"),
        (0x2A, 0x2B, "congestion_marks"),  # the DSCP stays
        (0x2A, 0x03, "marked"),  # and here does not
        (0b11, 0b10, "marked"),  # nothing takes a mark back
        (0b10, 0b00, "marked"),
    ],
)
def test_a_queue_marks_what_is_capable_of_it(left: int, arrived: int, what: str) -> None:
    seen = fly((0, 0, packet(1, tos=left)), (1, 19, packet(1, tos=arrived)))["p", "q"]
    assert [n for n in ("marked", "congestion_marks") if getattr(seen, n)] == [what]


def atomic(word: int, text: bytes = b"ciphertext", number: int = 0) -> bytes:
    """Return a packet of a sender that numbers each burst from 0 on; `word` is at ATOMIC_AT."""
    return packet(number, body=bytes(24) + word.to_bytes(2, "big") + text)


def test_packets_without_identification_are_told_apart_by_content() -> None:
    """Same ports, same length, same checksum: earlier, the second arrival counted as a copy of the
    first departure, with the time between the two as its delay."""
    one, two = atomic(1), atomic(2)
    seen = fly((0, 0, one), (0, 4000, two), (1, 18, one), (1, 4018, two))["p", "q"]
    assert (seen.packets, seen.duplicates, seen.changed, seen.out_of_order) == (2, 0, 0, 0)
    assert [block.most_ms for block in seen.blocks(10.0)] == [18.0]
    seen = fly((0, 2000, one), (1, 2018, one), (1, 2019, one))["p", "q"]
    assert (seen.packets, seen.duplicates) == (1, 1)
    seen = fly((0, 2000, one), (0, 2001, two), (1, 2018, atomic(3)), (1, 2019, two))["p", "q"]
    assert (seen.packets, seen.changed, seen.lost, seen.strangers) == (2, 1, 0, 0)


def passes(program: tuple[tuple[int, int, int, int], ...], data: bytes) -> bool:
    """Run a program of classic BPF on an IPv4 packet."""
    at = accumulator = 0
    while True:
        code, if_so, if_not, k = program[at]
        at += 1
        if code == 0x28 and k == taps.SKF_AD_PROTOCOL:
            accumulator = taps.ETHERTYPE_IPV4
        elif code == 0x28:
            if k + 2 > len(data):
                return False
            accumulator = int.from_bytes(data[k : k + 2], "big")
        elif code == 0x54:
            accumulator &= k
        elif code == 0x05:
            at += k
        elif code == 0x15:
            at += if_so if accumulator == k else if_not
        else:
            assert code == 0x06
            return k > 0


def test_the_sample_of_a_filter() -> None:
    """4 of every 64: numbers 64 to 67 and so on, and every 16th word of packets without a
    number."""
    program = taps.sample_filter(64)
    numbers = [n for n in range(1, 200) if passes(program, packet(n))]
    assert numbers == [64, 65, 66, 67, 128, 129, 130, 131, 192, 193, 194, 195]
    for number in range(4):
        words = [w for w in range(70) if passes(program, atomic(w, number=number))]
        assert words == [0, 16, 32, 48, 64]
        assert not passes(program, packet(number))  # too short to choose by content


def test_a_packet_that_nobody_sent() -> None:
    found = fly(*sent(1), (1, 2000, packet(9)))
    assert found["p", "q"].strangers == 1
    assert fly((1, 500, packet(9))) == {}  # may have left before the sender was watched


def test_what_is_forwarded_did_not_leave_here() -> None:
    """A packet of p that leaves station 3, p's other interface, has p's address of station 0."""
    flights = Flights(STATIONS, {}, BEGIN)
    flights.note(3, BEGIN, leaves=True, data=packet(1, "10.9.1.2"))
    flights.note(1, BEGIN + 18 * MS, leaves=False, data=packet(1, "10.9.1.2"))
    assert [f.packets for f in flights.close(BEGIN + 60 * NS, {})] == []


def test_one_that_left_a_moment_ago_is_not_lost() -> None:
    flights = Flights(STATIONS, {GROUP: (1,)}, BEGIN)
    flights.note(0, BEGIN + NS, leaves=True, data=packet(1))
    found = flights.close(BEGIN + NS + 100 * MS, {("p", "q", PATH): 200.0})
    assert sum(f.lost for f in found) == 0


@pytest.mark.parametrize("data", [b"", b"\x45" * 19, b"\x60" + bytes(60)])
def test_what_is_no_ipv4(data: bytes) -> None:
    assert parse_ipv4(data) is None


def test_a_sample_is_as_large_as_watching_may_cost() -> None:
    assert period_of(0) == LEAST_PERIOD
    assert period_of(20e6) == 64  # 1,667 packets per second: 104 are seen
    assert period_of(1e12) == MOST_PERIOD


@pytest.mark.parametrize(
    ("rate_bps", "size_bytes", "period"),
    [
        # 10,000 packets of 1,500 bytes, one by one: 625 samples at 64 are enough.
        (20e6, 15e6, 64),
        # 62.5 kB are 1 ms at 500 Mbit/s: 240 packets, 30 samples at 32.
        (500e6, 15e6, 32),
        # 24,000 of 62.5 kB are enough: by the rate, 41,667 a second give 163 samples at 1,024.
        (500e6, 1.5e9, 2048),
        # A ring of 8,192 has no room for 8,334 samples in 0.2 s (2 x 83,333 a second, 4 in 16).
        (1e9, 15e6, 32),
        (500e6, 0, LEAST_PERIOD),
    ],
)
def test_a_short_feed_at_a_high_rate_is_sampled_more_often(
    rate_bps: float, size_bytes: float, period: int
) -> None:
    """With fewer samples, runs of four miss a feed of few large packets altogether."""
    assert period_of(rate_bps, size_bytes) == period


def test_rings_have_room_for_small_packets_at_the_full_rate() -> None:
    """500 Mbit/s are 41,667 packets of 1,500 bytes in a second, and as many acknowledgements:
    20,833 samples at a period of 16, 4,167 in 0.2 s. With less room some are not seen, and their
    fellows pass for copies and losses."""
    assert samples_most(500e6, 16) == 4167
    assert taps.frames_for(4167) == 8192
    assert taps.frames_for(4096) == 4096
    assert taps.frames_for(0) == taps.frames_for(1) == taps.LEAST_FRAMES
    for rate_bps in (1e6, 20e6, 500e6, 1e9, 10e9):
        for size_bytes in (0.0, 1e6, 1e9):
            assert samples_most(rate_bps, period_of(rate_bps, size_bytes)) <= MOST_SAMPLES


def watched_for(hours: int, make_file: Callable[[], BinaryIO] = io.BytesIO) -> Flights:
    """A packet every 7 s, of a new flow every 10 minutes; every tenth is lost. Packets are read
    once a minute, as from rings: first all that left, then all that came."""
    flights = Flights(STATIONS, {GROUP: (1, 2)}, BEGIN, make_file=make_file)
    for minute in range(hours * 60):
        times_s = range(minute * 60, minute * 60 + 60, 7)
        port = struct.pack("!H", minute // 10)
        seen = [(s, packet(s & 0xFFFF)[:20] + port + bytes(10)) for s in times_s]
        for at_s, data in seen:
            flights.note(0, BEGIN + at_s * NS, leaves=True, data=data)
        for at_s, data in seen:
            for station in (1, 2) if at_s % 10 else (1,):
                at_ns = BEGIN + at_s * NS + (20 + at_s % 3) * MS
                flights.note(station, at_ns, leaves=False, data=data)
        with suppress(OSError):  # as the reader does
            flights.settle(BEGIN + (minute + 1) * 60 * NS)
    return flights


def test_days_take_no_more_memory_than_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, hours = tmp_path / "flights.part", 6
    bounded = watched_for(hours, lambda: file.open("w+b", buffering=0))
    held = [len(flight.delays_ms) for flight in bounded._flights.values()]
    assert max(held) < (PUT_AWAY_S + REMEMBERED_S) / BLOCK_S + 12
    assert len(bounded._numbers) <= 3
    assert len(bounded._highest) <= 6
    assert file.stat().st_size > 3000 * hours
    found = bounded.close(BEGIN + hours * 3600 * NS, {})
    monkeypatch.setattr("topologies.watch.flights.PUT_AWAY_S", math.inf)
    whole = watched_for(hours)
    assert min(len(flight.delays_ms) for flight in whole._flights.values()) > 300 * hours
    for one, other in zip(found, whole.close(BEGIN + hours * 3600 * NS, {}), strict=True):
        assert one.packets
        assert one.blocks(BLOCK_S) == other.blocks(BLOCK_S)
        one.delays_ms, one.put_away = other.delays_ms, other.put_away
        assert one == other


def test_a_disk_that_is_full_for_a_while_loses_nothing() -> None:
    class Full(io.BytesIO):
        writes = 0

        def write(self, data: bytes) -> int:  # type: ignore[override]  # records alone
            self.writes += 1
            if 10 < self.writes < 14:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    end_ns = BEGIN + 2 * 3600 * NS
    found, whole = watched_for(2, Full).close(end_ns, {}), watched_for(2).close(end_ns, {})
    assert [f.blocks(BLOCK_S) for f in found] == [f.blocks(BLOCK_S) for f in whole]
