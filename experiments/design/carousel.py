# SPDX-License-Identifier: Apache-2.0
"""One file for all receivers in place of a trace, and how a carousel (protocol fcast) sends it:
command lines, and when each receiver tunes in. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.places import program

PORT: Final = 38800
TTL: Final = 16
TSI: Final = 1  # of the session: a random one would change what is lost
HEADERS_BYTES: Final = 44  # IP 20, UDP 8, LCT 12, FEC payload id 4
ETHERNET_BYTES: Final = 14
DEFAULT_OVERHEAD, MOST_OVERHEAD = 50, 700  # per cent, of fcast-send
RS_K, RS_SYMBOLS = 200, 255  # of a block
PIECE_BYTES: Final = 1 << 20  # of whole words of the generator: the pieces are those of one draw
NAME: Final = "file"  # of the file, at the sender and at receivers


@dataclass(frozen=True)
class Carousel:
    """The file, and what fcast-send is told."""

    file_bytes: int  # 0: the trace is replayed instead
    fec: str  # as fcast-send has it
    k: int  # source symbols of a block at most; 0: fcast-send's default
    order: str
    symbol_bytes: int
    overhead_percent: int  # 0: as `overhead_of` says
    tune_in_s: float  # mean time between receivers that tune in; 0: all before the first symbol
    storage: str = "in-place"  # as fcast-recv has it
    crowd: int = 4  # blocks of a write, with the schemes of MSR-TR-99-14
    io: str = "cached"
    disk_iops: int = 0  # writes a second that the receivers' disk takes; 0: what it can


def overhead_of(carousel: Carousel) -> int:
    """Return how many repair symbols there are for 100 source symbols. A Reed-Solomon carousel that
    ran out of them would begin again with symbols that receivers have."""
    if carousel.overhead_percent or carousel.fec != "rs":
        return carousel.overhead_percent or DEFAULT_OVERHEAD
    k = carousel.k or RS_K
    return min(MOST_OVERHEAD, 100 * (RS_SYMBOLS - k) // k)


def tune_ins(carousel: Carousel, hosts: Sequence[str], seed: int) -> dict[str, float]:
    """Return when each receiver tunes in, in seconds after the sender's start: a Poisson process;
    0 for all where `tune_in_s` is 0."""
    if not carousel.tune_in_s:
        return dict.fromkeys(hosts, 0.0)
    dice = random.Random(f"downpour tune-in {seed}")
    at_s, found = 0.0, {}
    for host in hosts:
        at_s += dice.expovariate(1 / carousel.tune_in_s)
        found[host] = round(at_s, 3)
    return found


def content(seed: int, size_bytes: int) -> Iterator[bytes]:
    """Yield the file's bytes in pieces: a file may be larger than the memory."""
    dice = random.Random(f"downpour file {seed}")
    for at in range(0, size_bytes, PIECE_BYTES):
        yield dice.randbytes(min(PIECE_BYTES, size_bytes - at))


def packet_rate_bps(carousel: Carousel, rate_bps: int) -> int:
    """Return fcast-send's rate, which counts from the IP header on, for a rate on the wire."""
    packet = carousel.symbol_bytes + HEADERS_BYTES
    return round(rate_bps * packet / (packet + ETHERNET_BYTES))


def send_argv(
    carousel: Carousel, build: Path, *, group: str, address: str, rate_bps: int, file: Path
) -> list[str]:
    """Return the sender's command line. `address`: of its interface."""
    return [
        str(program("fcast-send", build)),
        *["--group", f"{group}:{PORT}", "--interface", address, "--ttl", str(TTL)],
        *["--rate", str(rate_bps), "--tsi", str(TSI), "--cache", str(file.parent)],
        *["--fec", carousel.fec, *(["--k", str(carousel.k)] if carousel.k else [])],
        *["--order", carousel.order, "--symbol", str(carousel.symbol_bytes)],
        *(["--overhead", str(overhead_of(carousel))] if carousel.fec != "none" else []),
        str(file),
    ]


def receive_argv(
    carousel: Carousel,
    build: Path,
    *,
    group: str,
    address: str,
    b_rcv_bytes: int,
    directory: Path,
) -> list[str]:
    """Return a receiver's command line: it leaves when it has the file."""
    return [
        str(program("fcast-recv", build)),
        *["--group", f"{group}:{PORT}", "--interface", address],
        *["--rcvbuf", str(b_rcv_bytes), "--storage", carousel.storage, "--io", carousel.io],
        *["--crowd", str(carousel.crowd), str(directory)],
    ]
