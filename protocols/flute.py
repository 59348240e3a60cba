# SPDX-License-Identifier: Apache-2.0
"""FLUTE (RFC 6726) by the programs of the Rust crate `flute` (flute_setup.sh builds them).

FLUTE has no return path: the sender is told the loss, and sends so much parity that a block very
rarely lacks some.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from protocols.adapter import PAYLOAD_SHARE, Adapter, Receive, Send, Setup

BIN: Final = "bench/flute/bin"
SENDER: Final = f"{BIN}/flute-sender"
RECEIVER: Final = f"{BIN}/flute-receiver"
CRATE: Final = "flute 1.11.7 if it finds cargo 1.88 or later"
SYMBOL_BYTES: Final = 1400
UNLIMITED_BPS: Final = 200_000_000  # without feedback: what eight receivers can take on two cores
LINGER_S: Final = 3.0  # the list of files is sent again every second
BATCH_S: Final = 0.02  # for the programs' own start
COMPLETED: Final = re.compile(r'^File Some\("[^"\n]*"\) is completed !$', re.MULTILINE)
Scheme = Literal["no-code", "reed-solomon", "raptorq"]


def parity(block_symbols: int, loss: float) -> int:
    """Return how many repair symbols a block needs so that they are very rarely too few for a
    receiver with that loss: those lost on average, five standard deviations, and two."""
    return math.ceil(block_symbols * loss + 5 * math.sqrt(block_symbols * loss * (1 - loss))) + 2


def _source_symbols(file: Path) -> int:
    return math.ceil(file.stat().st_size / SYMBOL_BYTES)


def _batch_s(files: Sequence[Path], block: int, repair: int, rate_bps: float) -> float:
    """Return how many seconds a batch takes at the rate, with `repair` symbols for each block."""
    symbols = 0
    for source in map(_source_symbols, files):
        symbols += source + math.ceil(source / block) * repair
    return BATCH_S + (symbols + len(files)) * 8 * (SYMBOL_BYTES + 28) / rate_bps


def commands(scheme: Scheme, block: int) -> tuple[Receive, Send]:
    """Return both command lines; `block`: source symbols of a block."""

    def receiver(s: Setup, i: int) -> list[str]:
        return [
            *(s.program(RECEIVER), "--group", s.group, "--port", str(s.port)),
            *("--interface", s.receivers[i].address, str(s.inbox(i))),
        ]

    def sender(s: Setup, files: Sequence[Path]) -> list[str]:
        rate_bps = (s.rate_bps or UNLIMITED_BPS) * PAYLOAD_SHARE
        # The program has one setting for all blocks; the largest block needs most.
        largest = block if not s.stream else min(block, max(map(_source_symbols, files)))
        repair = parity(largest, s.loss)
        argv = [
            *(s.program(SENDER), "--destination", s.group, "--port", str(s.port)),
            *("--bind", f"{s.sender.address}:0"),
            *("--bitrate", str(round(rate_bps / 1000)), "--fec", scheme),
            *("--symbol-length", str(SYMBOL_BYTES), "--source-block-length", str(block)),
            *("--parity-symbols", str(repair)),
        ]
        if not s.stream:
            return [*argv, "--carousel", "delay", "--carousel-secs", "0", str(files[0])]
        # The program runs until it is ended. Each batch has its own session number, so that the
        # next batch can begin while this batch's list of files is sent again.
        tsi = int.from_bytes(files[0].name.encode()[-5:], "big")
        lasts_s = _batch_s(files, block, repair, rate_bps)
        whole = shlex.join([*argv, "--tsi", str(tsi), *map(str, files)])
        ends = f"timeout {lasts_s + LINGER_S:.3f} {whole} & sleep {lasts_s:.3f}"
        return ["sh", "-c", ends]

    return receiver, sender


def _counts(_: str, received: Sequence[str]) -> Mapping[str, float]:
    """Count the files that all receivers together completed."""
    return {"files_completed": float(sum(len(COMPLETED.findall(text)) for text in received))}


def variant(name: str, title: str, scheme: Scheme, block: int, repairs: str) -> Adapter:
    """Return FLUTE with one of its codes."""
    receiver, sender = commands(scheme, block)
    return Adapter(
        name=name,
        title=title,
        feed="batch",
        file_feed="carousel",
        needs=(SENDER, RECEIVER),
        receiver=receiver,
        sender=sender,
        package=CRATE,
        distinct=False,
        repairs=repairs,
        settings=(
            "`flute-sender --help`, version 1.11.7: the rate, symbols of 1,400 bytes, and parity "
            "for five standard deviations beyond the mean loss."
        ),
        limits=(
            "It has no return path: the sender is told the loss, and never learns what is missing.",
            "Its program takes its files at its start: what comes meanwhile waits for the next.",
            "The program cannot be told a receive buffer.",
            "Its programs report which files are complete, not how many symbols a block lacked.",
        ),
        counts=_counts,
    )


NO_CODE: Final = variant("flute", "FLUTE, no code", "no-code", 64, "none but another turn")
RS: Final = variant(
    "flute-rs", "FLUTE, Reed-Solomon", "reed-solomon", 200, "parity for the given loss"
)
RQ: Final = variant("flute-rq", "FLUTE, RaptorQ", "raptorq", 2000, "parity for the given loss")
