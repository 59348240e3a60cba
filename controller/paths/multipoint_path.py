# SPDX-License-Identifier: Apache-2.0
"""What a multipoint path is: values, and their JSON for the store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address
from itertools import compress, count
from operator import is_not
from typing import NamedTuple, NotRequired, TypedDict, TypeVar

from controller.paths.core import Core, Endpoint, EndpointKey


class Algorithm(StrEnum):
    """How the way of a joining leaf to the tree is chosen."""

    SHORTEST = "shortest"  # least cost from the root to the leaf
    STEINER = "steiner"  # least cost from the tree to the leaf (Takahashi and Matsuyama, 1980)


@dataclass(frozen=True)
class TreeHop:
    """A core link of a tree, away from the root: it leaves `source`. `vlan` is the path's id on the
    link, in both directions."""

    link: str
    source: str
    vlan: int


@dataclass(frozen=True)
class Channels:
    """Groups of a path that each leaf joins by itself, by IGMP: `base` and the `count` - 1 that
    follow. A leaf still gets a group for `leave_latency_ms` after its last host has left it."""

    base: IPv4Address
    count: int
    leave_latency_ms: int = 0

    def __str__(self) -> str:
        return f"{self.count} from {self.base}, leave latency {self.leave_latency_ms} ms"

    def group(self, channel: int) -> IPv4Address:
        """Return the address of a channel, counted from 0."""
        return self.base + channel


class Member(NamedTuple):
    """A leaf that has joined a channel. Channels are counted from 0."""

    channel: int
    leaf: EndpointKey


class EndpointDocument(TypedDict):
    """An endpoint as JSON."""

    switch: str
    port: int
    vlan: int
    macs: list[str]


class HopDocument(TypedDict):
    """A `TreeHop` as JSON."""

    link: str
    source: str
    vlan: int


class ChannelsDocument(TypedDict):
    """`Channels`, and the members: [channel, switch, port, VLAN id]."""

    base: str
    count: int
    leave_latency_ms: int
    members: list[tuple[int, str, int, int]]


class PathDocument(TypedDict):
    """A `MultipointPath` as the store and holds keep it."""

    name: str
    number: int
    root: EndpointDocument
    rate_bps: int
    leaves: list[EndpointDocument]
    hops: list[HopDocument]
    workgroup: str
    algorithm: str
    leaf_to_leaf: bool
    end_time: float | None
    channels: NotRequired[ChannelsDocument | None]


@dataclass(frozen=True)
class MultipointPath:
    """A multipoint path in one domain.

    `number` is unique among the paths of a domain. It is the meter id at the root's switch, the
    group id at every switch of the tree, and the lower 24 bits of its flows' cookies. `rate_bps` 0
    means best effort: no guarantee, no meter, the lowest queue. `hops` is the tree, parents before
    children. It is state: it changes in steps (plan.py), and does not follow from the leaves. A
    leaf whose switch is not in the tree cannot be reached now (replan.py). `end_time`: epoch
    seconds.

    With `channels`, a frame to one of those groups only reaches the leaves among `members`; all
    other frames reach every leaf. `members` is also state.
    """

    name: str
    number: int
    root: Endpoint
    rate_bps: int
    leaves: tuple[Endpoint, ...] = ()
    hops: tuple[TreeHop, ...] = ()
    workgroup: str = ""
    algorithm: Algorithm = Algorithm.SHORTEST
    leaf_to_leaf: bool = False
    end_time: float | None = None
    channels: Channels | None = None
    members: frozenset[Member] = frozenset()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the root and the leaves."""
        return (self.root, *self.leaves)

    def to_json(self) -> PathDocument:
        """Return the path as the store and holds keep it."""
        return {
            "name": self.name,
            "number": self.number,
            "root": endpoint_to_json(self.root),
            "rate_bps": self.rate_bps,
            "leaves": [endpoint_to_json(leaf) for leaf in self.leaves],
            "hops": [{"link": h.link, "source": h.source, "vlan": h.vlan} for h in self.hops],
            "workgroup": self.workgroup,
            "algorithm": self.algorithm.value,
            "leaf_to_leaf": self.leaf_to_leaf,
            "end_time": self.end_time,
            "channels": channels_to_json(self),
        }

    @classmethod
    def from_json(cls, raw: PathDocument) -> MultipointPath:
        """Read what `to_json` gives. Raises KeyError, TypeError, ValueError."""
        channels, members = channels_from_json(raw.get("channels"))
        return cls(
            name=raw["name"],
            number=raw["number"],
            root=endpoint_from_json(raw["root"]),
            rate_bps=raw["rate_bps"],
            leaves=tuple(endpoint_from_json(leaf) for leaf in raw["leaves"]),
            hops=tuple(TreeHop(h["link"], h["source"], h["vlan"]) for h in raw["hops"]),
            workgroup=raw["workgroup"],
            algorithm=Algorithm(raw["algorithm"]),
            leaf_to_leaf=raw["leaf_to_leaf"],
            end_time=raw["end_time"],
            channels=channels,
            members=members,
        )


