# SPDX-License-Identifier: Apache-2.0
"""The hash that decides which packets are lost: the program compared with the Python function, and
with a fair die."""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from experiments.design import loss_model, shaping
from topologies.model.wire_plan import line_seed

GOLDEN = Path(__file__).parent / "golden"
SEED = 0x0123456789ABCDEF
BLOCK = 1448


class OutOfPacket(Exception):
    """The kernel ends the program with 0: no match."""


@functools.cache
def rows_of(text: str) -> list[tuple[int, ...]]:
    rows = [tuple(map(int, row.split())) for row in text.split(",")[1:]]
    assert int(text.split(",")[0]) == len(rows)
    return rows


def interpret(text: str, packet: bytes) -> int:
    """Return what the program returns. Interprets the instructions of the kernel's documentation
    (networking/filter) that are used here, by opcode bits, not by the names in the module."""
    rows = rows_of(text)
    a = x = 0
    memory: dict[int, int] = {}

    def load(offset: int, size: int) -> int:
        if offset + size > len(packet):
            raise OutOfPacket
        return int.from_bytes(packet[offset : offset + size], "big")

    at = 0
    while True:
        code, jt, jf, k = rows[at]
        at += 1
        kind = code & 7
        if kind == 0 and code & 0xE0 == 0x20:  # ld absolute
            a = load(k, {0x00: 4, 0x08: 2, 0x10: 1}[code & 0x18])
        elif kind == 1 and code & 0xE0 == 0x60:  # ldx memory
            x = memory[k]
        elif kind == 2:
            memory[k] = a
        elif kind == 4:
            operand = x if code & 8 else k
            operation = code & 0xF0
            if operation == 0x20:
                a = a * operand % 2**32
            elif operation == 0x70:
                assert operand < 32
                a >>= operand
            elif operation == 0xA0:
                a ^= operand
            else:
                raise AssertionError(code)
        elif code == 5:
            at += k
        elif kind == 5:
            assert not code & 8
            taken = a == k if code & 0xF0 == 0x10 else a >= k
            assert code & 0xF0 in (0x10, 0x30)
            at += jt if taken else jf
        elif code == 6:
            return k
        elif code == 7:
            x = a
        else:
            raise AssertionError(code)


def matches(text: str, packet: bytes) -> bool:
    try:
        return interpret(text, packet) != 0
    except OutOfPacket:
        return False


def ipv4(protocol: int, payload: bytes, *, options: bytes = b"", identification: int = 0) -> bytes:
    length = 20 + len(options) + len(payload)
    first = 0x40 | 5 + len(options) // 4
    head = struct.pack("!BBHHHBBH", first, 0, length, identification, 0x4000, 16, protocol, 0)
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + options + payload


def udp(payload: bytes) -> bytes:
    return ipv4(17, struct.pack("!HHHH", 40000, 38800, 8 + len(payload), 0x1234) + payload)


def tcp(sequence: int, stamp: int, *, identification: int = 7, body: bytes = b"x" * BLOCK) -> bytes:
    options = struct.pack("!BBBBII", 1, 1, 8, 10, stamp, 99)
    head = struct.pack("!HHIIBBHHH", 388, 40000, sequence, 5, 0x80, 0x10, 512, 0, 0)
    return ipv4(6, head + options + body, identification=identification)


def block(index: int, number: int) -> bytes:
    """Return an FMTP datagram of a product of many blocks."""
    return struct.pack("!IIHH", index, number * BLOCK, BLOCK, 4) + bytes(BLOCK)


@pytest.mark.slow
def test_program_and_function_agree() -> None:
    dice = random.Random(1)
    kinds: Counter[tuple[str, bool]] = Counter()
    for _ in range(6000):
        payload = dice.randbytes(dice.choice([0, 4, 11, 12, 13, 19, 20, 31, 32, 33, 60, 200]))
        options = dice.choice([b"", b"", b"", bytes(4), bytes(40)])
        protocol = dice.choice([1, 2, 6, 17, 17, 17])
        packet = ipv4(protocol, payload, options=options, identification=dice.getrandbits(16))
        p, seed = dice.choice([0.01, 0.3, 0.5, 0.99]), dice.getrandbits(64)
        lost = loss_model.is_lost(packet, p, seed)
        assert matches(loss_model.program(p, seed), packet) == lost, (packet.hex(), p, seed)
        kinds[("options" if options else "udp" if protocol == 17 else "other", lost)] += 1
    assert min(kinds.values()) > 300, kinds  # each way through the program, with both answers


def test_golden_packets() -> None:
    """The hashes were computed by a C program with uint32_t arithmetic, written from the text of
    the docstring."""
    rows = [line.split() for line in (GOLDEN / "loss-hash.txt").read_text().splitlines()]
    rows = [row for row in rows if row[0] != "#"]
    assert len(rows) == 5
    for name, seed, expected, packet in rows:
        words = loss_model.identity(bytes.fromhex(packet))
        found = loss_model.hash_of(words, int(seed, 16))
        assert found == int(expected, 16), name
        for p, lost in (((found + 1) / 2**32, True), (max(found, 1) / 2**32, False)):
            text = loss_model.program(p, int(seed, 16))
            assert matches(text, bytes.fromhex(packet)) is lost, name


