# SPDX-License-Identifier: Apache-2.0
"""The northbound REST interface: FastAPI routes over the path service, and the server thread.

Every error, whoever raises it, is an RFC 9457 problem. The OpenAPI description is served at
/openapi.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.schemas import EndpointModel, Health, PathModel, PathRequest, Problem
from controller.service import PathService, ServiceError

LOG = logging.getLogger(__name__)
PROBLEM_JSON = "application/problem+json"
MAX_BODY_BYTES = 1 << 20

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text, "content": {PROBLEM_JSON: {}}}
    for code, text in (
        (404, "No such path or leaf"),
        (409, "In conflict with what exists: name, endpoint, VLAN ids or capacity"),
        (422, "Invalid request"),
        (502, "A switch refused the change; it was undone"),
        (504, "A switch did not confirm in time; the path is degraded until it does"),
    )
}


def _problem(status: int, kind: str, title: str, detail: str) -> JSONResponse:
    body = {
        "type": "about:blank" if not kind else f"urn:downpour:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    return JSONResponse(body, status_code=status, media_type=PROBLEM_JSON)


class _LimitBody:
    """Refuses bodies over MAX_BODY_BYTES before they are held in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
            return message

        await self._app(scope, limited if scope["type"] == "http" else receive, send)


def make_app(service: PathService) -> FastAPI:
    app = FastAPI(
        title="Downpour path service",
        description="Dynamic multipoint paths: one root, many leaves, a guaranteed rate.",
        version="1",
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
    )
    app.add_middleware(_LimitBody)
    _add_error_handlers(app)

    @app.get("/v1/health")
    def health() -> Health:
        return Health(switches=service.switches())

    @app.post("/v1/paths", status_code=201, responses={200: {"model": PathModel}})
    def create_path(request: PathRequest, response: Response) -> PathModel:
        view, is_new = service.create(request.name, request.root.to_endpoint(), request.rate_bps)
        response.status_code = 201 if is_new else 200
        return PathModel.of(view)

    @app.get("/v1/paths")
    def list_paths() -> list[PathModel]:
        return [PathModel.of(view) for view in service.paths()]

    @app.get("/v1/paths/{name}")
    def show_path(name: str) -> PathModel:
        return PathModel.of(service.path(name))

    @app.post("/v1/paths/{name}/leaves", status_code=201, responses={200: {"model": PathModel}})
    def add_leaf(name: str, leaf: EndpointModel, response: Response) -> PathModel:
        view, is_new = service.add_leaf(name, leaf.to_endpoint())
        response.status_code = 201 if is_new else 200
        return PathModel.of(view)

    @app.delete("/v1/paths/{name}/leaves/{switch}/{port}/{vlan}")
    def remove_leaf(
        name: str,
        switch: str,
        port: Annotated[int, PathParameter(ge=1)],
        vlan: Annotated[int, PathParameter(ge=1, le=4094)],
    ) -> PathModel:
        return PathModel.of(service.remove_leaf(name, (switch, port, vlan)))

    @app.delete("/v1/paths/{name}", status_code=204)
    def delete_path(name: str) -> None:
        service.delete(name)

    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    def on_service_error(_request: Request, error: ServiceError) -> JSONResponse:
        return _problem(error.status, error.kind, error.title, error.detail)

    @app.exception_handler(RequestValidationError)
    def on_invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        texts = []
        for item in error.errors():
            place = ".".join(str(part) for part in item["loc"])
            found = repr(item.get("input"))
            found = found if len(found) <= 80 else found[:77] + "..."
            texts.append(f"{place}: {item['msg']}; found {found}")
        return _problem(422, "invalid", "Invalid request", "; ".join(texts))

    @app.exception_handler(HTTPException)
    def on_http(request: Request, error: HTTPException) -> JSONResponse:
        title = HTTPStatus(error.status_code).phrase
        detail = f"{request.method} {request.url.path}: {error.detail}"
        response = _problem(error.status_code, "", title, detail)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    def on_bug(request: Request, error: Exception) -> JSONResponse:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        detail = f"internal error: {type(error).__name__}; the controller's log has more"
        return _problem(500, "", "Internal Server Error", detail)


class ListenError(Exception):
    """An address cannot be listened on; the text says which and why."""


def listen_unix(path: Path) -> socket.socket:
    """Listening Unix socket, for the owner only; a socket nobody listens on is replaced."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with probe, contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenError(f"--rest-socket {path}: exists and is not a socket")
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError as error:
            raise ListenError(f"--rest-socket {path}: {error.strerror or error}") from error
        else:
            raise ListenError(f"--rest-socket {path}: a server is already listening there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not by umask: that would affect other threads.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise ListenError(f"--rest-socket {path}: {error.strerror or error}") from error
    return listener


def listen_tcp(option: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        why = "port in use" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise ListenError(f"{option} {host}:{port}: {why}") from error
    return listener


class Server:
    """uvicorn in a thread of its own, on sockets that are bound already."""

    def __init__(self, app: FastAPI, sockets: list[socket.socket]) -> None:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._sockets = sockets
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._server.should_exit = True
        self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=self._sockets))
