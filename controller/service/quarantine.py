# SPDX-License-Identifier: Apache-2.0
"""Numbers and VLAN ids that a change freed, until every switch has dropped them.

A switch that has not confirmed the deletion of an entry may still forward by it. If another path
got the VLAN id meanwhile, its frames would reach the old leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.paths.core import Core
from controller.paths.multipoint_path import MultipointPath
from controller.paths.reservations import Reservations
from controller.service.store import Blocked

Key = int | tuple[str, int]  # number of a deleted path | (link, VLAN id)


def _key(row: Blocked) -> Key:
    return row.number or (row.link, row.vlan)


def rows_of(
    core: Core, old: MultipointPath | None, new: MultipointPath | None, switches: Iterable[str]
) -> tuple[Blocked, ...]:
    """Return what the change from `old` to `new` frees, for the switches that must drop it."""
    if old is None:
        return ()
    number = 0 if new is not None else old.number
    kept = frozenset(new.hops) if new is not None else frozenset()
    rows = [Blocked(switch, number) for switch in switches] if number else []
    for tree_hop in old.hops:
        if tree_hop not in kept:
            hop = core.hop[tree_hop.link, tree_hop.source]
            rows += [
                Blocked(switch, number, tree_hop.link, tree_hop.vlan)
                for switch in (hop.source, hop.target)
            ]
    return tuple(rows)


class Quarantine:
    """What is freed but not yet confirmed. Used under the service's lock."""

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._rows: dict[Key, set[Blocked]] = {}
        self._at: dict[str, set[Blocked]] = {}  # switch -> rows that wait for this switch

    def load(self, rows: Iterable[Blocked]) -> None:
        """Load an earlier process's rows, before any path is reserved."""
        for row in rows:
            self._rows.setdefault(_key(row), set()).add(row)
            self._at.setdefault(row.switch, set()).add(row)
        for key, waiting in self._rows.items():
            freed = {(row.link, row.vlan) for row in waiting if row.link}
            self._reservations.keep_aside(key if isinstance(key, int) else None, freed)

    @property
    def is_empty(self) -> bool:
        """Return whether paths may get every number and VLAN id again."""
        return not self._rows

    def begin(self, rows: Iterable[Blocked]) -> None:
        """Keep rows that are reserved as set aside and that switches have not confirmed."""
        for row in rows:
            self._rows.setdefault(_key(row), set()).add(row)

    def settle(self, rows: Iterable[Blocked], is_known: Callable[[str], bool]) -> list[Blocked]:
        """Return the rows that no switch has after a change; keep the others."""
        done = []
        for row in rows:
            if is_known(row.switch):
                self._release(row)
                done.append(row)
            else:
                self._at.setdefault(row.switch, set()).add(row)
        return done

    def switch_known(self, switch: str) -> list[Blocked]:
        """Return the rows that waited for a switch, which now has exactly what it should."""
        rows = list(self._at.pop(switch, ()))
        for row in rows:
            self._release(row)
        return rows

    def _release(self, row: Blocked) -> None:
        key = _key(row)
        waiting = self._rows.get(key)
        if waiting is None:
            return
        waiting.discard(row)
        if not waiting:
            del self._rows[key]
            if isinstance(key, int):
                self._reservations.release_number(key)
            else:
                self._reservations.give_back([key])
