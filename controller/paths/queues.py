# SPDX-License-Identifier: Apache-2.0
"""The queues of each switch port, which protect paths and background traffic from each other.

Pure, except `QueueKeeper`, which passes differences to a driver.

Every port whose link has a rate gets an HTB with these classes: one for each path that has a
guarantee there, with the path's rate; a small one for LLDP; and a default class, with the remaining
rate, for everything else. All may borrow up to the link's rate; guaranteed classes borrow first.
The meter at the path's ingress limits the path to its rate, so that borrowing never starves the
default class. Drivers: `queue_ovsdb.py` (QoS records, set_queue) and `queue_tc.py` (classes chosen
by VLAN id).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from common.contracts import FRAME_BYTES, TC_RATE_TOLERANCE
from controller.paths.core import Core, Endpoint
from controller.paths.multipoint_path import (
    MultipointPath,
    TreeHop,
    difference,
    trimmed,
)

PortKey = tuple[str, int]  # switch, OpenFlow port

LEAST_DEFAULT_BPS = 12_000  # a full frame a second: HTB needs a rate
# Open vSwitch's HTB knows queues 0 to 61,439 (0 is the default); tc's class ids have 16 bits too.
LLDP_QUEUE = 0xEFFF
QUEUE_MAX = LLDP_QUEUE - 1  # of a path
# Probes show whether a link is alive. A flood must not drown them, or the link would look dead.
# They take about 6 kbit/s.
LLDP_BPS = 64_000
BURST_S: Final = 0.002  # how much time a late timer may make up for


class QueueError(Exception):
    """Queues could not be set, or are not what was asked for; the text says which and why."""


@dataclass(frozen=True, order=True)
class QueueClass:
    """A path's share of a port. `number` is the path's; `vlans`: its ids there (several if it has
    several leaves on the port, each of which gets a copy); `rate_bps`: of all copies."""

    number: int
    vlans: tuple[int, ...]
    rate_bps: int


@dataclass(frozen=True)
class PortQueues:
    """A port whose link has `rate_bps`; `classes` by number."""

    rate_bps: int
    classes: tuple[QueueClass, ...] = ()

    @property
    def default_bps(self) -> int:
        """Return the rate that is not guaranteed to any path.

        If all is guaranteed, it is a frame a second: guarantees come first.
        """
        free_bps = self.rate_bps - LLDP_BPS - sum(c.rate_bps for c in self.classes)
        return max(free_bps, LEAST_DEFAULT_BPS)

    def with_share(self, number: int, vlan: int, rate_bps: int) -> PortQueues:
        """Return the queues with one more copy of the path's frames."""
        old = next((c for c in self.classes if c.number == number), None)
        mine = QueueClass(number, (vlan,), rate_bps)
        if old is not None:
            vlans = tuple(sorted({*old.vlans, vlan}))
            mine = QueueClass(number, vlans, rate_bps * len(vlans))
        others = [c for c in self.classes if c.number != number]
        return replace(self, classes=tuple(sorted([*others, mine])))

    def without_share(self, number: int, vlan: int) -> PortQueues:
        """Return the queues with one copy less of the path's frames."""
        found = []
        for old in self.classes:
            vlans = tuple(v for v in old.vlans if v != vlan)
            if old.number != number or vlans == old.vlans:
                found.append(old)
            elif vlans:
                rate_bps = old.rate_bps // len(old.vlans) * len(vlans)
                found.append(QueueClass(number, vlans, rate_bps))
        return replace(self, classes=tuple(found))


def rated_ports(core: Core) -> dict[PortKey, PortQueues]:
    """Return the queues of the ports whose links have a rate, without any path."""
    found = {
        (hop.source, hop.source_port): PortQueues(hop.rate_bps)
        for hop in core.hops
        if hop.rate_bps is not None
    }
    for port, access in core.access.items():
        if access.rate_out_bps is not None:
            found[port] = PortQueues(access.rate_out_bps)
    return found


def queues_of(core: Core, paths: Iterable[MultipointPath]) -> dict[PortKey, PortQueues]:
    """Return the queues of all ports whose links have a rate."""
    found = rated_ports(core)
    for path in paths:
        for port, vlan in _shares(core, path, path.hops, path.leaves):
            if port in found:
                found[port] = found[port].with_share(path.number, vlan, path.rate_bps)
    return found


def _shares(
    core: Core, path: MultipointPath, hops: Iterable[TreeHop], leaves: Iterable[Endpoint]
) -> Iterator[tuple[PortKey, int]]:
    """Yield port and VLAN id of the path's copies over these hops and to these leaves."""
    if path.rate_bps == 0 or path.number > QUEUE_MAX:
        return  # the default class
    for tree_hop in hops:
        hop = core.hop[tree_hop.link, tree_hop.source]
        yield (hop.source, hop.source_port), tree_hop.vlan
    for leaf in leaves:
        yield (leaf.switch, leaf.port), leaf.vlan


class QueueDriver(Protocol):
    """Changes ports to the wanted queues, by differences, and reads back the result."""

    sets_queue: bool  # OpenFlow's set_queue chooses the class (Core.set_queue)

    def apply(self, wanted: Mapping[PortKey, PortQueues]) -> None:
        """Set the queues of these ports. Raises QueueError."""


