# SPDX-License-Identifier: Apache-2.0
"""The northbound REST interface: FastAPI routes over the path service.

Permissions are checked here: a workgroup sees and changes its own paths and uses the endpoints
that it was granted; an admin may do everything. Every error is an RFC 9457 problem. Handlers that
only read are coroutines and wait for nothing; those that change paths run in a worker thread.
The OpenAPI description is served at /openapi.json; `make docs` writes it to a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.http.server import MAX_HEAD_BYTES
from controller.api import reservations
from controller.api.auth import (
    Access,
    AccessMiddleware,
    Caller,
    caller,
)
from controller.api.schemas import (
    AnyName,
    EndpointModel,
    Health,
    HoldId,
    HoldModel,
    HoldRequest,
    PathModel,
    PathPatch,
    PathRequest,
    PathSummary,
    Problem,
    SwitchName,
    WorkgroupModel,
)
from controller.paths.core import Endpoint
from controller.service.events import (
    Event,
    EventKind,
    EventLog,
    as_sse,
)
from controller.service.problems import (
    KINDS,
    PROBLEM_JSON,
    ServiceError,
    name_in_use,
    problem_response,
    unknown_path,
)
from controller.service.requests import PathRequests
from controller.service.views import PathView
from controller.service.workgroups import Workgroups

LOG = logging.getLogger(__name__)
MAX_BODY_BYTES = 256 * 1024
BODY_TIMEOUT_S = 10.0
PAGE_PATHS = 100
MAX_PAGE_PATHS = 1000
MAX_EVENT_STREAMS = 128
MAX_EVENT_STREAMS_EACH = 16  # of one workgroup
HEARTBEAT_S = 15.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OPEN = frozenset({"/v1/health", "/v1/metrics", "/openapi.json"})  # a standby answers these

Who = Annotated[Caller, Depends(caller)]
Responses = dict[int | str, dict[str, Any]]  # as FastAPI declares them


def _responses() -> Responses:
    """Return all problems for the OpenAPI description, by status."""
    texts: dict[int, list[str]] = {}
    for kind, (status, text) in KINDS.items():
        texts.setdefault(status, []).append(f"{kind}: {text}")
    texts[431] = [f"The request's head is larger than {MAX_HEAD_BYTES} bytes"]
    return {
        status: {
            "model": Problem,
            "description": "; ".join(lines),
            "content": {PROBLEM_JSON: {}},
        }
        for status, lines in sorted(texts.items())
    }


# Other answers to a request with a body, for the OpenAPI description.
BODY: Responses = {
    status: {"model": Problem, "description": text, "content": {PROBLEM_JSON: {}}}
    for status, text in (
        (400, "The body cannot be parsed: too deep, or a number too long"),
        (408, f"The body did not come within {BODY_TIMEOUT_S:g} s"),
        (413, f"The body is larger than {MAX_BODY_BYTES} bytes"),
    )
}


class _LimitBody:
    """Refuses bodies over MAX_BODY_BYTES before they are held in memory, and slow ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = 0
        whole = False
        deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S

        async def limited() -> Message:
            nonlocal received, whole
            if whole:  # only the end of the connection can follow, and may take long
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"no whole body within {BODY_TIMEOUT_S:g} s") from None
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
            whole = not message.get("more_body", False)
            return message

        await self._app(scope, limited, send)


def make_app(
    service: PathRequests,
    access: Access | None = None,
    routers: Iterable[APIRouter] = (),
) -> FastAPI:
    """Return the application.

    `routers` are the routes of other modules, which use `Depends(auth.caller)` too. The handlers
    call only public methods of `service`.
    """
    app = FastAPI(
        title="Downpour path service",
        description="Dynamic multipoint paths: one root, many leaves, a guaranteed rate.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would lead to whatever Host the client names
        responses=_responses(),
    )
    app.add_middleware(_LimitBody)
    access = access or Access(Workgroups())
    app.add_middleware(AccessMiddleware, access=access)
    _add_error_handlers(app)

    def check_active(request: Request) -> None:
        if request.url.path not in OPEN:
            service.check_active()

    own = [
        _paths(service, access),
        _holds(service, access),
        reservations.router_of(service, partial(_owner, service, access), _check_endpoints, BODY),
        _about(service),
        _events(service.events),
    ]
    for router in [*own, *routers]:
        app.include_router(router, dependencies=[Depends(check_active)])
    return app


def description(app: FastAPI) -> str:
    """Return the app's OpenAPI document as JSON text."""
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


# -- permissions


