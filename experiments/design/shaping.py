# SPDX-License-Identifier: Apache-2.0
"""The sender's traffic control and the receivers' packet loss: commands, and reading them back.

MPUP16 V-B and the authors' deployment scripts: for LDM7 an HTB root with two leaf classes
(multicast, everything else), rate = ceil, so nothing is borrowed, each with a bfifo; for LDM6 one
TBF. tc gets every value in bits per second and bytes: its `mbit` is 10^6 but its `mb` is 2^20, and
the papers' "600 MB" could be either. Pure: commands are argument lists, outputs are texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from common.contracts import (
    ARRIVED_COMMENT,
    LOSS_COMMENT,
    MONITOR_COMMENT,
    MULTICAST_CLASS,
    TC_RATE_TOLERANCE,
    UNICAST_CLASS,
)
from experiments.design import loss_model
from experiments.design.expansion import TBF_BURST_BYTES

# The kernel keeps the probability in 1/2^31.
TC_TIME_UNIT_S: Final = 1e-6  # tc's unit for how long TBF's burst takes at the rate
LIMIT_TOLERANCE_BYTES: Final = 2048  # TBF's limit comes back as a latency in whole microseconds
PROBABILITY_TOLERANCE: Final = 1e-6
HASH_TOLERANCE: Final = 2.0**-32


@dataclass(frozen=True)
class Setting:
    """One value: what was asked and what the kernel says. None: the kernel has no such value."""

    name: str
    asked: float | str
    found: float | str | None
    tolerance: float = 0.0

    @property
    def ok(self) -> bool:
        """Return whether what was found is what was asked for, within the tolerance."""
        if isinstance(self.asked, str) or isinstance(self.found, str) or self.found is None:
            return self.asked == self.found
        return abs(self.asked - self.found) <= self.tolerance

    def to_dict(self) -> dict[str, object]:
        """Return the setting as shaping.json has it."""
        return {**asdict(self), "ok": self.ok}


def htb_commands(
    interface: str,
    group: str,
    r_mc_bps: int,
    r_uc_bps: int,
    b_mc_bytes: int,
    b_uc_bytes: int,
) -> list[list[str]]:
    """Return the commands of LDM7's two queues. `quantum` only silences a warning: it divides
    borrowed rate, and nothing is borrowed."""
    dev = ["dev", interface]
    commands = [["tc", "qdisc", "add", *dev, "root", "handle", "1:", "htb", "default", "2"]]
    for classid, rate, handle, limit in (
        (MULTICAST_CLASS, r_mc_bps, "11:", b_mc_bytes),
        (UNICAST_CLASS, r_uc_bps, "12:", b_uc_bytes),
    ):
        rates = ["rate", f"{rate}bit", "ceil", f"{rate}bit", "quantum", "1514"]
        commands.append(
            ["tc", "class", "add", *dev, "parent", "1:", "classid", classid, "htb", *rates]
        )
        leaf = ["parent", classid, "handle", handle, "bfifo", "limit", str(limit)]
        commands.append(["tc", "qdisc", "add", *dev, *leaf])
    match = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{group}/32"]
    commands.append(
        ["tc", "filter", "add", *dev, "parent", "1:", *match, "flowid", MULTICAST_CLASS]
    )
    return commands


def tbf_commands(interface: str, rate_bps: int, limit_bytes: int) -> list[list[str]]:
    """Return the commands of LDM6's token bucket filter: rate m x r, burst 50 KB."""
    values = ["rate", f"{rate_bps}bit", "burst", str(TBF_BURST_BYTES), "limit", str(limit_bytes)]
    return [["tc", "qdisc", "add", "dev", interface, "root", "handle", "1:", "tbf", *values]]


def arrival_command(interface: str, udp_only: bool) -> list[str]:
    """Return the command that adds a rule to count what arrives on NIC1. It goes before the rule of
    `loss_command`."""
    return [
        *["iptables", "-w", "-A", "INPUT", *selection(interface, udp_only)],
        *["-m", "comment", "--comment", ARRIVED_COMMENT],
    ]


def monitor_command(publisher: str) -> list[str]:
    """Return the command that adds a rule to the monitor to count what the publisher's address
    sends it. The experiment's traffic does not include that."""
    return [
        *["iptables", "-w", "-A", "INPUT", "-s", publisher],
        *["-m", "comment", "--comment", MONITOR_COMMENT],
    ]


def loss_command(interface: str, loss: float, udp_only: bool, program: str | None) -> list[str]:
    """Return the command that adds a rule to drop the share `loss` of what arrives on NIC1: what
    `program` (experiments/design/loss_model.py) matches or, without one, what the kernel draws.
    LDM7 loses only UDP, as in the authors' scripts: the multicast, not the retransmissions."""
    if program is not None:
        match = ["-m", "bpf", "--bytecode", program]
    else:
        match = ["-m", "statistic", "--mode", "random", "--probability", f"{loss:.10f}"]
    return [
        *["iptables", "-w", "-A", "INPUT", *selection(interface, udp_only)],
        *[*match, "-m", "comment", "--comment", LOSS_COMMENT, "-j", "DROP"],
    ]


