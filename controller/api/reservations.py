# SPDX-License-Identifier: Apache-2.0
"""The routes of reservations for a later time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi import Path as PathParameter

from controller.api.auth import Caller, caller
from controller.api.schemas import AnyName, PathRequest, ReservationModel, ReservationRequest
from controller.paths.calendar import Booking
from controller.paths.core import Endpoint
from controller.service.booking_requests import unknown_reservation
from controller.service.requests import PathRequests

Who = Annotated[Caller, Depends(caller)]
Name = Annotated[AnyName, PathParameter()]
Owner = Callable[[PathRequest, Caller], str]  # the workgroup of a new path
Responses = dict[int | str, dict[str, Any]]
CheckEndpoints = Callable[[Caller, Sequence[Endpoint]], None]

_KNOWN: Responses = {
    200: {"model": ReservationModel, "description": "It already exists, as requested"}
}


def router_of(
    service: PathRequests, owner: Owner, check_endpoints: CheckEndpoints, body: Responses
) -> APIRouter:
    """Return the routes. `owner` and `check_endpoints` raise ServiceError; `body`: the answers to
    a malformed body."""
    router = APIRouter(prefix="/v1/reservations", tags=["reservations"])

    def visible(name: str, who: Caller) -> Booking:
        """Return the reservation; to other workgroups it does not exist. Raises ServiceError
        404."""
        booking = service.booking(name)
        if not who.workgroup.may_see(booking.path.workgroup):
            raise unknown_reservation(name)
        return booking

    @router.post(
        "",
        status_code=201,
        response_model=ReservationModel,
        responses=body | _KNOWN,
    )
    def reserve(request: ReservationRequest, who: Who, response: Response) -> ReservationModel:
        """Reserve a path with its leaves from start_time to end_time; no switch changes before
        then. Idempotent."""
        leaves = tuple(leaf.to_endpoint() for leaf in request.leaves)
        wish = request.to_wish(owner(request, who), leaves)
        check_endpoints(who, [wish.root, *leaves])
        booking, is_new = service.book(wish, request.start_time)
        response.status_code = 201 if is_new else 200
        return ReservationModel.of(booking)

    @router.get("", response_model=list[ReservationModel])
    async def list_reservations(who: Who) -> list[ReservationModel]:
        """Return the workgroup's reservations that have not begun, ordered by start."""
        seen = (b for b in service.bookings() if who.workgroup.may_see(b.path.workgroup))
        return [ReservationModel.of(booking) for booking in seen]

    @router.get("/{name}", response_model=ReservationModel)
    async def show_reservation(name: Name, who: Who) -> ReservationModel:
        return ReservationModel.of(visible(name, who))

    @router.delete("/{name}", status_code=204)
    def cancel(name: Name, who: Who) -> None:
        """Cancel a reservation that has not begun."""
        visible(name, who)
        service.cancel(name)

    return router
