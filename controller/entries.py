# SPDX-License-Identifier: Apache-2.0
"""What a switch shall hold: meters, groups and flows as immutable values (OpenFlow 1.3).

Each entry has a `key` (what OpenFlow identifies it by) and a content; two sets of entries can be
compared without a switch. One flow table (0) is used.
"""

from __future__ import annotations

from dataclasses import dataclass

# All flows of this controller have this in the upper half of their cookie ("DOWN" in ASCII), the
# path's number in the lower half (0: the table-miss entry).
COOKIE_BASE = 0x444F574E << 32
COOKIE_MASK = 0xFFFFFFFF << 32

PRIORITY_MISS = 0
PRIORITY_PATH = 1000
PRIORITY_LLDP = 2000

CONTROLLER = 0xFFFFFFFD  # OFPP_CONTROLLER: `Output` to it makes a packet-in of the whole frame
# Groups and meters have no cookie. Ours are numbered like paths; groups beyond belong to others.
GROUP_NUMBER_MAX = 0xFFFFFF
LLDP_METER = 0x3FFFF  # the largest that Open vSwitch has

ETH_TYPE_ARP = 0x0806
BROADCAST = "ff:ff:ff:ff:ff:ff"
GROUP_BIT = "01:00:00:00:00:00"  # set in multicast and broadcast addresses (IEEE 802)
NO_GROUP_BIT = "00:00:00:00:00:00"
EXACT = "ff:ff:ff:ff:ff:ff"


@dataclass(frozen=True, order=True)
class EthMatch:
    """Ethernet address match: equal to `value` in the bits of `mask`."""

    value: str
    mask: str = EXACT


ANY_MULTICAST = EthMatch(GROUP_BIT, GROUP_BIT)
ANY_UNICAST = EthMatch(NO_GROUP_BIT, GROUP_BIT)


@dataclass(frozen=True)
class Match:
    """None = any. `vlan` is the id without the OFPVID_PRESENT bit."""

    in_port: int | None = None
    vlan: int | None = None
    eth_dst: EthMatch | None = None
    eth_src: str | None = None
    eth_type: int | None = None


@dataclass(frozen=True)
class SetVlan:
    vlan: int


@dataclass(frozen=True)
class Output:
    port: int


@dataclass(frozen=True)
class ToGroup:
    group: int


@dataclass(frozen=True)
class SetQueue:
    """Queue of the port that the next `Output` names."""

    queue: int


Action = SetVlan | Output | ToGroup | SetQueue


@dataclass(frozen=True)
class Flow:
    match: Match
    priority: int
    cookie: int
    actions: tuple[Action, ...]  # none: drop
    meter: int | None = None

    @property
    def key(self) -> tuple[str, int, Match]:
        return ("flow", self.priority, self.match)


@dataclass(frozen=True)
class Bucket:
    """One copy of the frame: VLAN id set, sent to a port (through that queue of it)."""

    vlan: int
    port: int
    queue: int | None = None


@dataclass(frozen=True)
class Group:
    """Type ALL: every bucket gets a copy."""

    number: int
    buckets: tuple[Bucket, ...]

    @property
    def key(self) -> tuple[str, int]:
        return ("group", self.number)


@dataclass(frozen=True)
class Meter:
    """Drop band in kbit/s with a burst in kbit, statistics kept. Without the burst flag Open
    vSwitch's bucket holds a whole second of traffic, so it is always set."""

    number: int
    rate_kbps: int
    burst_kbit: int

    @property
    def key(self) -> tuple[str, int]:
        return ("meter", self.number)


Entry = Flow | Group | Meter
Entries = frozenset[Entry]

TABLE_MISS = Flow(Match(), PRIORITY_MISS, COOKIE_BASE, ())
