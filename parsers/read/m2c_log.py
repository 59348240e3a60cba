# SPDX-License-Identifier: Apache-2.0
"""Read what m2c-send and m2c-recv report: lines of `name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from parsers.base.problems import Lines, complete_lines

_PAIR = re.compile(r"([a-z0-9_]+)=(\S+)")


@dataclass(frozen=True)
class LayersSender:
    """A sender's account of its session."""

    datagrams: int
    symbol_bytes: int
    layers: int
    slot_s: float
    most_packets_per_s: float
    seconds: float
    late: int  # how many times it could not keep its rate


@dataclass(frozen=True)
class Slot:
    """A time slot of a receiver. `at_s`: when it ended, after the receiver began."""

    at_s: float
    layers: int
    packets_per_s: float
    target_per_s: float
    lost: int


@dataclass(frozen=True)
class Overheads:
    """The criteria of M2C10, 7.2, in percent."""

    dup: float
    sym: float
    head: float
    net: float
    comp: float


@dataclass(frozen=True)
class LayersReceiver:
    """A receiver's account at its end. Without the file, there are no overheads."""

    time_s: float
    gput_bps: float
    tput_bps: float
    loss: float  # percent
    received: int
    lost: int
    late: int
    loss_events: int
    joins: int
    leaves: int
    join_timeouts: int
    slots: int
    stray: int
    malformed: int
    forged: int
    strange: int
    socket_drops: int
    complete: bool
    overheads: Overheads | None
    by_slot: tuple[Slot, ...]


def _lines(text: Lines) -> list[dict[str, str]]:
    return [
        dict(_PAIR.findall(line.removeprefix("m2c-send: ")))
        for _, line in complete_lines(text, "", [])
    ]


def parse_sender(text: str) -> LayersSender | None:
    """Parse a sender's log; None if it did not end properly. Never raises."""
    lines = _lines(text)
    begun = next((line for line in lines if "channels" in line), {})
    ended = next((line for line in reversed(lines) if "datagrams" in line), {})
    try:
        return LayersSender(
            datagrams=int(ended["datagrams"]),
            symbol_bytes=int(begun["symbol_bytes"]),
            layers=int(begun["layers"]),
            slot_s=float(begun["slot_s"]),
            most_packets_per_s=float(begun["most_packets_per_s"]),
            seconds=float(ended["seconds"]),
            late=int(ended["late"]),
        )
    except (KeyError, ValueError):
        return None


def _slot(line: Mapping[str, str]) -> Slot:
    return Slot(
        at_s=float(line["seconds"]),
        layers=int(line["layers"]),
        packets_per_s=float(line["packets_per_s"]),
        target_per_s=float(line["target_per_s"]),
        lost=int(line["lost"]),
    )


def _overheads(end: Mapping[str, str]) -> Overheads | None:
    if "dup" not in end:
        return None
    return Overheads(*(float(end[name]) for name in ("dup", "sym", "head", "net", "comp")))


def parse_receiver(text: str) -> LayersReceiver | None:
    """Parse a receiver's log; None if it did not end properly. Never raises."""
    lines = _lines(text)
    end = next((line for line in reversed(lines) if "result" in line), {})
    try:
        return LayersReceiver(
            time_s=float(end["time_s"]),
            gput_bps=1000 * float(end["gput_kbps"]),
            tput_bps=1000 * float(end["tput_kbps"]),
            loss=float(end["loss"]),
            received=int(end["received"]),
            lost=int(end["lost"]),
            late=int(end["late"]),
            loss_events=int(end["loss_events"]),
            joins=int(end["joins"]),
            leaves=int(end["leaves"]),
            join_timeouts=int(end["join_timeouts"]),
            slots=int(end["slots"]),
            stray=int(end["stray"]),
            malformed=int(end["malformed"]),
            forged=int(end["forged"]),
            strange=int(end["strange"]),
            socket_drops=int(end["socket_drops"]),
            complete=end["result"] == "complete",
            overheads=_overheads(end),
            by_slot=tuple(_slot(line) for line in lines if "slot" in line),
        )
    except (KeyError, ValueError):
        return None
