# SPDX-License-Identifier: Apache-2.0
"""What paths have reserved: rates, VLAN ids, endpoints, numbers, and each path's tree. No I/O.

Every write goes through a `Ledger`, which can undo and repeat it. So a plan is made by trying it
(`Reservations.trial`), and its cost depends on what changes, not on what exists.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from operator import attrgetter, is_
from typing import TypeVar

from controller.paths.core import (
    Core,
    Endpoint,
    EndpointKey,
    Hop,
    NoNumberLeft,
)
from controller.paths.entries import PATH_NUMBER_MAX, Bucket
from controller.paths.forwarding import branch, way_up
from controller.paths.multipoint_path import MultipointPath, TreeHop, difference, joined_by

Direction = tuple[str, str]  # link, node that the direction leaves
SET_ASIDE = ""  # owner of what is free again but may still be on a switch

K = TypeVar("K")
V = TypeVar("V")


class Ledger:
    """Writes to dictionaries, in order, that can be undone and repeated."""

    def __init__(self) -> None:
        self._writes: list[tuple[Callable[[], object], Callable[[], object]]] = []  # undo, redo

    def set(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Write a value."""
        if key in mapping:
            undo: Callable[[], object] = partial(mapping.__setitem__, key, mapping[key])
        else:
            undo = partial(mapping.__delitem__, key)
        self._writes.append((undo, partial(mapping.__setitem__, key, value)))
        mapping[key] = value

    def drop(self, mapping: dict[K, V], key: K) -> None:
        """Delete a key."""
        undo = partial(mapping.__setitem__, key, mapping[key])
        self._writes.append((undo, partial(mapping.__delitem__, key)))
        del mapping[key]

    def undo(self) -> None:
        """Undo all writes."""
        for undo, _ in reversed(self._writes):
            undo()

    def redo(self) -> None:
        """Repeat all writes, after `undo`."""
        for _, redo in self._writes:
            redo()


class Tree:
    """A path's tree, by switch, and values derived from it. Other modules only read it."""

    def __init__(self, path: MultipointPath) -> None:
        self.path: dict[str, MultipointPath] = {
            "": path
        }  # one value, so that the ledger writes it like any other
        self.into: dict[str, TreeHop] = {}  # switch -> the hop that leads to it
        self.branches: dict[str, tuple[Bucket, ...]] = {path.root.switch: ()}  # by Bucket.order
        self.leaves: dict[EndpointKey, Endpoint] = {}
        self.leaves_at: dict[str, dict[EndpointKey, Endpoint]] = {}  # even if no hop leads there
        self.macs: dict[str, Endpoint] = dict.fromkeys(path.root.macs, path.root)
        self.below: dict[str, dict[str, Bucket]] = {path.root.switch: {}}  # switch -> MAC -> way
        self.ids: dict[int, int] = {path.root.vlan: 1}  # VLAN id -> how many times the path uses it
        self.channels: dict[EndpointKey, frozenset[int]] = {}  # channels that a leaf has joined
        # switch -> channel -> branches to members
        self.joined: dict[str, dict[int, tuple[Bucket, ...]]] = {path.root.switch: {}}

    def __contains__(self, switch: str) -> bool:
        return switch in self.below

    @property
    def now(self) -> MultipointPath:
        """Return the path as the ledger has it now."""
        return self.path[""]

    def up(self, core: Core, switch: str) -> Bucket:
        """Return the way to the root from a switch of the tree."""
        tree_hop = self.into.get(switch)
        if tree_hop is None:
            return way_up(self.now)
        return Bucket(tree_hop.vlan, core.hop[tree_hop.link, tree_hop.source].target_port)

    def ways(self, core: Core, leaf: Endpoint) -> Iterator[tuple[str, Bucket]]:
        """Yield (switch, its branch that leads to the leaf) from the leaf's switch, which must be
        in the tree, to the root's switch."""
        switch, way = leaf.switch, branch(core, self.now, leaf.vlan, leaf.port)
        while True:
            yield switch, way
            tree_hop = self.into.get(switch)
            if tree_hop is None:
                return
            hop = core.hop[tree_hop.link, tree_hop.source]
            switch, way = hop.source, branch(core, self.now, tree_hop.vlan, hop.source_port)


