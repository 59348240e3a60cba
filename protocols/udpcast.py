# SPDX-License-Identifier: Apache-2.0
"""UDPcast: udp-sender and udp-receiver, one stream of bytes in each session.

A stream of files is sent as tar archives of what has arrived; receivers start again after each
session. The sender repeats its hello: a receiver that was not back in time for a single hello would
never join. The sender's log names what it sends again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Setup

QUIET: Final = ("--nokbd", "--no-progress")
MOST_WAIT_S: Final = 30  # for receivers that do not come
HELLO_MS: Final = 200  # between hellos
LOG: Final = "/proc/self/fd/1"  # a guest has no /dev/stdout
AGAIN: Final = re.compile(r" RETX +\d+ +(\d+)$", re.MULTILINE)


def _receiver(s: Setup, i: int) -> list[str]:
    argv = [
        *("udp-receiver", *QUIET, "--interface", s.receivers[i].interface),
        *("--mcast-rdv-address", s.group, "--portbase", str(s.port)),
        *("--rcvbuf", str(s.rcvbuf(i))),
    ]
    if not s.stream:
        return [*argv, "--file", str(s.inbox(i) / "file")]
    unpack = ["tar", "-C", str(s.inbox(i)), "--no-same-owner", "--touch", "-xf", "-"]
    return ["sh", "-c", f"while :; do {shlex.join(argv)} | {shlex.join(unpack)}; done"]


def _sender(s: Setup, files: Sequence[Path]) -> list[str]:
    rate = ["--max-bitrate", f"{s.rate_bps // 1000}k"] if s.rate_bps else []
    argv = [
        *("udp-sender", *QUIET, "--interface", s.sender.interface, "--full-duplex"),
        *("--mcast-rdv-address", s.group, "--mcast-data-address", s.group),
        *("--portbase", str(s.port), "--min-receivers", str(len(s.receivers))),
        *("--max-wait", str(MOST_WAIT_S), "--rexmit-hello-interval", str(HELLO_MS)),
        *("--log", LOG, *rate),
    ]
    if not s.stream:
        return [*argv, "--file", str(files[0])]
    pack = ["tar", "-C", str(s.source), "-cf", "-", *(file.name for file in files)]
    return ["sh", "-c", f"{shlex.join(pack)} | {shlex.join(argv)}"]


def _counts(sent: str, _: Sequence[str]) -> Mapping[str, float]:
    """Count blocks that were sent again (each line has those of a slice), and whole sessions."""
    return {
        "retransmits": float(sum(int(n) for n in AGAIN.findall(sent))),
        "sessions_ended": float(len(re.findall(r" Transfer complete\.", sent))),
    }


UDPCAST: Final = Adapter(
    name="udpcast",
    title="UDPcast",
    feed="batch",
    needs=("udp-sender", "udp-receiver", "tar"),
    receiver=_receiver,
    sender=_sender,
    package="udpcast",
    distinct=False,
    repairs="multicast of what a receiver misses, slice by slice; the slowest holds up all",
    settings=(
        "udp-sender(1) and udp-receiver(1), version 20120424: full duplex, the rate, the number of "
        "receivers to wait for, and a hello every 200 ms."
    ),
    limits=(
        "It sends one stream of bytes in a session: files go as a tar archive.",
        "A receiver whose answers are lost while it joins holds up all others.",
        "What comes during a session waits for the next, which all receivers must join again.",
    ),
    counts=_counts,
)
