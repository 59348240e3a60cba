# SPDX-License-Identifier: Apache-2.0
"""Queues through tc, for datapaths without queues: Open vSwitch's userspace one ignores set_queue.

A port's frames leave at an interface that the option names (in an emulation: the egress of the
link's wire). There, HTB replaces the plain shaper, and a classic BPF program chooses the class by
the frame's VLAN id, which is in the frame or beside it. HTB's numbers, in hexadecimal as tc writes
them:


    20:              the qdisc
      20:ffff        the link's rate
        20:fffe      default class, borrows last
        20:efff      LLDP
        20:N         path N
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.contracts import FRAME_BYTES
from controller.paths.queues import (
    LLDP_BPS,
    LLDP_QUEUE,
    PortKey,
    PortQueues,
    QueueClass,
    QueueError,
    burst_bytes,
    differences,
    parse_rate,
)

HANDLE: Final = 0x20
ROOT, DEFAULT = 0xFFFF, 0xFFFE
TIMEOUT_S: Final = 20.0
_MARK: Final = "@"

Instruction = tuple[int, int, int, int]  # code, jt, jf, k of classic BPF
# linux/filter.h: SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT and _VLAN_TAG, for a tag beside the frame.
_TAG_PRESENT, _TAG = 0xFFFFF000 + 48, 0xFFFFF000 + 44
_LOAD_HALF, _AND, _JUMP_EQUAL, _JUMP, _RETURN = 0x28, 0x54, 0x15, 0x05, 0x06
_ETHERTYPE_8021Q, _ETHERTYPE_LLDP = 0x8100, 0x88CC


@dataclass(frozen=True)
class Outlet:
    """Where a port's frames leave: an interface in the network namespace of process `pid`. `parent`
    is where HTB goes: "root", or the class of a qdisc above it. `queue_bytes`: of each class."""

    port: PortKey
    pid: int
    interface: str
    parent: str
    queue_bytes: int


def outlets_from_json(text: str) -> tuple[Outlet, ...]:
    """Read a list of outlets. Raises ValueError, KeyError or TypeError."""
    return tuple(
        Outlet(
            (str(o["switch"]), int(o["port"])),
            int(o["pid"]),
            str(o["interface"]),
            str(o["parent"]),
            int(o["queue_bytes"]),
        )
        for o in json.loads(text)["outlets"]
    )


def read_outlets(path: Path) -> tuple[Outlet, ...]:
    """Read a file of outlets. Raises QueueError."""
    try:
        return outlets_from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise QueueError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise QueueError(f"{path}: no list of outlets: {error}") from error


def program(classes: Iterable[QueueClass]) -> tuple[Instruction, ...]:
    """Return a BPF program that returns the class id of LLDP, or of the frame's path, else 0 (the
    default class)."""
    found: list[Instruction] = [
        (_LOAD_HALF, 0, 0, _TAG_PRESENT),
        (_JUMP_EQUAL, 0, 2, 1),
        (_LOAD_HALF, 0, 0, _TAG),
        (_JUMP, 0, 0, 6),
        (_LOAD_HALF, 0, 0, 12),
        (_JUMP_EQUAL, 3, 0, _ETHERTYPE_8021Q),
        (_JUMP_EQUAL, 0, 1, _ETHERTYPE_LLDP),
        (_RETURN, 0, 0, HANDLE << 16 | LLDP_QUEUE),
        (_RETURN, 0, 0, 0),
        (_LOAD_HALF, 0, 0, 14),
        (_AND, 0, 0, 0xFFF),
    ]
    for path in classes:
        for vlan in path.vlans:
            found.append((_JUMP_EQUAL, 0, 1, vlan))
            found.append((_RETURN, 0, 0, HANDLE << 16 | path.number))
    return (*found, (_RETURN, 0, 0, 0))


def commands(outlet: Outlet, found: PortQueues | None, wanted: PortQueues) -> list[str]:
    """Return lines of `tc -batch` that change an outlet from `found` (None: no HTB) to `wanted`."""
    dev, link_bps = outlet.interface, wanted.rate_bps
    lines: list[str] = []

    def class_line(verb: str, number: int, rate_bps: int, prio: int) -> str:
        return (
            f"class {verb} dev {dev} parent {HANDLE:x}:{ROOT:x} classid {HANDLE:x}:{number:x} htb"
            f" rate {rate_bps}bit ceil {link_bps}bit prio {prio}"
            f" burst {burst_bytes(rate_bps)} cburst {burst_bytes(link_bps)} quantum {FRAME_BYTES}"
        )

    def leaf_line(number: int) -> str:
        return f"qdisc add dev {dev} parent {HANDLE:x}:{number:x} bfifo limit {outlet.queue_bytes}"

    def filter_line(classes: Iterable[QueueClass]) -> str:
        text = program(classes)
        code = ",".join([str(len(text)), *(" ".join(map(str, i)) for i in text)])
        return (
            f"filter replace dev {dev} parent {HANDLE:x}: protocol all pref 1 handle 1"
            f" bpf bytecode '{code}' flowid {HANDLE:x}:{DEFAULT:x}"
        )

    if found is None:
        where = "root" if outlet.parent == "root" else f"parent {outlet.parent}"
        burst = burst_bytes(link_bps)
        lines += [
            f"qdisc replace dev {dev} {where} handle {HANDLE:x}: htb default {DEFAULT:x}",
            f"class add dev {dev} parent {HANDLE:x}: classid {HANDLE:x}:{ROOT:x} htb"
            f" rate {link_bps}bit ceil {link_bps}bit burst {burst} cburst {burst}"
            f" quantum {FRAME_BYTES}",
            class_line("add", DEFAULT, wanted.default_bps, 1),
            leaf_line(DEFAULT),
            class_line("add", LLDP_QUEUE, LLDP_BPS, 0),
            leaf_line(LLDP_QUEUE),
            filter_line(()),
        ]
        found = PortQueues(link_bps)
    old = {c.number: c for c in found.classes}
    new = {c.number: c for c in wanted.classes}
    if wanted.default_bps < found.default_bps:
        lines.append(class_line("change", DEFAULT, wanted.default_bps, 1))
    for number, path in new.items():
        if number not in old:
            lines += [class_line("add", number, path.rate_bps, 0), leaf_line(number)]
        elif old[number].rate_bps != path.rate_bps:
            lines.append(class_line("change", number, path.rate_bps, 0))
    if {(c.number, c.vlans) for c in old.values()} != {(c.number, c.vlans) for c in new.values()}:
        lines.append(filter_line(wanted.classes))
    lines += [
        f"class del dev {dev} classid {HANDLE:x}:{number:x}" for number in old.keys() - new.keys()
    ]
    if wanted.default_bps > found.default_bps:
        lines.append(class_line("change", DEFAULT, wanted.default_bps, 1))
    return lines


_CLASS = re.compile(rf"^class htb {HANDLE:x}:([0-9a-f]+) .*?\brate (\S+) ceil (\S+) ", re.MULTILINE)


def read_back(class_text: str, filter_json: str) -> PortQueues | None:
    """Parse `tc class show` and `tc -j filter show`; None if there is no HTB of this driver's.

    Raises ValueError.
    """
    rates = {int(m[1], 16): parse_rate(m[2]) for m in _CLASS.finditer(class_text)}
    if not {ROOT, DEFAULT, LLDP_QUEUE} <= rates.keys():
        return None
    vlans: dict[int, list[int]] = {}
    for entry in json.loads(filter_json or "[]"):
        code = entry.get("options", {}).get("bytecode", {}).get("insns", [])
        for vlan, number in _targets(code):
            vlans.setdefault(number, []).append(vlan)
    classes = [
        QueueClass(number, tuple(vlans.get(number, ())), rate)
        for number, rate in sorted(rates.items())
        if number not in (ROOT, DEFAULT, LLDP_QUEUE)
    ]
    return PortQueues(rates[ROOT], tuple(classes))


def _targets(code: list[Mapping[str, int]]) -> Iterable[tuple[int, int]]:
    """Yield (VLAN id, path) from one of this driver's programs."""
    for test, back in zip(code, code[1:], strict=False):
        if test["code"] == _JUMP_EQUAL and back["code"] == _RETURN and back["k"] >> 16 == HANDLE:
            yield int(test["k"]), int(back["k"]) & 0xFFFF


