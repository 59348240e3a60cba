# SPDX-License-Identifier: Apache-2.0
"""Read what fcast-send and fcast-recv report: lines of `name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from parsers.base.problems import Lines, complete_lines

_PAIR = re.compile(r"([a-z_]+)=(\S+)")


@dataclass(frozen=True)
class CarouselSender:
    """A sender's account of its session."""

    datagrams: int
    source: int
    repair: int
    control: int
    rounds: int
    seconds: float
    symbol_bytes: int


@dataclass(frozen=True)
class DiskUse:
    """A receiver's disk activity while symbols arrived, and its peak memory."""

    written_bytes: int
    seeks: int
    write_s: float  # in writes
    memory_bytes: int  # limit for a scheme of MSR-TR-99-14; in place: 0
    rss_bytes: int


@dataclass(frozen=True)
class CarouselReceiver:
    """A receiver's account at its end. `at_*`: when the file was complete; None: it never was."""

    received: int
    lost: int  # missing sequence numbers
    redundant: int
    stray: int
    malformed: int
    forged: int
    socket_drops: int
    seconds: float
    complete: bool
    file_s: float | None = None  # after it tuned in
    file_received: int | None = None
    file_lost: int | None = None
    file_useful: int | None = None  # symbols that it needed
    disk: DiskUse | None = None


def _pairs(text: Lines, first: str) -> dict[str, str]:
    """Return the last line that begins with the key `first`; {} if there is none."""
    found: dict[str, str] = {}
    for _, line in complete_lines(text, "", []):
        pairs = dict(_PAIR.findall(line))
        if first in pairs and line.removeprefix("fcast-send: ").startswith(f"{first}="):
            found = pairs
    return found


def parse_sender(text: str) -> CarouselSender | None:
    """Parse a sender's log; None if it did not end properly. Never raises."""
    begun, ended = _pairs(text, "tsi"), _pairs(text, "files")
    try:
        return CarouselSender(
            datagrams=int(ended["datagrams"]),
            source=int(ended["source"]),
            repair=int(ended["repair"]),
            control=int(ended["control"]),
            rounds=int(ended["rounds"]),
            seconds=float(ended["seconds"]),
            symbol_bytes=int(begun["symbol_bytes"]),
        )
    except (KeyError, ValueError):
        return None


def _disk(end: Mapping[str, str]) -> DiskUse | None:
    """Return the disk's figures; None if the log is from an older fcast-recv without them. Raises
    KeyError, ValueError."""
    if "rss_bytes" not in end:
        return None
    return DiskUse(
        written_bytes=int(end["written_bytes"]),
        seeks=int(end["seeks"]),
        write_s=float(end["write_seconds"]),
        memory_bytes=int(end["memory_bytes"]),
        rss_bytes=int(end["rss_bytes"]),
    )


def parse_receiver(text: str) -> CarouselReceiver | None:
    """Parse a receiver's log; None if it did not end properly. Never raises."""
    file, end = _pairs(text, "toi"), _pairs(text, "files")
    try:
        found = CarouselReceiver(
            received=int(end["received"]),
            lost=int(end["lost"]),
            redundant=int(end["redundant"]),
            stray=int(end["stray"]),
            malformed=int(end["malformed"]),
            forged=int(end["forged"]),
            socket_drops=int(end["socket_drops"]),
            seconds=float(end["seconds"]),
            complete=end["result"] == "complete",
            file_s=float(file["seconds"]) if file else None,
            file_received=int(file["received"]) if file else None,
            file_lost=int(file["lost"]) if file else None,
            file_useful=int(file["useful"]) if file else None,
            disk=_disk(end),
        )
    except (KeyError, ValueError):
        return None
    return found
