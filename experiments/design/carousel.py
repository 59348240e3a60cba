# SPDX-License-Identifier: Apache-2.0
"""One file for all receivers instead of a trace, and how a carousel (protocol fcast) sends it:
command lines, and when each receiver tunes in. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from protocols import fcast
from protocols.adapter import Setup

PORT: Final = 38800
TTL: Final = 16
TSI: Final = 1  # the session's: a random one would change which packets are lost
DEFAULT_OVERHEAD, MOST_OVERHEAD = 50, 700  # percent, of fcast-send
RS_K, RS_SYMBOLS = 200, 255  # of a block
PIECE_BYTES: Final = 1 << 20  # a multiple of the generator's words, so that pieces equal one draw
NAME: Final = "file"  # of the file, at the sender and at receivers


@dataclass(frozen=True)
class Carousel:
    """The file, and the options of fcast-send."""

    file_bytes: int  # 0: the trace is replayed instead
    fec: str  # as fcast-send has it
    k: int  # source symbols of a block at most; 0: fcast-send's default
    order: str
    symbol_bytes: int
    overhead_percent: int  # 0: as `overhead_of` computes
    tune_in_s: float  # mean time between receivers tuning in; 0: all before the first symbol
    storage: str = "in-place"  # as fcast-recv has it
    crowd: int = 4  # blocks of a write, with the schemes of MSR-TR-99-14
    io: str = "cached"
    disk_iops: int = 0  # writes a second of the receivers' disk; 0: no limit


def overhead_of(carousel: Carousel) -> int:
    """Return how many repair symbols there are for 100 source symbols. Reed-Solomon has as many as
    fit: with none left, the carousel would repeat symbols that receivers already have."""
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


def send_argv(
    carousel: Carousel, setup: Setup, *, rate_bps: int, file: Path, source: Path
) -> list[str]:
    """Return the sender's command line. `rate_bps`: on the wire; `source`: where the file is."""
    return fcast.send_argv(
        replace(setup, work=source),
        fcast.packet_rate_bps(rate_bps, carousel.symbol_bytes, carousel.fec),
        [file],
        [
            *["--ttl", str(TTL), "--tsi", str(TSI)],
            *["--fec", carousel.fec, *(["--k", str(carousel.k)] if carousel.k else [])],
            *["--order", carousel.order, "--symbol", str(carousel.symbol_bytes)],
            *(["--overhead", str(overhead_of(carousel))] if carousel.fec != "none" else []),
        ],
    )


def receive_argv(carousel: Carousel, setup: Setup, receiver: int, directory: Path) -> list[str]:
    """Return the command line of a receiver, which leaves when it has the file."""
    options = ["--storage", carousel.storage, "--io", carousel.io, "--crowd", str(carousel.crowd)]
    return fcast.receive_argv(setup, receiver, directory, options)
