# SPDX-License-Identifier: Apache-2.0
"""FMTP without LDM: fmtp-send and fmtp-recv. The rate counts IP packets, as for LDM7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Receive, Send, Setup, named_counts

COUNTERS: Final = {
    "datagrams": "datagrams",
    "retx_blocks": "unicast_repairs",
    "repairs_sent": "multicast_repairs",
    "parity_sent": "parity_sent",
}


def commands(*more: str) -> tuple[Receive, Send]:
    """Return both command lines; `more`: options of the sender."""

    def receiver(s: Setup, i: int) -> list[str]:
        return [
            s.program("fmtp/fmtp-recv"),
            *("--server", f"{s.sender.address}:{s.port + 1}", "--group", s.group_port),
            *("--interface", s.receivers[i].address, "--rate", str(s.rate_bps or "unlimited")),
            *("--rcvbuf", str(s.rcvbuf(i)), str(s.inbox(i))),
        ]

    def sender(s: Setup, _: Sequence[Path]) -> list[str]:
        return [
            s.program("fmtp/fmtp-send"),
            *("--group", s.group_port, "--address", s.sender.address, "--port", str(s.port + 1)),
            *("--receivers", str(len(s.receivers)), "--rate", str(s.rate_bps or "auto")),
            *("--stdin", *more),
        ]

    return receiver, sender


def variant(name: str, title: str, repairs: str, *more: str) -> Adapter:
    """Return FMTP with further options of the sender."""
    receiver, sender = commands(*more)
    return replace(FMTP, name=name, title=title, repairs=repairs, receiver=receiver, sender=sender)


FMTP: Final = Adapter(
    name="fmtp",
    title="fmtp-send/recv",
    feed="stdin",
    needs=("fmtp/fmtp-send", "fmtp/fmtp-recv"),
    receiver=commands()[0],
    sender=commands()[1],
    receivers_first=False,
    ready="receivers connected",
    settle_s=0,
    repairs="multicast parity (FEC) on request; TCP for the rest",
    settings="fmtp-send(1) and fmtp-recv(1): the rate and the buffer, else the defaults.",
    limits=("Loss is injected into UDP alone, so repairs by TCP lose nothing.",),
    counts=lambda sent, _: named_counts(sent, "products", COUNTERS),
)
UNICAST: Final = variant(
    "fmtp-unicast", "FMTP, unicast repair", "TCP, as in the papers", "--repair", "unicast"
)
