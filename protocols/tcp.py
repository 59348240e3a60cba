# SPDX-License-Identifier: Apache-2.0
"""A TCP connection to each receiver, all at the same time: bench-tcp (sendfile), plain files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Setup

PROGRAM: Final = "bench/peers/bench-tcp"
PACKET_S: Final = 17e-6  # of a segment, measured with LDM6


def _receiver(s: Setup, i: int) -> list[str]:
    server = f"server={s.sender.address}:{s.port + 1}"
    return [s.program(PROGRAM), "recv", server, f"directory={s.inbox(i)}"]


def _sender(s: Setup, _: Sequence[Path]) -> list[str]:
    listen = f"listen={s.sender.address}:{s.port + 1}"
    return [s.program(PROGRAM), "send", listen, f"receivers={len(s.receivers)}"]


TCP: Final = Adapter(
    name="tcp",
    title="TCP to each",
    feed="stdin",
    needs=(PROGRAM,),
    receiver=_receiver,
    sender=_sender,
    multicast=False,
    receivers_first=False,
    ready="receivers connected",
    settle_s=0,
    repairs="TCP",
    settings="tcp(7), sendfile(2): a connection for each receiver, congestion control as told.",
    limits=("The sender sends a copy to each receiver; each has the base rate.",),
    packet_s=PACKET_S,
)
