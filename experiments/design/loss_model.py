# SPDX-License-Identifier: Apache-2.0
"""Replayable packet loss: a seed decides which packets a receiver loses.

A rule `iptables -m bpf` runs a classic BPF program over each packet. The program computes a 32-bit
hash of the words that identify the packet and of the receiver's seed, and the packet is lost if the
hash is below p x 2^32. It needs neither state nor a random generator: a repetition of the run loses
the same packets, on any machine, and a greater p loses the same packets and more. `is_lost` is the
same function in Python, which computes the packets that a run loses.

What identifies a packet (offsets from the IPv4 header, big-endian words):
- always the first word, which holds the total length;
- UDP, 12 bytes of payload or more: these 12 bytes. FMTP's header is just as long: product index,
  byte offset, payload length, flags. Addresses, ports, checksums and IP's identification are left
  out, so that a block of a product is lost or not whatever network carries it;
- other protocols, 32 bytes or more after the IPv4 header (TCP with time stamps): IP's
identification, time to live and checksum, sequence and acknowledgement number, and the words at
24 and 28 of the TCP header, which hold the time stamps. So each retransmission is decided
separately. TCP's initial numbers are random: its losses repeat only where the numbers do (virtual
time);
- all others (short packets, IPv4 options): the first three words of the IPv4 header.

The words are combined as the polynomial h = (h xor w) x C. The result is mixed as murmur3's
finaliser does (A. Appleby), with the second half of the seed in between. The finaliser's last step
is left out, as it only concerns the lowest bits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

LossModel = Literal["hash", "random"]
MAX_INSTRUCTIONS: Final = 64  # of the kernel's xt_bpf
MASK: Final = 0xFFFFFFFF
POLYNOMIAL: Final = 0x9E3779B1  # 2^32 / golden ratio, made prime
MIX_1: Final = 0x85EBCA6B
MIX_2: Final = 0xC2B2AE35
UDP: Final = 17
UDP_WORDS: Final = (28, 32, 36)
UDP_LEAST_BYTES: Final = 40  # IPv4 20, UDP 8, payload 12
OTHER_WORDS: Final = (24, 28, 44, 48)
OTHER_LEAST_BYTES: Final = 52  # IPv4 20, TCP 20, time stamps 12
HEADER_WORDS: Final = (4, 8)
MATCH: Final = 65535  # any value but 0: the rule applies

# Opcodes of linux/bpf_common.h.
LD_WORD: Final = 0x20  # A = 32 bits of the packet at k
LD_HALF: Final = 0x28
LD_BYTE: Final = 0x30
LDX_MEM: Final = 0x61
ST: Final = 0x02
MUL: Final = 0x24
XOR: Final = 0xA4
XOR_X: Final = 0xAC
RSH: Final = 0x74
JA: Final = 0x05
JEQ: Final = 0x15
JGE: Final = 0x35
RET: Final = 0x06
TAX: Final = 0x07
# A jump depends on how many instructions follow its label; the names below are labels.
ALIKE: Final = "random (a hash would take every repeat of a datagram: they begin alike)"
_JUMPS: Final = (JEQ, JGE, JA)


class Instruction(NamedTuple):
    """A struct sock_filter: jumps count from the next instruction."""

    code: int
    jt: int
    jf: int
    k: int


@dataclass(frozen=True)
class _Line:
    """An instruction whose jumps go to labels (None: to the next line)."""

    code: int
    k: int = 0
    yes: str | None = None
    no: str | None = None
    label: str | None = None


def in_force(asked: str, distinct: bool) -> str:
    """Return the model, depending on whether a hash distinguishes datagrams
    (`Adapter.distinct`)."""
    return ALIKE if asked == "hash" and not distinct else asked


def loss_seed(cell_seed: int, host: str) -> int:
    """Return 64 bits for one receiver of one cell: cells of one seed lose the same packets."""
    digest = hashlib.sha256(f"downpour loss {cell_seed} {host}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def threshold(p: float) -> int:
    """Return the bound below which a packet's hash makes it lost: p x 2^32. Raises ValueError
    unless 0 < p < 1."""
    if not 0 < p < 1:
        raise ValueError(f"found loss {p}; valid: above 0, below 1")
    return min(max(round(p * 2**32), 1), MASK)


def _fold(offsets: Sequence[int]) -> list[_Line]:
    """Return instructions for A = h: h = (h xor word) x C for each word."""
    lines: list[_Line] = []
    for offset in offsets:
        lines += [_Line(TAX), _Line(LD_WORD, offset), _Line(XOR_X), _Line(MUL, POLYNOMIAL)]
    return lines


def _lines(p: float, seed: int) -> list[_Line]:
    first, second = seed >> 32 & MASK, seed & MASK
    return [
        _Line(LD_WORD, 0),
        _Line(XOR, first),
        _Line(MUL, POLYNOMIAL),
        _Line(ST, 0),
        _Line(LD_BYTE, 0),
        _Line(JEQ, 0x45, no="header"),  # no IPv4 options: the offsets below hold
        _Line(LD_BYTE, 9),
        _Line(JEQ, UDP, no="other"),
        _Line(LD_HALF, 2),
        _Line(JGE, UDP_LEAST_BYTES, no="header"),
        _Line(LDX_MEM, 0),
        *_fold(UDP_WORDS)[1:],
        _Line(JA, yes="mix"),
        _Line(LD_HALF, 2, label="other"),
        _Line(JGE, OTHER_LEAST_BYTES, no="header"),
        _Line(LDX_MEM, 0),
        *_fold(OTHER_WORDS)[1:],
        _Line(TAX),
        _Line(JA, yes="identification"),
        _Line(LDX_MEM, 0, label="header"),
        _Line(LD_WORD, HEADER_WORDS[0], label="identification"),
        _Line(XOR_X),
        _Line(MUL, POLYNOMIAL),
        *_fold(HEADER_WORDS[1:]),
        _Line(TAX, label="mix"),
        _Line(RSH, 16),
        _Line(XOR_X),
        _Line(MUL, MIX_1),
        _Line(XOR, second),
        _Line(TAX),
        _Line(RSH, 13),
        _Line(XOR_X),
        _Line(MUL, MIX_2),
        _Line(JGE, threshold(p), yes="keep"),
        _Line(RET, MATCH),
        _Line(RET, 0, label="keep"),
    ]


def instructions(p: float, seed: int) -> tuple[Instruction, ...]:
    """Return the program that matches the packets to lose."""
    lines = _lines(p, seed)
    at = {line.label: index for index, line in enumerate(lines) if line.label is not None}

    def jump(index: int, label: str | None) -> int:
        return 0 if label is None else at[label] - index - 1

    assembled = []
    for index, line in enumerate(lines):
        yes, no = jump(index, line.yes), jump(index, line.no)
        if line.code == JA:
            assembled.append(Instruction(JA, 0, 0, yes))
        else:
            assembled.append(Instruction(line.code, yes, no, line.k))
    return tuple(assembled)


def program(p: float, seed: int) -> str:
    """Return the program in the format of `iptables -m bpf --bytecode`."""
    return program_text(instructions(p, seed))


def program_text(found: Sequence[Instruction]) -> str:
    """Return instructions in iptables' format: "N,code jt jf k,..."."""
    return ",".join([str(len(found)), *(f"{i.code} {i.jt} {i.jf} {i.k}" for i in found)])


