# SPDX-License-Identifier: Apache-2.0
"""Requests about holds: a path, or more leaves of one, reserved now and installed at a commit."""

from __future__ import annotations

import logging
from dataclasses import replace

from controller.paths.core import PlanError
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import Step, add_leaf, create_path, set_macs
from controller.service.booking_requests import BookingRequests
from controller.service.changes import ChangeRunner
from controller.service.events import EventKind
from controller.service.holds import Hold
from controller.service.problems import ServiceError, of_plan_error
from controller.service.state import PathState
from controller.service.views import HoldState, HoldView, PathView, PathWish
from controller.switches.installer import Phase

LOG = logging.getLogger("controller.service.service")  # one name for all modules of the service


class HoldRequests:
    """What clients may do with holds. Thread-safe."""

    def __init__(self, state: PathState, runner: ChangeRunner, bookings: BookingRequests) -> None:
        self._state = state
        self._runner = runner
        self._bookings = bookings

    def view(self, hold_id: str) -> HoldView:
        """Return a hold, open or over. Raises ServiceError 404."""
        return self._state.holds.existing(hold_id).view()

    def open_of(self, name: str) -> HoldView | None:
        """Return the hold that is open on a path, if any."""
        with self._state.lock:
            hold = self._state.holds.open_of(name)
        return None if hold is None else hold.view()

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserve what is missing so that the path exists with at least the wish's leaves.

        `hold_until`: epoch seconds. Repeating the hold changes nothing. Raises ServiceError 409,
        422, 503.
        """
        state = self._state
        state.check_active()
        with_macs = state.core.with_registered_macs
        leaves = tuple(with_macs(leaf) for leaf in wish.leaves)
        wish = replace(wish, root=with_macs(wish.root), leaves=leaves)
        with state.lock:
            endpoints = [wish.root.key, *(leaf.key for leaf in wish.leaves)]
            state.wait_until_idle(wish.name, endpoints)
            known = state.holds.find(hold_id)
            if known is not None:
                known.check_same(wish)
                return known.view()
            hold = self._open(hold_id, wish, hold_until)
        LOG.info(
            "hold=%s path=%s action=held leaves=%d until=%.3f",
            hold_id,
            wish.name,
            len(wish.leaves),
            hold_until,
        )
        return hold.view()

    def _open(self, hold_id: str, wish: PathWish, hold_until: float) -> Hold:
        """Open a hold. Call with the lock."""
        state = self._state
        state.check_not_held(wish.name)
        old = state.paths.get(wish.name)
        if old is not None:
            wish.check_same(old)
        state.check_end_time(wish.end_time)
        try:
            new, phases = self._reserve(wish, old)
        except PlanError as error:
            raise of_plan_error(error) from error
        try:
            self._bookings.check(old, new, entered=True)
        except (PlanError, ServiceError) as error:
            state.unreserve(old, new)
            raise of_plan_error(error) if isinstance(error, PlanError) else error from error
        hold = Hold.of(hold_id, wish, old, new, hold_until, phases)
        try:
            state.put_hold(hold)
        except BaseException:
            state.unreserve(old, new)
            raise
        return hold

    def commit(self, hold_id: str) -> PathView:
        """Install a hold. If it is installed, return the path.

        Raises ServiceError 404, 409 (released, expired, dropped because the path was re-routed),
        502 (undone and released), 503, 504.
        """
        state = self._state
        state.check_active()
        with state.lock:
            state.wait_until_idle(state.holds.existing(hold_id).name)
            hold = state.holds.existing(hold_id)
            if hold.state is HoldState.COMMITTED:
                return self._runner.view(state.existing(hold.name))
            hold.check_open()
            step = Step(f"hold '{hold_id}' of path '{hold.name}'", hold.old, hold.new, hold.phases)
            done = hold.finished(HoldState.COMMITTED, state.clock())
            work = self._runner.begin([step], entered=True, hold=done)
            state.holds.put(done)
        kind = EventKind.PATH_CREATED if hold.old is None else EventKind.PATH_CHANGED
        self._runner.run(work, kind, {"hold": hold_id}, may_undo=True)
        assert hold.new is not None
        return self._runner.view(hold.new)

    def release(self, hold_id: str) -> None:
        """Release a hold; do nothing if it is over or unknown.

        Raises ServiceError 409 if it was committed, 503.
        """
        state = self._state
        state.check_active()
        with state.lock:
            hold = state.holds.find(hold_id)
            if hold is None or hold.state in (HoldState.RELEASED, HoldState.EXPIRED):
                return
            if hold.state is HoldState.COMMITTED:
                raise ServiceError(
                    409, "hold-over", "Hold is over", f"hold '{hold_id}' was committed"
                )
            state.drop_hold(hold, HoldState.RELEASED, "released")

    def _reserve(
        self, wish: PathWish, old: MultipointPath | None
    ) -> tuple[MultipointPath, tuple[Phase, ...]]:
        """Reserve the path as wished. Raises PlanError; the reservations are then as before."""
        core, reservations = self._state.core, self._state.reservations
        now = old
        phases: list[Phase] = []
        try:
            if now is None:
                step = create_path(core, reservations, self._state.new_path(wish))
                step.apply(reservations)
                now, phases = step.new, [*step.phases]
            assert now is not None
            for leaf in wish.leaves:
                known = reservations.tree(now.name).leaves.get(leaf.key)
                if known is None:
                    step = add_leaf(core, reservations, now, leaf, self._state.down)
                elif leaf.macs and known.macs != leaf.macs:
                    step = set_macs(core, reservations, now, leaf.key, leaf.macs)
                else:
                    continue
                step.apply(reservations)
                assert step.new is not None
                now = step.new
                phases += step.phases
        except PlanError:
            self._state.unreserve(old, now)
            raise
        return now, tuple(phases)
