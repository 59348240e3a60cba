# SPDX-License-Identifier: Apache-2.0
"""The entries of one path at one switch, from what is known at that switch. Pure.

Every core link of a path gets its own VLAN id, as the segments of DRFSM21 Fig. 7 have
(VLAN I, II, III ...), translated at each switch. At a switch of the tree, `up` is the way to the
root (at the root's switch: the root's endpoint), `branches` the ways to the leaves:

  from up, multicast and broadcast   [at the root: meter] group ALL, a bucket per branch
  from up, unicast                   [at the root: meter] by destination MAC to one branch
  from a branch, unicast             up, from a leaf only if the destination is the root's
  from a branch, broadcast ARP       up
  with leaf_to_leaf                  unicast from branch to branch by destination MAC, broadcast
                                     ARP up and to the group

Multicast never comes from a leaf. Extra flows count what a switch drops: at an endpoint's port and
VLAN id, an allowed source with another destination (DENIED) or another source (SPOOFED); at an
access port, any other VLAN id or none (WRONG_VLAN). The table miss counts the rest. Nothing leaves
through the port where it came in, so leaves on one port do not reach each other. Channels, which
leaves join by IGMP, are in channels.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.paths import channels, lldp
from controller.paths.core import Core, Endpoint
from controller.paths.entries import (
    ANY_MULTICAST,
    ANY_UNICAST,
    BROADCAST,
    ETH_TYPE_ARP,
    PRIORITY_CROSS,
    PRIORITY_DENIED,
    PRIORITY_PATH,
    PRIORITY_SPOOFED,
    PRIORITY_WRONG_VLAN,
    TABLE_MISS,
    Action,
    Bucket,
    Entries,
    Entry,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    ToGroup,
    cookie_of,
)
from controller.paths.multipoint_path import MultipointPath

# A bucket smaller than the switch daemon's scheduling delays drops conforming traffic; with buckets
# of 10 to 100 ms, rates stay within 0.1 % of the requested rate over seconds.
BURST_MS = 50
BURST_MIN_KBIT = 200  # smaller buckets starve in Open vSwitch's userspace datapath

ARP_BROADCAST = EthMatch(BROADCAST)


def base_entries(core: Core) -> dict[str, Entries]:
    """Return what each switch has without any path.

    These are counted drops of frames that belong to no path, and flows that send link probes to the
    controller.
    """
    result: dict[str, set[Entry]] = {
        switch: {TABLE_MISS, *lldp.entries(core.probed.get(switch, ()))} for switch in core.dpids
    }
    cookie = cookie_of(Kind.WRONG_VLAN)
    for switch, port in core.access:
        result[switch].add(Flow(Match(in_port=port), PRIORITY_WRONG_VLAN, cookie, ()))
    return {switch: frozenset(entries) for switch, entries in result.items()}


def meter_of(path: MultipointPath) -> Meter | None:
    """Return the meter: the rate rounded up to kbit/s, a burst of 50 ms, at least 200 kbit.

    None: best effort.
    """
    if path.rate_bps == 0:
        return None
    rate_kbps = -(-path.rate_bps // 1000)
    return Meter(path.number, rate_kbps, max(-(-rate_kbps * BURST_MS // 1000), BURST_MIN_KBIT))


def way_up(path: MultipointPath) -> Bucket:
    """Return the way to the root at the root's own switch."""
    return Bucket(path.root.vlan, path.root.port)


def branch(core: Core, path: MultipointPath, vlan: int, port: int) -> Bucket:
    """Return a branch. It has a queue if the path has a guarantee and the datapath supports
    set_queue."""
    return Bucket(vlan, port, path.number if core.set_queue and path.rate_bps else None)


def group_of(path: MultipointPath, branches: tuple[Bucket, ...]) -> Group:
    """Return the group of a switch; `branches` are sorted by Bucket.order."""
    return Group(path.number, branches)


def from_above(path: MultipointPath, switch: str, up: Bucket) -> Iterator[Flow]:
    """Return the flow that sends multicast and broadcast to the group."""
    return _down(path, switch, up, Kind.DATA_DOWN, ANY_MULTICAST, (ToGroup(path.number),))


def to_mac(path: MultipointPath, switch: str, up: Bucket, mac: str, way: Bucket) -> Iterator[Flow]:
    """Return the flow that sends unicast from above to a leaf's MAC, down one branch."""
    return _down(path, switch, up, Kind.UNICAST_DOWN, EthMatch(mac), way.actions)


def _down(
    path: MultipointPath,
    switch: str,
    up: Bucket,
    kind: Kind,
    eth_dst: EthMatch,
    actions: tuple[Action, ...],
) -> Iterator[Flow]:
    meter = path.number if switch == path.root.switch and path.rate_bps else None
    for match in channels.from_above(path, switch, up, eth_dst):
        yield Flow(match, PRIORITY_PATH, cookie_of(kind, path.number), actions, meter)


