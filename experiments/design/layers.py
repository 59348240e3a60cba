# SPDX-License-Identifier: Apache-2.0
"""Layered multicast (protocol m2c) and the traffic that competes with a path: settings, a session's
groups and command lines. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from controller.api.path_client import Channels
from experiments.design.carousel import TSI, TTL
from experiments.design.parameters import Factors, Parameters
from protocols import m2c
from protocols.adapter import Setup

CODES: Final = ("ldpc-triangle", "none")
LAYERS_MOST: Final = 64  # of m2c-send
RIVAL_PORT: Final = 38900
RIVAL_GROUPS: Final = 256  # above those of the path
RIVAL_TSI: Final = 2
PHASE_S: Final = 10.0  # a slot, and more than a cycle of TCP's window
SHORT_MEAN_BYTES: Final = 3163  # 85 % of an exponential distribution are below 6 kB (M2C10, 7.4)


@dataclass(frozen=True)
class Layers:
    """The options of m2c-send and m2c-recv."""

    cc: str = "m2c"  # as m2c-recv has it
    leave_latency_ms: int = 0  # of the network
    slot_s: float = 10.0
    quiescence_s: float = 300.0
    max_rate_bps: int = 0  # of each receiver; 0: what the sender sends


@dataclass(frozen=True)
class Rivals:
    """What competes with the path beyond the edge switches, on a separate route."""

    tcp: str = "cubic"  # congestion control of `background_flows`
    sessions: int = 0  # of the same protocol
    short_flows_per_min: float = 0.0  # TCP connections


@dataclass(frozen=True)
class Bottleneck:
    """The core links' rate and queue, which replace the topology's; paths then reserve nothing."""

    rate_bps: int = 0  # 0: as the topology has it
    packets: int = 25


def channels_of(group: str, layers: Layers) -> Channels:
    """Return the groups of a session whose base channel has `group`: enough for any sender."""
    quiescent = 0 if layers.cc == "static" else math.ceil(layers.quiescence_s / layers.slot_s)
    return Channels(
        IPv4Address(group), 1 + quiescent + LAYERS_MOST, leave_latency_ms=layers.leave_latency_ms
    )


def _wave(layers: Layers) -> list[str]:
    return [
        *("--slot", str(round(1000 * layers.slot_s))),
        *("--quiescence", str(round(1000 * layers.quiescence_s))),
    ]


def send_argv(layers: Layers, setup: Setup, file: Path, *, fec: str, tsi: int = TSI) -> list[str]:
    """Return the sender's command line."""
    options = ["--ttl", str(TTL), "--tsi", str(tsi), *_wave(layers), "--fec", fec]
    if layers.cc == "static":
        options += ["--layers", "static"]
    return m2c.send_argv(setup, setup.rate_bps, file, options)


def receive_argv(layers: Layers, setup: Setup, receiver: int, directory: Path) -> list[str]:
    """Return a receiver's command line."""
    options = ["--cc", layers.cc, *_wave(layers)]
    if layers.max_rate_bps:
        options += ["--max-rate", str(layers.max_rate_bps)]
    return m2c.receive_argv(setup, receiver, directory, options)


def listen_argv(layers: Layers, setup: Setup, receiver: int) -> list[str]:
    """Return the command line of a receiver that stays and keeps nothing."""
    return [*receive_argv(layers, setup, receiver, Path())[:-1], "--listen"]


def rival_group(group: str) -> str:
    """Return the group of the base channel of a session that competes with that of `group`."""
    return str(IPv4Address(group) + RIVAL_GROUPS)


def phase_s(repeat: int, seed: int) -> float:
    """Return how many seconds a transfer waits after the competing traffic has started; the first
    repeat does not wait. Guests are deterministic: without this, all repeats would meet a long
    stream at nearly the same moment."""
    dice = random.Random(f"downpour phase {seed}")
    return round(dice.uniform(0.0, PHASE_S), 3) if repeat else 0.0


def transfer_s(file_bytes: int, lines_bps: Sequence[int], competitors: int) -> float:
    """Return about how long a file takes, in seconds: through the slowest of some lines, of which
    each competitor takes an equal share. A rate of 0 is no limit."""
    line_bps = min((line for line in lines_bps if line), default=0)
    return 8 * file_bytes * (1 + competitors) / line_bps if line_bps else 0.0


def short_flows(per_min: float, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Return when each short connection begins, in seconds, and its bytes: a Poisson process of
    exponential sizes."""
    dice = random.Random(f"downpour short flows {seed}")
    found: list[tuple[float, int]] = []
    at_s = 0.0
    while per_min:
        at_s += dice.expovariate(per_min / 60)
        if at_s >= seconds:
            break
        found.append((round(at_s, 3), max(1, round(dice.expovariate(1 / SHORT_MEAN_BYTES)))))
    return found


def problems(fixed: Parameters, block: Factors) -> list[tuple[str, str, str]]:
    """Return what a block of factors must not contain: (key, found, valid)."""
    found = []
    if "m2c" in block.protocol:
        if not (block.file_bytes or fixed.file_bytes):
            valid = "file_bytes beside it, in parameters or factors: a session sends a file"
            found.append(("protocol", "protocol m2c without file_bytes", valid))
        codes = set(block.fec or (fixed.fec,)) - set(CODES)
        if codes:
            found.append(("fec", f"m2c with fec {', '.join(sorted(codes))}", " or ".join(CODES)))
    if (sessions := max(block.rival_sessions or (fixed.rival_sessions,))) and (
        set(block.protocol) != {"m2c"} or any(block.background_flows or (fixed.background_flows,))
    ):
        valid = "0 unless protocol is [m2c] and background_flows is 0"
        found.append(("rival_sessions", f"rival_sessions {sessions}", valid))
    if set(block.cc or (fixed.cc,)) != {"static"}:
        slot_s = min(block.slot_s or (fixed.slot_s,))
        most = m2c.CHANNELS_MOST - LAYERS_MOST
        if math.ceil(fixed.quiescence_s / slot_s) > most:
            text = f"slot_s {slot_s:g} with quiescence_s {fixed.quiescence_s:g}"
            found.append(("slot_s", text, f"a quiescence of at most {most} slots"))
    return found
