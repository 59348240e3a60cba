# SPDX-License-Identifier: Apache-2.0
"""Fcast: fcast-send and fcast-recv, a carousel of files by FCAST or FLUTE. Its rate counts packets
from the IP header on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.places import program
from protocols.adapter import Adapter, Receive, Send, Setup

HEADERS_BYTES: Final = 44  # IP 20, UDP 8, LCT 12, FEC payload id 4; and the code's EXT_FTI
FTI_BYTES: Final = {"ldpc-triangle": 20, "ldpc-staircase": 20, "rs": 12, "none": 16}
ETHERNET_BYTES: Final = 14
SYMBOL_BYTES: Final = 1436  # fcast-send's own: a full packet
UNLIMITED_BPS: Final = 2_000_000_000  # without feedback: what eight receivers can take on two cores


def packet_rate_bps(
    rate_bps: int, symbol_bytes: int = SYMBOL_BYTES, fec: str = "ldpc-triangle"
) -> int:
    """Return fcast-send's rate for a rate on the wire."""
    packet = symbol_bytes + HEADERS_BYTES + FTI_BYTES[fec]
    return round(rate_bps * packet / (packet + ETHERNET_BYTES))


def send_argv(s: Setup, rate_bps: int, files: Sequence[Path], options: Sequence[str]) -> list[str]:
    """Return the sender's command line. `rate_bps`: see `packet_rate_bps`."""
    return [
        str(program("fcast-send", s.build)),
        *("--group", s.group_port, "--interface", s.sender.address, "--rate", str(rate_bps)),
        *("--cache", str(s.work), *options, *map(str, files)),
    ]


def receive_argv(s: Setup, receiver: int, inbox: Path, options: Sequence[str]) -> list[str]:
    """Return a receiver's command line. The receiver leaves when it has the file."""
    return [
        str(program("fcast-recv", s.build)),
        *("--group", s.group_port, "--interface", s.receivers[receiver].address),
        *("--rcvbuf", str(s.rcvbuf(receiver)), *options, str(inbox)),
    ]


def commands(*more: str, sending: Sequence[str] = ()) -> tuple[Receive, Send]:
    """Return both command lines. `more`: options of both; `sending`: of the sender only."""

    def receiver(s: Setup, i: int) -> list[str]:
        return receive_argv(s, i, s.inbox(i), more)

    def sender(s: Setup, files: Sequence[Path]) -> list[str]:
        rate_bps = packet_rate_bps(s.rate_bps or UNLIMITED_BPS)
        return send_argv(s, rate_bps, files, [*more, *sending])

    return receiver, sender


def variant(name: str, title: str, *sending: str) -> Adapter:
    """Return Fcast with further options of the sender."""
    receiver, sender = commands(sending=sending)
    return replace(FCAST, name=name, title=title, receiver=receiver, sender=sender)


FCAST: Final = Adapter(
    name="fcast",
    title="fcast-send/recv",
    feed="carousel",
    needs=("fcast/fcast-send", "fcast/fcast-recv"),
    receiver=commands()[0],
    sender=commands()[1],
    repairs="further symbols of the carousel's next turns",
    settings="fcast-send(1) and fcast-recv(1): the rate and the buffer, else the defaults.",
    limits=("It sends a set of files that is known when it starts: no stream of products.",),
)
