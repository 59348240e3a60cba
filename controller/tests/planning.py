# SPDX-License-Identifier: Apache-2.0
"""Plans without a service, for the tests: every step is at once entered in the books."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.paths.core import (
    NOTHING_DOWN,
    Core,
    DownSet,
    Endpoint,
    EndpointKey,
)
from controller.paths.entries import Entry
from controller.paths.messages import Delta
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import (
    Step,
    add_leaf,
    create_path,
    delete_path,
    remove_leaf,
    set_channels,
)
from controller.paths.replan import reroute
from controller.paths.reservations import Reservations


class Desk:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.reservations = Reservations(core)

    def take(self, step: Step) -> Step:
        step.apply(self.reservations)
        return step

    def create(self, name: str, root: Endpoint, rate_bps: int, **more: Any) -> MultipointPath:
        path = MultipointPath(name, self.reservations.next_number(), root, rate_bps, **more)
        step = self.take(create_path(self.core, self.reservations, path))
        assert step.new is not None
        return step.new

    def add(self, name: str, leaf: Endpoint, down: DownSet = NOTHING_DOWN) -> Step:
        return self.take(add_leaf(self.core, self.reservations, self[name], leaf, down))

    def remove(self, name: str, key: EndpointKey) -> Step:
        return self.take(remove_leaf(self.core, self.reservations, self[name], key))

    def join(self, name: str, wanted: Mapping[EndpointKey, frozenset[int]]) -> Step:
        return self.take(set_channels(self.core, self.reservations, self[name], wanted))

    def delete(self, name: str, *, release: bool = True) -> Step:
        path = self[name]
        step = self.take(delete_path(self.core, self.reservations, path))
        if release:
            self.reservations.release_number(path.number)
        return step

    def reroute(self, name: str, down: DownSet) -> Step:
        return self.take(reroute(self.core, self.reservations, self[name], down))

    def __getitem__(self, name: str) -> MultipointPath:
        path = self.reservations.path(name)
        assert path is not None
        return path

    def vlans(self, name: str) -> dict[str, int]:
        return {hop.link: hop.vlan for hop in self[name].hops}


def grown(core: Core, path: MultipointPath, *leaves: Endpoint) -> MultipointPath:
    """Return `path`, alone in its domain, with leaves added."""
    desk = Desk(core)
    desk.take(create_path(core, desk.reservations, path))
    for leaf in leaves:
        desk.add(path.name, leaf)
    return desk[path.name]


def changed(
    held: Mapping[str, Iterable[Entry]], phase: Mapping[str, Delta]
) -> dict[str, frozenset[Entry]]:
    """Return what the switches hold after a phase. Fails if it removes what does not exist."""
    result = {switch: set(entries) for switch, entries in held.items()}
    for switch, delta in phase.items():
        entries = result.setdefault(switch, set())
        assert entries >= set(delta.removed), f"{switch}: {set(delta.removed) - entries}"
        entries -= set(delta.removed)
        assert not {e.key for e in entries} & {e.key for e in delta.added}
        entries |= set(delta.added)
    return {switch: frozenset(entries) for switch, entries in result.items()}
