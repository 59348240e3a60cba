# SPDX-License-Identifier: Apache-2.0
"""Plans for links and switches that fail or come back. Pure.

Only leaves behind something that is down move. Leaves that could not be reached join if they can
now. A leaf that cannot join stays a leaf of the path (`multipoint_path.unreached`). The rest of a
broken branch stops getting frames before its successor gets any. The successor has other VLAN ids,
so frames of the old and the new tree never mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.paths.core import Core, DownSet, PlanError
from controller.paths.entries import Entry
from controller.paths.multipoint_path import MultipointPath, TreeHop, unreached
from controller.paths.plan import (
    attachment,
    channel_entries,
    current,
    follow_channels,
    graft,
    leaf_entries,
    uproot,
)
from controller.paths.reservations import (
    Ledger,
    Reservations,
    Tree,
    without,
)
from controller.paths.steps import Draft, Step
from controller.paths.trees import hops_to

_BREAK, _FEED, _CLEAN = range(3)


def reroute(core: Core, reservations: Reservations, path: MultipointPath, down: DownSet) -> Step:
    """Plan the path around what is down.

    If nothing changes, the step has no phases, and `new` is `old`.
    """
    path = current(reservations, path)
    tree = reservations.tree(path.name)
    draft = Draft(3)
    with reservations.trial() as ledger:
        gone = _broken(core, path, down)
        fed = channel_entries(core, tree)
        _detach(core, reservations, ledger, draft, tree, gone)
        left = channel_entries(core, tree)
        follow_channels(draft, _BREAK, fed, left)
        for tree_hop in gone:
            reservations.hold_vlan(ledger, tree_hop.link, tree_hop.vlan)
        grown = _attach(core, reservations, ledger, draft, tree, down)
        stubs = _stubs(core, tree, path)
        uproot(core, draft, tree, stubs, _CLEAN)
        for tree_hop in stubs:
            before = attachment(core, tree, tree_hop.source)
            reservations.cut(ledger, path.name, tree_hop)
            draft.remove(_FEED, tree_hop.source, before)
            draft.add(_FEED, tree_hop.source, attachment(core, tree, tree_hop.source))
        _feed_channels(draft, left, channel_entries(core, tree))
        for tree_hop in gone:
            reservations.unhold_vlan(ledger, tree_hop.link, tree_hop.vlan)
        hops = (*without(path.hops, (*gone, *stubs)), *grown)
        new = replace(path, hops=hops) if gone or grown or stubs else path
        ledger.set(tree.path, "", new)
    lost = unreached(core, new)
    what = f"path '{path.name}' re-routed"
    if lost:
        what += f"; unreachable leaves: {', '.join(map(str, lost))}"
    return Step(what, path, new, draft.phases(), ledger, reservations.version)


def _broken(core: Core, path: MultipointPath, down: DownSet) -> list[TreeHop]:
    """Return the hops that are down, and all hops further down, children before parents."""
    gone: list[TreeHop] = []
    cut_off: set[str] = set()
    for tree_hop in path.hops:
        hop = core.hop[tree_hop.link, tree_hop.source]
        if down.hits(hop) or hop.source in cut_off:
            gone.append(tree_hop)
            cut_off.add(hop.target)
    return gone[::-1]


def _detach(
    core: Core,
    reservations: Reservations,
    ledger: Ledger,
    draft: Draft,
    tree: Tree,
    gone: list[TreeHop],
) -> None:
    targets = {core.hop[h.link, h.source].target for h in gone}
    for switch in targets:
        for leaf in tree.leaves_at.get(switch, {}).values():
            for at, entry in leaf_entries(core, tree, leaf):
                draft.remove(_BREAK, at, (entry,))
    uproot(core, draft, tree, gone, _BREAK)
    remaining = {h.source for h in gone} - targets
    for switch in remaining:
        draft.remove(_BREAK, switch, attachment(core, tree, switch))
    for tree_hop in gone:
        reservations.cut(ledger, tree.now.name, tree_hop)
    for switch in remaining:
        draft.add(_BREAK, switch, attachment(core, tree, switch))


def _attach(
    core: Core, reservations: Reservations, ledger: Ledger, draft: Draft, tree: Tree, down: DownSet
) -> tuple[TreeHop, ...]:
    """Grow the tree to every switch that has leaves and can be reached."""
    grown: list[TreeHop] = []
    fresh: set[str] = set()
    for switch in tuple(tree.leaves_at):
        if switch in tree or switch in down.switches:
            continue
        try:
            hops = hops_to(reservations, tree, switch, down)
        except PlanError:
            continue
        attach = _BREAK if hops[0].source in fresh else _FEED
        grown += graft(core, reservations, ledger, draft, tree, hops, body=_BREAK, attach=attach)
        fresh.update(hop.target for hop in hops)
    return tuple(grown)


def _feed_channels(
    draft: Draft, left: Mapping[str, list[Entry]], now: Mapping[str, list[Entry]]
) -> None:
    """Change channels that never stopped together with what feeds the new branches."""
    for switch, entries in now.items():
        phase = _FEED if switch in left else _BREAK
        draft.remove(phase, switch, left.get(switch, ()))
        draft.add(phase, switch, entries)


def _stubs(core: Core, tree: Tree, path: MultipointPath) -> list[TreeHop]:
    """Return hops of the old tree that now lead to no leaf, children before parents."""
    stubs: list[TreeHop] = []
    left = {switch: len(branches) for switch, branches in tree.branches.items()}
    for tree_hop in reversed(path.hops):
        target = core.hop[tree_hop.link, tree_hop.source].target
        if tree.into.get(target) == tree_hop and left[target] == 0:
            stubs.append(tree_hop)
            left[tree_hop.source] -= 1
    return stubs
