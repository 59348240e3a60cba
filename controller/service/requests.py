# SPDX-License-Identifier: Apache-2.0
"""What clients may ask of a path service: of a domain alone, or of one with peers."""

from __future__ import annotations

from typing import Protocol

from controller.paths.calendar import Booking
from controller.paths.core import Endpoint, EndpointKey
from controller.paths.multipoint_path import Algorithm, Channels
from controller.service.events import EventLog
from controller.service.views import HoldView, PathView, PathWish


class PathRequests(Protocol):
    """The requests of the REST interface; `PathService` says what each does and raises."""

    @property
    def events(self) -> EventLog:
        """Return the log of events."""

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts."""

    def check_active(self) -> None:
        """Raise ServiceError 503 on a standby."""

    def switches(self) -> dict[str, bool]:
        """Return, by switch, whether it has the entries it should."""

    def path(self, name: str) -> PathView:
        """Return a path."""

    def paths(self) -> list[PathView]:
        """Return all paths."""

    def create(
        self,
        name: str,
        root: Endpoint,
        rate_bps: int,
        *,
        workgroup: str = "",
        algorithm: Algorithm = Algorithm.SHORTEST,
        leaf_to_leaf: bool = False,
        end_time: float | None = None,
        channels: Channels | None = None,
    ) -> tuple[PathView, bool]:
        """Create a path without leaves."""

    def add_leaf(self, name: str, leaf: Endpoint) -> tuple[PathView, bool]:
        """Add a leaf."""

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Remove a leaf."""

    def set_end_time(self, name: str, end_time: float | None) -> PathView:
        """Set when the path ends."""

    def delete(self, name: str) -> None:
        """Delete a path."""

    def bookings(self) -> list[Booking]:
        """Return what is reserved for later."""

    def booking(self, name: str) -> Booking:
        """Return the reservation of a path."""

    def book(self, wish: PathWish, start_s: float) -> tuple[Booking, bool]:
        """Reserve a path for later."""

    def cancel(self, name: str) -> None:
        """Cancel a reservation."""

    def hold_view(self, hold_id: str) -> HoldView:
        """Return a hold."""

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserve what a wish needs."""

    def commit(self, hold_id: str) -> PathView:
        """Install a hold."""

    def release(self, hold_id: str) -> None:
        """Release a hold."""