def period_command(interface: str, period: int) -> list[str]:
    """Return the command that adds a rule to drop every `period`-th datagram on NIC1."""
    match = ["-m", "statistic", "--mode", "nth", "--every", str(period), "--packet", "0"]
    return [
        *["iptables", "-w", "-A", "INPUT", *selection(interface, True)],
        *[*match, "-m", "comment", "--comment", LOSS_COMMENT, "-j", "DROP"],
    ]


def read_back_period(text: str, host: str, period: int) -> list[Setting]:
    """Compare what iptables reports with `period_command`."""
    line = next((line for line in text.splitlines() if LOSS_COMMENT in line), "")
    every = _argument(line, "--every")
    return [Setting(f"{host} loss, every", period, None if every is None else int(every))]


def selection(interface: str, udp_only: bool) -> list[str]:
    """Return iptables' match for the packets that can be lost."""
    return ["-i", interface, *(["-p", "udp"] if udp_only else [])]


def htb_things(place: str) -> dict[str, str]:
    """Return what an inventory shows at "<node>/<interface>" after `htb_commands`."""
    return {
        f"{place} qdiscs": f"{MULTICAST_CLASS} bfifo, {UNICAST_CLASS} bfifo, root htb",
        f"{place} classes": f"{MULTICAST_CLASS} htb, {UNICAST_CLASS} htb",
        f"{place} filters": "1 x root u32",
    }


def tbf_things(place: str) -> dict[str, str]:
    """Return the same after `tbf_commands`."""
    return {f"{place} qdiscs": "root tbf"}


def qdisc_show(interface: str) -> list[str]:
    """Return the command that shows an interface's queueing disciplines."""
    return ["tc", "-j", "qdisc", "show", "dev", interface]


def class_show(interface: str) -> list[str]:
    """Return the command that shows an interface's traffic classes."""
    return ["tc", "-j", "class", "show", "dev", interface]


def filter_show(interface: str) -> list[str]:
    """Return the command that shows an interface's filters."""
    return ["tc", "-j", "filter", "show", "dev", interface]


IPTABLES_SHOW: Final = ["iptables", "-w", "-v", "-S", "INPUT"]


