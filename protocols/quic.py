# SPDX-License-Identifier: Apache-2.0
"""QUIC (RFC 9000) by the Rust crate `quinn`: bench-quic, a connection to each receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Setup, named_counts

PROGRAM: Final = "bench/quic/release/bench-quic"
LEAST_WINDOW_BYTES: Final = 1_250_000  # quinn's own: 12.5 MB/s x 100 ms
WINDOWS: Final = 4  # of the bandwidth-delay product
UNLIMITED_WINDOW_BYTES: Final = 16_000_000
COUNTERS: Final = {"datagrams": "datagrams", "lost": "lost", "feedback": "feedback_datagrams"}


def window_bytes(s: Setup) -> int:
    """Return the maximum number of bytes in flight to a receiver."""
    if s.rate_bps == 0:
        return UNLIMITED_WINDOW_BYTES
    return max(LEAST_WINDOW_BYTES, round(WINDOWS * s.rate_bps / 8 * 2 * s.delay_ms / 1000))


def _common(s: Setup) -> tuple[str, str]:
    return f"cert={s.work / 'quic.der'}", f"window={window_bytes(s)}"


def _receiver(s: Setup, i: int) -> list[str]:
    here = s.receivers[i].address
    server = f"server={s.sender.address}:{s.port + 1}"
    argv = [s.program(PROGRAM), "recv", server, f"bind={here}"]
    return [*argv, *_common(s), f"directory={s.inbox(i)}"]


def _sender(s: Setup, _: Sequence[Path]) -> list[str]:
    listen = f"listen={s.sender.address}:{s.port + 1}"
    argv = [s.program(PROGRAM), "send", listen, f"receivers={len(s.receivers)}"]
    return [*argv, *_common(s), "control=cubic"]


def _counts(sent: str, _: Sequence[str]) -> Mapping[str, float]:
    return named_counts(sent, "quic", COUNTERS)


QUIC: Final = Adapter(
    name="quic",
    title="QUIC to each",
    feed="stdin",
    needs=(PROGRAM,),
    receiver=_receiver,
    sender=_sender,
    multicast=False,
    receivers_first=False,
    ready="receivers connected",
    settle_s=0,
    package="quinn if it finds cargo 1.88 or later",
    repairs="by unicast, as TCP",
    settings=(
        "quinn's documentation (TransportConfig): windows of four times the bandwidth-delay "
        "product, CUBIC as by default, a stream for each file, the earlier first."
    ),
    limits=(
        "The sender sends a copy to each receiver; each has the base rate.",
        "Everything is encrypted, which costs processor time.",
    ),
    counts=_counts,
)