def _visible(service: PathRequests, name: str, who: Caller) -> PathView:
    """Return the path; to other workgroups it does not exist. Raises ServiceError 404."""
    view = service.path(name)
    if not who.workgroup.may_see(view.path.workgroup):
        raise unknown_path(name)
    return view


def _check_endpoints(who: Caller, endpoints: Sequence[Endpoint]) -> None:
    """Raise ServiceError 403, which says what the workgroup may use."""
    for endpoint in endpoints:
        objection = who.workgroup.objection_to(endpoint)
        if objection:
            raise ServiceError(403, "not-allowed", "Not allowed", objection)


def _owner(service: PathRequests, access: Access, request: PathRequest, who: Caller) -> str:
    """Return the workgroup of a new path. Raises ServiceError 403, 409, 422."""
    asked = request.workgroup
    if asked is not None and asked != who.name and not who.is_admin:
        detail = f"workgroup '{who.name}' may not make paths of '{asked}'; valid: its own"
        raise ServiceError(403, "not-allowed", "Not allowed", detail)
    try:
        known = service.path(request.name).path.workgroup
    except ServiceError:
        if asked is None:
            return who.name
        if asked != who.name and access.workgroups.get(asked) is None:
            known_ones = ", ".join(sorted(group.name for group in access.workgroups.all()))
            detail = f"there is no workgroup '{asked}'; valid: {who.name}, {known_ones}"
            raise ServiceError(422, "invalid", "Invalid request", detail) from None
        return asked
    if not who.workgroup.may_see(known):
        raise name_in_use(request.name)
    return known if asked is None else asked


# -- routes


def _answer(view: PathView, status: int, prefer: str | None) -> Response:
    model: PathModel | PathSummary
    headers: dict[str, str] = {}
    if prefer is not None and "return=minimal" in prefer.replace(" ", "").lower():
        headers["preference-applied"] = "return=minimal"
        model = PathSummary(name=view.path.name, state="up" if view.up else "degraded")
    else:
        model = PathModel.of(view)
    return Response(
        model.model_dump_json(by_alias=True),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )


Prefer = Annotated[str | None, Header(description="'return=minimal': a summary is enough")]
_CREATED: Responses = {200: {"model": PathModel, "description": "It already exists, as requested"}}


def _paths(service: PathRequests, access: Access) -> APIRouter:
    router = APIRouter(prefix="/v1/paths", tags=["paths"])
    _add_reads(router, service)
    _add_changes(router, service, access)
    _add_leaf_changes(router, service)
    return router


def _add_reads(router: APIRouter, service: PathRequests) -> None:
    @router.get("", response_model=list[PathModel])
    async def list_paths(
        who: Who,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_PATHS)] = PAGE_PATHS,
        after: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """Return the workgroup's paths by name.

        If there are more, a Link header with rel="next" (RFC 8288) gives their URL.
        """
        seen = {v.path.name: v for v in service.paths() if who.workgroup.may_see(v.path.workgroup)}
        names = sorted(seen)
        start = bisect_right(names, after)
        page = names[start : start + limit]
        body = b",".join(
            PathModel.of(seen[name]).model_dump_json(by_alias=True).encode() for name in page
        )
        headers = {}
        if start + limit < len(names):
            headers["link"] = f'</v1/paths?limit={limit}&after={page[-1]}>; rel="next"'
        return Response(b"[" + body + b"]", media_type="application/json", headers=headers)

    @router.get("/{name}", response_model=PathModel)
    async def show_path(name: AnyName, who: Who) -> Response:
        return _answer(_visible(service, name, who), 200, None)


def _add_changes(router: APIRouter, service: PathRequests, access: Access) -> None:
    @router.post("", status_code=201, response_model=PathModel, responses=_CREATED | BODY)
    def create_path(request: PathRequest, who: Who, prefer: Prefer = None) -> Response:
        """Create a path with its root and no leaves. Idempotent."""
        wish = request.to_wish(_owner(service, access, request, who))
        _check_endpoints(who, [wish.root])
        view, is_new = service.create(
            wish.name,
            wish.root,
            wish.rate_bps,
            workgroup=wish.workgroup,
            algorithm=wish.algorithm,
            leaf_to_leaf=wish.leaf_to_leaf,
            end_time=wish.end_time,
            channels=wish.channels,
        )
        if not who.workgroup.may_see(view.path.workgroup):  # another workgroup's, new
            raise name_in_use(wish.name)
        return _answer(view, 201 if is_new else 200, prefer)

    @router.patch("/{name}", response_model=PathModel, responses=BODY)
    def change_path(name: AnyName, patch: PathPatch, who: Who) -> Response:
        """Change or remove the end time."""
        _visible(service, name, who)
        return _answer(service.set_end_time(name, patch.end_time), 200, None)

    @router.delete("/{name}", status_code=204)
    def delete_path(name: AnyName, who: Who) -> None:
        """Delete a path. When this returns, no switch has any of its entries."""
        _visible(service, name, who)
        service.delete(name)


