# SPDX-License-Identifier: Apache-2.0
"""HTTP servers that limit what a connection may cost: uvicorn, in its own thread or in the
caller's.

A client has `REQUEST_TIMEOUT_S` for a request's head and as long for its body, and it must read
what it is sent. Heads and bodies have a largest size, and the connections of one address are
limited. Connections by TCP never affect those by the Unix socket. Refusals are counted
(refused.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
import weakref
from collections import Counter

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from common import looking
from common.http.origin import origin_of
from common.http.ratelimit import RateLimit
from common.http.refused import REFUSED, Reason

LOG = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 10.0
# Between two requests of a connection. A client that keeps a connection for less than this never
# sends a request on one that is being closed. A starved client may keep it longer.
IDLE_TIMEOUT_S = 5
OWNER_IDLE_TIMEOUT_S = 60  # for the Unix socket
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_ADDRESS = 64  # of an IPv4 address, or of an IPv6 network of 64 bits
MAX_HANDSHAKES = 128  # TLS
BUSY_MAX = 2 * MAX_CONNECTIONS  # more than `_Connections` admits: uvicorn would answer 503 here
UNREAD_TIMEOUT_S = 20.0  # for a client that reads less than UNREAD_LEAST_BYTES in this time
UNREAD_LEAST_BYTES = 4096
LOG_PERIOD_S = 60.0


class _TlsListener(socket.socket):
    """A listening socket that bounds the connections with an unfinished TLS handshake.

    The server learns of a connection only after its handshake, for which TLS allows a minute.
    Beyond MAX_HANDSHAKES, the oldest handshake is ended.
    """

    _shaking: dict[object, socket.socket]  # by the client's address and port, the oldest first

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection, and end the oldest handshake if there are too many."""
        connection, client = super().accept()
        for given_up in [c for c, s in self._shaking.items() if s.fileno() < 0]:
            del self._shaking[given_up]
            REFUSED.add(Reason.HANDSHAKE_FAILED)
        self._shaking[client[:2]] = connection
        if len(self._shaking) > MAX_HANDSHAKES:
            oldest = self._shaking.pop(next(iter(self._shaking)))
            REFUSED.add(Reason.HANDSHAKE_DISPLACED)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        return connection, client

    @classmethod
    def of(cls, listener: socket.socket) -> _TlsListener:
        """Return `listener` with that bound; `listener` itself must no longer be used."""
        bounded = cls(fileno=listener.detach())
        bounded._shaking = {}
        _TLS_LISTENERS.add(bounded)
        return bounded

    def shaken(self, client: object) -> None:
        """Note that the client has finished its handshake."""
        self._shaking.pop(client, None)


_TLS_LISTENERS: weakref.WeakSet[_TlsListener] = weakref.WeakSet()


class _Connections:
    """The open TCP connections, and which of them may be closed for a newer one."""

    def __init__(self) -> None:
        self.per_origin: Counter[str] = Counter()
        self._open: dict[_LimitedProtocol, None] = {}  # the oldest first
        self._log_limit = RateLimit(1 / LOG_PERIOD_S, 1.0)

    def enter(self, connection: _LimitedProtocol, origin: str) -> bool:
        """Count a connection; return False if the caller must close it at once.

        If MAX_CONNECTIONS are open, the oldest one that waits for its client is closed: so a
        stranger that sends nothing keeps no client out.
        """
        self.per_origin[origin] += 1
        self._open[connection] = None
        if self.per_origin[origin] > MAX_CONNECTIONS_PER_ADDRESS:
            REFUSED.add(Reason.ADDRESS_FULL)
            self.log(f"refused address={origin}: too many connections")
            return False
        if len(self._open) > MAX_CONNECTIONS:
            waiting = (other for other in self._open if other.waits_for_client())
            oldest = next(waiting, connection)
            self.log(f"{MAX_CONNECTIONS} connections are open: closing the oldest idle ones")
            if oldest is connection:
                REFUSED.add(Reason.ALL_FULL)
                return False
            REFUSED.add(Reason.DISPLACED)
            oldest.end()
        return True

    def leave(self, connection: _LimitedProtocol, origin: str) -> None:
        """Stop counting a connection."""
        if connection in self._open:
            del self._open[connection]
            self.per_origin[origin] -= 1
            if not self.per_origin[origin]:
                del self.per_origin[origin]

    def log(self, text: str) -> None:
        """Log a warning, the same at most once in LOG_PERIOD_S."""
        if not self._log_limit.take(text, time.monotonic()):
            LOG.warning("%s", text)


