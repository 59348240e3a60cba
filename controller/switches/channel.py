# SPDX-License-Identifier: Apache-2.0
"""A switch's connection, as the framework's Datapath uses it: a socket with time limits, TLS that
two threads may use at once, and a report when it ends."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

SILENCE_MAX_S = 20.0  # switches answer this controller's echo requests, which are sent more often

T = TypeVar("T")


class Channel:
    """Wraps a connected socket of the framework's hub (`is_green`: an eventlet one).

    `ended` is called once, by the side that closes first. Until `is_known` is set, the peer has at
    most `handshake_s`.
    """

    def __init__(self, raw: socket.socket, *, is_green: bool, handshake_s: float) -> None:
        self._socket = raw
        self._is_green = is_green
        self._tls_lock: threading.Lock | None = None
        self._timeout_s: float | None = None
        self._deadline_s = time.monotonic() + handshake_s
        self._heard_s = time.monotonic()
        self._closed = threading.Lock()
        self._certified: frozenset[str] = frozenset()
        self.is_known = False
        self.has_timed_out = False
        self.ended: Callable[[], None] = lambda: None
        self.vet: Callable[[bytes], None] = lambda _data: None  # checks all data; may raise

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Do the server's handshake. Raises OSError (ssl.SSLError, TimeoutError)."""
        self._socket.settimeout(max(0.1, self._deadline_s - time.monotonic()))
        self._socket = context.wrap_socket(
            self._socket, server_side=True, do_handshake_on_connect=False
        )
        self._socket.do_handshake()
        self._certified = _names_in(self._socket.getpeercert() or {})
        if not self._is_green:
            # Two threads must not read and write an OpenSSL connection at the same time.
            self._tls_lock = threading.Lock()
            self._socket.setblocking(False)

    def certified_names(self) -> frozenset[str]:
        """Return the names (subjectAltName, DNS) in the peer's certificate; none without TLS."""
        return self._certified

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option, as a socket does."""
        self._socket.setsockopt(level, option, value)

    def settimeout(self, timeout_s: float | None) -> None:
        """Set the time limit of `recv`, as a socket does."""
        self._timeout_s = timeout_s
        if self._tls_lock is None:
            self._socket.settimeout(timeout_s)

    def recv(self, size: int) -> bytes:
        """Receive, as a socket does.

        Raises TimeoutError, and ConnectionError if the peer was silent too long.
        """
        try:
            data = self._recv(size)
        except OSError as error:
            if isinstance(error, TimeoutError) or "timed out" in str(error):
                self._check_time()
                raise TimeoutError("timed out") from error
            raise
        self._heard_s = time.monotonic()
        self.vet(data)
        if not self.is_known:
            self._check_time()
        return data

    def _check_time(self) -> None:
        now_s = time.monotonic()
        if not self.is_known and now_s > self._deadline_s:
            self.has_timed_out = True
            raise ConnectionAbortedError("no handshake in time")
        if now_s > self._heard_s + SILENCE_MAX_S:
            raise ConnectionAbortedError("silent for too long")

    def _recv(self, size: int) -> bytes:
        if self._tls_lock is None:
            return bytes(self._socket.recv(size))
        try:
            return self._tls(partial(self._socket.recv, size))
        except ssl.SSLEOFError:
            return b""

    def sendall(self, data: bytes) -> None:
        """Send all bytes. Raises OSError."""
        if self._tls_lock is None:
            self._socket.sendall(data)
            return
        view = memoryview(bytes(data))
        while view:
            sent = self._tls(partial(self._socket.send, view))
            view = view[sent:]

    def _tls(self, operation: Callable[[], T]) -> T:
        """Repeat an operation until OpenSSL can do it. Raises OSError (ssl.SSLEOFError, for
        example)."""
        assert self._tls_lock is not None
        while True:
            try:
                with self._tls_lock:
                    return operation()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except ValueError as error:  # closed meanwhile
                raise ConnectionAbortedError(str(error)) from error
            poll = select.poll()
            try:
                poll.register(self._socket.fileno(), event)
            except ValueError as error:
                raise ConnectionAbortedError(str(error)) from error
            if not poll.poll(None if self._timeout_s is None else self._timeout_s * 1000):
                raise TimeoutError("timed out")

    def shutdown(self, how: int) -> None:
        """Shut the connection down, as a socket does."""
        if self._tls_lock is None:
            self._socket.shutdown(how)
        else:  # SSLSocket.shutdown would remove the TLS layer while the other thread uses it
            with self._tls_lock:
                socket.socket.shutdown(self._socket, how)

    def abort(self) -> None:
        """End the connection from any thread; its reader notices."""
        with contextlib.suppress(OSError, ValueError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, and call `ended` once."""
        if not self._closed.acquire(blocking=False):
            return
        with self._tls_lock or contextlib.nullcontext():
            self._socket.close()
        self.ended()

    def fileno(self) -> int:
        """Return the file descriptor."""
        number: int = self._socket.fileno()
        return number


def _names_in(certificate: Mapping[str, object]) -> frozenset[str]:
    """Return the DNS names of a certificate from ssl.SSLSocket.getpeercert."""
    names = certificate.get("subjectAltName", ())
    assert isinstance(names, tuple)
    return frozenset(value for kind, value in names if kind == "DNS")
