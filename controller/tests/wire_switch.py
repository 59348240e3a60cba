# SPDX-License-Identifier: Apache-2.0
"""A switch at the other end of a real connection: it agrees to everything and holds nothing.

Also what strangers do instead.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
FEATURES_REQUEST, FEATURES_REPLY, PACKET_IN, PACKET_OUT = 5, 6, 10, 13
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
ROLE_REQUEST, ROLE_REPLY = 24, 25

T = TypeVar("T")


def message(kind: int, body: bytes = b"", xid: int = 1, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def features(dpid: int) -> bytes:
    return struct.pack("!QIBB2xII", dpid, 0, 254, 0, 0x47, 0)


class Wire:
    """A connection that threads write to side by side while one reads.

    OpenSSL must not read and write one connection at the same time, and Python 3.11 lets two
    threads do that: bytes were lost now and then.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Open vSwitch
        self._writing = threading.Lock()  # one message at a time
        self._is_tls = isinstance(connection, ssl.SSLSocket)
        self._tls = threading.Lock()
        if self._is_tls:
            connection.setblocking(False)

    def sendall(self, data: bytes) -> None:
        """Send all bytes without mixing them with those of another thread."""
        with self._writing:
            if not self._is_tls:
                self._connection.sendall(data)
                return
            view = memoryview(data)
            while view:
                view = view[self._retried(partial(self._connection.send, view)) :]

    def recv(self, size: int) -> bytes:
        """Return what comes; b"" at the end."""
        if not self._is_tls:
            return self._connection.recv(size)
        return self._retried(partial(self._connection.recv, size))

    def _retried(self, operation: Callable[[], T]) -> T:
        while True:
            try:
                with self._tls:
                    return operation()
            except ssl.SSLWantReadError:
                select.select([self._connection], [], [])
            except ssl.SSLWantWriteError:
                select.select([], [self._connection], [])

    def close(self) -> None:
        """End the connection; a thread that reads gets b"" or OSError."""
        with contextlib.suppress(OSError), self._tls:
            # SSLSocket.shutdown would drop the TLS layer under the reader's feet.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


class WireSwitch:
    """Answers in its own thread until `close`, or until the controller ends the connection
    (`ended`). `seen` counts messages by type. While `is_mute` it answers nothing."""

    def __init__(self, connection: socket.socket, dpid: int) -> None:
        self.connection = connection
        self.dpid = dpid
        self.is_mute = False
        self.seen: Counter[int] = Counter()
        self.ended = threading.Event()
        self._echoes: dict[int, threading.Event] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._wire = Wire(connection)
        self._wire.sendall(message(HELLO))
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                head = self._read(8)
                _, kind, length, xid = struct.unpack("!BBHI", head)
                body = self._read(length - 8)
                self.seen[kind] += 1
                reply = self._reply(kind, body)
                if reply is not None and not self.is_mute:
                    self._wire.sendall(message(*reply, xid))
                if kind == ECHO_REPLY and xid in self._echoes:
                    self._echoes.pop(xid).set()
        except (OSError, EOFError, ValueError):  # ValueError: closed while waiting
            pass
        finally:
            self.ended.set()

    def _reply(self, kind: int, body: bytes) -> tuple[int, bytes] | None:
        if kind == FEATURES_REQUEST:
            return FEATURES_REPLY, features(self.dpid)
        if kind == ECHO_REQUEST:
            return ECHO_REPLY, body
        if kind == MULTIPART_REQUEST:
            return MULTIPART_REPLY, body[:2] + bytes(6)
        if kind == BARRIER_REQUEST:
            return BARRIER_REPLY, b""
        if kind == ROLE_REQUEST:
            return ROLE_REPLY, body
        return None

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._wire.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def echo(self, xid: int, timeout_s: float = 30.0) -> bool:
        """Return whether the controller answers."""
        answered = self._echoes[xid] = threading.Event()
        self._wire.sendall(message(ECHO_REQUEST, b"alive?", xid))
        return answered.wait(timeout_s)

    def close(self) -> None:
        self._wire.close()
        self._thread.join()
        self.connection.close()
