# SPDX-License-Identifier: Apache-2.0
"""Steps: what a change of one path means for each switch, and in which order. Pure.

A step is tried on the reservations and leaves them as they were; `Step.apply` writes it. All
switches of one phase confirm before the next phase begins. A branch is installed before the switch
where it leaves the tree sends anything into it, and it is removed after that switch has stopped. So
other leaves lose no frame and get none twice, wherever a step stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from common.counting import counted
from controller.paths import channels
from controller.paths.core import (
    NOTHING_DOWN,
    Bottleneck,
    Conflict,
    Core,
    DownSet,
    Endpoint,
    EndpointInUse,
    EndpointKey,
    Hop,
    InvalidEndpoint,
    NoCapacity,
    NoVlanLeft,
    PlanError,
    check_endpoint,
)
from controller.paths.entries import (
    Bucket,
    Entries,
    Entry,
    Flow,
    Group,
)
from controller.paths.forwarding import (
    across,
    at_switch,
    branch,
    from_above,
    from_below,
    from_leaf,
    group_of,
    guards,
    meter_of,
    to_mac,
    way_up,
)
from controller.paths.messages import Delta
from controller.paths.multipoint_path import Member, MultipointPath, TreeHop, joined_by
from controller.paths.reservations import (
    Ledger,
    Reservations,
    Tree,
    without,
)
from controller.paths.steps import Draft, Step, groups_of
from controller.paths.trees import hops_to

__all__ = [
    "Conflict",
    "Delta",
    "NoCapacity",
    "NoVlanLeft",
    "PlanError",
    "Step",
    "add_leaf",
    "create_path",
    "delete_path",
    "entries_of",
    "remove_leaf",
    "set_channels",
    "set_macs",
    "transition",
]


# -- entries of a part of a tree, as it is reserved now


def attachment(core: Core, tree: Tree, switch: str) -> list[Entry]:
    """Return the entries that copy frames to the switch's branches."""
    branches = tree.branches.get(switch)
    if not branches:
        return []
    path, up = tree.now, tree.up(core, switch)
    dropped = channels.unjoined(path, switch, up)
    return [group_of(path, branches), *from_above(path, switch, up), *dropped]


def channel_entries(core: Core, tree: Tree) -> dict[str, list[Entry]]:
    """Return, by switch, the entries that send channels to the leaves that have joined them."""
    return {
        switch: list(channels.at_switch(tree.now, switch, tree.up(core, switch), joined))
        for switch, joined in tree.joined.items()
        if joined
    }


def follow_channels(
    draft: Draft,
    phase: int,
    before: Mapping[str, Iterable[Entry]],
    after: Mapping[str, Iterable[Entry]],
) -> None:
    """Replace the earlier result of `channel_entries` by its present one.

    One phase is enough: a switch drops the channels that no leaf further down has joined.
    """
    for switch, entries in before.items():
        draft.remove(phase, switch, entries)
    for switch, entries in after.items():
        draft.add(phase, switch, entries)


def leaf_entries(core: Core, tree: Tree, leaf: Endpoint) -> Iterator[tuple[str, Entry]]:
    """Return (switch, entry) of every other entry that a served leaf needs."""
    path = tree.now
    up = tree.up(core, leaf.switch)
    own = (*guards(path, leaf), *from_leaf(path, leaf, up), *channels.reports(core, path, leaf))
    for entry in own:
        yield leaf.switch, entry
    if path.leaf_to_leaf:
        own_way = branch(core, path, leaf.vlan, leaf.port)
        for mac, way in tree.below[leaf.switch].items():
            for entry in across(path, own_way, leaf.macs, mac, way):
                yield leaf.switch, entry
    for switch, way in tree.ways(core, leaf):
        up = tree.up(core, switch)
        for mac in leaf.macs:
            for entry in to_mac(path, switch, up, mac, way):
                yield switch, entry
            if path.leaf_to_leaf:
                for way_in in tree.branches[switch]:
                    other = tree.leaves.get((switch, way_in.port, way_in.vlan))
                    sources = other.macs if other is not None else ()
                    for entry in across(path, way_in, sources, mac, way):
                        yield switch, entry