def from_leaf(path: MultipointPath, leaf: Endpoint, up: Bucket) -> Iterator[Flow]:
    """Return the flows for a leaf's unicast to the root, and for its broadcast ARP.

    With leaf_to_leaf, unicast to other leaves also goes up, unless this is the root's switch.
    """
    unicast = tuple(EthMatch(mac) for mac in path.root.macs)
    if not unicast or (path.leaf_to_leaf and leaf.switch != path.root.switch):
        unicast = (ANY_UNICAST,)
    for source in leaf.macs or (None,):
        for eth_dst in unicast:
            match = Match(leaf.port, leaf.vlan, eth_dst, source)
            yield _flow(path, Kind.UP, match, up.actions)
        match = Match(leaf.port, leaf.vlan, ARP_BROADCAST, source, ETH_TYPE_ARP)
        yield _flow(path, Kind.ARP, match, _arp_actions(path, up))


def from_below(path: MultipointPath, switch: str, way: Bucket, up: Bucket) -> Iterator[Flow]:
    """Return the flows for frames that arrive over a core link from leaves further down."""
    if not path.leaf_to_leaf:
        yield _flow(path, Kind.UP, Match(way.port, way.vlan), up.actions)
        return
    at_root = switch == path.root.switch and path.root.macs
    for eth_dst in tuple(EthMatch(mac) for mac in path.root.macs) if at_root else (ANY_UNICAST,):
        yield _flow(path, Kind.UP, Match(way.port, way.vlan, eth_dst), up.actions)
    match = Match(way.port, way.vlan, ARP_BROADCAST, None, ETH_TYPE_ARP)
    yield _flow(path, Kind.ARP, match, _arp_actions(path, up))


def across(
    path: MultipointPath, way_in: Bucket, sources: tuple[str, ...], mac: str, way_out: Bucket
) -> Iterator[Flow]:
    """Return the flows of leaf_to_leaf from one branch to a MAC down another branch.

    `sources`: the MACs of the leaf behind `way_in`; none: any.
    """
    if way_in.port == way_out.port:
        return
    for source in sources or (None,):
        match = Match(way_in.port, way_in.vlan, EthMatch(mac), source)
        cookie = cookie_of(Kind.CROSS, path.number)
        yield Flow(match, PRIORITY_CROSS, cookie, way_out.actions)


def guards(path: MultipointPath, endpoint: Endpoint) -> Iterator[Flow]:
    """Return the counted drops at an endpoint."""
    denied = cookie_of(Kind.DENIED, path.number)
    for mac in endpoint.macs:
        match = Match(endpoint.port, endpoint.vlan, eth_src=mac)
        yield Flow(match, PRIORITY_DENIED, denied, ())
    rest = cookie_of(Kind.SPOOFED, path.number) if endpoint.macs else denied
    yield Flow(Match(endpoint.port, endpoint.vlan), PRIORITY_SPOOFED, rest, ())


def at_switch(
    path: MultipointPath,
    switch: str,
    up: Bucket,
    branches: tuple[Bucket, ...],
    leaves: Iterable[Endpoint],
    below: Mapping[str, Bucket],
    joined: Mapping[int, tuple[Bucket, ...]],
) -> Iterator[Entry]:
    """Return all entries of a path at a switch, except those of `channels.reports`.

    `leaves` are the path's leaves there; `below` maps each MAC of the leaves there and further down
    to its branch, `joined` each channel to the branches that lead to members.
    """
    at = {(leaf.port, leaf.vlan): leaf for leaf in leaves}
    if switch == path.root.switch:
        meter = meter_of(path)
        if meter is not None:
            yield meter
        yield from guards(path, path.root)
    if branches:
        yield group_of(path, branches)
        yield from from_above(path, switch, up)
        yield from channels.unjoined(path, switch, up)
        yield from channels.at_switch(path, switch, up, joined)
    for mac, way in below.items():
        yield from to_mac(path, switch, up, mac, way)
    for way in branches:
        leaf = at.get(way.order)
        if leaf is None:
            yield from from_below(path, switch, way, up)
        else:
            yield from from_leaf(path, leaf, up)
            yield from guards(path, leaf)
        if path.leaf_to_leaf:
            for mac, out in below.items():
                yield from across(path, way, leaf.macs if leaf else (), mac, out)


def _arp_actions(path: MultipointPath, up: Bucket) -> tuple[Action, ...]:
    return (*up.actions, ToGroup(path.number)) if path.leaf_to_leaf else up.actions


def _flow(path: MultipointPath, kind: Kind, match: Match, actions: tuple[Action, ...]) -> Flow:
    return Flow(match, PRIORITY_PATH, cookie_of(kind, path.number), actions)