PathChange = tuple[
    MultipointPath | None, MultipointPath | None
]  # the path before and after; None: no such path


def burst_bytes(rate_bps: int) -> int:
    """Return 2 ms of the rate, at least three frames."""
    return max(3 * FRAME_BYTES, int(rate_bps / 8 * BURST_S))


_RATE = re.compile(r"(\d+)([KMG]?)bit")
_SCALE: Final = {"": 1, "K": 1000, "M": 1_000_000, "G": 1_000_000_000}


def parse_rate(text: str) -> int:
    """Parse a rate as tc prints it, in bit/s; above 1 Mbit/s, tc may cut it to four digits.

    Raises ValueError.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"found rate '{text}'; valid: NUMBERbit, Kbit, Mbit or Gbit")
    return int(match[1]) * _SCALE[match[2]]


def differences(found: PortQueues | None, wanted: PortQueues) -> list[str]:
    """Return where a port is not as wanted, within the precision of what tc prints."""
    if found is None:
        return ["no HTB"]
    wrong = []
    if not _close(found.rate_bps, wanted.rate_bps):
        wrong.append(f"link asked {wanted.rate_bps} bit/s, found {found.rate_bps}")
    old = {c.number: c for c in found.classes}
    new = {c.number: c for c in wanted.classes}
    for number in sorted(old.keys() | new.keys()):
        a, b = old.get(number), new.get(number)
        if a is None or b is None:
            wrong.append(f"path {number}: {'missing' if a is None else 'not asked for'}")
        elif a.vlans != b.vlans or not _close(a.rate_bps, b.rate_bps):
            wrong.append(f"path {number}: asked {b}, found {a}")
    return wrong


def _close(found_bps: int, wanted_bps: int) -> bool:
    return abs(found_bps - wanted_bps) <= max(8, TC_RATE_TOLERANCE * wanted_bps)


class QueueKeeper:
    """Knows the queues of all ports and follows the paths. Thread-safe.

    Without a driver it does nothing.

    When a switch connects, call `refresh` before its entries are sent. Around the entries of a
    change, call `widen` before the first phase and `settle` after the last, so that frames have
    their class as long as any entry sends them. `repair` retries what could not be set.
    """

    def __init__(self, core: Core, driver: QueueDriver | None) -> None:
        self._core = core
        self._driver = driver
        self._lock = threading.Lock()
        self._now = rated_ports(core)  # wanted
        self._wrong: set[PortKey] = set()  # not known to be as wanted

    def load(self, paths: Iterable[MultipointPath]) -> None:
        """Follow the store's paths; change nothing at the switches."""
        with self._lock:
            self._now = queues_of(self._core, paths)

    def refresh(self, switch: str) -> None:
        """Set all queues of a switch that connected, whatever it has. Raises QueueError."""
        with self._lock:
            self._apply([port for port in self._now if port[0] == switch])

    def widen(self, changes: Iterable[PathChange]) -> None:
        """Add the shares that paths now have. Raises QueueError."""
        found: dict[PortKey, PortQueues] = {}
        with self._lock:
            for old, new in changes:
                for port, vlan in self._only_in(new, old):
                    assert new is not None
                    queues = found.get(port, self._now[port])
                    found[port] = queues.with_share(new.number, vlan, new.rate_bps)
            self._change(found)

    def settle(self, changes: Iterable[PathChange]) -> None:
        """Remove the shares that paths no longer have. Raises QueueError."""
        found: dict[PortKey, PortQueues] = {}
        with self._lock:
            for old, new in changes:
                for port, vlan in self._only_in(old, new):
                    assert old is not None
                    queues = found.get(port, self._now[port])
                    found[port] = queues.without_share(old.number, vlan)
            self._change(found)

    def repair(self) -> None:
        """Retry what could not be set. Raises QueueError."""
        with self._lock:
            self._apply(sorted(self._wrong))

    def _only_in(
        self, path: MultipointPath | None, other: MultipointPath | None
    ) -> Iterator[tuple[PortKey, int]]:
        if path is None:
            return
        gone_hops, _ = difference(path.hops, other.hops if other is not None else ())
        gone_leaves, there = trimmed(path.leaves, other.leaves if other is not None else ())
        keys = {leaf.key for leaf in there}
        gone_leaves = tuple(leaf for leaf in gone_leaves if leaf.key not in keys)
        for port, vlan in _shares(self._core, path, gone_hops, gone_leaves):
            if port in self._now:
                yield port, vlan

    def _change(self, found: Mapping[PortKey, PortQueues]) -> None:
        changed = {port: queues for port, queues in found.items() if queues != self._now[port]}
        self._now.update(changed)
        self._apply(list(changed))

    def _apply(self, ports: Iterable[PortKey]) -> None:
        wanted = {port: self._now[port] for port in ports}
        if self._driver is None or not wanted:
            return
        self._wrong.update(wanted)
        self._driver.apply(wanted)
        self._wrong.difference_update(wanted)
