# SPDX-License-Identifier: Apache-2.0
"""The page over HTTP: what runs now (server-sent events tell of changes), or a finished run.

Reads only. Answers names of the local machine alone, so that no foreign page can read it by a
name that it lets point here (DNS rebinding); from elsewhere a token is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from common.version import version
from monitor import metrics
from monitor.running import Shown
from parsers.report.board import live_page, script, style

LOOK_S: Final = 0.5  # between looks at the files
TELL_S: Final = 1.0  # between news to one viewer: each fetches the document again
MOST_STREAMS: Final = 200
ALIVE_S: Final = 15.0  # a stream without news says that it is there
BYTES_A_SECOND: Final = 400_000  # of deliveries to one viewer: larger ones are fetched less often
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


class _News:
    """Tells streams that something changed."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.streams = 0
        self.changed = asyncio.Event()
        self._board = (-1, b"")

    def board(self) -> bytes:
        """Return /v1/board, which is made once for all viewers of a version."""
        version = self.shown.version
        if self._board[0] != version:
            document = json.dumps(dict(self.shown.board()), separators=(",", ":"))
            self._board = (version, document.encode())
        return self._board[1]

    async def watch(self) -> None:
        known = -1
        while True:
            await asyncio.to_thread(self.shown.look)
            if self.shown.version != known:
                known = self.shown.version
                self.changed.set()
                self.changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def stream(self, request: Request) -> AsyncIterator[str]:
        self.streams += 1
        try:
            known = 0
            yield "retry: 2000\n\n"
            while not await request.is_disconnected():
                if self.shown.version != known:
                    known = self.shown.version
                    yield f"id: {known}\nevent: changed\ndata: {known}\n\n"
                    await asyncio.sleep(TELL_S)
                    continue
                try:
                    await asyncio.wait_for(self.changed.wait(), ALIVE_S)
                except TimeoutError:
                    yield ": here\n\n"
        finally:
            self.streams -= 1


def make_app(shown: Shown, token: str = "") -> FastAPI:
    """Return the application. With a token any Host is answered, to those who have it."""
    news = _News(shown)

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(news.watch())
        yield
        task.cancel()

    app = FastAPI(title="Downpour monitor", version=version(), lifespan=life, docs_url=None,
                  redoc_url=None)  # fmt: skip

    @app.middleware("http")
    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        if refused := _refused(request, token):
            return refused
        answer = await call(request)
        answer.headers.update({k: v for k, v in HEADERS.items() if k not in answer.headers})
        return answer

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
        """The page."""
        answer = HTMLResponse(page)
        if given := request.query_params.get("token"):
            answer.set_cookie("monitor", given, httponly=True, samesite="strict")
        return answer

    @app.get("/static/board.js")
    def board_js() -> Response:
        """Its script."""
        return Response(code, media_type="text/javascript")

    @app.get("/static/board.css")
    def board_css() -> Response:
        """Its style."""
        return Response(sheet, media_type="text/css")


def _data(app: FastAPI, news: _News) -> None:
    shown = news.shown

    @app.get("/v1/board")
    def board() -> Response:
        """What the page shows: verdict, cells, networks, values beside the published ones."""
        return Response(news.board(), media_type="application/json")

    @app.get("/v1/cells/{cell}/deliveries.bin")
    def deliveries(cell: str) -> Response:
        """Every delivery of a cell, as columns."""
        data = shown.deliveries(cell)
        if not data:
            return _problem(404, "Not found", f"found cell {cell!r}; valid: see /v1/board")
        return Response(data, media_type="application/octet-stream")

    @app.get("/v1/events")
    async def events(request: Request) -> Response:
        """Server-sent events: `changed` whenever /v1/board has something new."""
        if news.streams >= MOST_STREAMS:
            return _problem(503, "Busy", f"found {MOST_STREAMS} viewers; valid: fewer")
        return StreamingResponse(news.stream(request), media_type="text/event-stream")

    @app.get("/metrics")
    def prometheus() -> Response:
        """The newest samples of the counters, for Prometheus and VictoriaMetrics."""
        return Response(metrics.text(shown.recordings()), media_type=metrics.TYPE)
