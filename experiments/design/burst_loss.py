# SPDX-License-Identifier: Apache-2.0
"""Replayable loss in bursts (Gilbert-Elliott): which packets are lost, and how iptables does it.

The channel has two states; in the bad one every packet is lost. Its path is drawn beforehand, from
a seed, on a circle of 65,536 packets: lost packets and bursts in exactly the requested numbers,
with bursts and gaps otherwise random. Both have geometric lengths, like the states of a Markov
chain conditioned on its stationary shares. A packet's place on the circle is the identification of
chain conditioned on its stationary shares. A packet's place on the circle is the identification of
its IPv4 header, which Linux increments for each packet of a connected socket: the datagrams of
FMTP's sender, and the segments of a TCP connection, retransmissions included. So the kernel keeps
no state for it, and bursts hit consecutive packets of a flow, whatever it carries. The kernel
chooses at random where a flow begins on the circle. In virtual time the choice repeats; natively
the same bursts hit other packets.

Rules: INPUT counts what arrives and jumps to chain `dp-burst`, whose classic BPF programs hold the
bursts; what they match goes to `dp-lost`, which counts the first packets of bursts and drops. No
burst has identification 0, which packets outside of flows have (SYN-ACK, RST).
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.contracts import ARRIVED_COMMENT, BURST_COMMENT, LOSS_COMMENT
from common.counting import counted
from experiments.design.expansion import CellSpec
from experiments.design.loss_model import (
    JEQ,
    JGE,
    LD_HALF,
    MATCH,
    MAX_INSTRUCTIONS,
    RET,
    Instruction,
    parse_program,
    program_text,
)
from experiments.design.shaping import Setting, selection
from experiments.design.spec import UsageError

CIRCLE: Final = 65_536  # values of IPv4's identification
IDENTIFICATION_OFFSET: Final = 4
BURSTS_MIN: Final = 4  # fewer are too small a sample of lengths
BURSTS_MAX: Final = 4_000  # 134 programs, each of which sees every packet
BURST_CHAIN: Final = "dp-burst"
LOST_CHAIN: Final = "dp-lost"
# Packets of other flows on the NIC, e.g. of a control connection, may hit or miss a burst.
SLACK_PACKETS: Final = 4


@dataclass(frozen=True)
class Burst:
    """A burst, in which packets with the identifications `first` to `first` + `packets` - 1 are
    lost."""

    first: int
    packets: int


@dataclass(frozen=True)
class Bounds:
    """The least and the most that a number of consecutive packets can meet, wherever they begin."""

    lost: tuple[int, int]
    bursts: tuple[int, int]


@dataclass(frozen=True)
class Pattern:
    """The bad states on the circle, in order; identification 0 is in none."""

    bursts: tuple[Burst, ...]

    @property
    def lost(self) -> int:
        """Return how many packets of the circle are lost."""
        return sum(burst.packets for burst in self.bursts)

    @property
    def mean_packets(self) -> float:
        """Return the mean length of a burst."""
        return self.lost / len(self.bursts)

    def is_lost(self, identification: int) -> bool:
        """Return whether the packet at a place of the circle is lost."""
        return any(b.first <= identification < b.first + b.packets for b in self.bursts)

    def bounds(self, packets: int) -> Bounds:
        """Return how many of `packets` consecutive packets of one flow are lost, and how many
        bursts begin there."""
        lost = np.zeros(CIRCLE, dtype=np.int64)
        begins = np.zeros(CIRCLE, dtype=np.int64)
        for burst in self.bursts:
            lost[burst.first : burst.first + burst.packets] = 1
            begins[burst.first] = 1
        return Bounds(_windows(lost, packets), _windows(begins, packets))


def _windows(marks: np.ndarray[tuple[int], np.dtype[np.int64]], length: int) -> tuple[int, int]:
    """Return the least and the most marks in `length` consecutive places of the circle."""
    turns, rest = divmod(length, CIRCLE)
    sums = np.concatenate(([0], np.cumsum(np.concatenate((marks, marks[:rest])))))
    within = sums[rest : rest + CIRCLE] - sums[:CIRCLE]
    whole = turns * int(marks.sum())
    return whole + int(within.min()), whole + int(within.max())


def pattern(p: float, burst_packets: float, seed: int) -> Pattern:
    """Return bursts of `burst_packets` packets on average that lose the share `p`. Raises
    ValueError if the circle has no room for them, or if they are too few or too many."""
    lost = round(p * CIRCLE)
    count = round(lost / burst_packets)
    if burst_packets <= 1 or not 0 < p < 1:
        raise ValueError(
            f"found bursts of {burst_packets:g} packets at a loss of {p:g}; valid: more than 1 "
            "packet, a loss above 0 and below 1"
        )
    if not BURSTS_MIN <= count <= min(BURSTS_MAX, (CIRCLE - lost) // 2):
        raise ValueError(
            f"found bursts of {burst_packets:g} packets at a loss of {p:g}: {count} bursts among "
            f"{CIRCLE} packets; valid: {BURSTS_MIN} to {BURSTS_MAX}, and room between them"
        )
    rng = random.Random(f"downpour burst {seed} {p!r} {burst_packets!r}")
    lengths = _composition(lost, count, rng)
    gaps = _composition(CIRCLE - lost, count, rng)
    # Place 0 of the circle may be anywhere in the first gap.
    at = 1 + int(rng.random() * max(1, gaps[0] - 1))
    bursts = []
    for length, gap in zip(lengths, [*gaps[1:], 0], strict=True):
        bursts.append(Burst(at, length))
        at += length + gap
    return Pattern(tuple(bursts))


def check(cells: Iterable[CellSpec]) -> None:
    """Check that losses can come in a cell's bursts. Raises UsageError."""
    asked = {
        (p, c.loss_burst_packets): c for c in cells if c.bursts for p in (c.p_i or (c.loss,)) if p
    }
    for p, packets in asked:
        try:
            pattern(p, packets, 0)
        except ValueError as error:
            raise UsageError(f"loss_burst_packets: {error}") from None


