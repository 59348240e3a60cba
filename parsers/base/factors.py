# SPDX-License-Identifier: Apache-2.0
"""Names, units and labels of factors: the names that `at`, `where` and `over` of an experiment
file, a point of metrics.json and an axis of a figure may use.

A level is a JSON scalar in the unit of the factor's name (bit/s, ms, a probability for `loss`).
Three of the factors are not properties of a cell. `subscriber` takes a metric at one receiver
instead of over all. `file_set_bytes` cuts the same run into file-sets of another aggregate size G
(MPUP16 III-B). `first_s` ends the same run earlier.

The level of a list by receiver is its name, `list_name`; that of settings, `settings_name`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

Scalar = float | int | str

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z%]+)", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_FEED = re.compile(r"[A-Z][A-Z0-9]{0,15}", re.ASCII)
_ITEM = re.compile(  # an item of a list's name
    r"(?:([1-9][0-9]{0,2})x)?(-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:e[+-][0-9]{1,2})?)", re.ASCII
)
_SETTINGS = re.compile(r"none|[a-z0-9_.]+=\S+", re.ASCII)
NO_SETTINGS: Final = "none"


@dataclass(frozen=True, slots=True)
class Factor:
    """How to write and show a factor's levels: a level is shown as level / `scale`,
    `shown_unit`."""

    name: str
    label: str
    symbol: str  # the papers' symbol, or one as short
    shown_unit: str = ""
    scale: float = 1.0
    units: Mapping[str, float] = field(default_factory=dict)  # written after a number
    whole: bool = False  # levels are whole numbers
    least: float = 0.0
    most: float = math.inf
    names: tuple[str, ...] | None = None  # levels are texts: one of these, or () for any name
    pattern: re.Pattern[str] = _NAME  # of any name
    first: tuple[str, ...] = ()  # with any name: names that sort before the others
    each: str = ""  # levels are lists by receiver: the name of an item's factor
    valid: str = ""

    def read(self, value: object) -> Scalar:
        """Return a level from its form in an experiment file or in JSON. Raises ValueError, which
        says what is valid."""
        if self.each:
            return self._read_list(value)
        if self.pattern is _SETTINGS and isinstance(value, Mapping):
            return settings_name(value)
        if self.names is not None:
            known = isinstance(value, str) and (
                value in self.names if self.names else self.pattern.fullmatch(value) is not None
            )
            if not known:
                raise ValueError(self.valid)
            return str(value)
        number: float | None = None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
        elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
            unit = self.units.get(match[2])
            number = None if unit is None else float(Decimal(match[1]) * Decimal(str(unit)))
        if number is None or not self.least <= number <= self.most:  # also refuses NaN
            raise ValueError(self.valid)
        if self.whole:
            if number != int(number):
                raise ValueError(self.valid)
            return int(number)
        return number

    def _read_list(self, value: object) -> str:
        """Return the name of a list, given as a list or by its name."""
        item = FACTORS[self.each]
        values: list[object] = []
        if isinstance(value, str):
            for text in value.split("/"):
                match = _ITEM.fullmatch(text)
                if match is None:
                    raise ValueError(self.valid)
                values += [float(match[2]) * self.scale] * int(match[1] or 1)
        elif isinstance(value, (list, tuple)):
            values = list(value)
        if not values:
            raise ValueError(self.valid)
        return list_name([float(item.read(v)) / self.scale for v in values])

    def show(self, level: Scalar) -> str:
        """Return e.g. `r = 20 Mbit/s`; for a text, only the text."""
        unit = f" {self.shown_unit}" if self.shown_unit else ""
        if self.each:
            return f"{self.symbol} = {level}{unit}"
        if isinstance(level, str):
            return level.upper() if self.name == "protocol" else f"{self.symbol} {level}".strip()
        return f"{self.symbol} = {level / self.scale:g}{unit}"


def list_name(values: Sequence[float]) -> str:
    """Return a list's name, e.g. `0/1/2`, or `8x1` for 8 receivers with the same value."""
    runs: list[tuple[str, int]] = []
    for value in values:
        text = f"{value + 0.0:.10g}"  # no -0
        count = runs.pop()[1] + 1 if runs and runs[-1][0] == text else 1
        runs.append((text, count))
    return "/".join(f"{count}x{text}" if count > 1 else text for text, count in runs)