def test_what_identifies_a_datagram() -> None:
    """Another sender, port, checksum or identification does not change the fate. Another header of
    FMTP, length or seed changes the hash."""
    message = block(3, 5)
    base = udp(message)
    first = loss_model.hash_of(loss_model.identity(base), SEED)
    for offset in (4, 5, 8, 10, 12, 16, 20, 22, 24, 26, 40, 900):  # not: what the docstring names
        other = bytearray(base)
        other[offset] ^= 0xFF
        assert loss_model.hash_of(loss_model.identity(bytes(other)), SEED) == first, offset
    for offset in range(28, 40):
        other = bytearray(base)
        other[offset] ^= 1
        assert loss_model.hash_of(loss_model.identity(bytes(other)), SEED) != first, offset
    assert loss_model.hash_of(loss_model.identity(udp(message[:-1])), SEED) != first
    for seed in (SEED ^ 1, SEED ^ 1 << 63):
        assert loss_model.hash_of(loss_model.identity(base), seed) != first


def test_a_payload_is_enough_for_udp() -> None:
    for number in range(500):
        message = block(1, number)
        assert loss_model.udp_is_lost(message, 0.2, SEED) == loss_model.is_lost(
            udp(message), 0.2, SEED
        )
    with pytest.raises(ValueError, match="found 11 bytes"):
        loss_model.udp_is_lost(bytes(11), 0.2, SEED)


def test_a_retransmission_has_its_own_fate() -> None:
    """TCP sends the same bytes again 30 ms later, or with only the next identification (time stamps
    have 1 ms)."""
    for again in (tcp(1000, 5030), tcp(1000, 5000, identification=8)):
        hashes = {
            loss_model.hash_of(loss_model.identity(packet), SEED)
            for packet in (tcp(1000, 5000), again)
        }
        assert len(hashes) == 2


def test_alike_datagrams_are_drawn_and_not_hashed() -> None:
    """UDPcast's block 7 of slice 0, sent twice: the hash would lose both or neither."""
    first = udp(struct.pack("!HHIHHI", 0x500, 0, 0, 7, 0, 1456) + bytes(1456))
    again = first[:4] + b"\x12\x34" + first[6:]  # IP's identification
    assert loss_model.identity(first) == loss_model.identity(again)
    assert loss_model.in_force("hash", True) == "hash"
    assert loss_model.in_force("hash", False).startswith("random (")
    assert loss_model.in_force("random", False) == "random"


def test_seeds_differ_by_host_and_cell() -> None:
    seeds = {
        loss_model.loss_seed(cell, host) for cell in (1, 2, 12) for host in ("a", "b", "2 a", "")
    }
    assert len(seeds) == 12
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_links_are_seeded_as_hosts_are() -> None:
    assert line_seed(2053, "q:sw", "forward") == loss_model.loss_seed(2053, "q:sw/forward")


def test_threshold() -> None:
    assert loss_model.threshold(0.5) == 2**31
    assert loss_model.threshold(0.01) == 42949673  # 42949672.96
    assert loss_model.threshold(1e-12) == 1
    assert loss_model.threshold(1 - 1e-12) == 2**32 - 1
    for p in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="above 0, below 1"):
            loss_model.threshold(p)


def test_program_text() -> None:
    text = loss_model.program(0.01, SEED)
    found = loss_model.parse_program(text)
    assert found == loss_model.instructions(0.01, SEED)
    assert len(found) <= loss_model.MAX_INSTRUCTIONS
    assert loss_model.probability_of(found) == pytest.approx(0.01, abs=2**-32)
    assert all(0 <= i.jt < 256 and 0 <= i.jf < 256 and 0 <= i.k < 2**32 for i in found)
    for bad in ("", "1", "2,6 0 0 0", "1,6 0 0", "1,6 0 0 -1", "x,6 0 0 0"):
        assert loss_model.parse_program(bad) is None
    assert loss_model.probability_of(()) is None


PACKETS = 40_000
HOSTS = ("uva", "umass", "wsu1")
LOSSES = (0.001, 0.01, 0.05, 0.2)