def _composition(total: int, parts: int, rng: random.Random) -> list[int]:
    """Return `total` as a sum of `parts` positive numbers, with every such sum equally likely."""
    cuts: set[int] = set()
    while len(cuts) < parts - 1:
        cuts.add(1 + int(rng.random() * (total - 1)))
    edges = [0, *sorted(cuts), total]
    return [b - a for a, b in itertools.pairwise(edges)]


# -- programs ---------------------------------------------------------------------------------
def loss_programs(found: Pattern) -> list[str]:
    """Return programs that match the packets of the bursts, each for the next bursts in order."""
    most = (MAX_INSTRUCTIONS - 3) // 2
    return [program_text(_within(part)) for part in _parts(found.bursts, most)]


def begin_programs(found: Pattern) -> list[str]:
    """Return programs that match the first packet of each burst."""
    return [program_text(_begins(part)) for part in _parts(found.bursts, MAX_INSTRUCTIONS - 3)]


def _parts(bursts: Sequence[Burst], most: int) -> list[Sequence[Burst]]:
    return [bursts[at : at + most] for at in range(0, len(bursts), most)]


def _within(bursts: Sequence[Burst]) -> list[Instruction]:
    """Return a program that compares with the edges in order: before a burst's first packet there
    is no match, before its end there is."""
    edges = [edge for b in bursts for edge in (b.first, b.first + b.packets)]
    keep, match = len(edges), len(edges) + 1  # counted from the first comparison
    compare = [
        Instruction(JGE, 0, (match if at % 2 else keep) - at - 1, edge)
        for at, edge in enumerate(edges)
    ]
    return [_LOAD, *compare, Instruction(RET, 0, 0, 0), Instruction(RET, 0, 0, MATCH)]


def _begins(bursts: Sequence[Burst]) -> list[Instruction]:
    match = len(bursts) + 1
    compare = [Instruction(JEQ, match - at - 1, 0, b.first) for at, b in enumerate(bursts)]
    return [_LOAD, *compare, Instruction(RET, 0, 0, 0), Instruction(RET, 0, 0, MATCH)]