def settings_name(settings: Mapping[str, object]) -> str:
    """Return the name of settings of ldmd.conf, e.g. `fmtp.held_s=60+fmtp.ttl=1`."""
    named = [f"{name}={value}" for name, value in sorted(settings.items())]
    return "+".join(named) or NO_SETTINGS


STORAGES: Final = (
    "in-place", "memory", "receive-order", "group-area", "crowd-bucket", "crowd-pool"
)  # fmt: skip
_RATES = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}
_SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def _size(name: str, label: str) -> Factor:
    """Return a factor for a size in bytes, shown in MB."""
    valid = "a size: bytes, or a number with B, kB, MB, GB, KiB, MiB or GiB"
    return Factor(name, label, name, "MB", 1e6, _SIZES, whole=True, valid=valid)


def _list(name: str, label: str, symbol: str, each: str, unit: str, scale: float = 1.0) -> Factor:
    """Return a factor whose levels are lists by receiver. `each`: the factor of an item."""
    valid = "a list with a value for each receiver, or its name, e.g. 0/1 for [0, 1]"
    return Factor(name, label, symbol, unit, scale, names=(), each=each, valid=valid)


FACTORS: dict[str, Factor] = {
    f.name: f
    for f in (
        Factor(
            "protocol", "Protocol", "", names=(), first=("ldm7", "ldm6", "fcast", "m2c"),
            valid="the name of a protocol, e.g. ldm7",
        ),
        Factor("receivers", "Receivers m", "m", whole=True, least=1, valid="a whole number from 1"),
        Factor(
            "rate_bps", "Base rate r", "r", "Mbit/s", 1e6, _RATES, whole=True, least=1,
            valid="a rate above 0: bits per second, or a number with bps, kbps, Mbps or Gbps",
        ),
        Factor(
            "loss", "Packet loss p", "p", "%", 0.01, {"%": 0.01}, most=1.0,
            valid="a probability from 0 to 1, or a percentage, e.g. 0.01 or 1%",
        ),
        Factor("f_snd", "Sender timeout factor f_snd", "f_snd", valid="a number from 0"),
        Factor("f_rcv", "Receiver timeout factor f_rcv", "f_rcv", valid="a number from 0"),
        Factor("rtt_ms", "Round-trip time", "RTT", "ms", valid="milliseconds, 0 or more"),
        Factor(
            "loss_burst_packets", "Mean length of a loss burst", "burst", "packets", least=1,
            valid="packets, 1 or more",
        ),
        Factor(
            "background_flows", "Competing TCP flows", "TCP flows", whole=True,
            valid="a whole number from 0",
        ),
        _size("b_snd", "Sender's UDP socket buffer b_snd"),
        Factor("r_mc", "Multicast rate r_mc over r", "r_mc/r", valid="a number from 0"),
        Factor("r_uc", "Unicast rate r_uc over r", "r_uc/r", valid="a number from 0"),
        _size("b_mc", "Sender's multicast buffer b_mc"),
        _size("b_uc", "Sender's unicast buffer b_uc"),
        _size("b_rcv", "Receiver's UDP buffer b_rcv"),
        Factor(
            "f_cwnd_factor", "Window f_cwnd, as a multiple of r_uc x RTT", "f_cwnd",
            valid="a number from 0",
        ),
        _size("q_snd", "Sender's file queue q_snd"),
        Factor(
            "n_snd", "Files in the sender's queue n_snd", "n_snd", whole=True, least=1,
            valid="a whole number from 1",
        ),
        Factor(
            "repair", "Repair", "", names=("unicast", "multicast", "blocks"),
            valid="unicast, multicast or blocks"
        ),
        Factor(
            "mac_level", "Authentication of datagrams", "MAC", names=("auto", "0", "1", "2"),
            valid="auto, '0', '1' or '2'",
        ),
        Factor("feed", "Feed type", "", names=(), pattern=_FEED, valid="a feed type, e.g. NGRID"),
        Factor("trace", "Trace", "", names=(), valid="model, paced, or the stem of a trace's file"),
        Factor(
            "headroom", "Path's rate r_vn, as a multiple of what the sender sends", "r_vn",
            valid="a number from 1",
        ),
        _list("p_i", "Loss of each receiver", "p_i", "loss", "%", 0.01),
        _list("rtt_i_ms", "Round-trip time of each receiver", "RTT_i", "rtt_ms", "ms"),
        _list("rate_i_bps", "Rate of each receiver's link", "rate_i", "rate_bps", "Mbit/s", 1e6),
        _size("queue_i", "Buffer of each receiver's link"),
        _list("b_rcv_i", "UDP buffer of each receiver", "b_rcv_i", "b_rcv", "MB", 1e6),
        _list(
            "clock_offset_i_ms", "Offset of each receiver's clock", "offset_i", "clock_offset_ms",
            "ms",
        ),
        Factor(
            "set", "Settings of ldmd.conf", "set", names=(), pattern=_SETTINGS, first=("none",),
            valid="settings, e.g. {fmtp.held_s: 60}, or their name, e.g. fmtp.held_s=60",
        ),
        Factor(
            "without_multicast", "Receivers without multicast", "LDM6", whole=True,
            valid="a whole number from 0",
        ),
        Factor(
            "ldm6_from", "LDM6 served by", "", names=("publisher", "relays"),
            valid="publisher or relays",
        ),
        Factor(
            "sender_bps", "Ceiling of LDM6's sender", "ceiling", "Mbit/s", 1e6, _RATES, whole=True,
            least=1,
            valid="a rate above 0: bits per second, or a number with bps, kbps, Mbps or Gbps",
        ),
        Factor(
            "pull_path", "Pulls go by", "pulls by", names=("nic1", "nic2"), valid="nic1 or nic2"
        ),
        Factor(
            "guarantee", "Guarantee of the path's rate", "", names=("none", "queues"),
            valid="none or queues",
        ),
        Factor(
            "cut", "Link cut in the middle", "", names=("none", "handoff"),
            valid="none or handoff",
        ),
        _size("file_bytes", "Size of the file"),
        Factor(
            "fec", "Code", "", names=("ldpc-triangle", "ldpc-staircase", "rs", "none"),
            valid="ldpc-triangle, ldpc-staircase, rs or none",
        ),
        Factor("k", "Symbols of a block k", "k", whole=True, valid="a whole number from 0"),
        Factor(
            "order", "Order of the blocks", "", names=("shuffle", "rotate", "sequential"),
            valid="shuffle, rotate or sequential",
        ),
        Factor(
            "tune_in_s", "Mean time between receivers that tune in", "tune in", "s",
            valid="seconds, 0 or more",
        ),
        Factor(
            "loss_period", "Every nth datagram is lost", "every", whole=True,
            valid="a whole number from 0",
        ),
        Factor(
            "storage", "Where symbols wait", "", names=STORAGES,
            valid=f"one of {', '.join(STORAGES)}",
        ),
        Factor(
            "crowd", "Blocks of a write b", "b", whole=True, least=1, valid="a whole number from 1"
        ),
        Factor(
            "bottleneck_bps", "Rate of the core link", "line", "Mbit/s", 1e6, _RATES, whole=True,
            least=1, valid="a rate above 0: bits per second, or a number with kbps, Mbps or Gbps",
        ),
        Factor(
            "cc", "Congestion control", "", names=("m2c", "webrc", "static"),
            valid="m2c, webrc or static",
        ),
        Factor(
            "leave_latency_ms", "Leave latency", "leave", "ms", whole=True, most=9000,
            valid="milliseconds from 0 to 9000",
        ),
        Factor("slot_s", "Time slot TSD", "TSD", "s", valid="seconds, 0.1 or more"),
        Factor(
            "max_rate_bps", "A receiver's rate at most", "most", "Mbit/s", 1e6, _RATES,
            whole=True, least=1, valid="a rate above 0, e.g. 4Mbps",
        ),
        Factor(
            "rival_sessions", "Competing sessions", "rivals", whole=True,
            valid="a whole number from 0",
        ),
        Factor(
            "short_flows_per_min", "Short TCP flows a minute", "short flows",
            valid="a number from 0",
        ),
        Factor(
            "clock_offset_ms", "Offset of the receivers' clocks", "offset", "ms",
            least=-10_000, most=10_000, valid="milliseconds from -10000 to 10000",
        ),
        Factor(
            "pause_ms", "Pause of the first receiver in each second", "pause", "ms",
            most=900, valid="milliseconds from 0 to 900",
        ),
        Factor(
            "handoff_loss", "Loss that all receivers share", "shared", "%", 0.01, {"%": 0.01},
            most=1.0, valid="a probability from 0 to 1, or a percentage, e.g. 0.01 or 1%",
        ),
        Factor(
            "first_receiver", "First receiver", "first", names=(), first=("as-others",),
            valid="as-others, loss-10, rate-5, rtt-300, stop-10",
        ),
        Factor(
            "aqm", "Queue management", "", names=("fifo", "codel", "fq-codel", "pie"),
            valid="fifo, codel, fq-codel or pie",
        ),
        Factor("ecn", "Queues drop or mark", "", names=("drop", "mark"), valid="drop or mark"),
        Factor("sack", "TCP's SACK", "SACK", names=("on", "off"), valid="on or off"),
        Factor(
            "tcp", "TCP's congestion control", "", names=("ctcp", "cubic", "bbr", "reno"),
            valid="ctcp, cubic, bbr or reno",
        ),
        Factor("monitor", "Monitor", "monitor", names=("off", "on"), valid="off or on"),
        Factor("stay_s", "Mean length of a session", "stay", "s", valid="seconds, 0 or more"),
        Factor("away_s", "Mean time between sessions", "away", "s", valid="seconds, 0 or more"),
        Factor(
            "killed", "Sessions that end by kill -9", "killed", "%", 0.01, {"%": 0.01}, most=1.0,
            valid="a probability from 0 to 1, or a percentage, e.g. 0.5 or 50%",
        ),
        Factor(
            "borrow", "Feeds borrow from each other", "borrow", names=("false", "true"),
            valid="'true' or 'false'",
        ),
        Factor("subscriber", "Subscriber", "", names=(), valid="the name of a subscriber's host"),
        Factor(
            "file_set_bytes", "File-set size G", "G", "MB", 1e6, _SIZES, whole=True, least=1,
            valid="a size above 0: bytes, or a number with B, kB, MB, GB, KiB, MiB or GiB",
        ),
        Factor("first_s", "Length of the run", "first", "s", valid="seconds, 0 or more"),
    )
}  # fmt: skip


def same(a: Scalar, b: Scalar) -> bool:
    """Return whether levels are equal: texts exactly, numbers to within 1e-9 of the greater."""
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def show(factors: Mapping[str, Scalar]) -> str:
    """Return e.g. `LDM7, m = 8, r = 20 Mbit/s, p = 1 %`, in the order of FACTORS."""
    known = [FACTORS[name].show(factors[name]) for name in FACTORS if name in factors]
    return ", ".join(known + [f"{n} = {v}" for n, v in factors.items() if n not in FACTORS])
