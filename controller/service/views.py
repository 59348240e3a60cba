# SPDX-License-Identifier: Apache-2.0
"""Paths, wishes and holds as the service's callers see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import attrgetter

from controller.paths.core import Core, Endpoint, EndpointKey
from controller.paths.multipoint_path import (
    Algorithm,
    Channels,
    Edge,
    MultipointPath,
    edges_of,
)
from controller.service.problems import ServiceError, name_in_use


@dataclass(frozen=True)
class PathWish:
    """A path as a client wants it. Endpoints without MACs get the registered ones."""

    name: str
    root: Endpoint
    rate_bps: int
    workgroup: str = ""
    algorithm: Algorithm = Algorithm.SHORTEST
    leaf_to_leaf: bool = False
    end_time: float | None = None
    leaves: tuple[Endpoint, ...] = ()
    channels: Channels | None = None

    def differences(self, path: MultipointPath) -> str:
        """Return how `path` differs, in words; "" if it does not.

        Leaves are not compared, nor is an end time if the wish does not name one.
        """
        pairs: list[tuple[str, object, object]] = [
            ("workgroup", path.workgroup, self.workgroup or path.workgroup),
            ("root", path.root, self.root),
            ("MACs of the root", _macs(path.root), _macs(self.root)),
            ("rate_bps", path.rate_bps, self.rate_bps),
            ("algorithm", path.algorithm.value, self.algorithm.value),
            ("leaf_to_leaf", path.leaf_to_leaf, self.leaf_to_leaf),
            ("channels", path.channels or "none", self.channels or "none"),
        ]
        if self.end_time is not None:
            pairs.append(("end_time", path.end_time, self.end_time))
        return ", ".join(
            f"{what} {found} instead of {asked}" for what, found, asked in pairs if found != asked
        )

    def check_same(self, path: MultipointPath) -> None:
        """Raise ServiceError 409, which says what differs, if `path` is not as wished."""
        differences = self.differences(path)
        if differences:
            detail = f"path '{path.name}' exists with {differences}"
            raise ServiceError(409, "path-exists", "Path exists", detail).only_for(
                path.workgroup, name_in_use(path.name)
            )


def _macs(endpoint: Endpoint) -> str:
    return ", ".join(endpoint.macs) or "any"


class PathView:
    """A path at one moment. What the switches have confirmed of it is computed on demand."""

    def __init__(self, path: MultipointPath, core: Core, is_known: Callable[[str], bool]) -> None:
        self.path = path
        self._core = core
        self._is_known = is_known

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Return the core links, parents before children."""
        return edges_of(self._core, self.path)

    @cached_property
    def _served(self) -> frozenset[str]:
        """Return the switches that the root reaches through switches that have all confirmed."""
        path = self.path
        served = {path.root.switch} if self._is_known(path.root.switch) else set()
        for tree_hop in path.hops:
            hop = self._core.hop[tree_hop.link, tree_hop.source]
            if hop.source in served and self._is_known(hop.target):
                served.add(hop.target)
        return frozenset(served)

    def down_leaves(self) -> frozenset[EndpointKey]:
        """Return leaves that cannot be reached now, or with an unconfirmed switch on their way."""
        served = self._served
        return frozenset(leaf.key for leaf in self.path.leaves if leaf.switch not in served)

    @property
    def up(self) -> bool:
        """Return whether every switch on the way to every leaf has confirmed."""
        served = self._served
        at = map(attrgetter("switch"), self.path.leaves)
        return self.path.root.switch in served and served.issuperset(at)

    @property
    def group_switches(self) -> tuple[str, ...]:
        """Return the switches that copy frames."""
        copying = {hop.source for hop in self.path.hops}
        reached = {self.path.root.switch, *(edge.target for edge in self.edges)}
        copying.update(leaf.switch for leaf in self.path.leaves if leaf.switch in reached)
        return tuple(sorted(copying))


class HoldState(StrEnum):
    HELD = "held"
    COMMITTED = "committed"
    RELEASED = "released"
    EXPIRED = "expired"


@dataclass(frozen=True)
class HoldView:
    """A hold. `until`: when an open hold expires, or a finished one is forgotten."""

    id: str
    path: str
    workgroup: str
    state: HoldState
    until: float
