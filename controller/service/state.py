# SPDX-License-Identifier: Apache-2.0
"""What the controller knows about its domain's paths.

This comprises the reservations, the paths and holds, the quarantine, and the store from which all
are read at the start.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from common.counting import counted
from controller.paths.core import Core, DownSet, Endpoint, EndpointKey
from controller.paths.entries import Entry
from controller.paths.multipoint_path import MultipointPath, unreached
from controller.paths.plan import Step, entries_of
from controller.paths.reservations import Reservations
from controller.service.events import EventLog
from controller.service.holds import Hold, Holds
from controller.service.owed import Owed
from controller.service.problems import ServiceError, name_in_use, unknown_path
from controller.service.quarantine import Quarantine, rows_of
from controller.service.store import (
    NO_GENERATION,
    Blocked,
    Fenced,
    Store,
    check_fits,
)
from controller.service.views import HoldState, PathWish

LOG = logging.getLogger("controller.service.service")  # one name for all modules of the service
BUSY_TIMEOUT_S = 30.0  # how long a change waits for an earlier change of the same path


class PathState:
    """The paths of a domain as they are wanted, whatever the switches say.

    `lock` guards every change and is never held while waiting for a switch. Single items are
    replaced, never modified, so reads need no lock. Attributes that `load` sets are replaced when a
    standby becomes active.
    """

    def __init__(
        self, core: Core, store: Store, events: EventLog, clock: Callable[[], float]
    ) -> None:
        self.core = core
        self.store = store
        self.events = events
        self.clock = clock
        self.lock = threading.Lock()
        self.idle = threading.Condition(self.lock)
        # Paths whose change is planned but not finished, and the endpoints that it frees: another
        # path's entries there would have the same keys as those that are being deleted.
        self.busy: set[str | EndpointKey] = set()
        self.down_links: dict[str, str] = {}  # name -> reason
        self.owed = Owed()
        self._store_problem = ""  # "": the store accepted the last change
        self._standby_of: str | None = None

    def load(self) -> dict[str, list[Entry]]:
        """Read the store, and return the entries that its paths need, by switch.

        Raises StoreError.
        """
        loaded = self.store.load()
        self.owed = Owed()
        self.reservations = Reservations(self.core)
        self.paths: dict[str, MultipointPath] = {}
        self.quarantine = Quarantine(self.reservations)
        self.quarantine.load(loaded.blocked)
        self.incomplete: set[str] = set()  # paths with leaves that cannot be reached now
        desired: dict[str, list[Entry]] = {}
        for path in loaded.paths:
            check_fits(self.core, path)
            self.reservations.replace(None, path)
            self.paths[path.name] = path
            if unreached(self.core, path):
                self.incomplete.add(path.name)
            for switch, entries in entries_of(self.core, path).items():
                desired.setdefault(switch, []).extend(entries)
        self.holds = Holds()
        self.holds.load(self.core, self.reservations, loaded.holds, self.paths)
        self.degraded = set(self.paths)  # nothing is known about the switches' content
        if self.paths:
            LOG.info(
                "recovered from the store: %s, %s, %s",
                counted(len(self.paths), "path"),
                counted(sum(len(path.leaves) for path in self.paths.values()), "leaf", "leaves"),
                counted(len(loaded.holds), "hold"),
            )
        return desired

    # -- active or standby

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts; a standby does not."""
        return self._standby_of is None

    def become_active(self) -> None:
        """Act from now on."""
        self._standby_of = None

    def become_standby(self, active: str) -> None:
        """Leave the domain to the controller at the address `active` ("": not known)."""
        self._standby_of = active
        self.store.fence(NO_GENERATION)

    def check_active(self) -> None:
        """Raise ServiceError 503 on a standby."""
        active = self._standby_of
        if active is not None:
            raise ServiceError(
                503,
                "standby",
                "Standby",
                f"this controller is a standby; the active one is {active or 'not known yet'}",
            )

    # -- reading

    @property
    def down(self) -> DownSet:
        """Return what plans have to avoid."""
        return DownSet(links=frozenset(self.down_links))

    def existing(self, name: str) -> MultipointPath:
        """Return the path with that name. Raises ServiceError 404."""
        path = self.paths.get(name)
        if path is None:
            raise unknown_path(name)
        return path

    def leaf_of(self, path: MultipointPath, key: EndpointKey) -> Endpoint | None:
        """Return the path's leaf at `key`, unless a hold has only reserved it."""
        if self.holds.open_of(path.name) is None:
            return self.reservations.tree(path.name).leaves.get(key)
        return next((leaf for leaf in path.leaves if leaf.key == key), None)

    def new_path(self, wish: PathWish) -> MultipointPath:
        """Return the path that a wish describes, without leaves and with its own number."""
        return MultipointPath(
            name=wish.name,
            number=self.reservations.next_number(),
            root=wish.root,
            rate_bps=wish.rate_bps,
            workgroup=wish.workgroup,
            algorithm=wish.algorithm,
            leaf_to_leaf=wish.leaf_to_leaf,
            end_time=wish.end_time,
            channels=wish.channels,
        )

    def check_end_time(self, end_time: float | None) -> None:
        """Raise ServiceError 422 if the end time has passed."""
        if end_time is not None and end_time <= self.clock():
            raise ServiceError(
                422,
                "invalid",
                "Invalid request",
                f"end_time {end_time:.3f} is in the past; valid: after now ({self.clock():.3f})",
            )

    def check_not_held(self, name: str) -> None:
        """Raise ServiceError 409 while a hold of the path is open."""
        hold = self.holds.open_of(name)
        if hold is not None:
            problem = ServiceError(
                409,
                "path-held",
                "Path is held",
                f"hold '{hold.id}' of path '{name}' is open until {hold.until:.3f}; valid: to "
                "commit or release it first",
            )
            public = name_in_use(name)
            if hold.old is not None:
                detail = f"a hold of path '{name}' is open until {hold.until:.3f}; valid: later"
                public = ServiceError(409, "path-held", "Path is held", detail)
            raise problem.only_for(hold.workgroup, public)

    # -- turns; called with the lock

    def wait_until_quiet(self) -> None:
        """Wait until no change is under way, at most BUSY_TIMEOUT_S."""
        self.idle.wait_for(lambda: not self.busy, BUSY_TIMEOUT_S)

    def wait_until_idle(self, name: str, endpoints: Iterable[EndpointKey] = ()) -> None:
        """Wait until no change of the path, and no change that frees the endpoints, is under way.

        Raises ServiceError 504 after BUSY_TIMEOUT_S.
        """
        keys = frozenset([name, *endpoints])
        if not self.idle.wait_for(lambda: not keys & self.busy, BUSY_TIMEOUT_S):
            raise ServiceError(
                504,
                "unconfirmed",
                "The switches did not confirm in time",
                f"an earlier change of path '{name}' has not ended after {BUSY_TIMEOUT_S:g} s",
            )

    def wait_for_ready(self, names: set[str]) -> list[str]:
        """Wait until at least one of the paths has no change under way; return all such paths."""
        self.idle.wait_for(lambda: any(name not in self.busy for name in names))
        return sorted(name for name in names if name not in self.busy)

    # -- changing; called with the lock

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block in a transaction of the store, after writing what is owed to it.

        Raises ServiceError 503, 507; then nothing was written.
        """
        try:
            with self.store.transaction():
                paid = self.owed.write(self.store, self.paths, self.holds) if self.owed else None
                yield
            if paid is not None:
                paid()
        except Fenced as error:
            self._standby_of = ""
            LOG.error("another controller has taken over; this one is a standby now")
            raise ServiceError(
                503, "standby", "Standby", "another controller has taken over meanwhile"
            ) from error
        except sqlite3.Error as error:
            self._note_store(str(error))
            raise ServiceError(
                507, "store", "Store cannot be written", f"nothing was changed: {error}"
            ) from error
        self._note_store("")

    def _note_store(self, problem: str) -> None:
        """Log that the store cannot be written, or can again: once, however often it is tried."""
        if problem and problem != self._store_problem:
            LOG.error("the store cannot be written: %s", problem)
        elif self._store_problem and not problem:
            LOG.info("the store can be written again")
        self._store_problem = problem

    def pay(self) -> None:
        """Write what is owed to the store, if it can be written again."""
        if self.owed:
            try:
                with self.writing():
                    pass
            except ServiceError as error:
                if error.kind != "store":
                    raise

    def enter(self, step: Step) -> None:
        """Reserve what a step needs. What it frees stays reserved for now."""
        step.apply(self.reservations)
        if step.old is not None and step.new is not None:
            self.reservations.set_aside(step.old, step.new)

    def record(
        self, steps: Sequence[Step], *, entered: bool, hold: Hold | None
    ) -> tuple[Blocked, ...]:
        """Reserve, write and show the steps, and return the ids that they free.

        If the store fails, nothing has changed. `entered`: the steps are already reserved. `hold`
        is written with them; if that fails, its reservation stays.
        """
        rows: list[Blocked] = []
        for step in steps:
            if not entered:
                self.enter(step)
            rows += rows_of(self.core, step.old, step.new, step.switches)
        try:
            with self.writing():
                for step in steps:
                    self.store.replace(step.old, step.new)
                self.store.block(rows)
                if hold is not None:
                    self.store.put_hold(hold.row())
        except BaseException:
            if hold is None:
                for step in reversed(steps):
                    self.take_back(step)
            raise
        self.quarantine.begin(rows)
        for step in steps:
            self._show(step.old, step.new)
        return tuple(rows)

    def undo(self, steps: Sequence[Step], hold: Hold | None) -> tuple[Blocked, ...]:
        """Reverse steps that the switches have undone, or will undo once their content is known.

        `hold`, which the steps committed, is released. Returns the ids that this frees. If the
        store cannot be written, it is written later.
        """
        rows: list[Blocked] = []
        for step in reversed(steps):
            self.reservations.replace(step.new, step.old)
            if step.new is not None:
                if step.old is not None:
                    self.reservations.set_aside(step.new, step.old)
                rows += rows_of(self.core, step.new, step.old, step.switches)
            self._show(step.new, step.old)
        self.quarantine.begin(rows)
        ids = []
        if hold is not None:
            self.holds.put(hold.finished(HoldState.RELEASED, self.clock()))
            ids.append(hold.id)
        self.owed.add((path for step in steps for path in (step.old, step.new)), ids, rows)
        self.pay()
        return tuple(rows)

    def take_back(self, step: Step) -> None:
        """Reverse `enter`, for a step that was sent to no switch."""
        if step.old is not None and step.new is not None:
            kept = frozenset(step.new.hops)
            self.reservations.give_back((h.link, h.vlan) for h in step.old.hops if h not in kept)
        elif step.old is not None:
            self.reservations.release_number(step.old.number)
        self.reservations.replace(step.new, step.old)
        if step.old is None and step.new is not None:
            self.reservations.release_number(step.new.number)

    def _show(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        if new is not None:
            self.paths[new.name] = new
        elif old is not None:
            del self.paths[old.name]
            self.degraded.discard(old.name)
            self.incomplete.discard(old.name)

    def unblock(self, rows: Sequence[Blocked]) -> None:
        """Drop rows that all switches have confirmed. If the store fails, they stay longer."""
        if rows:
            with contextlib.suppress(ServiceError), self.writing():
                self.store.unblock(rows)

    def put_hold(self, hold: Hold) -> None:
        """Write a hold, then show it. Raises ServiceError 503, 507."""
        with self.writing():
            self.store.put_hold(hold.row())
        self.holds.put(hold)

    def drop_hold(self, hold: Hold, state: HoldState, why: str) -> None:
        """End an open hold and release what it reserves. Raises ServiceError 503, 507."""
        done = hold.finished(state, self.clock())
        with self.writing():
            self.store.put_hold(done.row())
        self.unreserve(hold.old, hold.new)
        self.holds.put(done)
        LOG.info("hold=%s path=%s action=%s", hold.id, hold.name, why)

    def unreserve(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        """Replace a reservation that was sent to no switch by the previous one."""
        if new is not None and new != old:
            self.reservations.replace(new, old)
            if old is None:  # no switch has ever seen the path's number
                self.reservations.release_number(new.number)

    def expire_holds(self, now: float) -> None:
        """End holds that were not committed in time, and drop those that ended long ago."""
        for hold in self.holds.expired(now):
            self.drop_hold(hold, HoldState.EXPIRED, "expired")
        forgotten = self.holds.forgotten(now)
        if forgotten:
            with self.writing():
                for hold_id in forgotten:
                    self.store.delete_hold(hold_id)
        for hold_id in forgotten:
            self.holds.forget(hold_id)

    def note_reach(self, path: MultipointPath) -> None:
        """Remember, and log, whether the path has leaves that cannot be reached now."""
        lost = unreached(self.core, path)
        if lost:
            self.incomplete.add(path.name)
            LOG.error("path=%s no route to: %s", path.name, ", ".join(str(leaf) for leaf in lost))
        else:
            self.incomplete.discard(path.name)
