# SPDX-License-Identifier: Apache-2.0
"""REST routes of paths over several domains, for peers and for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from controller.api.auth import Caller, caller
from controller.api.rest import BODY
from controller.api.schemas import AnyName
from controller.federation.federation import Federation
from controller.federation.local import is_at_hand_off
from controller.federation.trees import Tree, segments_of
from controller.federation.values import (
    Book,
    FederationError,
    Problem,
    Refused,
    Release,
    Reply,
    Reserve,
    read_request,
    reply_json,
)
from controller.federation.values import Request as DomainRequest
from controller.service.problems import ServiceError, unknown_path
from controller.service.views import PathView

Who = Annotated[Caller, Depends(caller)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PeerModel(_Model):
    """`problem`: why the peer did not answer last time."""

    domain: str
    state: Literal["answers", "unknown", "silent"]
    problem: str


class SegmentModel(_Model):
    """One domain's segment. `link` and `vlan`: how frames get into it."""

    domain: str
    link: str | None
    vlan: int | None
    root: str
    leaves: list[str]
    state: Literal["confirmed", "unconfirmed"]


class DomainPathModel(_Model):
    path: str
    coordinator: str
    segments: list[SegmentModel]


class ConnectionModel(_Model):
    """This domain's segment of another domain's path."""

    coordinator: str
    path: str
    version: int
    state: Literal["committed", "reserved"]


def make_router(federation: Federation, path_of: Callable[[str], PathView]) -> APIRouter:
    """Return the routes. `path_of` raises ServiceError 404."""
    router = APIRouter(prefix="/v1/domains", tags=["domains"])

    @router.post("/messages", responses={200: {"content": {"application/json": {}}}, **BODY})
    async def message(
        request: Request,
        who: Who,
        downpour_domain: Annotated[str | None, Header(max_length=64)] = None,
    ) -> Response:
        """Handle a request from another domain's controller: reserve, commit, release, query, or
        book for later. The reply is `done`, `refused` with a problem, or `unknown`."""
        sender = _sender(federation, who, downpour_domain)
        try:
            asked = read_request(await request.body())
        except FederationError as error:
            raise ServiceError(422, "invalid", "Invalid request", f"body.{error}") from None
        objection = _objection(federation, who, asked)
        if objection is not None:
            reply: Reply = Refused(objection)
        else:
            reply = await run_in_threadpool(federation.handle, sender, asked)
        return Response(reply_json(reply), media_type="application/json")

    @router.get("/peers")
    async def peers(_who: Who) -> list[PeerModel]:
        """Return the other domains, and whether their controllers answer."""
        return [
            PeerModel(
                domain=domain,
                state=_peer_state(problem),
                problem=problem,
            )
            for domain, problem in federation.peer_states().items()
        ]

    _add_reads(router, federation, path_of)
    return router


def _add_reads(
    router: APIRouter, federation: Federation, path_of: Callable[[str], PathView]
) -> None:
    @router.get("/paths/{name}")
    async def path(name: AnyName, who: Who) -> DomainPathModel:
        """Return the segments of a path that this domain coordinates, its own first."""
        own = path_of(name).path
        if not who.workgroup.may_see(own.workgroup):
            raise unknown_path(name)
        record = federation.record(name)
        algorithm = own.algorithm.value
        empty = Tree(own.root, own.rate_bps, algorithm, channels=own.channels)
        tree = record.tree if record is not None else empty
        lost = federation.lost(name)
        return DomainPathModel(
            path=name,
            coordinator=federation.home,
            segments=[
                SegmentModel(
                    domain=domain,
                    link=tree.entries[domain].link if domain in tree.entries else None,
                    vlan=tree.entries[domain].vlan if domain in tree.entries else None,
                    root=str(segment.root),
                    leaves=[str(leaf) for leaf in segment.leaves],
                    state="unconfirmed" if domain in lost else "confirmed",
                )
                for domain, segment in segments_of(federation.domains, tree).items()
            ],
        )

    @router.get("/connections")
    async def connections(who: Who) -> list[ConnectionModel]:
        """Return this domain's segments of other domains' paths (a peer sees only its own)."""
        return [
            ConnectionModel(
                coordinator=note.connection.coordinator,
                path=note.connection.path,
                version=note.seen,
                state="committed" if note.committed is not None else "reserved",
            )
            for note in federation.notes()
            if who.workgroup.may_see(note.connection.coordinator)
        ]


def _peer_state(problem: str) -> Literal["answers", "unknown", "silent"]:
    if not problem:
        return "answers"
    return "unknown" if problem == "not asked yet" else "silent"


def _sender(federation: Federation, who: Caller, header: str | None) -> str:
    """Return the domain that sends. A peer's workgroup has the domain's name; an admin's claim is
    trusted. Raises ServiceError 403."""
    if who.is_peer:
        domain = who.name
    elif who.is_admin and header is not None:
        domain = header
    else:
        detail = f"workgroup '{who.name}' is not a peer; valid: a workgroup with peer: true"
        raise ServiceError(403, "not-allowed", "Not allowed", detail)
    others = [name for name in federation.domains.names if name != federation.home]
    if domain not in others:
        detail = f"peer '{domain}' is not another controller domain; valid: {', '.join(others)}"
        raise ServiceError(403, "not-allowed", "Not allowed", detail)
    return domain


def _objection(federation: Federation, who: Caller, asked: DomainRequest) -> Problem | None:
    """Return why the peer may not use a leaf's endpoint. All peers may use hand-offs."""
    if not isinstance(asked, (Reserve, Release, Book)) or asked.segment is None or who.is_admin:
        return None
    for leaf in asked.segment.leaves:
        if not is_at_hand_off(federation.domains, leaf):
            detail = who.workgroup.objection_to(leaf)
            if detail:
                return Problem(403, "not-allowed", "Not allowed", detail)
    return None