def _add_leaf_changes(router: APIRouter, service: PathRequests) -> None:
    @router.post(
        "/{name}/leaves", status_code=201, response_model=PathModel, responses=_CREATED | BODY
    )
    def add_leaf(name: AnyName, leaf: EndpointModel, who: Who, prefer: Prefer = None) -> Response:
        """Add an endpoint to the tree. When this returns, all switches have confirmed.
        Idempotent."""
        _visible(service, name, who)
        endpoint = leaf.to_endpoint()
        _check_endpoints(who, [endpoint])
        view, is_new = service.add_leaf(name, endpoint)
        return _answer(view, 201 if is_new else 200, prefer)

    @router.delete("/{name}/leaves/{switch}/{port}/{vlan}", response_model=PathModel)
    def remove_leaf(
        name: AnyName,
        switch: SwitchName,
        port: Annotated[int, PathParameter(ge=1)],
        vlan: Annotated[int, PathParameter(ge=1, le=4094)],
        who: Who,
        prefer: Prefer = None,
    ) -> Response:
        """Remove a leaf, and the branch that only it needed."""
        _visible(service, name, who)
        return _answer(service.remove_leaf(name, (switch, port, vlan)), 200, prefer)


Id = Annotated[HoldId, PathParameter()]


def _holds(service: PathRequests, access: Access) -> APIRouter:
    router = APIRouter(prefix="/v1/holds", tags=["holds"])

    def visible(hold_id: str, who: Caller) -> None:
        """Raise ServiceError 404 for another workgroup's hold."""
        if not who.workgroup.may_see(service.hold_view(hold_id).workgroup):
            raise ServiceError(404, "unknown-hold", "Unknown hold", f"there is no hold '{hold_id}'")

    @router.post("", status_code=201, response_model=HoldModel, responses=BODY)
    def hold(request: HoldRequest, who: Who) -> HoldModel:
        """Reserve capacity, VLAN ids and endpoints, without a message to any switch. Idempotent if
        the request has an id."""
        leaves = tuple(leaf.to_endpoint() for leaf in request.path.leaves)
        wish = request.path.to_wish(_owner(service, access, request.path, who), leaves)
        _check_endpoints(who, [wish.root, *leaves])
        hold_id = request.id if request.id is not None else uuid.uuid4().hex
        return HoldModel.of(service.hold(hold_id, wish, time.time() + request.hold_s))

    @router.get("/{hold_id}", response_model=HoldModel)
    async def show_hold(hold_id: Id, who: Who) -> HoldModel:
        visible(hold_id, who)
        return HoldModel.of(service.hold_view(hold_id))

    @router.post("/{hold_id}/commit", response_model=PathModel)
    def commit(hold_id: Id, who: Who, prefer: Prefer = None) -> Response:
        """Install what was reserved. Idempotent."""
        visible(hold_id, who)
        return _answer(service.commit(hold_id), 200, prefer)

    @router.delete("/{hold_id}", status_code=204)
    def release(hold_id: Id, who: Who) -> None:
        """Release what was reserved. Idempotent."""
        visible(hold_id, who)
        service.release(hold_id)

    return router


def _about(service: PathRequests) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["about"])

    @router.get("/health")
    async def health() -> Health:
        return Health(
            role="active" if service.is_active else "standby", switches=service.switches()
        )

    @router.get("/workgroups/me")
    async def me(who: Who) -> WorkgroupModel:
        """Return the caller's workgroup, and what it may use."""
        return WorkgroupModel.of(who.workgroup)

    return router