_LOAD: Final = Instruction(LD_HALF, 0, 0, IDENTIFICATION_OFFSET)


# -- rules ------------------------------------------------------------------------------------
RESTORE: Final = ("iptables-restore", "-w", "-n")  # and the file of `rules`
SAVE: Final = ("iptables-save", "-t", "filter")


def rules(found: Pattern, interface: str, udp_only: bool) -> str:
    """Return the input of iptables-restore for one receiver."""
    chosen = " ".join(selection(interface, udp_only))

    def bpf(program: str) -> str:
        return f'-m bpf --bytecode "{program}"'

    lines = [
        "*filter",
        f":{BURST_CHAIN} - [0:0]",
        f":{LOST_CHAIN} - [0:0]",
        f"-A INPUT {chosen} -m comment --comment {ARRIVED_COMMENT}",
        f"-A INPUT {chosen} -j {BURST_CHAIN}",
        *(f"-A {BURST_CHAIN} {bpf(text)} -j {LOST_CHAIN}" for text in loss_programs(found)),
        *(
            f"-A {LOST_CHAIN} {bpf(text)} -m comment --comment {BURST_COMMENT}"
            for text in begin_programs(found)
        ),
        f"-A {LOST_CHAIN} -i {interface} -m comment --comment {LOSS_COMMENT} -j DROP",
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def firewall(asked: str) -> str:
    """Return the firewall of a host with the rules `asked`, as an inventory shows it: without chain
    INPUT."""
    chains = (BURST_CHAIN, LOST_CHAIN)
    counts = [sum(line.startswith(f"-A {c} ") for line in asked.splitlines()) for c in chains]
    return ", ".join(f"{n} x ip filter {c}" for n, c in zip(counts, chains, strict=True))


def read_back(text: str, host: str, asked: str, p: float, burst_packets: float) -> list[Setting]:
    """Compare the kernel's rules (`iptables-save`) with the rules `asked`: every rule in its order,
    and the shares of its programs."""
    found = [_Rule.of(line) for line in text.splitlines() if line.startswith("-A ")]
    wanted = [_Rule.of(line) for line in asked.splitlines() if line.startswith("-A ")]
    kept = [rule for rule in found if rule.chain in {w.chain for w in wanted}]
    bursts = sorted(itertools.chain.from_iterable(_bursts_of(r.program) for r in kept))
    lost = sum(end - first for first, end in bursts)
    return [
        Setting(f"{host} loss rules", _digest(wanted), _digest(kept)),
        Setting(f"{host} loss", p, lost / CIRCLE if bursts else None, 0.5 / CIRCLE),
        Setting(
            f"{host} mean burst of losses",
            burst_packets,
            lost / len(bursts) if bursts else None,
            _burst_tolerance(p, burst_packets),
        ),
    ]


def _burst_tolerance(p: float, burst_packets: float) -> float:
    """Return the tolerance: the number of bursts is rounded, and so is their mean length."""
    count = max(1, round(p * CIRCLE / burst_packets))
    return burst_packets * 0.6 / count + 0.6 / count


@dataclass(frozen=True)
class _Rule:
    chain: str
    program: tuple[Instruction, ...]
    words: frozenset[str]  # iptables puts the options of a rule into its own order

    @classmethod
    def of(cls, line: str) -> _Rule:
        code = re.search(r'--bytecode "([0-9 ,]+)"', line)
        rest = line.replace(code[1], "") if code else line
        program = parse_program(code[1]) if code else None
        return cls(line.split()[1], program or (), frozenset(rest.split()))


def _digest(found: Sequence[_Rule]) -> str:
    text = "\n".join(f"{r.chain} {sorted(r.words)} {r.program}" for r in found)
    return f"{counted(len(found), 'rule')}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _bursts_of(program: Sequence[Instruction]) -> list[tuple[int, int]]:
    """Return (first, end) of the bursts in a program of `loss_programs`."""
    edges = [i.k for i in program if i.code == JGE]
    return list(zip(edges[::2], edges[1::2], strict=False))
