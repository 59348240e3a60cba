# SPDX-License-Identifier: Apache-2.0
"""How a change of paths runs.

A change is planned and recorded under the lock, sent to the switches phase by phase, and then
settled, or undone if a switch refused it.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.paths.core import EndpointKey, PlanError
from controller.paths.entries import Group, channel_group
from controller.paths.forwarding import base_entries
from controller.paths.messages import Delta
from controller.paths.multipoint_path import MultipointPath, edges_of, trimmed
from controller.paths.plan import Step
from controller.paths.queues import QueueDriver, QueueError, QueueKeeper
from controller.paths.replan import reroute
from controller.service.events import EventKind
from controller.service.holds import Hold
from controller.service.problems import ServiceError, of_plan_error
from controller.service.state import PathState
from controller.service.store import Blocked
from controller.service.views import HoldState, PathView
from controller.switches.installer import (
    Apply,
    Failure,
    Installer,
    Outcome,
    Phase,
    Read,
    Settle,
    settled,
)

LOG = logging.getLogger("controller.service.service")  # one name for all modules of the service


@dataclass
class Work:
    """Steps that are planned and written, but not yet sent."""

    steps: tuple[Step, ...]
    phases: tuple[Phase, ...]
    rows: tuple[Blocked, ...]  # ids that they free
    keys: frozenset[str | EndpointKey]  # path names, and endpoints that they give up
    started: float
    hold: Hold | None = None  # the hold that they commit


class ChangeRunner:
    """Brings the switches to what a `PathState` wants, through `installer` and `queues`."""

    def __init__(
        self,
        state: PathState,
        apply: Apply,
        read: Read,
        queue_driver: QueueDriver | None,
        settle: Settle = settled,
    ) -> None:
        self._state = state
        self._base = base_entries(state.core)
        # When a change of each group, (switch, number), last began or ended, as a growing number.
        self._group_changes: dict[tuple[str, int], int] = {}
        self._moments = itertools.count(1)
        self._unmoved: dict[str, str] = {}  # path -> changed link; the move could not be written
        self.queues = QueueKeeper(state.core, queue_driver)
        self.installer = Installer(state.core.dpids, apply, read, self._on_known, settle=settle)

    def load(self) -> None:
        """Read the store; nothing is then known about any switch. Raises StoreError."""
        desired = self._state.load()
        self.queues.load(self._state.paths.values())
        self.installer.reset(self._base, desired)

    def view(self, path: MultipointPath) -> PathView:
        """Return the path with what the switches have confirmed."""
        return PathView(path, self._state.core, self.installer.known)

    def group_changes(self) -> dict[tuple[str, int], int]:
        """Return for each group, (switch, number), a number that changes whenever a change begins
        or ends."""
        with self._state.lock:
            return dict(self._group_changes)

    # -- one change from the request to the answer

    def change(
        self,
        name: str,
        plan: Callable[[], Step | None],
        kind: EventKind,
        data: Mapping[str, object],
        *,
        may_undo: bool,
        endpoints: Iterable[EndpointKey] = (),
    ) -> tuple[PathView, bool]:
        """Plan and run a change of one path; return the path and whether anything changed.

        `plan` returns None if everything is as requested: then the path's switches that have not
        confirmed are tried again. `endpoints`: those that the change wants to use. Raises
        ServiceError.
        """
        state = self._state
        state.check_active()
        with state.lock:
            state.wait_until_idle(name, endpoints)
            try:
                step = plan()
            except PlanError as error:
                raise of_plan_error(error) from error
            if step is not None:
                work = self.begin([step])
        if step is None:
            self._repair(name)
            return self.view(state.existing(name)), False
        self.run(work, kind, data, may_undo=may_undo)
        return self.view(_path_of(step)), True

    def begin(
        self, steps: Sequence[Step], *, entered: bool = False, hold: Hold | None = None
    ) -> Work:
        """Record the steps, and mark their paths busy; see `PathState.record`.

        Call with the lock.
        """
        started = time.monotonic()
        rows = self._state.record(steps, entered=entered, hold=hold)
        names = frozenset(_path_of(step).name for step in steps)
        keys: frozenset[str | EndpointKey] = frozenset(names).union(*map(_given_up, steps))
        self._state.busy |= keys
        phases = merged([step.phases for step in steps])
        self._note_groups(phases)
        return Work(tuple(steps), phases, rows, keys, started, hold)

    def run(
        self,
        work: Work,
        kind: EventKind,
        data: Mapping[str, object],
        *,
        may_undo: bool,
    ) -> None:
        """Send the work to the switches and wait. Raises ServiceError 502 (undone), 504."""
        outcome = Outcome({})
        problem = self._widen_queues(work, may_undo=may_undo)
        try:
            if problem is None:
                outcome = self.installer.execute(work.phases, may_undo=may_undo)
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

    def _widen_queues(self, work: Work, *, may_undo: bool) -> str | None:
        """Return why the change must not be made; None if it may."""
        try:
            self.queues.widen([(step.old, step.new) for step in work.steps])
        except QueueError as error:
            LOG.error("queues: %s", error)
            return str(error) if may_undo else None
        return None

    def _settle_queues(self, work: Work, *, undone: bool) -> None:
        changes = [(step.old, step.new) for step in work.steps]
        try:
            self.queues.settle([(new, old) for old, new in changes] if undone else changes)
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
        path = _path_of(step)
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
            state = self._state
            state.events.add(
                kind, state.clock(), path.workgroup, path=path.name, **data, result=result
            )

    def _finish(self, work: Work, outcome: Outcome) -> None:
        state = self._state
        with state.lock:
            try:
                if outcome.undone:
                    work.rows = (*work.rows, *state.undo(work.steps, work.hold))
                state.unblock(state.quarantine.settle(work.rows, self.installer.known))
            finally:
                state.busy -= work.keys
                state.idle.notify_all()
                self._note_groups(work.phases)
                self._forget_groups(work.steps)
                for step in work.steps:
                    self._note_state(_path_of(step).name)

    def _note_groups(self, phases: Iterable[Phase]) -> None:
        for phase in phases:
            for switch, change in phase.items():
                for entry in change.added:
                    if isinstance(entry, Group):
                        self._group_changes[switch, entry.number] = next(self._moments)

    def _forget_groups(self, steps: Iterable[Step]) -> None:
        """Forget the groups of deleted paths: their numbers do not repeat for a long time."""
        for step in steps:
            path = _path_of(step)
            if path.name not in self._state.paths:
                count = 0 if path.channels is None else path.channels.count
                groups = [path.number, *(channel_group(path.number, n) for n in range(count))]
                for place in itertools.product(step.switches, groups):
                    self._group_changes.pop(place, None)

    def _repair(self, name: str) -> None:
        """Retry the path's switches in an unknown state, for a repeated request.

        Raises ServiceError 504.
        """
        path = self._state.existing(name)
        edges = edges_of(self._state.core, path)
        switches = {path.root.switch, *(edge.target for edge in edges)}
        failures = self.installer.retry(switches, even_refusing=True)
        if failures:
            raise _unconfirmed(f"path '{name}' exists", failures, undone=False)

    # -- links change

    def reroute(self, names: Iterable[str], link: str) -> None:
        """Move paths off a link or back to it: first, together, those that no request is changing
        now, then the others as soon as their requests are done."""
        todo = set(names)
        while todo:
            with self._state.lock:
                ready = self._state.wait_for_ready(todo)
                todo.difference_update(ready)
                try:
                    steps = self._rerouted(ready)
                    work = self.begin(steps, entered=True) if steps else None
                except ServiceError as error:
                    if error.kind != "store":
                        raise
                    self._unmoved.update(dict.fromkeys(ready, link))
                    continue
            if work is None:
                continue
            try:
                self.run(work, EventKind.REROUTED, {"link": link}, may_undo=False)
            except ServiceError as error:
                LOG.warning("%s", error.detail)

    def retry_moves(self) -> None:
        """Move the paths for which the store could not be written."""
        with self._state.lock:
            unmoved, self._unmoved = self._unmoved, {}
        for link in dict.fromkeys(unmoved.values()):
            self.reroute([name for name, of in unmoved.items() if of == link], link)

    def _rerouted(self, names: Iterable[str]) -> list[Step]:
        """Plan and enter all moves, or none. Raises ServiceError 503, 507."""
        steps: list[Step] = []
        try:
            self._enter_moves(names, steps)
        except ServiceError:
            for step in reversed(steps):
                self._state.take_back(step)
            raise
        return steps

    def _enter_moves(self, names: Iterable[str], steps: list[Step]) -> None:
        state = self._state
        for name in names:
            hold = state.holds.open_of(name)
            if hold is not None:
                state.drop_hold(hold, HoldState.RELEASED, "released: a link of the path changed")
            path = state.paths.get(name)
            if path is None:
                continue
            step = reroute(state.core, state.reservations, path, state.down)
            if step.new != path:
                state.enter(step)
                steps.append(step)
            state.note_reach(step.new or path)

    # -- up or degraded

    def _on_known(self, switch: str, known: bool) -> None:
        """Called by the installer, from any thread."""
        state = self._state
        with state.lock:
            if known:
                state.unblock(state.quarantine.switch_known(switch))
            for name in state.reservations.paths_through(switch):
                self._note_state(name)
        kind = EventKind.SWITCH_UP if known else EventKind.SWITCH_DOWN
        state.events.add(kind, state.clock(), switch=switch)

    def _note_state(self, name: str) -> None:
        state = self._state
        path = state.paths.get(name)
        if path is None:
            return
        up = self.view(path).up
        if up == (name in state.degraded):
            (state.degraded.discard if up else state.degraded.add)(name)
            LOG.log(
                logging.INFO if up else logging.WARNING,
                "path=%s workgroup=%s state=%s",
                name,
                path.workgroup or "-",
                "up" if up else "degraded",
            )
            kind = EventKind.PATH_UP if up else EventKind.PATH_DEGRADED
            state.events.add(kind, state.clock(), path.workgroup, path=name)


def _path_of(step: Step) -> MultipointPath:
    path = step.new if step.new is not None else step.old
    assert path is not None
    return path


def _given_up(step: Step) -> frozenset[EndpointKey]:
    if step.old is None:
        return frozenset()
    old, kept = trimmed(step.old.endpoints, () if step.new is None else step.new.endpoints)
    return frozenset(e.key for e in old) - frozenset(e.key for e in kept)


def merged(plans: Sequence[Sequence[Phase]]) -> tuple[Phase, ...]:
    """Return the first phases of all plans together, then the second ones, and so on."""
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