def parse_rate_bps(text: str) -> float | None:
    """Read a rate as tc prints it: 20Mbit, 12500Kbit, 1Gbit, 19999992bit (decimal prefixes)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)bit", text)
    if match is None:
        return None
    return float(match[1]) * {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[match[2]]


def parse_classes(text: str) -> dict[str, tuple[float | None, float | None]]:
    """Return (rate, ceil) in bit/s by class id, from `tc -j class show`. Before version 6.2 tc
    prints HTB classes as plain text even with -j; later ones print JSON with rates in bytes per
    second."""
    classes: dict[str, tuple[float | None, float | None]] = {}
    if text.lstrip().startswith("["):
        for entry in json.loads(text):
            classes[str(entry.get("handle", entry.get("classid", "")))] = (
                _bytes_to_bits(entry.get("rate", entry.get("options", {}).get("rate"))),
                _bytes_to_bits(entry.get("ceil", entry.get("options", {}).get("ceil"))),
            )
        return classes
    for match in re.finditer(r"^class htb (\S+) .*?\brate (\S+) ceil (\S+)", text, re.MULTILINE):
        classes[match[1]] = (parse_rate_bps(match[2]), parse_rate_bps(match[3]))
    return classes


def _bytes_to_bits(value: object) -> float | None:
    return float(value) * 8 if isinstance(value, (int, float)) else None


def _qdiscs(text: str) -> list[dict[str, Any]]:
    found = json.loads(text) if text.strip() else []
    return [entry for entry in found if isinstance(entry, dict)]


def read_back_htb(
    qdisc_text: str,
    class_text: str,
    filter_text: str,
    *,
    group: str,
    r_mc_bps: int,
    r_uc_bps: int,
    b_mc_bytes: int,
    b_uc_bytes: int,
) -> list[Setting]:
    """Compare what the kernel reports with `htb_commands`."""
    qdiscs = _qdiscs(qdisc_text)
    root = next((q for q in qdiscs if q.get("root")), {})
    classes = parse_classes(class_text)
    limits = {
        str(q.get("parent")): q.get("options", {}).get("limit")
        for q in qdiscs
        if q.get("kind") == "bfifo"
    }
    default = str(root.get("options", {}).get("default", "")).removeprefix("0x")
    settings = [
        Setting("root qdisc", "htb", root.get("kind")),
        Setting("default class", "2", default or None),
    ]
    for label, classid, rate, limit in (
        ("multicast", MULTICAST_CLASS, r_mc_bps, b_mc_bytes),
        ("unicast", UNICAST_CLASS, r_uc_bps, b_uc_bytes),
    ):
        found_rate, found_ceil = classes.get(classid, (None, None))
        settings.append(Setting(f"{label} rate", rate, found_rate, rate * TC_RATE_TOLERANCE))
        settings.append(Setting(f"{label} ceil", rate, found_ceil, rate * TC_RATE_TOLERANCE))
        settings.append(Setting(f"{label} bfifo limit", limit, limits.get(classid)))
    settings.append(Setting("multicast filter", group, _filter_group(filter_text)))
    return settings


def _filter_group(text: str) -> str | None:
    """Return the destination address whose packets a u32 filter sends to the multicast class."""
    for entry in _qdiscs(text):
        options = entry.get("options", {})
        match = options.get("match", {})
        if options.get("flowid") == MULTICAST_CLASS and match.get("off") == 16:  # IPv4 destination
            if match.get("mask") != "ffffffff":
                return None
            value = int(str(match.get("value")), 16)
            return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
    return None


def read_back_tbf(qdisc_text: str, *, rate_bps: int, limit_bytes: int) -> list[Setting]:
    """Compare what the kernel reports with `tbf_commands`. tc reports the limit as a time: how long
    the part of it above the burst takes at the rate."""
    root = next((q for q in _qdiscs(qdisc_text) if q.get("root")), {})
    options = root.get("options", {})
    rate = _bytes_to_bits(options.get("rate"))
    burst = options.get("burst")
    latency_us = options.get("lat")
    limit = None
    if rate is not None and latency_us is not None and burst is not None:
        limit = float(burst) + latency_us / 1e6 * rate / 8
    limit = options.get("limit", limit)
    return [
        Setting("root qdisc", "tbf", root.get("kind")),
        Setting("rate", rate_bps, rate, rate_bps * TC_RATE_TOLERANCE),
        Setting("burst", TBF_BURST_BYTES, burst, max(64, rate_bps / 8 * TC_TIME_UNIT_S)),
        Setting("limit", limit_bytes, limit, LIMIT_TOLERANCE_BYTES),
    ]


@dataclass(frozen=True)
class LossRule:
    """The loss rules at one receiver, as iptables reports them."""

    probability: float
    interface: str | None
    protocol: str | None
    dropped_packets: int
    arrived_packets: int
    program: str | None = None  # of the bpf match; None: the kernel draws


def parse_loss_rules(text: str) -> LossRule | None:
    """Return the rules of `arrival_command` and `loss_command` in `iptables -v -S INPUT`, or
    None."""
    dropped = arrived = None
    probability, interface, protocol, program = 0.0, None, None, None
    for line in text.splitlines():
        counts = re.search(r" -c (\d+) \d+", line)
        packets = int(counts[1]) if counts else 0
        if ARRIVED_COMMENT in line:
            arrived = packets
        elif LOSS_COMMENT in line and " -j DROP" in line:
            dropped = packets
            if found := re.search(r"--probability ([0-9.e-]+)", line):
                probability = float(found[1])
            elif found := re.search(r'--bytecode "([0-9 ,]+)"', line):
                program = found[1]
                instructions = loss_model.parse_program(program)
                probability = loss_model.probability_of(instructions or ()) or 0.0
            interface = _argument(line, "-i")
            protocol = _argument(line, "-p")
    if dropped is None or arrived is None:
        return None
    return LossRule(probability, interface, protocol, dropped, arrived, program)


def _argument(line: str, option: str) -> str | None:
    words = line.split()
    return words[words.index(option) + 1] if option in words[:-1] else None


def read_back_loss(
    text: str, host: str, *, interface: str, loss: float, udp_only: bool, program: str | None
) -> list[Setting]:
    """Compare what iptables reports with the loss asked for at one receiver. `program`: as given to
    `loss_command`."""
    rule = parse_loss_rules(text)
    if loss == 0:
        return [Setting(f"{host} loss", 0.0, rule.probability if rule else 0.0)]
    if rule is None:
        return [Setting(f"{host} loss", loss, None)]
    tolerance = PROBABILITY_TOLERANCE if program is None else HASH_TOLERANCE
    return [
        Setting(f"{host} loss", loss, rule.probability, tolerance),
        Setting(f"{host} loss program", _name(program), _name(rule.program)),
        Setting(f"{host} loss interface", interface, rule.interface),
        Setting(f"{host} loss protocol", "udp" if udp_only else "all", rule.protocol or "all"),
    ]


def _name(program: str | None) -> str:
    """Return a short form of a program, which has about 900 characters."""
    if program is None:
        return "none"
    digest = hashlib.sha256(program.encode()).hexdigest()
    return f"{program.partition(',')[0]} instructions, sha256 {digest[:16]}"


def mismatches(settings: Sequence[Setting]) -> list[str]:
    """Return a text for each value that is not as asked."""
    return [f"{s.name}: asked {s.asked}, the kernel has {s.found}" for s in settings if not s.ok]
