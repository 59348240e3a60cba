# SPDX-License-Identifier: Apache-2.0
"""Holds: changes that are reserved but not installed. No I/O.

A hold goes from held to committed, released or expired. It is remembered for a while, so that a
repeated request gets the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from controller.paths.core import Core
from controller.paths.multipoint_path import MultipointPath, endpoint_to_json
from controller.paths.plan import transition
from controller.paths.reservations import Reservations
from controller.service.problems import ServiceError
from controller.service.store import Change, HoldRow
from controller.service.views import HoldState, HoldView, PathWish
from controller.switches.installer import Phase

REMEMBERED_S = 3600.0
MAX_REMEMBERED = 2000  # per workgroup, so that none can exhaust the memory


def _request(wish: PathWish) -> str:
    raw = {
        "name": wish.name,
        "root": endpoint_to_json(wish.root),
        "rate_bps": wish.rate_bps,
        "workgroup": wish.workgroup,
        "algorithm": wish.algorithm.value,
        "leaf_to_leaf": wish.leaf_to_leaf,
        "end_time": wish.end_time,
        "leaves": [endpoint_to_json(leaf) for leaf in sorted(wish.leaves)],
        **({} if wish.channels is None else {"channels": str(wish.channels)}),
    }
    return json.dumps(raw, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class Hold:
    """A change that is reserved.

    `old` None: the path is new. `phases` install it. `until`: when it expires or, once it is over,
    is forgotten.
    """

    id: str
    name: str
    state: HoldState
    until: float
    request: str
    old: MultipointPath | None
    new: MultipointPath | None  # None after the hold has ended
    phases: tuple[Phase, ...] = ()

    @classmethod
    def of(
        cls,
        hold_id: str,
        wish: PathWish,
        old: MultipointPath | None,
        new: MultipointPath,
        until: float,
        phases: tuple[Phase, ...],
    ) -> Hold:
        """Return a hold that is open."""
        return cls(hold_id, wish.name, HoldState.HELD, until, _request(wish), old, new, phases)

    def finished(self, state: HoldState, now: float) -> Hold:
        """Return the hold as over, to be forgotten REMEMBERED_S after `now`."""
        return replace(self, state=state, until=now + REMEMBERED_S, old=None, new=None, phases=())

    @cached_property
    def workgroup(self) -> str:
        """Return the workgroup that asked for the hold."""
        return str(json.loads(self.request)["workgroup"])

    def view(self) -> HoldView:
        """Return the hold as callers see it."""
        return HoldView(self.id, self.name, self.workgroup, self.state, self.until)

    def row(self) -> HoldRow:
        """Return the hold as the store keeps it."""
        change = ""
        if self.new is not None:
            raw = (
                {"path": self.new.to_json()}
                if self.old is None
                else {"change": Change.between(self.old, self.new).to_json()}
            )
            change = json.dumps(raw, separators=(",", ":"))
        return HoldRow(self.id, self.name, self.state.value, self.until, self.request, change)

    def check_same(self, wish: PathWish) -> None:
        """Raise ServiceError 409 unless the wish is the one that was held."""
        if self.request != _request(wish):
            taken = f"the hold id '{self.id}' is in use; valid: another one"
            raise ServiceError(
                409,
                "hold-exists",
                "Hold exists",
                f"hold '{self.id}' exists with other content: {self.request}",
            ).only_for(self.workgroup, ServiceError(409, "hold-exists", "Hold exists", taken))
        if self.state in (HoldState.RELEASED, HoldState.EXPIRED):
            self.check_open()

    def check_open(self) -> None:
        """Raise ServiceError 409 if the hold is over."""
        if self.state is not HoldState.HELD:
            raise ServiceError(
                409,
                "hold-over",
                "Hold is over",
                f"hold '{self.id}' of path '{self.name}' is {self.state.value}; valid: a new hold",
            )


class Holds:
    """All holds. Used under the service's lock."""

    def __init__(self) -> None:
        self._by_id: dict[str, Hold] = {}
        self._open: dict[str, Hold] = {}  # by path

    def load(
        self,
        core: Core,
        reservations: Reservations,
        rows: Iterable[HoldRow],
        paths: Mapping[str, MultipointPath],
    ) -> None:
        """Load an earlier process's holds, and reserve what open ones need. All paths are already
        reserved."""
        for row in rows:
            state = HoldState(row.state)
            old = paths.get(row.path)
            new: MultipointPath | None = None
            phases: tuple[Phase, ...] = ()
            if state is HoldState.HELD:
                raw = json.loads(row.change)
                if "path" in raw:
                    old, new = None, MultipointPath.from_json(raw["path"])
                elif old is not None:
                    new = Change.from_json(raw["change"]).applied_to(old)
                if new is None:
                    raise ValueError(f"hold '{row.id}' is of path '{row.path}', which is missing")
                phases = transition(core, old, new)
                reservations.replace(old, new)
            else:
                old = None
            self.put(Hold(row.id, row.path, state, row.until, row.request, old, new, phases))

    def put(self, hold: Hold) -> None:
        """Add a hold, or replace it."""
        self._by_id[hold.id] = hold
        if hold.state is HoldState.HELD:
            self._open[hold.name] = hold
        elif self._open.get(hold.name, hold).id == hold.id:
            self._open.pop(hold.name, None)

    def forget(self, hold_id: str) -> None:
        """Forget a hold."""
        del self._by_id[hold_id]

    def find(self, hold_id: str) -> Hold | None:
        """Return a hold, if it is known."""
        return self._by_id.get(hold_id)

    def existing(self, hold_id: str) -> Hold:
        """Return a hold. Raises ServiceError 404."""
        hold = self._by_id.get(hold_id)
        if hold is None:
            raise ServiceError(404, "unknown-hold", "Unknown hold", f"there is no hold '{hold_id}'")
        return hold

    def open_of(self, path: str) -> Hold | None:
        """Return the hold that is open on a path, if any."""
        return self._open.get(path)

    def open(self) -> list[Hold]:
        """Return the holds that are open."""
        return list(self._open.values())

    def expired(self, now: float) -> list[Hold]:
        """Return the open holds that have expired."""
        return [hold for hold in self._open.values() if hold.until <= now]

    def forgotten(self, now: float) -> list[str]:
        """Return the ids of holds that ended long enough ago to be forgotten, and the oldest ones
        of a workgroup that has too many."""
        finished = [hold for hold in self._by_id.values() if hold.state is not HoldState.HELD]
        over = [hold.id for hold in finished if hold.until <= now]
        if len(finished) - len(over) > MAX_REMEMBERED:
            of_workgroup: dict[str, list[Hold]] = {}
            for hold in finished:
                if hold.until > now:
                    of_workgroup.setdefault(hold.workgroup, []).append(hold)
            for holds in of_workgroup.values():
                holds.sort(key=lambda hold: hold.until)
                over += [hold.id for hold in holds[:-MAX_REMEMBERED]]
        return over
