# SPDX-License-Identifier: Apache-2.0
"""The tree of domains of a path, and the segment of each domain. Pure.

The route is that of `topologies.model.paths.domain_tree`: every domain is entered through one
hand-off link, the one nearest to the root when the path first needs the domain. Leaves that join
later use the same entry.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.federation.values import Problem, Segment
from controller.paths.core import MAX_MACS, Endpoint
from controller.paths.multipoint_path import Channels
from topologies.model.network import Link, Network, Port
from topologies.model.paths import (
    NoPath,
    controlled_switches,
    domain_tree,
    route,
)


class Refusal(Exception):
    """A change that cannot be made, with the problem for the client."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True)
class HandOff:
    """A link between switches of two controller domains, with its port on each side."""

    link: str
    ports: Mapping[str, Port]
    vlan_range: tuple[int, int]
    first: str  # the domain at the link's end `a`

    def other(self, domain: str) -> str:
        """Return the domain at the other end."""
        return next(name for name in self.ports if name != domain)


class Domains:
    """The static description of all domains, which every controller has."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.domain_of = controlled_switches(network.domains, network.switches)
        self.names = tuple(dict.fromkeys(self.domain_of.values()))
        self.hand_offs = {h.link: h for h in map(self._hand_off, network.links) if h is not None}
        self._at = {
            (port.node, port.number): hand_off
            for hand_off in self.hand_offs.values()
            for port in hand_off.ports.values()
        }
        self._registered = {
            (s.endpoint_switch, s.endpoint_port, s.vlan): tuple(
                sorted(nic.mac.lower() for nic in network.nics_of(s))
            )
            for s in network.segments
        }

    def _hand_off(self, link: Link) -> HandOff | None:
        a, b = self.domain_of.get(link.a.node), self.domain_of.get(link.b.node)
        if a is None or b is None or a == b:
            return None
        return HandOff(link.name, {a: link.a, b: link.b}, link.vlan_range, a)

    def hand_off_at(self, switch: str, port: int) -> HandOff | None:
        """Return the hand-off at a port, if there is one."""
        return self._at.get((switch, port))

    def with_macs(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint. If it names no MACs, add those of the hosts of the segment that ends
        there."""
        if endpoint.macs:
            return endpoint
        return replace(endpoint, macs=self._registered.get(endpoint.key, ()))


@dataclass(frozen=True)
class Entry:
    """How frames of a path get into a domain."""

    link: str
    vlan: int