class QueueTc:
    """The driver (`controller.paths.queues.QueueDriver`)."""

    sets_queue = False

    def __init__(self, outlets: Iterable[Outlet] | Path) -> None:
        """`outlets`: the outlets, or the file that has them once the first switch connects."""
        self._file = outlets if isinstance(outlets, Path) else None
        self._outlets = {} if isinstance(outlets, Path) else {o.port: o for o in outlets}
        self._known: dict[PortKey, PortQueues] = {}  # read back

    def apply(self, wanted: Mapping[PortKey, PortQueues]) -> None:
        """Set the queues of these ports. Ports without an outlet are not limited.

        Raises QueueError.
        """
        if self._file is not None:
            self._outlets = {outlet.port: outlet for outlet in read_outlets(self._file)}
            self._file = None
        mine = {port: queues for port, queues in wanted.items() if port in self._outlets}
        unknown = [self._outlets[port] for port in mine if port not in self._known]
        found: dict[PortKey, PortQueues | None] = {**self._known, **self._run(unknown, {})}
        todo = {
            port: commands(self._outlets[port], found[port], queues)
            for port, queues in mine.items()
            if found[port] != queues
        }
        changed = [self._outlets[port] for port, lines in todo.items() if lines]
        for port in todo:
            self._known.pop(port, None)
        problems = []
        now = {**found, **self._run(changed, todo)}
        for port, queues in mine.items():
            wrong = differences(now[port], queues)
            if wrong:
                problems.append(f"port {port[1]} of '{port[0]}': {'; '.join(wrong)}")
            else:
                self._known[port] = queues
        if problems:
            raise QueueError("; ".join(problems))

    def _run(
        self, outlets: Iterable[Outlet], todo: Mapping[PortKey, list[str]]
    ) -> dict[PortKey, PortQueues | None]:
        """Run the commands, then read back; one process for each namespace."""
        by_pid: dict[int, list[Outlet]] = {}
        for outlet in outlets:
            by_pid.setdefault(outlet.pid, []).append(outlet)
        result: dict[PortKey, PortQueues | None] = {}
        for pid, here in by_pid.items():
            lines = [line for outlet in here for line in todo.get(outlet.port, ())]
            script = [f"tc -batch - <<'END' || exit 1\n{chr(10).join(lines)}\nEND"] if lines else []
            for outlet in here:
                script.append(f"echo {_MARK}")
                script.append(f"tc class show dev {outlet.interface} || exit 1")
                script.append(f"echo {_MARK}")
                script.append(
                    f"tc -j filter show dev {outlet.interface} parent {HANDLE:x}: 2>/dev/null"
                )
            texts = _shell(pid, "\n".join([*script, "true", ""])).split(f"{_MARK}\n")[1:]
            for outlet, classes, filters in zip(here, texts[::2], texts[1::2], strict=True):
                try:
                    result[outlet.port] = read_back(classes, filters)
                except (ValueError, KeyError) as error:
                    raise QueueError(f"{outlet.interface}: {error}") from error
        return result


def _shell(pid: int, script: str) -> str:
    try:
        done = subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "sh", "-s"],
            input=script,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"tc in the namespace of process {pid}: {error}") from error
    if done.returncode != 0:
        raise QueueError(
            f"tc in the namespace of process {pid}: {(done.stderr or done.stdout).strip()[-500:]}"
        )
    return done.stdout