def channels_to_json(path: MultipointPath) -> ChannelsDocument | None:
    """Return a path's channels and members as the store keeps them."""
    if path.channels is None:
        return None
    return {
        "base": str(path.channels.base),
        "count": path.channels.count,
        "leave_latency_ms": path.channels.leave_latency_ms,
        "members": [(member.channel, *member.leaf) for member in sorted(path.members)],
    }


def channels_from_json(
    raw: ChannelsDocument | None,
) -> tuple[Channels | None, frozenset[Member]]:
    """Read what `channels_to_json` gives. Raises KeyError, TypeError, ValueError."""
    if raw is None:
        return None, frozenset()
    members = frozenset(Member(n, (switch, port, vlan)) for n, switch, port, vlan in raw["members"])
    return Channels(IPv4Address(raw["base"]), raw["count"], raw["leave_latency_ms"]), members


def joined_by(members: Iterable[Member]) -> Mapping[EndpointKey, frozenset[int]]:
    """Return the channels that each leaf has joined."""
    found: dict[EndpointKey, set[int]] = {}
    for channel, leaf in members:
        found.setdefault(leaf, set()).add(channel)
    return {leaf: frozenset(channels) for leaf, channels in found.items()}


def endpoint_to_json(endpoint: Endpoint) -> EndpointDocument:
    """Return an endpoint as JSON."""
    return {
        "switch": endpoint.switch,
        "port": endpoint.port,
        "vlan": endpoint.vlan,
        "macs": list(endpoint.macs),
    }


def endpoint_from_json(raw: EndpointDocument) -> Endpoint:
    """Read what `endpoint_to_json` gives."""
    return Endpoint.of(raw["switch"], raw["port"], raw["vlan"], raw["macs"])


@dataclass(frozen=True)
class Edge:
    """A core link of a path, in the direction away from the root."""

    source: str
    source_port: int
    target: str
    target_port: int
    vlan: int


def edges_of(core: Core, path: MultipointPath) -> tuple[Edge, ...]:
    """Return the core links of the path, parents before children."""
    edges = []
    for tree_hop in path.hops:
        hop = core.hop[tree_hop.link, tree_hop.source]
        edges.append(Edge(hop.source, hop.source_port, hop.target, hop.target_port, tree_hop.vlan))
    return tuple(edges)


Item = TypeVar("Item")


def trimmed(
    old: tuple[Item, ...], new: tuple[Item, ...]
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return both without the objects that they share at their beginning and end.

    The differences are in what is left. Runs no bytecode per item, since paths have many items and
    differ in few.
    """
    shared = min(len(old), len(new))
    head = next(compress(count(), map(is_not, old, new)), shared)
    tail = next(compress(count(), map(is_not, reversed(old), reversed(new))), shared)
    tail = min(tail, shared - head)
    return old[head : len(old) - tail], new[head : len(new) - tail]


def difference(
    old: tuple[Item, ...], new: tuple[Item, ...]
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return (only in `old`, only in `new`), each in its order."""
    old, new = trimmed(old, new)
    in_old, in_new = frozenset(old), frozenset(new)
    return tuple(x for x in old if x not in in_new), tuple(x for x in new if x not in in_old)


def unreached(core: Core, path: MultipointPath) -> tuple[Endpoint, ...]:
    """Return the leaves that the tree does not lead to now."""
    inside = {path.root.switch, *(core.hop[h.link, h.source].target for h in path.hops)}
    return tuple(leaf for leaf in path.leaves if leaf.switch not in inside)
