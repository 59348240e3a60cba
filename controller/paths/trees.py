# SPDX-License-Identifier: Apache-2.0
"""Where a leaf's switch joins a tree: least-cost search over the domain. Pure.

The search starts at the root and can enter the tree's switches only along the tree. With SHORTEST,
the tree's own hops have their cost, so the leaf gets the cheapest way from the root that leaves
the tree once. With STEINER, they cost nothing, so it gets the cheapest way from the tree (the step
of H. Takahashi and A. Matsuyama, "An approximate solution for the Steiner problem in graphs",
1980). A leaf that joins never moves another one. The cost of a search depends on the domain's
links, not on the leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import networkx as nx

from controller.paths.core import (
    NOTHING_DOWN,
    Bottleneck,
    DownSet,
    Hop,
    NoCapacity,
    NoVlanLeft,
    Unreachable,
)
from controller.paths.multipoint_path import Algorithm
from controller.paths.reservations import Reservations, Tree

FEWER_HOPS = 1e-6  # prefers fewer hops among routes of equal cost

Weigh = Callable[[Hop], float | None]


def hops_to(
    reservations: Reservations, tree: Tree, switch: str, down: DownSet = NOTHING_DOWN
) -> tuple[Hop, ...]:
    """Return the hops by which the tree grows to `switch`; none if it is already in the tree.

    Raises Unreachable, NoVlanLeft, and NoCapacity, which names the first full direction on the best
    way.
    """
    if switch in tree:
        return ()
    found = _search(
        reservations, tree, switch, lambda hop: _weight(reservations, tree, hop, down, limits=True)
    )
    if found is not None:
        return found
    wanted = _search(
        reservations, tree, switch, lambda hop: _weight(reservations, tree, hop, down, limits=False)
    )
    path = tree.now
    if wanted is None:
        text = f"no core links lead from switch '{path.root.switch}' to switch '{switch}'"
        parts = [*(f"link '{n}'" for n in sorted(down.links))]
        parts += [f"switch '{n}'" for n in sorted(down.switches)]
        raise Unreachable(text + (f"; down: {', '.join(parts)}" if parts else ""))
    for hop in wanted:
        free_bps = reservations.free_bps(hop)
        if hop.rate_bps is not None and free_bps is not None and free_bps < path.rate_bps:
            raise NoCapacity(
                path.name,
                Bottleneck(
                    hop.link, hop.source, hop.rate_bps, hop.rate_bps - free_bps, path.rate_bps
                ),
            )
    hop = next(hop for hop in wanted if reservations.free_vlan(path, hop) is None)
    low, high = hop.vlan_range
    raise NoVlanLeft(f"all VLAN ids {low}..{high} of link '{hop.link}' are in use")


def _weight(
    reservations: Reservations, tree: Tree, hop: Hop, down: DownSet, *, limits: bool
) -> float | None:
    """Return cost x (1 + load of other paths); None: the hop cannot be used."""
    if down.hits(hop):
        return None
    path = tree.now
    if hop.target in tree:
        own = tree.into.get(hop.target)
        if own is None or (own.link, own.source) != (hop.link, hop.source):
            return None
        if path.algorithm is Algorithm.STEINER:
            return 0.0
        own_bps = path.rate_bps
    else:
        own_bps = 0
        free_bps = reservations.free_bps(hop)
        if limits and free_bps is not None and free_bps < path.rate_bps:
            return None
        if limits and reservations.free_vlan(path, hop) is None:
            return None
    load = 0.0
    if hop.rate_bps:
        load = (reservations.reserved_bps(hop.link, hop.source) - own_bps) / hop.rate_bps
    return hop.cost * (1 + load) + FEWER_HOPS


def _best(hops: tuple[Hop, ...], weigh: Weigh) -> tuple[float, Hop] | None:
    """Return the cheapest of parallel hops; the first if several are."""
    best: tuple[float, Hop] | None = None
    for hop in hops:
        weight = weigh(hop)
        if weight is not None and (best is None or weight < best[0]):
            best = (weight, hop)
    return best


def _search(
    reservations: Reservations, tree: Tree, switch: str, weigh: Weigh
) -> tuple[Hop, ...] | None:
    def weight(_source: str, _target: str, edge: dict[str, tuple[Hop, ...]]) -> float | None:
        best = _best(edge["hops"], weigh)
        return None if best is None else best[0]

    graph = reservations.core.graph
    try:
        _, nodes = nx.single_source_dijkstra(
            graph, tree.now.root.switch, target=switch, weight=weight
        )
    except nx.NetworkXNoPath:
        return None
    hops = []
    for source, target in pairwise(nodes):
        if target not in tree:
            best = _best(graph.edges[source, target]["hops"], weigh)
            assert best is not None
            hops.append(best[1])
    return tuple(hops)