@dataclass(frozen=True)
class Change:
    """What differs between two states of one path."""

    leaves_gone: tuple[Endpoint, ...] = ()
    hops_gone: tuple[TreeHop, ...] = ()  # children before parents
    hops_new: tuple[TreeHop, ...] = ()  # parents before children
    leaves_new: tuple[Endpoint, ...] = ()
    channels: Mapping[EndpointKey, frozenset[int]] = field(default_factory=dict)


def _same_head(old: MultipointPath, new: MultipointPath) -> bool:
    """Return whether only leaves, hops and what no switch has differ."""
    return (old.name, old.number, old.root, old.rate_bps, old.leaf_to_leaf, old.channels) == (
        new.name,
        new.number,
        new.root,
        new.rate_bps,
        new.leaf_to_leaf,
        new.channels,
    )


def without(values: tuple[V, ...], gone: Iterable[V]) -> tuple[V, ...]:
    """Return `values`, which all differ, without those in `gone`."""
    for value in gone:
        left = tuple(filterfalse(partial(is_, value), values))
        values = left if len(left) < len(values) else tuple(v for v in values if v != value)
    return values


_order = attrgetter("order")


def with_bucket(buckets: tuple[Bucket, ...], bucket: Bucket) -> tuple[Bucket, ...]:
    """Return buckets, in order, with one more."""
    place = bisect_left(buckets, bucket.order, key=_order)
    return (*buckets[:place], bucket, *buckets[place:])


def without_bucket(buckets: tuple[Bucket, ...], order: tuple[int, int]) -> tuple[Bucket, ...]:
    """Return buckets without the one with that order."""
    place = bisect_left(buckets, order, key=_order)
    assert buckets[place].order == order
    return buckets[:place] + buckets[place + 1 :]


