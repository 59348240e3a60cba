# SPDX-License-Identifier: Apache-2.0
"""The entries of a path's channels: groups that each leaf joins by itself, by IGMP. Pure.

A switch of the tree drops the frames of all channels, unless leaves on it or further down have
joined. A joined channel has its own OpenFlow group with a bucket for each branch that leads to a
member. So a switch that learns of a change before or after its neighbours never sends a channel to
a leaf that has not joined. The root's meter only counts joined channels.

A leaf's reports go to the controller through a meter of that leaf: a host that floods only loses
its own reports. Reports from a source that the leaf does not have count as spoofed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, summarize_address_range
from typing import Final

from controller.paths.core import Core, Endpoint, InvalidEndpoint, PlanError
from controller.paths.entries import (
    CHANNELS_MAX,
    CONTROLLER,
    ETH_TYPE_IPV4,
    IGMP_METER,
    IGMP_PORTS_MAX,
    IP_PROTO_IGMP,
    PRIORITY_CHANNEL,
    PRIORITY_IGMP,
    PRIORITY_UNJOINED,
    Bucket,
    Entry,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    Output,
    ToGroup,
    channel_group,
    cookie_of,
    mac_text,
)
from controller.paths.igmp import mac_of
from controller.paths.multipoint_path import Channels, MultipointPath

# About 200 reports a second, or 400 at once; smaller bursts starve in Open vSwitch's userspace
# datapath.
REPORTS_KBPS: Final = 100
REPORTS_BURST_KBIT: Final = 200
LEAVE_LATENCY_MAX_MS: Final = 9000
VLAN_IDS: Final = 4094
_GROUP_BITS: Final = 23  # the bits of an IPv4 group's address that are in its Ethernet address
_FIRST: Final = IPv4Address("224.0.1.0")
_LAST: Final = IPv4Address("239.255.255.255")
_LOCAL: Final = 0x100  # groups 224.0.0.0/24, and those with the same Ethernet addresses


class InvalidChannels(PlanError):
    pass


def check_channels(channels: Channels) -> None:
    """Raise InvalidChannels, which says what would be valid."""
    base, count = channels.base, channels.count
    if not 1 <= count <= CHANNELS_MAX:
        raise InvalidChannels(f"found {count} channels; valid: 1..{CHANNELS_MAX}")
    if not 0 <= channels.leave_latency_ms <= LEAVE_LATENCY_MAX_MS:
        raise InvalidChannels(
            f"found a leave latency of {channels.leave_latency_ms} ms; "
            f"valid: 0..{LEAVE_LATENCY_MAX_MS}"
        )
    if not _FIRST <= base <= base + (count - 1) <= _LAST:
        raise InvalidChannels(f"found groups {base} and {count - 1} more; valid: {_FIRST}..{_LAST}")
    low = int(base) & (1 << _GROUP_BITS) - 1
    if low < _LOCAL:
        raise InvalidChannels(
            f"group {base} has the Ethernet address of a group in 224.0.0.0/24, which hosts use "
            "among themselves; valid: others"
        )
    if low + count > 1 << _GROUP_BITS:
        raise InvalidChannels(
            f"groups {base} and {count - 1} more go beyond one range of Ethernet addresses; "
            "valid: groups with the same upper 9 bits"
        )


def check_reporter(core: Core, leaf: Endpoint) -> None:
    """Raise InvalidEndpoint if no meter is left for a leaf's reports."""
    place = core.access_index[leaf.switch, leaf.port]
    if place >= IGMP_PORTS_MAX:
        raise InvalidEndpoint(
            f"port {leaf.port} is access port {place + 1} of switch '{leaf.switch}'; valid for a "
            f"path with channels: the first {IGMP_PORTS_MAX}"
        )


def reports(core: Core, path: MultipointPath, leaf: Endpoint) -> Iterator[Entry]:
    """Return the entries that send a leaf's reports to the controller."""
    if path.channels is None:
        return
    place = core.access_index[leaf.switch, leaf.port]
    number = IGMP_METER + place * VLAN_IDS + leaf.vlan - 1
    yield Meter(number, REPORTS_KBPS, REPORTS_BURST_KBIT)
    cookie = cookie_of(Kind.IGMP, path.number)
    for source in leaf.macs or (None,):
        match = Match(leaf.port, leaf.vlan, None, source, ETH_TYPE_IPV4, IP_PROTO_IGMP)
        yield Flow(match, PRIORITY_IGMP, cookie, (Output(CONTROLLER),), number)


def at_switch(
    path: MultipointPath, switch: str, up: Bucket, joined: Mapping[int, tuple[Bucket, ...]]
) -> Iterator[Entry]:
    """Return the entries of the channels that leaves on a switch, or further down, have joined.

    `joined`: for each channel the branches to them, sorted by Bucket.order.
    """
    assert path.channels is not None or not joined
    for channel, branches in joined.items():
        assert path.channels is not None
        group = Group(channel_group(path.number, channel), branches)
        yield group
        match = EthMatch(mac_of(path.channels.group(channel)))
        meter = path.number if switch == path.root.switch and path.rate_bps else None
        cookie = cookie_of(Kind.CHANNEL, path.number)
        for here in from_above(path, switch, up, match):
            yield Flow(here, PRIORITY_CHANNEL, cookie, (ToGroup(group.number),), meter)


def unjoined(path: MultipointPath, switch: str, up: Bucket) -> Iterator[Flow]:
    """Return the flows that drop all channels, with less priority than those of `at_switch`."""
    if path.channels is None:
        return
    first, last = path.channels.base, path.channels.group(path.channels.count - 1)
    cookie = cookie_of(Kind.UNJOINED, path.number)
    for network in summarize_address_range(first, last):
        mask = (1 << 48) - network.num_addresses
        address = mac_of(network.network_address)
        for here in from_above(
            path, switch, up, EthMatch(address, mac_text(mask.to_bytes(6, "big")))
        ):
            yield Flow(here, PRIORITY_UNJOINED, cookie, ())


def from_above(path: MultipointPath, switch: str, up: Bucket, eth_dst: EthMatch) -> Iterator[Match]:
    """Return the matches of frames to an address that come from the root, or from further up."""
    at_root = switch == path.root.switch
    for source in (path.root.macs or (None,)) if at_root else (None,):
        yield Match(in_port=up.port, vlan=up.vlan, eth_dst=eth_dst, eth_src=source)
