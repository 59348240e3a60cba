# SPDX-License-Identifier: Apache-2.0
"""From a path (root, leaves, rate) to the entries of each switch. Pure.

The path is a tree over the core. Every core link of it gets a VLAN id of its own, as the
segments of drfsm.txt Fig. 7 have (VLAN I, II, III ...), translated at each switch:

  root -> leaves, multicast and broadcast   [meter at the root's switch] group ALL, one bucket
                                            per branch: set VLAN id, output
  root -> leaf, unicast                     [meter] by destination MAC: set VLAN id, output
  leaf -> root, unicast and broadcast ARP   by port and VLAN id, up the tree

Everything else meets the table-miss entry and is dropped; so is, where an endpoint names its
MACs, any other source address. Nothing is ever forwarded from leaf to leaf.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.core import (
    Access,
    Core,
    Endpoint,
    Hop,
    InvalidEndpoint,
    PlanError,
    check_endpoint,
    route,
    shortest_tree,
)
from controller.entries import (
    ANY_MULTICAST,
    ANY_UNICAST,
    BROADCAST,
    COOKIE_BASE,
    ETH_TYPE_ARP,
    PRIORITY_PATH,
    Action,
    Bucket,
    Entries,
    Entry,
    EthMatch,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetVlan,
    ToGroup,
)

# A bucket smaller than the switch daemon's scheduling delays drops conforming traffic; rates stay
# within 0.1 % of the asked over seconds with buckets of 10 to 100 ms.
BURST_MS = 50
BURST_MIN_KBIT = 200  # smaller buckets starve in Open vSwitch's userspace datapath


class Conflict(PlanError):
    """Something else of the network is in the way."""


class NoVlanLeft(Conflict):
    pass


class NoCapacity(Conflict):
    pass


@dataclass(frozen=True)
class Path:
    """A multipoint path. `vlans` maps core links (by name) to the ids it uses on them.

    `number` is unique among the paths of a controller: meter id at the root's switch, group id
    at every switch of the tree, lower half of the cookie of its flows.
    """

    name: str
    number: int
    root: Endpoint
    rate_bps: int
    leaves: tuple[Endpoint, ...] = ()
    vlans: tuple[tuple[str, int], ...] = ()

    @property
    def cookie(self) -> int:
        return COOKIE_BASE | self.number

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (self.root, *self.leaves)


@dataclass(frozen=True)
class Edge:
    """A core link of a path, in the direction away from the root."""

    source: str
    source_port: int
    target: str
    target_port: int
    vlan: int


def meter_of(path: Path) -> Meter:
    """Rate rounded up to kbit/s; burst 50 ms of it, at least 200 kbit."""
    rate_kbps = -(-path.rate_bps // 1000)
    return Meter(path.number, rate_kbps, max(-(-rate_kbps * BURST_MS // 1000), BURST_MIN_KBIT))


def hops_of(core: Core, path: Path) -> tuple[Hop, ...]:
    """The core hops of the path's tree, each once, parents before children."""
    tree = shortest_tree(core, path.root.switch)
    seen: dict[str, Hop] = {}
    for leaf in path.leaves:
        for hop in route(tree, path.root.switch, leaf.switch):
            seen.setdefault(hop.target, hop)
    return tuple(seen.values())


def edges_of(core: Core, path: Path) -> tuple[Edge, ...]:
    vlans = dict(path.vlans)
    return tuple(
        Edge(h.source, h.source_port, h.target, h.target_port, vlans[h.link])
        for h in hops_of(core, path)
    )