def hop_entries(core: Core, tree: Tree, tree_hop: TreeHop) -> list[Entry]:
    """Return the entries for frames from further down, at the switch that the hop leaves."""
    path, switch = tree.now, tree_hop.source
    way = branch(core, path, tree_hop.vlan, core.hop[tree_hop.link, switch].source_port)
    entries: list[Entry] = list(from_below(path, switch, way, tree.up(core, switch)))
    if path.leaf_to_leaf:
        for mac, out in tree.below[switch].items():
            entries += across(path, way, (), mac, out)
    return entries


def entries_of(core: Core, path: MultipointPath) -> dict[str, Entries]:
    """Return all entries of a path, by switch, computed only from the path."""
    up = {path.root.switch: way_up(path)}
    into: dict[str, TreeHop] = {}
    branches: dict[str, list[Bucket]] = {path.root.switch: []}
    below: dict[str, dict[str, Bucket]] = {path.root.switch: {}}
    leaves: dict[str, list[Endpoint]] = {path.root.switch: []}
    joined: dict[str, dict[int, set[Bucket]]] = {path.root.switch: {}}
    joined_at = joined_by(path.members)
    for tree_hop in path.hops:
        hop = core.hop[tree_hop.link, tree_hop.source]
        into[hop.target] = tree_hop
        up[hop.target] = Bucket(tree_hop.vlan, hop.target_port)
        branches[hop.target], below[hop.target], leaves[hop.target] = [], {}, []
        joined[hop.target] = {}
        branches[hop.source].append(branch(core, path, tree_hop.vlan, hop.source_port))
    for leaf in path.leaves:
        if leaf.switch not in up:
            continue
        switch, way = leaf.switch, branch(core, path, leaf.vlan, leaf.port)
        branches[switch].append(way)
        leaves[switch].append(leaf)
        while True:
            below[switch].update(dict.fromkeys(leaf.macs, way))
            for channel in joined_at.get(leaf.key, ()):
                joined[switch].setdefault(channel, set()).add(way)
            if switch not in into:
                break
            hop = core.hop[into[switch].link, into[switch].source]
            way = branch(core, path, into[switch].vlan, hop.source_port)
            switch = hop.source
    return {
        switch: frozenset(
            (
                *at_switch(
                    path,
                    switch,
                    up[switch],
                    _in_order(branches[switch]),
                    leaves[switch],
                    below[switch],
                    {channel: _in_order(ways) for channel, ways in joined[switch].items()},
                ),
                *chain.from_iterable(channels.reports(core, path, at) for at in leaves[switch]),
            )
        )
        for switch in up
    }


def _in_order(buckets: Iterable[Bucket]) -> tuple[Bucket, ...]:
    return tuple(sorted(buckets, key=lambda bucket: bucket.order))


def transition(
    core: Core, old: MultipointPath | None, new: MultipointPath | None
) -> tuple[Mapping[str, Delta], ...]:
    """Return the phases from one state of a path to another, computed only from the two.

    First stop feeding what no longer gets frames, then change the rest, then feed what is new. The
    cost grows with the entries of the paths. None: no such path.
    """
    before = entries_of(core, old) if old is not None else {}
    after = entries_of(core, new) if new is not None else {}
    some = old or new
    root = some.root.switch if some is not None else ""
    draft = Draft(3)
    for switch in before.keys() | after.keys():
        held, wanted = before.get(switch, frozenset()), after.get(switch, frozenset())
        feeds_now = {e for e in held if _feeds(e)}
        feeds_then = {e for e in wanted if _feeds(e)}
        if switch != root and not (held and wanted):
            feeds_now, feeds_then = set(), set()
        kept = _common_feeds(feeds_now, feeds_then)
        draft.remove(0, switch, feeds_now)
        draft.add(0, switch, kept)
        draft.remove(1, switch, held - feeds_now)
        draft.add(1, switch, wanted - feeds_then)
        draft.remove(2, switch, kept)
        draft.add(2, switch, feeds_then)
    return draft.phases()


def _feeds(entry: Entry) -> bool:
    return isinstance(entry, Group) or any(groups_of(entry))


def _common_feeds(now: set[Entry], then: set[Entry]) -> set[Entry]:
    """Return the entries that only feed branches that exist before and after."""
    groups = {entry.number: entry for entry in then if isinstance(entry, Group)}
    common: set[Entry] = set()
    kept: set[int] = set()
    for old in now:
        if isinstance(old, Group) and old.number in groups:
            new = groups[old.number]
            both = tuple(bucket for bucket in old.buckets if bucket in new.buckets)
            if both:
                common.add(Group(old.number, both))
                kept.add(old.number)
    flows = (entry for entry in now & then if isinstance(entry, Flow))
    common.update(flow for flow in flows if kept.issuperset(groups_of(flow)))
    return common


