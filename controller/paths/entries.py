# SPDX-License-Identifier: Apache-2.0
"""What a switch should have: meters, groups and flows as immutable values (OpenFlow 1.3).

Each entry has a `key` (its identity in OpenFlow) and a content. Two sets of entries can be compared
without a switch. Only flow table 0 is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

# Cookies of this controller's flows: "DOWN" in ASCII, 8 bits of kind, 24 bits of the path's number
# (0: no path).
COOKIE_BASE = 0x444F574E << 32
COOKIE_MASK = 0xFFFFFFFF << 32

PRIORITY_MISS = 0
PRIORITY_WRONG_VLAN = 100
PRIORITY_SPOOFED = 200
PRIORITY_DENIED = 300
PRIORITY_PATH = 1000
PRIORITY_UNJOINED = 1010
PRIORITY_CHANNEL = 1020
PRIORITY_CROSS = 1100
PRIORITY_IGMP = 1200
PRIORITY_LLDP = 2000


class Kind(IntEnum):
    """What a flow is for: bits 24 to 31 of its cookie."""

    MISS = 0  # dropped: from where nothing is expected
    DATA_DOWN = 1  # multicast and broadcast from the root, or from further up
    UNICAST_DOWN = 2  # to a leaf
    UP = 3  # to the root
    ARP = 4  # a leaf's broadcast ARP
    CROSS = 5  # leaf to leaf
    DENIED = 6  # dropped: source is allowed, destination is not
    SPOOFED = 7  # dropped: right port and VLAN id, but the source is not allowed
    WRONG_VLAN = 8  # dropped: at an access port, no VLAN id or one of no endpoint there
    LLDP = 9  # to the controller
    CHANNEL = 10  # a channel's frames from the root, or from further up
    UNJOINED = 11  # dropped: of a channel that no leaf further down has joined
    IGMP = 12  # a leaf's reports, to the controller


def cookie_of(kind: Kind, number: int = 0) -> int:
    """Return the cookie of flows of a kind, for the path of that number."""
    return COOKIE_BASE | kind << 24 | number


def kind_of(cookie: int) -> Kind:
    """Return what a flow with this cookie is for.

    Raises ValueError if this controller does not use it.
    """
    if cookie & COOKIE_MASK != COOKIE_BASE:
        raise ValueError(f"cookie {cookie:#x} is not of this controller")
    return Kind(cookie >> 24 & 0xFF)


def number_of(cookie: int) -> int:
    """Return the number of the path that a flow with this cookie belongs to; 0: none."""
    return cookie & 0xFFFFFF


def channel_group(number: int, channel: int) -> int:
    """Return the group of a path's channel, counted from 0; `channel_of` reverses it."""
    return (channel + 1) * (PATH_NUMBER_MAX + 1) + number


def channel_of(group: int) -> int | None:
    """Return the channel of a group; None for the path's own group."""
    return group // (PATH_NUMBER_MAX + 1) - 1 if group > PATH_NUMBER_MAX else None


def mac_text(raw: bytes) -> str:
    """Return an Ethernet address as text, "02:00:00:00:00:01"."""
    return ":".join(f"{octet:02x}" for octet in raw)


CONTROLLER = 0xFFFFFFFD  # OFPP_CONTROLLER: `Output` to it makes a packet-in of the whole frame
# Groups and meters have no cookie. This controller's are numbered like paths; groups with higher
# numbers belong to others.
GROUP_NUMBER_MAX = 0xFFFFFF
# Numbers of paths are meter ids, of which Open vSwitch has 262,144 (its kernel datapath 200,000).
PATH_NUMBER_MAX = 0xFFFF
LLDP_METER = 0x10000
IGMP_METER = 0x10001  # the first: there is one for each VLAN id of an access port
IGMP_PORTS_MAX = 32  # access ports of a switch that have such meters
CHANNELS_MAX = GROUP_NUMBER_MAX // (PATH_NUMBER_MAX + 1)

ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_ARP = 0x0806
IP_PROTO_IGMP = 2
BROADCAST = "ff:ff:ff:ff:ff:ff"
GROUP_BIT = "01:00:00:00:00:00"  # set in multicast and broadcast addresses (IEEE 802)
NO_GROUP_BIT = "00:00:00:00:00:00"
EXACT = "ff:ff:ff:ff:ff:ff"


@dataclass(frozen=True, order=True)
class EthMatch:
    """A match of an Ethernet address: equal to `value` in the bits of `mask`."""

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
    ip_proto: int | None = None


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
    """Choose the queue of the port that the next `Output` names."""

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
        """Return the flow's identity at a switch."""
        return ("flow", self.priority, self.match)


@dataclass(frozen=True)
class Bucket:
    """One copy of the frame: set its VLAN id, send it out of a port (through this queue)."""

    vlan: int
    port: int
    queue: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Return the key by which a group's buckets are sorted."""
        return (self.port, self.vlan)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the bucket's actions."""
        if self.queue is None:
            return (SetVlan(self.vlan), Output(self.port))
        return (SetVlan(self.vlan), SetQueue(self.queue), Output(self.port))


@dataclass(frozen=True)
class Group:
    """Type ALL: every bucket gets a copy."""

    number: int
    buckets: tuple[Bucket, ...]

    @property
    def key(self) -> tuple[str, int]:
        """Return the group's identity at a switch."""
        return ("group", self.number)


@dataclass(frozen=True)
class Meter:
    """A drop band in kbit/s with a burst in kbit, and with statistics. It always has a burst:
    without the burst flag, Open vSwitch's bucket holds a whole second of traffic."""

    number: int
    rate_kbps: int
    burst_kbit: int

    @property
    def key(self) -> tuple[str, int]:
        """Return the meter's identity at a switch."""
        return ("meter", self.number)


Entry = Flow | Group | Meter
Entries = frozenset[Entry]

TABLE_MISS = Flow(Match(), PRIORITY_MISS, cookie_of(Kind.MISS), ())