def with_leaf(core: Core, path: Path, leaf: Endpoint, others: Iterable[Path]) -> Path:
    """The path with one more leaf; the ids it already has stay. `others` are the other paths.

    Raises InvalidEndpoint, Unreachable, Conflict, NoVlanLeft, NoCapacity.
    """
    others = tuple(others)
    check_endpoint(core, leaf)
    _check_free(leaf, others)
    if (leaf.switch, leaf.port) == (path.root.switch, path.root.port):
        raise InvalidEndpoint(
            f"leaf {leaf} is on the port of the root of path '{path.name}' ({path.root}): "
            "frames never go back to the port they came from"
        )
    for other in path.endpoints:
        shared = sorted(set(other.macs) & set(leaf.macs))
        if shared:
            raise InvalidEndpoint(f"MAC {shared[0]} of leaf {leaf} is already at {other}")
    grown = replace(path, leaves=(*path.leaves, leaf))
    vlans = dict(path.vlans)
    for hop in hops_of(core, grown):
        if hop.link not in vlans:
            vlans[hop.link] = _free_vlan(core, grown, hop, vlans.values(), others)
    grown = replace(grown, vlans=tuple(vlans.items()))
    check_capacity(core, grown, others)
    return grown


def without_leaf(core: Core, path: Path, key: tuple[str, int, int]) -> Path:
    """The path without that leaf; the ids of links no longer used are free again."""
    shrunk = replace(path, leaves=tuple(leaf for leaf in path.leaves if leaf.key != key))
    links = {hop.link for hop in hops_of(core, shrunk)}
    return replace(shrunk, vlans=tuple((k, v) for k, v in path.vlans if k in links))


def check_root(core: Core, path: Path, others: Iterable[Path]) -> None:
    """Raises InvalidEndpoint, Conflict or NoCapacity if a path cannot start there."""
    others = tuple(others)
    check_endpoint(core, path.root)
    _check_free(path.root, others)
    check_capacity(core, path, others)


def _check_free(endpoint: Endpoint, others: Iterable[Path]) -> None:
    for other in others:
        if any(used.key == endpoint.key for used in other.endpoints):
            raise Conflict(f"endpoint {endpoint} is in use by path '{other.name}'")


def _free_vlan(core: Core, path: Path, hop: Hop, own: Iterable[int], others: Iterable[Path]) -> int:
    """Lowest id of the link's range that is free there: different from the path's other ids and
    from every static segment's as long as the range allows."""
    low, high = hop.vlan_range
    taken = {vlan for other in others for link, vlan in other.vlans if link == hop.link}
    free = [vlan for vlan in range(low, high + 1) if vlan not in taken]
    if not free:
        raise NoVlanLeft(f"all VLAN ids {low}..{high} of link '{hop.link}' are in use")
    avoid = {*own, *core.segment_vlans, *(e.vlan for e in path.endpoints)}
    return next((vlan for vlan in free if vlan not in avoid), free[0])


def loads(core: Core, path: Path) -> dict[tuple[str, str], tuple[int, int | None]]:
    """(link, node it leaves) -> (rate guaranteed to the path, rate of the link), root to leaves.

    The way back carries requests only and is not reserved. Leaves on the same port with
    different VLAN ids each get a copy.
    """
    result: dict[tuple[str, str], tuple[int, int | None]] = {}

    def add(link: str, node: str, limit: int | None) -> None:
        load = result.get((link, node), (0, limit))[0]
        result[link, node] = (load + path.rate_bps, limit)

    root: Access = core.access[path.root.switch, path.root.port]
    add(root.link, root.neighbour, root.rate_in_bps)
    for hop in hops_of(core, path):
        add(hop.link, hop.source, hop.rate_bps)
    for leaf in path.leaves:
        access = core.access[leaf.switch, leaf.port]
        add(access.link, leaf.switch, access.rate_out_bps)
    return result


