# SPDX-License-Identifier: Apache-2.0
"""The TCP connection to another machine of the same emulation."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

from virtual.parts.calendar import CalendarError
from virtual.parts.messages import PROBLEM_BYTES, Kind, Message, Stream

SEND_S: Final = 30.0  # for a batch of 16 MB
# A machine without power or cable is noticed after about 15 s, and one that hangs after SILENT_S.
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
SILENT_S: Final = 100.0
_READ_BYTES: Final = 1 << 20


class Peer:
    """`name`: how messages to the user call it."""

    def __init__(self, name: str, connection: socket.socket) -> None:
        self.name, self._connection = name, connection
        self._stream = Stream(name)
        connection.settimeout(SEND_S)
        for level, option, value in _OPTIONS:
            connection.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._connection.fileno()

    def messages(self) -> list[Message]:
        """Return what has come; wait if nothing has. Raises CalendarError, also for what the other
        machine complains of."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except OSError as error:
            raise CalendarError(f"{self.name}: {error.strerror or error}") from None
        if not data:
            raise CalendarError(f"{self.name}: it is gone")
        found = self._stream.feed(data)
        for message in found:
            if message.kind == Kind.PROBLEM:
                raise CalendarError(f"{self.name}: {message.text}")
        return found

    def one(self) -> Message:
        """Return the first message, which nothing may follow. Raises CalendarError."""
        while not (found := self.messages()):
            continue
        if len(found) > 1:
            raise CalendarError(f"{self.name}: found {len(found)} messages; valid: one")
        return found[0]

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages. Raises CalendarError."""
        data = b"".join(message.to_bytes() for message in messages)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise CalendarError(f"{self.name}: {error.strerror or error}") from None

    def complain(self, text: str) -> None:
        """Say why this machine ends, if the other one still listens."""
        body = " ".join(text.split()).encode()[:PROBLEM_BYTES]
        try:
            self.send([Message(Kind.PROBLEM, body=body)])
        except CalendarError:
            return

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