# -- steps


def create_path(core: Core, reservations: Reservations, path: MultipointPath) -> Step:
    """Plan a path without leaves.

    Its number is from `reservations.next_number()`. A root that names no MACs gets the registered
    ones. Raises InvalidEndpoint, Conflict, NoCapacity.
    """
    if path.leaves or path.hops or path.members:
        raise ValueError("a path is created without leaves; they are added one by one")
    path = replace(path, root=core.with_registered_macs(path.root))
    if path.channels is not None:
        channels.check_channels(path.channels)
    check_endpoint(core, path.root)
    _check_free(reservations, path.root)
    access = core.access[path.root.switch, path.root.port]
    _check_capacity(reservations, path, access.link, access.neighbour, access.rate_in_bps)
    draft = Draft(1)
    meter = meter_of(path)
    draft.add(0, path.root.switch, () if meter is None else (meter,))
    draft.add(0, path.root.switch, guards(path, path.root))
    with reservations.trial() as ledger:
        reservations.open(ledger, path)
    what = f"path '{path.name}' created with root {path.root}, {_rate(path)}"
    return Step(what, None, path, draft.phases(), ledger, reservations.version)


def add_leaf(
    core: Core,
    reservations: Reservations,
    path: MultipointPath,
    leaf: Endpoint,
    down: DownSet = NOTHING_DOWN,
) -> Step:
    """Plan one more leaf; no other leaf moves.

    A leaf that names no MACs gets the registered ones. Raises InvalidEndpoint, Unreachable,
    Conflict, NoVlanLeft, NoCapacity.
    """
    leaf = core.with_registered_macs(leaf)
    path = current(reservations, path)
    check_endpoint(core, leaf)
    _check_free(reservations, leaf)
    if (leaf.switch, leaf.port) == (path.root.switch, path.root.port):
        raise InvalidEndpoint(
            f"leaf {leaf} is on the port of the root of path '{path.name}' ({path.root}): "
            "frames never go back to the port they came from"
        )
    if path.channels is not None:
        channels.check_reporter(core, leaf)
    tree = reservations.tree(path.name)
    _check_macs(tree, leaf, leaf.macs)
    access = core.access[leaf.switch, leaf.port]
    _check_capacity(reservations, path, access.link, leaf.switch, access.rate_out_bps)
    no_hops: tuple[TreeHop, ...] = ()
    with reservations.trial() as ledger:
        before = attachment(core, tree, leaf.switch)
        reservations.join(ledger, path.name, leaf)
        if leaf.switch in tree:
            draft, grown = Draft(1), no_hops
            draft.remove(0, leaf.switch, before)
            draft.add(0, leaf.switch, attachment(core, tree, leaf.switch))
            _add_all(draft, 0, leaf_entries(core, tree, leaf))
        else:
            draft = Draft(2)
            hops = hops_to(reservations, tree, leaf.switch, down)
            grown = graft(core, reservations, ledger, draft, tree, hops, body=0, attach=1)
        new = replace(path, leaves=(*path.leaves, leaf), hops=(*path.hops, *grown))
        ledger.set(tree.path, "", new)
    what = f"path '{path.name}': leaf {leaf} added"
    return Step(what, path, new, draft.phases(), ledger, reservations.version)


def graft(
    core: Core,
    reservations: Reservations,
    ledger: Ledger,
    draft: Draft,
    tree: Tree,
    hops: Sequence[Hop],
    *,
    body: int,
    attach: int,
) -> tuple[TreeHop, ...]:
    """Grow the tree by `hops` (parents first) and serve the leaves at their targets.

    Entries that feed the branch go into phase `attach`, the rest into phase `body`. Raises
    NoVlanLeft.
    """
    name, at = tree.now.name, hops[0].source
    before = attachment(core, tree, at)
    grown: list[TreeHop] = []
    for hop in hops:
        vlan = reservations.free_vlan(tree.now, hop)
        if vlan is None:
            low, high = hop.vlan_range
            raise NoVlanLeft(f"all VLAN ids {low}..{high} of link '{hop.link}' are in use")
        grown.append(TreeHop(hop.link, hop.source, vlan))
        reservations.extend(ledger, name, grown[-1])
    draft.remove(attach, at, before)
    draft.add(attach, at, attachment(core, tree, at))
    for hop, tree_hop in zip(hops, grown, strict=True):
        draft.add(body, hop.source, hop_entries(core, tree, tree_hop))
        draft.add(body, hop.target, attachment(core, tree, hop.target))
        for leaf in tree.leaves_at.get(hop.target, {}).values():
            _add_all(draft, body, leaf_entries(core, tree, leaf))
    return tuple(grown)


