# SPDX-License-Identifier: Apache-2.0
"""NORM (RFC 5740) by NRL's libnorm: bench-norm, at a fixed rate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from protocols.adapter import PAYLOAD_SHARE, Adapter, Receive, Send, Setup

PROGRAM: Final = "bench/peers/bench-norm"
UNLIMITED_BPS: Final = 160_000_000  # what eight receivers on two cores can receive
PROACTIVE: Final = 4  # parity segments sent with each block of 64: 6 %
LEAST_GRTT_US: Final = 1000
RECEIVER_NODE: Final = 2  # of the first; the sender is 1


def commands(proactive: int) -> tuple[Receive, Send]:
    """Return both command lines. `proactive`: parity segments sent with each block."""

    def receiver(s: Setup, i: int) -> list[str]:
        return [
            s.program(PROGRAM),
            *("recv", f"group={s.group_port}", f"node={i + RECEIVER_NODE}"),
            *(f"directory={s.inbox(i)}", f"rcvbuf={s.rcvbuf(i)}"),
            *(f"interface={s.receivers[i].interface}", f"unicast={int(not s.all_to_all)}"),
        ]

    def sender(s: Setup, _: Sequence[Path]) -> list[str]:
        rate = round((s.rate_bps or UNLIMITED_BPS) * PAYLOAD_SHARE)
        grtt_us = max(LEAST_GRTT_US, round(2000 * s.delay_ms))
        return [
            s.program(PROGRAM),
            *("send", f"group={s.group_port}", "node=1", f"rate={rate}"),
            *(f"receivers={len(s.receivers)}", f"proactive={proactive}", f"grtt_us={grtt_us}"),
            f"interface={s.sender.interface}",
        ]

    return receiver, sender


def _counts(sent: str, _: Sequence[str]) -> Mapping[str, float]:
    """Read how often the sender requested an acknowledgement of the last file."""
    found = re.search(r"rounds=(\d+)", sent)
    return {"rounds_of_asking": float(found[1])} if found else {}


NORM: Final = Adapter(
    name="norm",
    title="NORM",
    feed="stdin",
    needs=(PROGRAM,),
    receiver=commands(0)[0],
    sender=commands(0)[1],
    package="libnorm-dev",
    repairs="multicast parity (Reed-Solomon) on request",
    settings=(
        "libnorm's developer guide, version 1.5.9: a fixed rate, the group's size, a first "
        "estimate of the round trip, segments of 1,400 bytes, blocks of 64 with up to 32 of parity."
    ),
    limits=(
        "Its library does not report how many segments it repaired.",
        "A path has one source: receivers ask by unicast, and do not hear each other ask.",
        "Its rate is fixed: its congestion control fails with 25 ms and 1 % loss.",
    ),
    counts=_counts,
)
FEC: Final = replace(
    NORM,
    name="norm-fec",
    title="NORM, proactive FEC",
    receiver=commands(PROACTIVE)[0],
    sender=commands(PROACTIVE)[1],
    repairs=f"{PROACTIVE} parity segments with each block of 64, more on request",
)