@dataclass(frozen=True)
class Tree:
    """A path over domains. `entries`: of every domain except the root's. `leaves`: by domain,
    without the root's domain, whose path service keeps its own."""

    root: Endpoint
    rate_bps: int
    algorithm: str = "shortest"
    entries: dict[str, Entry] = field(default_factory=dict)  # parents before children
    leaves: dict[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    channels: Channels | None = None

    def is_of(self, other: Tree) -> bool:
        """Return whether both are trees of the same path."""
        mine = (self.root, self.rate_bps, self.algorithm, self.channels)
        return mine == (other.root, other.rate_bps, other.algorithm, other.channels)

    @property
    def all_leaves(self) -> tuple[Endpoint, ...]:
        """Return the leaves in all domains."""
        return tuple(leaf for leaves in self.leaves.values() for leaf in leaves)


def grown(
    domains: Domains,
    tree: Tree,
    leaf: Endpoint,
    taken: Mapping[str, Iterable[int]],
    avoid: Container[str] = frozenset(),
) -> Tree:
    """Return the tree with one more leaf, which is not in the root's domain.

    `taken`: VLAN ids, by hand-off link, that some domain cannot give; `avoid`: hand-off links that
    are out of use. Raises Refusal.
    """
    domain = domains.domain_of[leaf.switch]
    _check_macs(tree, leaf)
    entries = dict(tree.entries)
    if domain not in entries:
        used = {name: entry.link for name, entry in entries.items()}
        start = tree.root.switch
        links = domains.network.links
        try:
            hops = route(
                domain_tree(links, domains.domain_of, start, used, avoid), start, leaf.switch
            )
        except NoPath:
            raise Refusal(
                Problem(
                    422,
                    "unreachable",
                    "Endpoint cannot be reached",
                    f"no links lead from switch '{start}' to switch '{leaf.switch}' of domain "
                    f"'{domain}' through controller domains, each entered once",
                )
            ) from None
        for hop in hops:
            into = domains.domain_of[hop.target]
            if hop.link.name in domains.hand_offs and into not in entries:
                hand_off = domains.hand_offs[hop.link.name]
                own = {tree.root.vlan, leaf.vlan, *(e.vlan for e in entries.values())}
                vlan = _choose_vlan(hand_off, into, own, set(taken.get(hand_off.link, ())))
                entries[into] = Entry(hand_off.link, vlan)
    leaves = dict(tree.leaves)
    leaves[domain] = tuple(sorted((*leaves.get(domain, ()), leaf)))
    return replace(tree, entries=entries, leaves=leaves)


def shrunk(domains: Domains, tree: Tree, keys: Container[tuple[str, int, int]]) -> Tree:
    """Return the tree without the leaves with those keys, and without domains that it no longer
    needs."""
    leaves = {
        domain: kept
        for domain, here in tree.leaves.items()
        if (kept := tuple(leaf for leaf in here if leaf.key not in keys))
    }
    needed: set[str] = set()
    for domain in leaves:
        here: str | None = domain
        while here is not None and here not in needed:
            needed.add(here)
            here = parent_of(domains, tree, here)
    entries = {domain: entry for domain, entry in tree.entries.items() if domain in needed}
    return replace(tree, entries=entries, leaves=leaves)


def parent_of(domains: Domains, tree: Tree, domain: str) -> str | None:
    """Return the domain from which `domain` is entered; None for the root's domain."""
    entry = tree.entries.get(domain)
    return None if entry is None else domains.hand_offs[entry.link].other(domain)


def segments_of(domains: Domains, tree: Tree) -> dict[str, Segment]:
    """Return the segment of each domain of the tree, the root's first, parents before children.

    The root's domain has only hand-offs in its segment: its path service keeps its own leaves.
    """
    home = domains.domain_of[tree.root.switch]
    order = [home, *tree.entries]
    macs: dict[str, set[str]] = {
        name: {mac for leaf in tree.leaves.get(name, ()) for mac in leaf.macs} for name in order
    }
    leaves = {name: list(tree.leaves.get(name, ())) for name in order}
    roots = {home: tree.root}
    for name in reversed(order[1:]):
        entry = tree.entries[name]
        hand_off = domains.hand_offs[entry.link]
        parent = hand_off.other(name)
        near, far = hand_off.ports[parent], hand_off.ports[name]
        roots[name] = Endpoint(far.node, far.number, entry.vlan, tree.root.macs)
        behind = tuple(sorted(macs[name]))
        leaves[parent].append(Endpoint(near.node, near.number, entry.vlan, behind))
        macs[parent] |= macs[name]
    return {
        name: Segment(
            roots[name],
            tree.rate_bps,
            tuple(sorted(leaves[name])),
            tree.algorithm,
            tree.channels,
        )
        for name in order
    }


def _check_macs(tree: Tree, leaf: Endpoint) -> None:
    if not leaf.macs:
        raise Refusal(
            Problem(
                422,
                "invalid-endpoint",
                "Invalid endpoint",
                f"leaf {leaf} is in another domain and has no MACs; valid: macs of the hosts "
                "behind it (no static segment of the network description ends there)",
            )
        )
    for other in (tree.root, *tree.all_leaves):
        if shared := sorted(set(other.macs) & set(leaf.macs)):
            raise Refusal(
                Problem(
                    422,
                    "invalid-endpoint",
                    "Invalid endpoint",
                    f"MAC {shared[0]} of leaf {leaf} is already at {other}",
                )
            )
    count = sum(len(other.macs) for other in tree.all_leaves) + len(leaf.macs)
    if count > MAX_MACS:
        raise Refusal(
            Problem(
                422,
                "invalid-endpoint",
                "Invalid endpoint",
                f"with leaf {leaf} the path would have {count} MACs in other domains; "
                f"valid: at most {MAX_MACS}",
            )
        )


def _choose_vlan(hand_off: HandOff, into: str, own: set[int], taken: set[int]) -> int:
    """Return a free id of the link's range, if possible one that the path does not use elsewhere.

    The two domains start at opposite ends of the range, so that they rarely choose the same id at
    the
    same time. Raises Refusal.
    """
    low, high = hand_off.vlan_range
    free = [vlan for vlan in range(low, high + 1) if vlan not in taken]
    if not free:
        raise Refusal(
            Problem(
                409,
                "no-vlan-left",
                "No VLAN id left",
                f"all VLAN ids {low}..{high} of hand-off link '{hand_off.link}' are in use",
            )
        )
    if into == hand_off.first:
        free.reverse()
    return next((vlan for vlan in free if vlan not in own), free[0])