def remove_leaf(
    core: Core, reservations: Reservations, path: MultipointPath, key: EndpointKey
) -> Step:
    """Plan the path without a leaf, and without the hops that no other leaf needs.

    Raises KeyError if there is no such leaf.
    """
    path = current(reservations, path)
    tree = reservations.tree(path.name)
    leaf = tree.leaves[key]
    gone: list[TreeHop] = []
    draft = Draft(2)
    with reservations.trial() as ledger:
        if leaf.switch in tree:
            gone = _only_for(tree, leaf)
            at = gone[-1].source if gone else leaf.switch
            body = 1 if gone else 0
            _remove_all(draft, body, leaf_entries(core, tree, leaf))
            uproot(core, draft, tree, gone, body)
            before, fed = attachment(core, tree, at), channel_entries(core, tree)
            reservations.leave(ledger, path.name, leaf)
            for tree_hop in gone:
                reservations.cut(ledger, path.name, tree_hop)
            draft.remove(0, at, before)
            draft.add(0, at, attachment(core, tree, at))
            follow_channels(draft, 0, fed, channel_entries(core, tree))
        else:
            reservations.leave(ledger, path.name, leaf)
        new = replace(
            path,
            leaves=without(path.leaves, (leaf,)),
            hops=without(path.hops, gone),
            members=frozenset(member for member in path.members if member.leaf != key),
        )
        ledger.set(tree.path, "", new)
    what = f"path '{path.name}': leaf {leaf} removed"
    return Step(what, path, new, draft.phases(), ledger, reservations.version)


def uproot(core: Core, draft: Draft, tree: Tree, gone: Iterable[TreeHop], phase: int) -> None:
    """Remove the entries of hops, and of the switches they lead to, except those of leaves
    there."""
    for tree_hop in gone:
        target = core.hop[tree_hop.link, tree_hop.source].target
        draft.remove(phase, tree_hop.source, hop_entries(core, tree, tree_hop))
        draft.remove(phase, target, attachment(core, tree, target))


def _only_for(tree: Tree, leaf: Endpoint) -> list[TreeHop]:
    """Return the hops that no other leaf needs, from the leaf towards the root."""
    hops: list[TreeHop] = []
    switch = leaf.switch
    while len(tree.branches[switch]) == 1 and switch in tree.into:
        hops.append(tree.into[switch])
        switch = hops[-1].source
    return hops


def delete_path(core: Core, reservations: Reservations, path: MultipointPath) -> Step:
    """Plan the end of a path: first stop frames from entering, then remove the rest.

    The number and the VLAN ids stay reserved until `reservations.release_number`.
    """
    path = current(reservations, path)
    tree = reservations.tree(path.name)
    draft = Draft(2)
    for switch, below in tree.below.items():
        up, branches = tree.up(core, switch), tree.branches[switch]
        leaves = tree.leaves_at.get(switch, {}).values()
        phase = 0 if switch == path.root.switch else 1
        joined = tree.joined[switch]
        draft.remove(phase, switch, at_switch(path, switch, up, branches, leaves, below, joined))
        for leaf in leaves:
            draft.remove(phase, switch, channels.reports(core, path, leaf))
    what = f"path '{path.name}' deleted"
    return Step(what, path, None, draft.phases(), None, reservations.version)


