# SPDX-License-Identifier: Apache-2.0
"""Sockets and HTTP servers of the REST interface: uvicorn in a thread of its own, with limits on
what a connection may cost.

A client gets `REQUEST_TIMEOUT_S` for a request's head and as long for its body; heads and bodies
have a largest size; one address has so many connections and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

LOG = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 10.0
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_ADDRESS = 64
BACKLOG = 128


class ListenError(Exception):
    """An address cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Tls:
    """PEM files. `ca`: clients must show a certificate that it signed."""

    key: Path
    certificate: Path
    ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises ListenError naming the file that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for option, path in (("key", self.key), ("cert", self.certificate), ("ca", self.ca)):
            if path is not None and not os.access(path, os.R_OK):
                raise ListenError(f"--rest-tls-{option} {path}: no readable file")
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise ListenError(
                f"--rest-tls-key {self.key}, --rest-tls-cert {self.certificate}: "
                f"{error.strerror or error}; valid: a PEM key and its certificate "
                "(python -m controller keys DIR makes both)"
            ) from error
        return context


def listen_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket for the owner only; a stale socket is replaced.

    Raises ListenError.
    """
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
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"--rest-socket {path}: {error.strerror or error}") from error
    return listener


def listen_tcp(option: str, host: str, port: int) -> socket.socket:
    """Listen on a TCP address that `option` gave. Raises ListenError naming the option."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why = "port in use" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise ListenError(f"{option} {host}:{port}: {why}") from error
    return listener


class _LimitedProtocol(H11Protocol):
    """HTTP/1.1 that ends connections which ask too slowly, and those over the limit of one address.

    (uvicorn limits only the time between requests.)
    """

    _per_address: Counter[str] = Counter()
    _address = ""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self._address = self.client[0]
            self._per_address[self._address] += 1
            if self._per_address[self._address] > MAX_CONNECTIONS_PER_ADDRESS:
                LOG.warning("refused address=%s: too many connections", self._address)
                transport.abort()
                return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._address:
            self._per_address[self._address] -= 1
            if not self._per_address[self._address]:
                del self._per_address[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asking():
            self._start_timer()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        self._stop_timer()  # from here on the limit of an idle connection holds
        super().on_response_complete()

    def _is_asking(self) -> bool:
        """Return whether a part of a request has come, and another is awaited."""
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
        LOG.warning("address=%s: no whole request in time", self._address or "socket")
        self.transport.abort()


class Server:
    """HTTP on sockets that are bound already, in a thread of its own.

    With `tls`, `tls_sockets` speak HTTPS. One event loop serves all.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: list[socket.socket],
        tls_sockets: list[socket.socket] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._serving = [(_server(app, None), sockets)]
        if tls_sockets:
            self._serving.append((_server(app, tls), tls_sockets))
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


def _server(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=_LimitedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,  # a client cannot claim another address
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    config.load()
    config.ssl = tls  # made and checked before, not by uvicorn
    return uvicorn.Server(config)