def parse_program(text: str) -> tuple[Instruction, ...] | None:
    """Return the instructions of a program's text; None if it is not a program."""
    count, *rows = text.strip().rstrip(",").split(",")
    if not all(re.fullmatch(r"\d+ \d+ \d+ \d+", row) for row in rows) or count != str(len(rows)):
        return None
    return tuple(Instruction(*(int(word) for word in row.split())) for row in rows)


def probability_of(found: Sequence[Instruction]) -> float | None:
    """Return the p of a program made by `program`, from its last comparison; None without one."""
    thresholds = [i.k for i in found if i.code == JGE]
    return thresholds[-1] / 2**32 if thresholds else None


def _word(packet: bytes, offset: int) -> int:
    return int.from_bytes(packet[offset : offset + 4], "big")


def identity(packet: bytes) -> tuple[int, ...]:
    """Return the words that identify a packet, which begins with its IPv4 header of 20 bytes or
    more."""
    length = int.from_bytes(packet[2:4], "big")
    offsets: tuple[int, ...] = HEADER_WORDS
    if packet[0] == 0x45 and packet[9] == UDP and length >= UDP_LEAST_BYTES:
        offsets = UDP_WORDS
    elif packet[0] == 0x45 and packet[9] != UDP and length >= OTHER_LEAST_BYTES:
        offsets = (*OTHER_WORDS, *HEADER_WORDS)
    return tuple(_word(packet, offset) for offset in (0, *offsets))


def hash_of(words: Sequence[int], seed: int) -> int:
    """Return 32 bits of the identifying words and the seed."""
    h = seed >> 32 & MASK
    for word in words:
        h = (h ^ word) * POLYNOMIAL & MASK
    h = (h ^ h >> 16) * MIX_1 & MASK
    h ^= seed & MASK
    return (h ^ h >> 13) * MIX_2 & MASK


def is_lost(packet: bytes, p: float, seed: int) -> bool:
    """Return whether the receiver of `seed` loses this packet (from the IPv4 header on)."""
    return hash_of(identity(packet), seed) < threshold(p)


def udp_is_lost(payload: bytes, p: float, seed: int) -> bool:
    """Return the same for a UDP datagram (IPv4, type of service 0) by its payload of 12 bytes or
    more. For FMTP, the payload is the whole message; its length and first 12 bytes count."""
    if len(payload) < 12:
        raise ValueError(f"found {len(payload)} bytes of payload; valid: at least 12")
    first = 0x4500_0000 | 28 + len(payload)
    words = (first, *(_word(payload, offset) for offset in (0, 4, 8)))
    return hash_of(words, seed) < threshold(p)


def not_replayable(refusal: str) -> str:
    """Return why the loss is random although `hash` was requested, from iptables' message."""
    return f"not replayable: the kernel has no bpf match ({' '.join(refusal.split())})"


def used_models(models: Mapping[str, str]) -> str:
    """Return all models in force at the receivers, as one text."""
    return " and ".join(sorted(set(models.values()))) or "none"