def _events(log: EventLog) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["events"])
    streams: Counter[str] = Counter()

    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Server-sent events: " + ", ".join(EventKind),
                "content": {"text/event-stream": {}},
            }
        },
    )
    async def events(
        who: Who,
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> StreamingResponse:
        """Stream events from now on, or since `Last-Event-ID`. After `resync`, events are missing:
        get the paths again."""
        if streams[who.name] >= MAX_EVENT_STREAMS_EACH or streams.total() >= MAX_EVENT_STREAMS:
            raise ServiceError(
                429,
                "too-many-requests",
                "Too many requests",
                f"{MAX_EVENT_STREAMS_EACH} event streams of one workgroup, or "
                f"{MAX_EVENT_STREAMS} in all, are open; valid: close one",
            )
        # Counted before anything is awaited, so that simultaneous requests do not all see the same
        # free place.
        return _CountedStream(who.name, streams, _stream(log, who, last_event_id))

    return router


class _CountedStream(StreamingResponse):
    """An event stream. It counts in `streams` from its creation to its end, even if the connection
    breaks before the first event."""

    def __init__(
        self, workgroup: str, streams: Counter[str], content: AsyncIterator[bytes]
    ) -> None:
        super().__init__(
            content, media_type="text/event-stream", headers={"cache-control": "no-store"}
        )
        self._workgroup = workgroup
        self._streams = streams
        streams[workgroup] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._workgroup] -= 1
            self._streams += Counter()  # forgets workgroups without streams


async def _stream(log: EventLog, who: Caller, last_event_id: str | None) -> AsyncIterator[bytes]:
    loop, wake = asyncio.get_running_loop(), asyncio.Event()

    def on_event() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(wake.set)

    log.subscribe(on_event)
    try:
        position = log.last if last_event_id is None else log.position_of(last_event_id)
        missed = position is None
        position = log.last if position is None else position
        # Gives the client its position, in case the connection breaks before the first event.
        yield f"retry: 2000\nid: {log.id_at(position)}\n\n".encode()
        while True:
            wake.clear()
            found, forgotten = log.after(position)
            if missed or forgotten:
                yield as_sse(log.id_at(position), EventKind.RESYNC, {})
                missed = False
            for event in found:
                position = event.sequence
                if _concerns(who, event):
                    data = {"time": round(event.time, 6), **event.data}
                    yield as_sse(log.id_of(event), event.kind, data)
            if found:
                continue
            try:
                await asyncio.wait_for(wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": nothing new\n\n"
    finally:
        log.unsubscribe(on_event)


def _concerns(who: Caller, event: Event) -> bool:
    """Return whether a caller sees an event: of its workgroup's paths and, for admins and peers, of
    the network."""
    if event.workgroup:
        return who.workgroup.may_see(event.workgroup)
    return who.is_admin or who.is_peer


# -- errors


def _add_error_handlers(app: FastAPI) -> None:
    def refused(request: Request, status: int, detail: str) -> None:
        who: Caller | None = getattr(request.state, "caller", None)
        LOG.info(
            "refused workgroup=%s request=%s %r status=%d: %s",
            who.name if who is not None else "-",
            request.method,
            request.url.path[:200],
            status,
            " ".join(detail.split())[:500],
        )

    @app.exception_handler(ServiceError)
    def on_service_error(request: Request, error: ServiceError) -> JSONResponse:
        refused(request, error.status, error.detail)
        who: Caller | None = getattr(request.state, "caller", None)
        error = error.public if who is None else error.seen_by(who.workgroup.may_see)
        response = problem_response(error.status, error.kind, error.title, error.detail)
        if error.status in (429, 503):
            response.headers["retry-after"] = "2"
        return response

    @app.exception_handler(RequestValidationError)
    def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        detail = "; ".join(_invalid(item) for item in error.errors()[:20])
        refused(request, 422, detail)
        return problem_response(422, "invalid", "Invalid request", detail)

    @app.exception_handler(HTTPException)
    def on_http(request: Request, error: HTTPException) -> JSONResponse:
        title = HTTPStatus(error.status_code).phrase
        detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
        refused(request, error.status_code, str(error.detail))
        response = problem_response(error.status_code, "", title, detail)
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["allow"] = ", ".join(_methods_of(app, request.scope))
        return response

    @app.exception_handler(Exception)
    def on_bug(request: Request, error: Exception) -> JSONResponse:
        LOG.error("%s %s failed", request.method, request.url.path[:200], exc_info=error)
        detail = f"internal error: {type(error).__name__}; the controller's log has more"
        return problem_response(500, "", "Internal Server Error", detail)


def _methods_of(app: FastAPI, scope: Scope) -> list[str]:
    """Return all methods that the request's path supports (RFC 9110, 10.2.1)."""
    asked = {key: scope[key] for key in ("type", "path", "headers")}
    return [
        method
        for method in METHODS
        if any(
            route.matches({**asked, "root_path": "", "method": method})[0] is Match.FULL
            for route in app.routes
        )
    ]


def _invalid(item: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors as text: its place, what is wrong, what was found."""
    place = ".".join(str(part)[:40] for part in item["loc"][:8])
    found = repr(item.get("input"))
    found = found if len(found) <= 80 else found[:77] + "..."
    return f"{place}: {item['msg']}; found {found}"
