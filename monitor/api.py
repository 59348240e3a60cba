# SPDX-License-Identifier: Apache-2.0
"""The page over HTTP: a running experiment (server-sent events report changes), or a finished run.

Reads only. Without a token, it only answers requests that name the local machine as Host. So no
foreign page can read it through a name that points here (DNS rebinding). Access from elsewhere
needs a token.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.version import version
from monitor import metrics
from monitor.news import News
from monitor.running import Shown
from parsers.report.board_page import live_page, script, style

MOST_STREAMS: Final = 200
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")


def _problem(status: int, title: str, detail: str) -> JSONResponse:
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status, "detail": detail},
        status,
        HEADERS,
        "application/problem+json",
    )


class _Guard:
    """Refuses strangers, and adds the headers. This is not BaseHTTPMiddleware, which copies every
    piece of a stream between tasks."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if refused := _refused(Request(scope), self._token):
            await refused(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


class _Stream(StreamingResponse):
    """Server-sent events to one viewer. It counts the viewer when it admits them: one that is
    counted with its first event comes too late in a burst."""

    def __init__(self, news: News, cell: str, since: int) -> None:
        super().__init__(news.stream(cell, since), media_type="text/event-stream")
        self._news = news

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._news.streams >= MOST_STREAMS:
            busy = _problem(503, "Busy", f"found {MOST_STREAMS} viewers; valid: fewer")
            await busy(scope, receive, send)
            return
        self._news.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._news.streams -= 1


def make_app(shown: Shown, token: str = "") -> FastAPI:
    """Return the application. With a token, it answers any Host, if the client has the token."""
    news = News(shown)

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(news.watch())
        yield
        task.cancel()

    app = FastAPI(title="Downpour monitor", version=version(), lifespan=life, docs_url=None,
                  redoc_url=None)  # fmt: skip
    app.add_middleware(_Guard, token=token)
    _pages(app)
    _data(app, news)
    return app


def _refused(request: Request, token: str) -> JSONResponse | None:
    host = request.headers.get("host", "").rsplit(":", 1)[0] or request.headers.get("host", "")
    if not token and host not in LOCAL:
        return _problem(403, "Forbidden", f"found Host {host!r}; valid: {', '.join(LOCAL)}")
    if token:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or request.cookies.get("monitor", "") or request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return _problem(401, "Unauthorized", "valid: ?token=TOKEN or Authorization: Bearer")
    return None


def _pages(app: FastAPI) -> None:
    page, code, sheet = live_page(), script(), style()

    @app.get("/", response_class=HTMLResponse)
    def index(request: Request) -> HTMLResponse:
        """Return the page."""
        answer = HTMLResponse(page)
        if given := request.query_params.get("token"):
            answer.set_cookie("monitor", given, httponly=True, samesite="strict")
        return answer

    @app.get("/static/board.js")
    def board_js() -> Response:
        """Return the page's script."""
        return Response(code, media_type="text/javascript")

    @app.get("/static/board.css")
    def board_css() -> Response:
        """Return the page's style."""
        return Response(sheet, media_type="text/css")


def _data(app: FastAPI, news: News) -> None:
    @app.get("/v1/board")
    def board() -> Response:
        """Return what the page shows: verdict, cells, networks, values beside the published
        ones."""
        document, made = news.board()
        return Response(document, media_type="application/json", headers={"ETag": f'"{made}"'})

    @app.get("/v1/cells/{cell}/deliveries.bin")
    def deliveries(cell: str) -> Response:
        """Return every delivery of a cell, as columns."""
        data = news.deliveries(cell)
        if not data:
            return _problem(404, "Not found", f"found cell {cell!r}; valid: see /v1/board")
        return Response(data, media_type="application/octet-stream")

    @app.get("/v1/events")
    async def events(request: Request, cell: str = "", since: int = -1) -> Response:
        """Stream server-sent events: `board` has the new /v1/board, `deliveries` those of `cell`
        (default: the newest) in Base64. `since`: the version that the client has, from the ETag of
        /v1/board."""
        known = request.headers.get("last-event-id", "")
        since = int(known) if re.fullmatch(r"\d{1,15}", known, re.ASCII) else since
        return _Stream(news, cell, since)

    @app.get("/metrics")
    def prometheus() -> Response:
        """Return the newest samples of the counters, for Prometheus and VictoriaMetrics."""
        return Response(metrics.text(news.shown.recordings()), media_type=metrics.TYPE)
