# SPDX-License-Identifier: Apache-2.0
"""How a change of paths comes about: planned, entered into the books, written to the store, sent,
and settled or taken back. The state that the path service (service.py) acts upon.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.paths.core import (
    Core,
    DownSet,
    EndpointKey,
    PlanError,
    core_of,
)
from controller.paths.entries import Entry, Group
from controller.paths.forwarding import base_entries
from controller.paths.messages import Delta
from controller.paths.multipoint_path import (
    MultipointPath,
    edges_of,
    trimmed,
    unreached,
)
from controller.paths.plan import Step, entries_of
from controller.paths.queues import QueueDriver, QueueError, QueueKeeper
from controller.paths.replan import reroute
from controller.paths.reservations import Reservations
from controller.service.events import EventKind, EventLog
from controller.service.holds import Hold, Holds
from controller.service.problems import ServiceError, of_plan_error
from controller.service.quarantine import Quarantine, rows_of
from controller.service.store import (
    NO_GENERATION,
    Blocked,
    Fenced,
    Store,
    check_fits,
)
from controller.service.views import HoldState, PathView
from controller.switches.installer import (
    Apply,
    Failure,
    Installer,
    Outcome,
    Phase,
    Read,
)
from topologies.model.network import Network

LOG = logging.getLogger("controller.service.service")
BUSY_TIMEOUT_S = 30.0  # a change waits so long for an earlier one of the same path


@dataclass
class _Work:
    """Steps that are planned and written, not yet sent."""

    steps: tuple[Step, ...]
    phases: tuple[Phase, ...]
    rows: tuple[Blocked, ...]  # what they free
    keys: frozenset[str | EndpointKey]  # path names, and endpoints that they give up
    started: float


class Changes:
    """See PathService."""

    def __init__(
        self,
        network: Network,
        domain: str,
        apply: Apply,
        read: Read,
        *,
        store: Store | None = None,
        events: EventLog | None = None,
        extra_entries: Mapping[str, Iterable[Entry]] | None = None,
        queue_driver: QueueDriver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`extra_entries`: what switches hold besides the paths'. `queue_driver` sets the queues
        of their ports; None: nobody does. Raises UnknownDomain, StoreError."""
        set_queue = queue_driver is not None and queue_driver.sets_queue
        self.core: Core = core_of(network, domain, set_queue=set_queue)
        self._queues = QueueKeeper(self.core, queue_driver)
        self.events = events if events is not None else EventLog("0")
        self._store = store if store is not None else Store(None, network.name, domain)
        self._clock = clock
        self._base: dict[str, frozenset[Entry]] = {
            switch: entries | frozenset((extra_entries or {}).get(switch, ()))
            for switch, entries in base_entries(self.core).items()
        }
        self._installer = Installer(self.core.dpids, apply, read, self._on_known)
        self._lock = threading.Lock()  # planning; never held while a switch is waited for
        self._idle = threading.Condition(self._lock)
        self._group_changes: dict[tuple[str, int], int] = {}
        # Paths with a change that is planned and not finished, and the endpoints that it frees:
        # another path's entries there would have the keys of those that are being deleted.
        self._busy: set[str | EndpointKey] = set()
        self._down_links: dict[str, str] = {}  # name -> why
        self._standby_of: str | None = None
        self._load()

    # -- life

    def _load(self) -> None:
        """Raises StoreError."""
        loaded = self._store.load()
        self._reservations = Reservations(self.core)
        # Single items are replaced, never modified: reads need no lock.
        self._paths: dict[str, MultipointPath] = {}
        self._quarantine = Quarantine(self._reservations)
        self._quarantine.load(loaded.blocked)
        self._incomplete: set[str] = set()  # paths with leaves that cannot be reached just now
        desired: dict[str, list[Entry]] = {}
        for path in loaded.paths:
            check_fits(self.core, path)
            self._reservations.replace(None, path)
            self._paths[path.name] = path
            if unreached(self.core, path):
                self._incomplete.add(path.name)
            for switch, entries in entries_of(self.core, path).items():
                desired.setdefault(switch, []).extend(entries)
        self._holds = Holds()
        self._holds.load(self.core, self._reservations, loaded.holds, self._paths)
        self._queues.load(self._paths.values())
        self._degraded = set(self._paths)  # no switch is known to hold anything
        self._installer.reset(self._base, desired)
        if self._paths:
            LOG.info(
                "recovered from the store: %d paths, %d leaves, %d holds",
                len(self._paths),
                sum(len(path.leaves) for path in self._paths.values()),
                len(loaded.holds),
            )

    def activate(self, generation: int | None) -> None:
        """From now on this controller acts: the store is read anew (it was another's), and guarded
        by the lease's generation. The switches are to be reported by switch_up again."""
        with self._lock:
            self._idle.wait_for(lambda: not self._busy, BUSY_TIMEOUT_S)
            self._store.fence(generation)
            self._load()
            self._standby_of = None
        LOG.info("active: generation=%s paths=%d", generation, len(self._paths))

    def deactivate(self, active: str) -> None:
        """From now on another controller acts, whose address is `active` ('': not known)."""
        with self._lock:
            self._standby_of = active
            self._store.fence(NO_GENERATION)
        LOG.info("standby: the active controller is %s", active or "not known")

    @property
    def is_active(self) -> bool:
        return self._standby_of is None

    def check_active(self) -> None:
        """Raises ServiceError 503."""
        active = self._standby_of
        if active is not None:
            raise ServiceError(
                503,
                "standby",
                "Standby",
                f"this controller is a standby; the active one is {active or 'not known yet'}",
            )

    # -- inside: one change from the request to the answer

    @property
    def _down(self) -> DownSet:
        return DownSet(links=frozenset(self._down_links))

    def _existing(self, name: str) -> MultipointPath:
        path = self._paths.get(name)
        if path is None:
            detail = f"there is no path '{name}'; valid: a name that GET /v1/paths lists"
            raise ServiceError(404, "unknown-path", "Unknown path", detail)
        return path

    def _view(self, path: MultipointPath) -> PathView:
        return PathView(path, self.core, self._installer.known)

    def _wait_until_idle(self, name: str, endpoints: Iterable[EndpointKey] = ()) -> None:
        """Until no change of the path is under way, nor one that frees the endpoints. Called with
        the lock. Raises ServiceError 504."""
        keys = frozenset([name, *endpoints])
        if not self._idle.wait_for(lambda: not keys & self._busy, BUSY_TIMEOUT_S):
            raise ServiceError(
                504,
                "unconfirmed",
                "The switches did not confirm in time",
                f"an earlier change of path '{name}' has not ended after {BUSY_TIMEOUT_S:g} s",
            )

    def _check_not_held(self, name: str) -> None:
        """Raises ServiceError 409."""
        hold = self._holds.open_of(name)
        if hold is not None:
            raise ServiceError(
                409,
                "path-held",
                "Path is held",
                f"hold '{hold.id}' of path '{name}' is open until {hold.until:.3f}; valid: to "
                "commit or release it first",
            )

    def _change(
        self,
        name: str,
        plan: Callable[[], Step | None],
        kind: EventKind,
        data: Mapping[str, object],
        *,
        may_undo: bool,
        endpoints: Iterable[EndpointKey] = (),
    ) -> tuple[PathView, bool]:
        """`plan` returns None if all is as asked for: then the path's switches that have not
        confirmed are tried once more. `endpoints`: what it wants to use."""
        self.check_active()
        with self._lock:
            self._wait_until_idle(name, endpoints)
            try:
                step = plan()
            except PlanError as error:
                raise of_plan_error(error) from error
            if step is not None:
                work = self._begin([step])
        if step is None:
            self._repair(name)
            return self._view(self._existing(name)), False
        self._run(work, kind, data, may_undo=may_undo)
        path = step.new if step.new is not None else step.old
        assert path is not None
        return self._view(path), True

    def _begin(
        self,
        steps: Sequence[Step],
        *,
        entered: bool = False,
        hold: Hold | None = None,
    ) -> _Work:
        """Books, store, and the place at each switch. Called with the lock; where the store fails,
        nothing has changed. `entered`: the books have the steps already. `hold`: to be written
        with them, its reservation staying as it is where that fails."""
        started = time.monotonic()
        rows: list[Blocked] = []
        for step in steps:
            if not entered:
                self._enter(step)
            rows += rows_of(self.core, step.old, step.new, step.switches)
        try:
            with self._writing():
                for step in steps:
                    self._store.replace(step.old, step.new)
                self._store.block(rows)
                if hold is not None:
                    self._store.put_hold(hold.row())
        except BaseException:
            if hold is None:
                for step in reversed(steps):
                    self._take_back(step)
            raise
        self._quarantine.begin(rows)
        for step in steps:
            self._show(step.old, step.new)
        keys: frozenset[str | EndpointKey] = frozenset(map(_name_of, steps)).union(
            *map(_given_up, steps)
        )
        self._busy |= keys
        phases = merged([step.phases for step in steps])
        self._note_groups(phases)
        return _Work(tuple(steps), phases, tuple(rows), keys, started)

    def _enter(self, step: Step) -> None:
        """Into the books; what it frees is not given to others yet."""
        step.apply(self._reservations)
        if step.old is not None and step.new is not None:
            self._reservations.set_aside(step.old, step.new)

    def _take_back(self, step: Step) -> None:
        """The opposite of `_enter`, for a step that no switch has heard of."""
        if step.old is not None and step.new is not None:
            kept = frozenset(step.new.hops)
            self._reservations.give_back((h.link, h.vlan) for h in step.old.hops if h not in kept)
        elif step.old is not None:
            self._reservations.release_number(step.old.number)
        self._reservations.replace(step.new, step.old)
        if step.old is None and step.new is not None:
            self._reservations.release_number(step.new.number)

    def _show(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        if new is not None:
            self._paths[new.name] = new
        elif old is not None:
            del self._paths[old.name]
            self._degraded.discard(old.name)
            self._incomplete.discard(old.name)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction of the store. Raises ServiceError 503, 507."""
        try:
            with self._store.transaction():
                yield
        except Fenced as error:
            self._standby_of = ""
            LOG.error("another controller has taken over; this one is a standby now")
            raise ServiceError(
                503, "standby", "Standby", "another controller has taken over meanwhile"
            ) from error
        except sqlite3.Error as error:
            LOG.error("the store cannot be written: %s", error)
            raise ServiceError(
                507, "store", "Store cannot be written", f"nothing was changed: {error}"
            ) from error

    def _run(
        self,
        work: _Work,
        kind: EventKind,
        data: Mapping[str, object],
        *,
        may_undo: bool,
    ) -> None:
        """Tells the switches and waits. Raises ServiceError 502 (undone), 504."""
        outcome = Outcome({})
        problem = self._widen_queues(work, may_undo=may_undo)
        try:
            if problem is None:
                outcome = self._installer.execute(work.phases, may_undo=may_undo)
            else:
                outcome = Outcome({}, undone=True)
        finally:
            self._settle_queues(work, undone=outcome.undone)
            self._finish(work, outcome)
        took_ms = (time.monotonic() - work.started) * 1000
        result = "undone" if outcome.undone else "unconfirmed" if outcome.failures else "confirmed"
        for step in work.steps:
            self._tell(step, kind, data, result, took_ms, len(work.phases))
        what = "; ".join(step.what for step in work.steps)
        if problem is not None:
            detail = f"not done: {what}: {problem}"
            raise ServiceError(502, "queues", "Queues could not be set", detail)
        if outcome.failures:
            raise _unconfirmed(what, outcome.failures, undone=outcome.undone)

    def _widen_queues(self, work: _Work, *, may_undo: bool) -> str | None:
        """Why the change must not be made; None: it may."""
        try:
            self._queues.widen([(step.old, step.new) for step in work.steps])
        except QueueError as error:
            LOG.error("queues: %s", error)
            return str(error) if may_undo else None
        return None

    def _settle_queues(self, work: _Work, *, undone: bool) -> None:
        changes = [(step.old, step.new) for step in work.steps]
        try:
            self._queues.settle([(new, old) for old, new in changes] if undone else changes)
        except QueueError as error:
            LOG.error("queues: %s", error)

    def _tell(
        self,
        step: Step,
        kind: EventKind,
        data: Mapping[str, object],
        result: str,
        took_ms: float,
        phases: int,
    ) -> None:
        path = step.new if step.new is not None else step.old
        assert path is not None
        LOG.info(
            "path=%s workgroup=%s action=%s %s result=%s switches=%d phases=%d took_ms=%.1f",
            path.name,
            path.workgroup or "-",
            kind,
            " ".join(f"{key}={value}" for key, value in data.items()),
            result,
            len(step.switches),
            phases,
            took_ms,
        )
        if result != "undone":
            self.events.add(
                kind, self._clock(), path.workgroup, path=path.name, **data, result=result
            )

    def _finish(self, work: _Work, outcome: Outcome) -> None:
        known = self._installer.known
        with self._lock:
            try:
                if outcome.undone:
                    self._undo(work)
                self._forget(self._quarantine.settle(work.rows, known))
            finally:
                self._busy -= work.keys
                self._idle.notify_all()
                self._note_groups(work.phases)
                for step in work.steps:
                    self._note_state(_name_of(step))

    def group_changes(self) -> dict[tuple[str, int], int]:
        """(switch, number of the group) -> how often a change of it began or ended."""
        with self._lock:
            return dict(self._group_changes)

    def _note_groups(self, phases: Iterable[Phase]) -> None:
        for phase in phases:
            for switch, change in phase.items():
                for entry in change.added:
                    if isinstance(entry, Group):
                        key = (switch, entry.number)
                        self._group_changes[key] = self._group_changes.get(key, 0) + 1

    def _forget(self, rows: Sequence[Blocked]) -> None:
        """Nobody waits for these any more. Should the store fail, it only blocks them longer."""
        if rows:
            with contextlib.suppress(ServiceError), self._writing():
                self._store.unblock(rows)

    def _undo(self, work: _Work) -> None:
        """The switches have taken the steps back, or will when they are known again."""
        rows: list[Blocked] = []
        for step in reversed(work.steps):
            self._reservations.replace(step.new, step.old)
            if step.new is not None:
                if step.old is not None:
                    self._reservations.set_aside(step.new, step.old)
                rows += rows_of(self.core, step.new, step.old, step.switches)
            self._show(step.new, step.old)
        self._quarantine.begin(rows)
        work.rows = (*work.rows, *rows)
        with self._writing():
            for step in reversed(work.steps):
                self._store.replace(step.new, step.old)
            self._store.block(rows)

    def _drop_hold(self, hold: Hold, state: HoldState, why: str) -> None:
        done = hold.finished(state, self._clock())
        with self._writing():
            self._store.put_hold(done.row())
        self._unreserve(hold.old, hold.new)
        self._holds.put(done)
        LOG.info("hold=%s path=%s action=%s", hold.id, hold.name, why)

    def _unreserve(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        if new is not None and new != old:
            self._reservations.replace(new, old)
            if old is None:  # no switch has ever heard of its number
                self._reservations.release_number(new.number)

    def _repair(self, name: str) -> None:
        """For a repeated request: switches of the path that are in an unknown state, once more.
        Raises ServiceError 504."""
        path = self._existing(name)
        switches = {path.root.switch, *(edge.target for edge in edges_of(self.core, path))}
        failures = self._installer.retry(switches, even_refusing=True)
        if failures:
            raise _unconfirmed(f"path '{name}' exists", failures, undone=False)

    def _reroute(self, names: Iterable[str], link: str) -> None:
        """Moves what a link's change concerns: all paths at once that no request is changing just
        now, the others as soon as these are done."""
        todo = set(names)
        while todo:
            with self._lock:
                self._idle.wait_for(lambda: any(name not in self._busy for name in todo))
                ready = sorted(name for name in todo if name not in self._busy)
                todo.difference_update(ready)
                steps = self._rerouted(ready)
                work = self._begin(steps, entered=True) if steps else None
            if work is None:
                continue
            try:
                self._run(work, EventKind.REROUTED, {"link": link}, may_undo=False)
            except ServiceError as error:
                LOG.warning("%s", error.detail)

    def _rerouted(self, names: Iterable[str]) -> list[Step]:
        steps: list[Step] = []
        for name in names:
            hold = self._holds.open_of(name)
            if hold is not None:
                self._drop_hold(hold, HoldState.RELEASED, "released: a link of the path changed")
            path = self._paths.get(name)
            if path is None:
                continue
            step = reroute(self.core, self._reservations, path, self._down)
            if step.new != path:
                self._enter(step)
                steps.append(step)
            self._note_reach(step.new or path)
        return steps

    def _note_reach(self, path: MultipointPath) -> None:
        lost = unreached(self.core, path)
        if lost:
            self._incomplete.add(path.name)
            LOG.error(
                "path=%s no way leads to: %s", path.name, ", ".join(str(leaf) for leaf in lost)
            )
        else:
            self._incomplete.discard(path.name)

    # -- inside: up or degraded

    def _on_known(self, switch: str, known: bool) -> None:
        """Called by the installer, from whatever thread."""
        with self._lock:
            if known:
                self._forget(self._quarantine.switch_known(switch))
            for name in self._reservations.paths_through(switch):
                self._note_state(name)
        kind = EventKind.SWITCH_UP if known else EventKind.SWITCH_DOWN
        self.events.add(kind, self._clock(), switch=switch)

    def _note_state(self, name: str) -> None:
        path = self._paths.get(name)
        if path is None:
            return
        up = self._view(path).up
        if up == (name in self._degraded):
            (self._degraded.discard if up else self._degraded.add)(name)
            LOG.log(
                logging.INFO if up else logging.WARNING,
                "path=%s workgroup=%s state=%s",
                name,
                path.workgroup or "-",
                "up" if up else "degraded",
            )
            kind = EventKind.PATH_UP if up else EventKind.PATH_DEGRADED
            self.events.add(kind, self._clock(), path.workgroup, path=name)


def _name_of(step: Step) -> str:
    path = step.new if step.new is not None else step.old
    assert path is not None
    return path.name


def _given_up(step: Step) -> frozenset[EndpointKey]:
    if step.old is None:
        return frozenset()
    old, kept = trimmed(step.old.endpoints, () if step.new is None else step.new.endpoints)
    return frozenset(e.key for e in old) - frozenset(e.key for e in kept)


def merged(plans: Sequence[Sequence[Phase]]) -> tuple[Phase, ...]:
    """The first phases of all together, then the second ones, and so on."""
    result: list[dict[str, Delta]] = []
    for plan in plans:
        for index, phase in enumerate(plan):
            if index == len(result):
                result.append({})
            for switch, change in phase.items():
                before = result[index].get(switch, Delta())
                result[index][switch] = Delta(
                    before.removed + change.removed, before.added + change.added
                )
    return tuple(result)


def _unconfirmed(what: str, failures: Mapping[str, Failure], *, undone: bool) -> ServiceError:
    text = "; ".join(f"switch '{s}' {failure}" for s, failure in sorted(failures.items()))
    if undone:
        detail = f"not done: {what}: {text}"
        return ServiceError(502, "refused", "A switch refused the change", detail)
    detail = f"{what}, but not confirmed: {text}"
    return ServiceError(504, "unconfirmed", "The switches did not confirm in time", detail)
