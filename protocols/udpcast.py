# SPDX-License-Identifier: Apache-2.0
"""UDPcast: udp-sender and udp-receiver, one stream of bytes in each session.

Options from udp-sender(1) and udp-receiver(1), version 20120424. A stream of files goes as a tar
archive of what has come; receivers begin again after each session.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Setup

QUIET: Final = ("--nokbd", "--no-progress")
MOST_WAIT_S: Final = 30  # for receivers that do not come


def _receiver(s: Setup, i: int) -> list[str]:
    argv = [
        *("udp-receiver", *QUIET, "--interface", s.receivers[i].interface),
        *("--mcast-rdv-address", s.group, "--portbase", str(s.port)),
        *("--rcvbuf", str(s.rcvbuf(i))),
    ]
    if not s.stream:
        return [*argv, "--file", str(s.inbox(i) / "file")]
    unpack = ["tar", "-C", str(s.inbox(i)), "-xf", "-"]
    return ["sh", "-c", f"while :; do {shlex.join(argv)} | {shlex.join(unpack)}; done"]


def _sender(s: Setup, files: Sequence[Path]) -> list[str]:
    rate = ["--max-bitrate", f"{s.rate_bps // 1000}k"] if s.rate_bps else []
    argv = [
        *("udp-sender", *QUIET, "--interface", s.sender.interface, "--full-duplex"),
        *("--mcast-rdv-address", s.group, "--mcast-data-address", s.group),
        *("--portbase", str(s.port), "--min-receivers", str(len(s.receivers))),
        *("--max-wait", str(MOST_WAIT_S), *rate),
    ]
    if not s.stream:
        return [*argv, "--file", str(files[0])]
    pack = ["tar", "-C", str(s.source), "-cf", "-", *(file.name for file in files)]
    return ["sh", "-c", f"{shlex.join(pack)} | {shlex.join(argv)}"]


UDPCAST: Final = Adapter(
    name="udpcast",
    title="UDPcast",
    feed="batch",
    needs=("udp-sender", "udp-receiver", "tar"),
    receiver=_receiver,
    sender=_sender,
    package="udpcast",
    in_cells=False,  # in a host of a cell it lost nearly all of its sessions
    repairs="multicast of what a receiver misses, slice by slice; the slowest holds up all",
    limits=(
        "It sends one stream of bytes in a session: files go as a tar archive.",
        "What comes during a session waits for the next, which all receivers must join again.",
    ),
)