def check_capacity(core: Core, path: Path, others: Iterable[Path]) -> None:
    """Raises NoCapacity naming the first link direction whose guarantees would exceed its rate."""
    reserved: dict[tuple[str, str], int] = {}
    for other in others:
        for direction, (rate_bps, _) in loads(core, other).items():
            reserved[direction] = reserved.get(direction, 0) + rate_bps
    for (link, node), (rate_bps, limit_bps) in loads(core, path).items():
        already_bps = reserved.get((link, node), 0)
        if limit_bps is not None and already_bps + rate_bps > limit_bps:
            raise NoCapacity(
                f"link '{link}' from '{node}' has {limit_bps} bit/s, {already_bps} bit/s are "
                f"guaranteed to other paths, path '{path.name}' needs {rate_bps} bit/s"
            )


def plan_path(core: Core, path: Path) -> dict[str, Entries]:
    """Entries per switch. A path without leaves has its meter and forwards nothing."""
    vlans = dict(path.vlans)
    hops = hops_of(core, path)
    towards_root = {
        path.root.switch: Bucket(path.root.vlan, path.root.port),
        **{h.target: Bucket(vlans[h.link], h.target_port) for h in hops},
    }
    parent = {h.target: h for h in hops}
    result: dict[str, set[Entry]] = {switch: set() for switch in towards_root}
    result[path.root.switch].add(meter_of(path))

    branches: dict[str, list[Bucket]] = {switch: [] for switch in towards_root}
    for hop in hops:
        branches[hop.source].append(Bucket(vlans[hop.link], hop.source_port))
    for leaf in path.leaves:
        branches[leaf.switch].append(Bucket(leaf.vlan, leaf.port))

    for switch, buckets in branches.items():
        if buckets:
            ordered = tuple(sorted(buckets, key=lambda b: (b.port, b.vlan)))
            result[switch].add(Group(path.number, ordered))
            result[switch].update(_down(path, switch, towards_root[switch], ANY_MULTICAST, None))
    for leaf in path.leaves:
        for mac in leaf.macs:
            switch, branch = leaf.switch, Bucket(leaf.vlan, leaf.port)
            while True:
                result[switch].update(
                    _down(path, switch, towards_root[switch], EthMatch(mac), branch)
                )
                if switch == path.root.switch:
                    break
                hop = parent[switch]
                switch, branch = hop.source, Bucket(vlans[hop.link], hop.source_port)
        result[leaf.switch].update(_up_from_leaf(path, leaf, towards_root[leaf.switch]))
    for hop in hops:
        match = Match(in_port=hop.source_port, vlan=vlans[hop.link])
        result[hop.source].add(_flow(path, match, _translate(towards_root[hop.source])))
    return {switch: frozenset(entries) for switch, entries in result.items()}


def _down(
    path: Path, switch: str, up: Bucket, eth_dst: EthMatch, branch: Bucket | None
) -> Iterable[Flow]:
    """Flows for frames from the root: to one branch, or (None) to the group."""
    actions = (ToGroup(path.number),) if branch is None else _translate(branch)
    at_ingress = switch == path.root.switch
    for source in (path.root.macs or (None,)) if at_ingress else (None,):
        match = Match(in_port=up.port, vlan=up.vlan, eth_dst=eth_dst, eth_src=source)
        yield _flow(path, match, actions, path.number if at_ingress else None)


def _up_from_leaf(path: Path, leaf: Endpoint, up: Bucket) -> Iterable[Flow]:
    unicast = tuple(EthMatch(mac) for mac in path.root.macs) or (ANY_UNICAST,)
    for source in leaf.macs or (None,):
        for eth_dst in unicast:
            match = Match(leaf.port, leaf.vlan, eth_dst, source)
            yield _flow(path, match, _translate(up))
        arp = Match(leaf.port, leaf.vlan, EthMatch(BROADCAST), source, ETH_TYPE_ARP)
        yield _flow(path, arp, _translate(up))


def _translate(branch: Bucket) -> tuple[Action, ...]:
    return (SetVlan(branch.vlan), Output(branch.port))


def _flow(path: Path, match: Match, actions: tuple[Action, ...], meter: int | None = None) -> Flow:
    return Flow(match, PRIORITY_PATH, path.cookie, actions, meter)
