# SPDX-License-Identifier: Apache-2.0
"""Requests about reservations for a later time: booked now, installed when they begin."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from common.counting import counted
from controller.paths.calendar import Booking, Calendar
from controller.paths.core import Endpoint, PlanError
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import Step
from controller.service.problems import ServiceError, name_in_use, of_plan_error
from controller.service.state import PathState
from controller.service.views import PathWish

LOG = logging.getLogger("controller.service.service")  # one name for all modules of the service
KIND = "booking"  # of the store's documents
MOST_BOOKINGS = 1000  # of a domain: planning looks at each booking
MOST_OF_A_WORKGROUP = 100  # so that no workgroup can take all places


@dataclass(frozen=True)
class Installer:
    """How a booking becomes a path: the changes that the service makes for clients."""

    create: Callable[[MultipointPath], object]
    add_leaf: Callable[[str, Endpoint], object]


class BookingRequests:
    """What clients may do with bookings, and what happens when they begin. Thread-safe."""

    def __init__(self, state: PathState) -> None:
        self._state = state
        self._calendar = Calendar(state.core)
        self._beginning = ""  # the path of a booking that is being installed
        self._told: set[str] = set()  # bookings whose failure has been logged

    def load(self) -> None:
        """Read the store. Raises StoreError."""
        self._calendar = Calendar(self._state.core)
        for body in self._state.store.documents(KIND):
            raw = json.loads(body)
            path = MultipointPath.from_json(raw["path"])
            self._calendar.put(Booking(path, raw["start_time"], raw["end_time"]))

    def all(self) -> list[Booking]:
        """Return all bookings, ordered by start."""
        with self._state.lock:
            return list(self._calendar)

    def existing(self, name: str) -> Booking:
        """Return the booking of a path. Raises ServiceError 404."""
        booking = self._calendar.find(name)
        if booking is None:
            raise unknown_reservation(name)
        return booking

    def book(
        self, wish: PathWish, start_s: float, most: int = MOST_OF_A_WORKGROUP
    ) -> tuple[Booking, bool]:
        """Book a path with its leaves from `start_s` to the wish's end; return whether it is new.
        The wish's workgroup may have `most` bookings.

        Raises ServiceError 409, 422, 503, 507.
        """
        state = self._state
        state.check_active()
        end_s = self._checked_end(wish, start_s)
        with_macs = state.core.with_registered_macs
        leaves = tuple(with_macs(leaf) for leaf in wish.leaves)
        wish = replace(wish, root=with_macs(wish.root), leaves=leaves)
        with state.lock:
            known = self._calendar.find(wish.name)
            if known is not None:
                check_same(known, wish, start_s)
                return known, False
            if wish.name in state.paths or state.holds.open_of(wish.name) is not None:
                raise name_in_use(wish.name)
            self._check_room(wish.workgroup, most)
            path = replace(state.new_path(wish), leaves=wish.leaves)
            live = [*state.paths.values(), *(h.new for h in state.holds.open() if h.new)]
            named = {path.name: path for path in live}  # if both exist, the hold's is larger
            try:
                booking = self._calendar.plan(path, start_s, end_s, named.values(), state.down)
            except PlanError as error:
                raise of_plan_error(error) from error
            with state.writing():
                state.store.put_document(KIND, booking.name, _body(booking))
            self._calendar.put(booking)
        LOG.info(
            "path=%s action=booked start=%.3f end=%.3f leaves=%d",
            booking.name,
            start_s,
            end_s,
            len(booking.path.leaves),
        )
        return booking, True

    def _check_room(self, workgroup: str, most: int) -> None:
        of_group = sum(booking.path.workgroup == workgroup for booking in self._calendar)
        found = ""
        if of_group >= most:
            found = f"found {counted(of_group, 'reservation')} of workgroup '{workgroup}'"
        elif len(self._calendar) >= MOST_BOOKINGS:
            found = f"found {MOST_BOOKINGS} reservations"
        if found:
            detail = f"{found}; valid: fewer, so end one first"
            raise ServiceError(409, "no-number-left", "Too many reservations", detail)

    def cancel(self, name: str) -> None:
        """Cancel a booking that has not begun. Raises ServiceError 404, 503, 507."""
        state = self._state
        state.check_active()
        with state.lock:
            self.existing(name)
            self._forget(name)
        LOG.info("path=%s action=booking-cancelled", name)

    def check(
        self, old: MultipointPath | None, new: MultipointPath, *, entered: bool = False
    ) -> None:
        """Raise PlanError or ServiceError if a change takes what is booked. Call with the lock.

        `entered`: the reservations already have the change.
        """
        if not len(self._calendar):
            return
        state = self._state
        booking = self._calendar.find(new.name)
        if old is None and booking is not None and new.name != self._beginning:
            raise ServiceError(
                409,
                "path-exists",
                "Path is reserved",
                f"path '{new.name}' is reserved from {booking.start_s:.3f} to "
                f"{booking.end_s:.3f}; valid: another name",
            ).only_for(booking.path.workgroup, name_in_use(new.name))
        self._calendar.check(old, new, state.clock(), state.reservations, entered=entered)

    def checked(self, step: Step | None) -> Step | None:
        """Return a plan's step if it takes nothing that is booked; else raise as `check` does."""
        if step is not None and step.new is not None:
            self.check(step.old, step.new)
        return step

    def begin_due(self, install: Installer) -> None:
        """Install the bookings that begin. If that fails, it is tried again until the booking's
        end."""
        now = self._state.clock()
        with self._state.lock:
            due = self._calendar.due(now)
        for booking in due:
            if booking.end_s > now and not self._installed(booking, install):
                continue
            try:
                with self._state.lock:
                    if self._calendar.find(booking.name) is booking:
                        self._forget(booking.name)
            except ServiceError:  # logged; the next turn tries again
                return

    def _installed(self, booking: Booking, install: Installer) -> bool:
        self._beginning = booking.name
        try:
            install.create(booking.path)
            for leaf in booking.path.leaves:
                install.add_leaf(booking.name, leaf)
        except ServiceError as error:
            if booking.name not in self._told:
                self._told.add(booking.name)
                LOG.error("path=%s action=booking-begins: %s", booking.name, error.detail)
            return False
        finally:
            self._beginning = ""
        return True

    def _forget(self, name: str) -> None:
        with self._state.writing():
            self._state.store.delete_document(KIND, name)
        self._calendar.drop(name)
        self._told.discard(name)

    def _checked_end(self, wish: PathWish, start_s: float) -> float:
        now = self._state.clock()
        if start_s <= now:
            found, valid = f"start_time {start_s:.3f}", f"after now ({now:.3f})"
        elif wish.end_time is None or wish.end_time <= start_s:
            found = f"end_time {'none' if wish.end_time is None else f'{wish.end_time:.3f}'}"
            valid = f"after start_time ({start_s:.3f})"
        else:
            return wish.end_time
        raise ServiceError(422, "invalid", "Invalid request", f"{found}; valid: {valid}")


def check_same(known: Booking, wish: PathWish, start_s: float) -> None:
    """Raise ServiceError 409 if a wish for a booked path differs from the booking."""
    differences = wish.differences(known.path)
    if {leaf.key for leaf in wish.leaves} != {leaf.key for leaf in known.path.leaves}:
        differences += f"{', ' if differences else ''}other leaves"
    if start_s != known.start_s:
        differences += f"{', ' if differences else ''}start_time {known.start_s:.3f}"
    if differences:
        detail = f"path '{known.name}' is reserved with {differences}"
        raise ServiceError(409, "path-exists", "Path is reserved", detail).only_for(
            known.path.workgroup, name_in_use(known.name)
        )


def unknown_reservation(name: str) -> ServiceError:
    """Return the error 404 for a name without a reservation."""
    detail = f"nothing is reserved for path '{name}'"
    return ServiceError(404, "unknown-reservation", "Unknown reservation", detail)


def _body(booking: Booking) -> str:
    raw = {
        "path": booking.path.to_json(),
        "start_time": booking.start_s,
        "end_time": booking.end_s,
    }
    return json.dumps(raw, separators=(",", ":"))
