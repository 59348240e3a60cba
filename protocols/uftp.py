# SPDX-License-Identifier: Apache-2.0
"""UFTP: uftp and uftpd, a session for each batch of files.

At log level 2, the sender writes a line for each answer from a receiver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from protocols.adapter import Adapter, Setup

BLOCK_BYTES: Final = 1420
MOST_BUFFER_BYTES: Final = 104_857_600  # the programs refuse larger ones
QUIET: Final = ("-q", "-x", "0")
NAKS: Final = re.compile(r"^Got (\d+) NAKs for section \d+ from client ", re.MULTILINE)
ANSWERS: Final = re.compile(r"^(?:Received [A-Z_]+|Got .*) from client ", re.MULTILINE)
LATER_PASSES: Final = re.compile(r"^Starting pass (?!1$)\d+$", re.MULTILINE)


def _buffer(size_bytes: int) -> str:
    return str(min(size_bytes, MOST_BUFFER_BYTES))


def _receiver(s: Setup, i: int) -> list[str]:
    return [
        *("uftpd", "-d", *QUIET, "-B", _buffer(s.rcvbuf(i)), "-I", s.receivers[i].interface),
        *("-D", str(s.inbox(i)), "-M", s.group, "-p", str(s.port)),
    ]


def _sender(s: Setup, files: Sequence[Path]) -> list[str]:
    rate_kbps = s.rate_bps // 1000 if s.rate_bps else -1
    # A client's default id is its address.
    uids = ",".join(f"0x{int(IPv4Address(r.address)):08X}" for r in s.receivers)
    return [
        *("uftp", "-x", "2", "-R", str(rate_kbps), "-B", _buffer(s.rcvbuf_bytes)),
        *("-b", str(BLOCK_BYTES), "-I", s.sender.interface, "-p", str(s.port)),
        *("-M", s.group, "-P", s.group, "-H", uids, *map(str, files)),
    ]


def _counts(sent: str, _: Sequence[str]) -> Mapping[str, float]:
    """Count what receivers requested. A block that several miss is requested by each of them."""
    return {
        "blocks_asked_for": float(sum(int(n) for n in NAKS.findall(sent))),
        "answers": float(len(ANSWERS.findall(sent))),
        "repair_passes": float(len(LATER_PASSES.findall(sent))),
    }


UFTP: Final = Adapter(
    name="uftp",
    title="UFTP",
    feed="batch",
    needs=("uftp", "uftpd"),
    receiver=_receiver,
    sender=_sender,
    package="uftp",
    repairs="passes over the file, by multicast, of what receivers name",
    settings=(
        "uftp(1) and uftpd(1), version 4.10: the rate (-R), buffers (-B), blocks that fill a "
        "packet (-b), and the receivers that a session waits for (-H)."
    ),
    limits=(
        "It sends files in sessions: what comes meanwhile waits for the next.",
        "Files of a session follow one another, and each takes a round trip or more.",
        "Its buffers are 100 MiB at most.",
        "It reports what each receiver misses, not how many blocks it sends again.",
        "A session begins with a handshake with every receiver, and ends with one.",
    ),
    counts=_counts,
)