@pytest.fixture(scope="module")
def hashes() -> dict[str, list[int]]:
    """Return for each receiver the hashes of consecutive blocks: products of 400; only the seed
    differs."""
    words = [
        (0x450005D0, index, number * BLOCK, BLOCK << 16 | 4)
        for index in range(PACKETS // 400)
        for number in range(400)
    ]
    return {
        host: [loss_model.hash_of(w, loss_model.loss_seed(2053, host)) for w in words]
        for host in HOSTS
    }


def deviations(hits: int, trials: int, p: float) -> float:
    return abs(hits - trials * p) / math.sqrt(trials * p * (1 - p))


# 4.5 standard deviations: a fair die exceeds them in 7 of a million tests; the seed is fixed.
FAR = 4.5


@pytest.mark.slow
@pytest.mark.parametrize("p", LOSSES)
@pytest.mark.parametrize("host", HOSTS)
def test_rate(hashes: dict[str, list[int]], host: str, p: float) -> None:
    lost = sum(h < loss_model.threshold(p) for h in hashes[host])
    assert deviations(lost, PACKETS, p) < FAR


def chi_square(pairs: Counter[tuple[bool, bool]]) -> float:
    """Return chi-square of the 2 x 2 table, with one degree of freedom."""
    n = sum(pairs.values())
    return sum(
        (pairs[a, b] - expected) ** 2 / expected
        for a, b in itertools.product((True, False), repeat=2)
        for expected in [
            (pairs[a, True] + pairs[a, False]) * (pairs[True, b] + pairs[False, b]) / n
        ]
    )


@pytest.mark.parametrize("p", LOSSES)
@pytest.mark.parametrize("lag", [1, 2, 45, 400])  # 45 blocks: a RETX_REQ; 400: the next product
def test_packets_are_independent(hashes: dict[str, list[int]], lag: int, p: float) -> None:
    lost = [h < loss_model.threshold(p) for h in hashes["uva"]]
    assert chi_square(Counter(zip(lost, lost[lag:], strict=False))) < FAR**2


@pytest.mark.parametrize("p", LOSSES)
def test_receivers_are_independent(hashes: dict[str, list[int]], p: float) -> None:
    limit = loss_model.threshold(p)
    for a, b in itertools.combinations(HOSTS, 2):
        pairs = zip((h < limit for h in hashes[a]), (h < limit for h in hashes[b]), strict=True)
        assert chi_square(Counter(pairs)) < FAR**2


def test_runs_are_geometric(hashes: dict[str, list[int]]) -> None:
    """Of the runs of lost packets of length k or more at p = 20 %, a fifth continues."""
    limit = loss_model.threshold(0.2)
    for host in HOSTS:
        lengths = [
            sum(1 for _ in run)
            for lost, run in itertools.groupby(h < limit for h in hashes[host])
            if lost
        ]
        for k in (1, 2, 3):
            reach = sum(n >= k for n in lengths)
            assert reach > 200
            assert deviations(sum(n > k for n in lengths), reach, 0.2) < FAR, (host, k)


def test_more_loss_loses_the_same_and_more() -> None:
    packets = [udp(block(0, number)) for number in range(3000)]
    few = {n for n, q in enumerate(packets) if loss_model.is_lost(q, 0.01, SEED)}
    many = {n for n, q in enumerate(packets) if loss_model.is_lost(q, 0.05, SEED)}
    assert few < many


@pytest.mark.root
@pytest.mark.emulated
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")
def test_the_kernel_drops_what_is_predicted() -> None:
    """4,000 blocks pass the rule in their own namespace: those that arrive are exactly those that
    the Python function lets through, and the rules count correctly."""
    name = f"downpour-test-loss-{os.getpid()}"
    run = ["ip", "netns", "exec", name]
    p, seed, count = 0.05, loss_model.loss_seed(2053, "uva"), 4000
    program = loss_model.program(p, seed)
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*run, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*run, *shaping.arrival_command("lo", True)], check=True)
        command = shaping.loss_command("lo", p, True, program)
        done = subprocess.run([*run, *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"SKIPPED: no bpf match: {done.stderr.strip()}")
        arrived = set(_received(name, count))
        text = subprocess.run(
            [*run, *shaping.IPTABLES_SHOW], capture_output=True, text=True, check=True
        ).stdout
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    expected = {
        n for n in range(count) if not loss_model.udp_is_lost(block(n // 40, n % 40), p, seed)
    }
    assert arrived == expected
    assert 100 < count - len(expected) < 300
    rule = shaping.parse_loss_rules(text)
    assert rule is not None
    assert (rule.arrived_packets, rule.dropped_packets) == (count, count - len(expected))
    settings = shaping.read_back_loss(
        text, "uva", interface="lo", loss=p, udp_only=True, program=program
    )
    assert shaping.mismatches(settings) == []


def _received(namespace: str, count: int) -> list[int]:
    """Send blocks over the namespace's loopback in small bursts; return the numbers of those
    received."""
    code = f"""
import os, socket, struct
r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(("127.0.0.1", 0))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
r.setblocking(False)
for n in range({count}):
    head = struct.pack("!IIHH", n // 40, n % 40 * {BLOCK}, {BLOCK}, 4)
    s.sendto(head + bytes({BLOCK}), r.getsockname())
    try:
        index, offset = struct.unpack("!II", r.recv(2000)[:8])
        print(index * 40 + offset // {BLOCK})
    except BlockingIOError:
        pass
"""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "python3", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [int(line) for line in done.stdout.split()]
