# SPDX-License-Identifier: Apache-2.0
"""A switch at the other end of a real connection: it agrees to everything and holds nothing.

And what strangers do instead.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
FEATURES_REQUEST, FEATURES_REPLY, PACKET_IN, PACKET_OUT = 5, 6, 10, 13
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
ROLE_REQUEST, ROLE_REPLY = 24, 25


def message(kind: int, body: bytes = b"", xid: int = 1, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def features(dpid: int) -> bytes:
    return struct.pack("!QIBB2xII", dpid, 0, 254, 0, 0x47, 0)


class WireSwitch:
    """Answers in a thread of its own until `close` or the controller ends the connection
    (`ended`). `seen` counts messages by type."""

    def __init__(self, connection: socket.socket, dpid: int) -> None:
        self.connection = connection
        self.dpid = dpid
        self.seen: Counter[int] = Counter()
        self.ended = threading.Event()
        self._echoes: dict[int, threading.Event] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        connection.sendall(message(HELLO))
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                head = self._read(8)
                _, kind, length, xid = struct.unpack("!BBHI", head)
                body = self._read(length - 8)
                self.seen[kind] += 1
                reply = self._reply(kind, body)
                if reply is not None:
                    self.connection.sendall(message(*reply, xid))
                if kind == ECHO_REPLY and xid in self._echoes:
                    self._echoes.pop(xid).set()
        except (OSError, EOFError):
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
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def echo(self, xid: int, timeout_s: float = 30.0) -> bool:
        """Whether the controller answers."""
        answered = self._echoes[xid] = threading.Event()
        self.connection.sendall(message(ECHO_REQUEST, b"alive?", xid))
        return answered.wait(timeout_s)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