class _OncePerPeriod(logging.Filter):
    """Lets a warning through once in LOG_PERIOD_S: uvicorn logs each request that is not HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit(1 / LOG_PERIOD_S, 1.0, max_keys=16)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        if record.levelno > logging.WARNING:
            return True
        return not self._limit.take(str(record.msg), time.monotonic())


UVICORN_LOG = logging.getLogger("uvicorn.error")
UVICORN_LOG.addFilter(_OncePerPeriod())


class _LimitedProtocol(H11Protocol):
    """HTTP/1.1 that ends connections of clients that request too slowly or do not read their
    answers, and those above the limit of one address.

    (uvicorn only limits the time between requests.) Connections by the Unix socket do not count.
    """

    _tcp = _Connections()
    _origin = ""
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            if self.scheme == "https":
                for listener in _TLS_LISTENERS:
                    listener.shaken(self.client)
            self._origin = origin_of(self.client[0])
            if not self._tcp.enter(self, self._origin):
                self.end()
                return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread_timer()
        if self._origin:
            self._tcp.leave(self, self._origin)
        super().connection_lost(exc)

    def end(self) -> None:
        """End the connection in any state."""
        if self._origin:
            self._tcp.leave(self, self._origin)
        self._stop_timer()
        self._stop_unread_timer()
        self.transport.abort()

    def waits_for_client(self) -> bool:
        """Return whether the client must act: it is silent, has sent part of a request, or must
        read."""
        return self._is_asking() or self.flow.write_paused

    def send_400_response(self, msg: str) -> None:
        REFUSED.add(Reason.NOT_HTTP)
        super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asking():
            self._start_timer()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        self._stop_timer()  # from here on, the limit for idle connections applies
        super().on_response_complete()

    def _is_asking(self) -> bool:
        """Return whether part of a request has come and the rest is awaited."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        return self.cycle.more_body

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        REFUSED.add(Reason.TOO_SLOW)
        self._tcp.log(f"address={self._origin or 'socket'}: no whole request in time")
        self.end()

    # -- a client that asks and does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._origin:
            self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_unread_timer()
        super().resume_writing()

    def _watch_reader(self) -> None:
        self._stop_unread_timer()
        unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(
            UNREAD_TIMEOUT_S, self._check_reader, unread_bytes
        )

    def _check_reader(self, before_bytes: int) -> None:
        """Check what the client has read. While writing is paused nothing is added, so this is what
        has left the buffer."""
        if before_bytes - self.transport.get_write_buffer_size() >= UNREAD_LEAST_BYTES:
            self._watch_reader()
            return
        REFUSED.add(Reason.UNREAD)
        self._tcp.log(f"address={self._origin}: does not read its answers")
        self.end()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


class Server:
    """HTTP on sockets that are already bound, in its own thread.

    With `tls`, `tls_sockets` speak HTTPS. One event loop serves all; limits only apply to TCP.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: list[socket.socket],
        tls_sockets: list[socket.socket] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # The owner has a separate server, which strangers at the others cannot fill.
        local = [listener for listener in sockets if listener.family == socket.AF_UNIX]
        remote = [listener for listener in sockets if listener.family != socket.AF_UNIX]
        secure: list[socket.socket] = [*map(_TlsListener.of, tls_sockets or ())]
        kinds = (
            (local, None, None, OWNER_IDLE_TIMEOUT_S),
            (remote, None, BUSY_MAX, IDLE_TIMEOUT_S),
            (secure, tls, BUSY_MAX, IDLE_TIMEOUT_S),
        )
        self._serving = [
            (bounded(app, context, limit, idle_s=idle_s), listeners)
            for listeners, context, limit, idle_s in kinds
            if listeners
        ]
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop serving; wait at most `timeout_s`."""
        for server, _ in self._serving:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        async def serve() -> None:
            await asyncio.gather(*(server.serve(sockets) for server, sockets in self._serving))

        asyncio.run(serve())


class _Seldom(uvicorn.Server):
    """Checks whether it must end as often as observers look, not ten times a second."""

    async def main_loop(self) -> None:
        """Return when it must end."""
        while not await self.on_tick(0):
            await asyncio.sleep(looking.every_s(0.1))


def bounded(
    app: ASGIApp,
    tls: ssl.SSLContext | None,
    limit: int | None,
    *,
    has_lifespan: bool = False,
    idle_s: int = IDLE_TIMEOUT_S,
) -> uvicorn.Server:
    """Return a server that answers 503 while `limit` requests or connections are open, and closes
    those that are idle for `idle_s`. Its `run` serves in the caller's thread."""
    config = uvicorn.Config(
        app,
        http=_LimitedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on" if has_lifespan else "off",
        proxy_headers=False,  # a client must not claim another address
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=idle_s,
        limit_concurrency=limit,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    config.load()
    config.ssl = tls  # made and checked beforehand, not by uvicorn
    return _Seldom(config) if looking.every_s(0.0) else uvicorn.Server(config)