def set_macs(
    core: Core,
    reservations: Reservations,
    path: MultipointPath,
    key: EndpointKey,
    macs: Iterable[str],
) -> Step:
    """Plan other MACs behind a leaf. Raises KeyError if there is no such leaf, InvalidEndpoint."""
    path = current(reservations, path)
    tree = reservations.tree(path.name)
    old = tree.leaves[key]
    leaf = Endpoint.of(old.switch, old.port, old.vlan, macs)
    _check_macs(tree, leaf, frozenset(leaf.macs) - frozenset(old.macs))
    draft = Draft(1)
    with reservations.trial() as ledger:
        if leaf.switch in tree:
            _remove_all(draft, 0, leaf_entries(core, tree, old))
        joined = tree.channels.get(key, frozenset())
        reservations.leave(ledger, path.name, old)
        reservations.join(ledger, path.name, leaf)
        reservations.set_channels(ledger, path.name, key, joined)
        if leaf.switch in tree:
            _add_all(draft, 0, leaf_entries(core, tree, leaf))
        place = path.leaves.index(old)
        leaves = (*path.leaves[:place], leaf, *path.leaves[place + 1 :])
        new = replace(path, leaves=leaves)
        ledger.set(tree.path, "", new)
    what = f"path '{path.name}': leaf {leaf} has MACs {', '.join(leaf.macs) or 'any'}"
    return Step(what, path, new, draft.phases(), ledger, reservations.version)


def set_channels(
    core: Core,
    reservations: Reservations,
    path: MultipointPath,
    wanted: Mapping[EndpointKey, frozenset[int]],
) -> Step:
    """Plan that leaves get these channels, counted from 0, and no others. Leaves not in `wanted`
    stay as they are.

    Raises KeyError if there is no such leaf, InvalidChannels.
    """
    path = current(reservations, path)
    tree = reservations.tree(path.name)
    count = 0 if path.channels is None else path.channels.count
    draft = Draft(1)
    with reservations.trial() as ledger:
        before = channel_entries(core, tree)
        for key, joined in wanted.items():
            if not joined <= frozenset(range(count)):
                found = ", ".join(map(str, sorted(joined)))
                raise channels.InvalidChannels(
                    f"found channels {found}; path '{path.name}' has {count}, counted from 0"
                )
            reservations.set_channels(ledger, path.name, key, joined)
        follow_channels(draft, 0, before, channel_entries(core, tree))
        others = frozenset(member for member in path.members if member.leaf not in wanted)
        new_ones = frozenset(Member(n, key) for key, joined in wanted.items() for n in joined)
        new = replace(path, members=others | new_ones)
        ledger.set(tree.path, "", new)
    what = f"path '{path.name}': channels of {counted(len(wanted), 'leaf', 'leaves')}"
    return Step(what, path, new, draft.phases(), ledger, reservations.version)


# -- internals


def current(reservations: Reservations, path: MultipointPath) -> MultipointPath:
    """Return the path as it is reserved. Raises ValueError if `path` is not the reserved one."""
    now = reservations.path(path.name)
    if now is None or (now is not path and now != path):
        raise ValueError(f"this is not what path '{path.name}' is now")
    return now


def _add_all(draft: Draft, phase: int, entries: Iterable[tuple[str, Entry]]) -> None:
    for switch, entry in entries:
        draft.add(phase, switch, (entry,))


def _remove_all(draft: Draft, phase: int, entries: Iterable[tuple[str, Entry]]) -> None:
    for switch, entry in entries:
        draft.remove(phase, switch, (entry,))


def _rate(path: MultipointPath) -> str:
    return f"{path.rate_bps} bit/s" if path.rate_bps else "best effort"


def _check_free(reservations: Reservations, endpoint: Endpoint) -> None:
    owner = reservations.owner_of(endpoint.key)
    if owner is not None:
        path = reservations.path(owner)
        raise EndpointInUse(str(endpoint), owner, "" if path is None else path.workgroup)


def _check_macs(tree: Tree, leaf: Endpoint, macs: Iterable[str]) -> None:
    for mac in sorted(macs):
        other = tree.macs.get(mac)
        if other is not None:
            raise InvalidEndpoint(f"MAC {mac} of leaf {leaf} is already at {other}")


def _check_capacity(
    reservations: Reservations, path: MultipointPath, link: str, node: str, capacity_bps: int | None
) -> None:
    """Check a link's capacity for one more copy. Leaves on one port with different VLAN ids each
    get one."""
    reserved_bps = reservations.reserved_bps(link, node)
    if path.rate_bps and capacity_bps is not None and reserved_bps + path.rate_bps > capacity_bps:
        raise NoCapacity(
            path.name, Bottleneck(link, node, capacity_bps, reserved_bps, path.rate_bps)
        )