class Reservations:
    """The paths of a domain and what they reserve. Not thread-safe."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.version = 0  # counts what was applied: a plan is valid for its version only
        self._trees: dict[str, Tree] = {}
        self._reserved: dict[Direction, int] = {}
        self._vlans: dict[str, dict[int, str]] = {hop.link: {} for hop in core.hops}
        # link -> the lowest id of its range that may be free
        self._hint: dict[str, int] = {hop.link: hop.vlan_range[0] for hop in core.hops}
        self._owners: dict[EndpointKey, str] = {}
        self._numbers: dict[int, str] = {}
        self._free_numbers: list[int] = []  # a heap; some may be in use again
        self._listed: set[int] = set()  # the heap's contents
        self._last_number = 0
        self._through: dict[str, dict[str, None]] = {switch: {} for switch in core.dpids}
        self._quarantine: dict[int, tuple[tuple[str, int], ...]] = {}  # number -> (link, VLAN id)

    # -- questions

    @property
    def paths(self) -> Mapping[str, MultipointPath]:
        """Return all paths by name."""
        return {name: tree.now for name, tree in self._trees.items()}

    def path(self, name: str) -> MultipointPath | None:
        """Return the path with that name."""
        tree = self._trees.get(name)
        return tree.now if tree is not None else None

    def tree(self, name: str) -> Tree:
        """Return the tree of a path. Raises KeyError."""
        return self._trees[name]

    def reserved_bps(self, link: str, node: str) -> int:
        """Return the rate guaranteed on the link, in the direction that leaves `node`."""
        return self._reserved.get((link, node), 0)

    def free_bps(self, hop: Hop) -> int | None:
        """Return the rate that can still be guaranteed on a core link's direction; None: no
        limit."""
        if hop.rate_bps is None:
            return None
        return hop.rate_bps - self._reserved.get((hop.link, hop.source), 0)

    def vlan_taken(self, link: str, vlan: int) -> bool:
        """Return whether a VLAN id cannot be used on the link."""
        return vlan in self._vlans[link]

    def owner_of(self, key: EndpointKey) -> str | None:
        """Return the path that has the endpoint."""
        return self._owners.get(key)

    def paths_over(self, link: str) -> tuple[str, ...]:
        """Return the names of the paths whose trees use the core link (none for a hand-off)."""
        return tuple(dict.fromkeys(name for name in self._vlans.get(link, {}).values() if name))

    def paths_through(self, switch: str) -> tuple[str, ...]:
        """Return the names of the paths whose trees contain the switch."""
        return tuple(self._through[switch])

    def next_number(self) -> int:
        """Return the number for the next path. Raises NoNumberLeft."""
        while self._free_numbers and self._free_numbers[0] in self._numbers:
            self._listed.discard(heapq.heappop(self._free_numbers))
        if self._free_numbers:
            return self._free_numbers[0]
        while self._last_number + 1 in self._numbers:
            self._last_number += 1
        if self._last_number >= PATH_NUMBER_MAX:
            raise NoNumberLeft(f"all path numbers 1..{PATH_NUMBER_MAX} are in use")
        return self._last_number + 1

    def free_vlan(self, path: MultipointPath, hop: Hop) -> int | None:
        """Return a free id of the link's range; None if all are taken.

        As long as the range allows, it differs from the path's other ids and from every static
        segment's.
        """
        low, high = hop.vlan_range
        taken = self._vlans[hop.link]
        ids = self._trees[path.name].ids
        first_free: int | None = None
        for vlan in range(max(low, self._hint[hop.link]), high + 1):
            if vlan in taken:
                continue
            if vlan not in ids and vlan not in self.core.segment_vlans:
                return vlan
            first_free = first_free or vlan
        return first_free

    # -- changes as a whole

    def replace(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        """Replace `old` by `new` (None: no such path)."""
        self.version += 1
        ledger = Ledger()
        if old is not None and new is not None and _same_head(old, new):
            leaves_gone, leaves_new = difference(old.leaves, new.leaves)
            hops_gone, hops_new = difference(old.hops, new.hops)
            nothing = {leaf: frozenset[int]() for leaf in joined_by(old.members)}
            channels = {**nothing, **joined_by(new.members)}
            change = Change(leaves_gone, tuple(reversed(hops_gone)), hops_new, leaves_new, channels)
            self._change(ledger, old.name, change, new)
            return
        if old is not None:
            gone = Change(leaves_gone=old.leaves, hops_gone=tuple(reversed(old.hops)))
            self._change(ledger, old.name, gone, old)
            self.close(ledger, old.name, quarantine=new is None or new.number != old.number)
        if new is not None:
            self.open(ledger, new)
            found = Change((), (), new.hops, new.leaves, joined_by(new.members))
            self._change(ledger, new.name, found, new)

    def _change(self, ledger: Ledger, name: str, change: Change, new: MultipointPath) -> None:
        for leaf in change.leaves_gone:
            self.leave(ledger, name, leaf)
        for hop in change.hops_gone:
            self.cut(ledger, name, hop)
        for hop in change.hops_new:
            self.extend(ledger, name, hop)
        for leaf in change.leaves_new:
            self.join(ledger, name, leaf)
        for key, channels in change.channels.items():
            if key in self._trees[name].leaves:
                self.set_channels(ledger, name, key, channels)
        ledger.set(self._trees[name].path, "", new)

    @contextmanager
    def trial(self) -> Iterator[Ledger]:
        """Undo all writes of the block at its end; `commit` repeats them."""
        ledger = Ledger()
        try:
            yield ledger
        finally:
            ledger.undo()

    def commit(self, ledger: Ledger) -> None:
        """Repeat the writes of a trial; allowed only on the version it was made for."""
        ledger.redo()
        self.version += 1

    def release_number(self, number: int) -> None:
        """Free a deleted path's number and VLAN ids, once no switch has any of its entries."""
        if self._numbers.get(number, "in use") == SET_ASIDE:
            del self._numbers[number]
            if number not in self._listed:
                self._listed.add(number)
                heapq.heappush(self._free_numbers, number)
        for link, vlan in self._quarantine.pop(number, ()):
            self._give_back(link, vlan)

    def set_aside(
        self, old: MultipointPath, new: MultipointPath | None
    ) -> tuple[tuple[str, int], ...]:
        """Keep VLAN ids that a change freed until `give_back`; return them as (link, id).

        Some switch has not confirmed the change yet.
        """
        gone, _ = difference(old.hops, new.hops if new is not None else ())
        freed = tuple((hop.link, hop.vlan) for hop in gone)
        for link, vlan in freed:
            self._vlans[link].setdefault(vlan, SET_ASIDE)
        return freed

    def give_back(self, freed: Iterable[tuple[str, int]]) -> None:
        """Free what `set_aside` returned, once all switches are known to be clean."""
        for link, vlan in freed:
            self._give_back(link, vlan)

    def _give_back(self, link: str, vlan: int) -> None:
        if self._vlans[link].get(vlan) == SET_ASIDE:
            del self._vlans[link][vlan]
            self._hint[link] = min(vlan, self._hint[link])

    def keep_aside(self, number: int | None, freed: Iterable[tuple[str, int]]) -> None:
        """Keep an earlier process's quarantine: VLAN ids (link, id) of a deleted path.

        `number` is the path's; None: the ids are from a tree that shrank. Call before there are
        paths.
        """
        freed = tuple(freed)
        for link, vlan in freed:
            self._vlans[link][vlan] = SET_ASIDE
        if number is not None:
            self._numbers[number] = SET_ASIDE
            self._quarantine[number] = freed

    # -- changes in small steps, for plans

    def hold_vlan(self, ledger: Ledger, link: str, vlan: int) -> None:
        """Keep a free VLAN id from being used until `unhold_vlan`."""
        ledger.set(self._vlans[link], vlan, SET_ASIDE)

    def unhold_vlan(self, ledger: Ledger, link: str, vlan: int) -> None:
        """Reverse `hold_vlan`."""
        ledger.drop(self._vlans[link], vlan)

    def open(self, ledger: Ledger, path: MultipointPath) -> None:
        """Reserve a path with only its root, whatever leaves and hops `path` has."""
        self._take_endpoint(ledger, path.root, path.name)
        ledger.set(self._trees, path.name, Tree(path))
        ledger.set(self._numbers, path.number, path.name)
        ledger.set(self._through[path.root.switch], path.name, None)
        access = self.core.access[path.root.switch, path.root.port]
        self._reserve(ledger, (access.link, access.neighbour), path.rate_bps)

    def close(self, ledger: Ledger, name: str, *, quarantine: bool = True) -> None:
        """Release the root and what is left of the tree.

        With `quarantine`, its number stays taken.
        """
        path = self._trees[name].now
        access = self.core.access[path.root.switch, path.root.port]
        self._reserve(ledger, (access.link, access.neighbour), -path.rate_bps)
        ledger.drop(self._through[path.root.switch], name)
        ledger.drop(self._owners, path.root.key)
        ledger.drop(self._trees, name)
        if quarantine:
            ledger.set(self._numbers, path.number, SET_ASIDE)
            freed = tuple((h.link, h.vlan) for h in path.hops)
            for link, vlan in freed:
                ledger.set(self._vlans[link], vlan, SET_ASIDE)
            ledger.set(self._quarantine, path.number, freed)
        else:
            ledger.drop(self._numbers, path.number)

    def join(self, ledger: Ledger, name: str, leaf: Endpoint) -> None:
        """Reserve a leaf; serve it if its switch is in the tree."""
        tree = self._trees[name]
        self._take_endpoint(ledger, leaf, name)
        ledger.set(tree.leaves, leaf.key, leaf)
        if leaf.switch not in tree.leaves_at:
            ledger.set(tree.leaves_at, leaf.switch, {})
        ledger.set(tree.leaves_at[leaf.switch], leaf.key, leaf)
        for mac in leaf.macs:
            ledger.set(tree.macs, mac, leaf)
        ledger.set(tree.ids, leaf.vlan, tree.ids.get(leaf.vlan, 0) + 1)
        access = self.core.access[leaf.switch, leaf.port]
        self._reserve(ledger, (access.link, leaf.switch), tree.now.rate_bps)
        if leaf.switch in tree:
            self.serve(ledger, tree, leaf)

    def leave(self, ledger: Ledger, name: str, leaf: Endpoint) -> None:
        """Remove a leaf."""
        tree = self._trees[name]
        self.set_channels(ledger, name, leaf.key, frozenset())
        if leaf.switch in tree:
            self.unserve(ledger, tree, leaf)
        access = self.core.access[leaf.switch, leaf.port]
        self._reserve(ledger, (access.link, leaf.switch), -tree.now.rate_bps)
        self._forget_id(ledger, tree, leaf.vlan)
        for mac in leaf.macs:
            ledger.drop(tree.macs, mac)
        ledger.drop(tree.leaves_at[leaf.switch], leaf.key)
        if not tree.leaves_at[leaf.switch]:
            ledger.drop(tree.leaves_at, leaf.switch)
        ledger.drop(tree.leaves, leaf.key)
        ledger.drop(self._owners, leaf.key)

    def extend(self, ledger: Ledger, name: str, tree_hop: TreeHop) -> None:
        """Add a hop from a switch of the tree to one outside, and serve the leaves there."""
        tree = self._trees[name]
        hop = self.core.hop[tree_hop.link, tree_hop.source]
        assert hop.source in tree and hop.target not in tree, f"{hop} does not extend the tree"
        ledger.set(tree.into, hop.target, tree_hop)
        ledger.set(tree.below, hop.target, {})
        ledger.set(tree.joined, hop.target, {})
        ledger.set(tree.branches, hop.target, ())
        self._add_branch(ledger, tree, hop.source, tree_hop.vlan, hop.source_port)
        ledger.set(tree.ids, tree_hop.vlan, tree.ids.get(tree_hop.vlan, 0) + 1)
        self._take_vlan(ledger, hop, tree_hop.vlan, name)
        ledger.set(self._through[hop.target], name, None)
        self._reserve(ledger, (hop.link, hop.source), tree.now.rate_bps)
        for leaf in tree.leaves_at.get(hop.target, {}).values():
            self.serve(ledger, tree, leaf)

    def cut(self, ledger: Ledger, name: str, tree_hop: TreeHop) -> None:
        """Remove a hop to a switch that has no branch; leaves there are no longer served."""
        tree = self._trees[name]
        hop = self.core.hop[tree_hop.link, tree_hop.source]
        for leaf in tree.leaves_at.get(hop.target, {}).values():
            self.unserve(ledger, tree, leaf)
        assert not tree.branches[hop.target], f"{hop} still leads to {tree.branches[hop.target]}"
        self._reserve(ledger, (hop.link, hop.source), -tree.now.rate_bps)
        ledger.drop(self._through[hop.target], name)
        ledger.drop(self._vlans[hop.link], tree_hop.vlan)
        ledger.set(self._hint, hop.link, min(tree_hop.vlan, self._hint[hop.link]))
        self._forget_id(ledger, tree, tree_hop.vlan)
        self._drop_branch(ledger, tree, hop.source, hop.source_port, tree_hop.vlan)
        ledger.drop(tree.branches, hop.target)
        ledger.drop(tree.joined, hop.target)
        ledger.drop(tree.below, hop.target)
        ledger.drop(tree.into, hop.target)

    def serve(self, ledger: Ledger, tree: Tree, leaf: Endpoint) -> None:
        """Let a leaf's switch copy frames to it, and all switches above send its unicast there."""
        self._add_branch(ledger, tree, leaf.switch, leaf.vlan, leaf.port)
        for switch, way in tree.ways(self.core, leaf):
            for mac in leaf.macs:
                ledger.set(tree.below[switch], mac, way)
        for channel in tree.channels.get(leaf.key, ()):
            self._feed(ledger, tree, leaf, channel)

    def unserve(self, ledger: Ledger, tree: Tree, leaf: Endpoint) -> None:
        """Reverse `serve`."""
        for channel in tree.channels.get(leaf.key, ()):
            self._starve(ledger, tree, leaf, channel)
        for switch, _ in tree.ways(self.core, leaf):
            for mac in leaf.macs:
                ledger.drop(tree.below[switch], mac)
        self._drop_branch(ledger, tree, leaf.switch, leaf.port, leaf.vlan)

    def set_channels(
        self, ledger: Ledger, name: str, key: EndpointKey, channels: frozenset[int]
    ) -> None:
        """Replace the channels that a leaf has joined."""
        tree = self._trees[name]
        leaf, old = tree.leaves[key], tree.channels.get(key, frozenset())
        if leaf.switch in tree:
            for channel in old - channels:
                self._starve(ledger, tree, leaf, channel)
            for channel in channels - old:
                self._feed(ledger, tree, leaf, channel)
        if channels:
            ledger.set(tree.channels, key, channels)
        elif old:
            ledger.drop(tree.channels, key)

    # -- internals

    def _feed(self, ledger: Ledger, tree: Tree, leaf: Endpoint, channel: int) -> None:
        for switch, way in tree.ways(self.core, leaf):
            others = tree.joined[switch].get(channel, ())
            ledger.set(tree.joined[switch], channel, with_bucket(others, way))
            if others:
                return

    def _starve(self, ledger: Ledger, tree: Tree, leaf: Endpoint, channel: int) -> None:
        for switch, way in tree.ways(self.core, leaf):
            others = without_bucket(tree.joined[switch][channel], way.order)
            if others:
                ledger.set(tree.joined[switch], channel, others)
                return
            ledger.drop(tree.joined[switch], channel)

    def _add_branch(self, ledger: Ledger, tree: Tree, switch: str, vlan: int, port: int) -> None:
        bucket = branch(self.core, tree.now, vlan, port)
        ledger.set(tree.branches, switch, with_bucket(tree.branches[switch], bucket))

    def _drop_branch(self, ledger: Ledger, tree: Tree, switch: str, port: int, vlan: int) -> None:
        left = without_bucket(tree.branches[switch], (port, vlan))
        ledger.set(tree.branches, switch, left)

    def _reserve(self, ledger: Ledger, direction: Direction, rate_bps: int) -> None:
        total_bps = self._reserved.get(direction, 0) + rate_bps
        if total_bps:
            ledger.set(self._reserved, direction, total_bps)
        elif direction in self._reserved:
            ledger.drop(self._reserved, direction)

    def _take_endpoint(self, ledger: Ledger, endpoint: Endpoint, name: str) -> None:
        assert endpoint.key not in self._owners, f"{endpoint} is taken"
        ledger.set(self._owners, endpoint.key, name)

    def _take_vlan(self, ledger: Ledger, hop: Hop, vlan: int, name: str) -> None:
        taken = self._vlans[hop.link]
        assert vlan not in taken, f"VLAN id {vlan} of {hop.link} is taken"
        ledger.set(taken, vlan, name)
        if vlan == self._hint[hop.link]:
            while vlan in taken:
                vlan += 1
            ledger.set(self._hint, hop.link, vlan)

    def _forget_id(self, ledger: Ledger, tree: Tree, vlan: int) -> None:
        if tree.ids[vlan] == 1:
            ledger.drop(tree.ids, vlan)
        else:
            ledger.set(tree.ids, vlan, tree.ids[vlan] - 1)
