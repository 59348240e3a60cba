# SPDX-License-Identifier: Apache-2.0
"""The calendar's proxy on another machine: passes on what the guests here and the calendar say, and
carries the batches of their cut links.

    python3 -S -m virtual.parts.proxy ORDER

See `desk`, which starts and ends as this does. When a guest here or the calendar's machine breaks
the protocol or is gone, it ends with exit code 1, and all guests here end.
"""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from virtual.parts.calendar import CalendarError, Grant
from virtual.parts.desk import Order, Watch, callers, handle
from virtual.parts.messages import OUTPUT_BYTES, Ended, Kind, Message
from virtual.parts.peer import Peer


class Proxy:
    """Plays the calendar for the guests here."""

    def __init__(self, order: Order) -> None:
        """Wait until the guests here have called."""
        (far,) = order.machines
        self._peer, self._far = Peer(far.name, socket.socket(fileno=far.fd)), set(far.parts)
        self._clients = callers(order.parts)
        self._links = order.link_files()
        self._watch = Watch(max(self._clients) + 1)
        self._wishes: dict[int, int | None] = {}  # of the guests that wait

    def serve(self) -> None:
        """Serve until the guests here have ended. Raises CalendarError."""
        poll = select.poll()
        clients = {client.fileno(): client for client in self._clients.values()}
        for fd in (*clients, self._peer.fileno()):
            poll.register(fd, select.POLLIN)
        while self._clients:
            for fd, _ in poll.poll():
                if fd not in clients:
                    for message in self._peer.messages():
                        self._obey(message)
                elif not handle(clients[fd], self, self._watch):
                    poll.unregister(fd)
                    clients[fd].close()

    def _obey(self, message: Message) -> None:
        if message.kind == Kind.BATCH:
            self._links.write(message, self._far, self._peer.name)
            return
        part, begin_ns, end_ns = message.index, message.first, message.second
        if message.kind != Kind.RUN or part not in self._wishes:
            raise CalendarError(
                f"{self._peer.name}: found {message.kind.name} of part {part}; valid: RUN of a "
                f"part that waits: {sorted(self._wishes)}"
            )
        if begin_ns != self._wishes.pop(part) or begin_ns >= end_ns:
            raise CalendarError(
                f"{self._peer.name}: found a run from {begin_ns} to {end_ns} ns; valid: from when "
                "the part asked for"
            )
        self._clients[part].run(Grant(part, begin_ns, end_ns))

    def waits(self, part: int, wish_ns: int | None) -> None:
        """Tell that a part waits, after what it has written."""
        self._wishes[part] = wish_ns
        kind = Kind.FOREVER if wish_ns is None else Kind.WAIT
        written = self._links.written(self._far, {part})
        self._peer.send([*written, Message(kind, part, wish_ns or 0)])

    def gone(self, part: int) -> None:
        """Tell how a part ended."""
        result = self._clients.pop(part).result
        try:
            code = int(result.read_text(errors="replace"))
        except ValueError:
            raise CalendarError(f"part {part}: its result is not an exit code") from None
        out, err = (_end_of(result.parent / name) for name in ("stdout", "stderr"))
        body = json.dumps(dataclasses.asdict(Ended(code, out, err))).encode()
        written = self._links.written(self._far, {part})
        self._peer.send([*written, Message(Kind.GONE, part, body=body)])

    def complain(self, text: str) -> None:
        """Tell the calendar's machine why this one ends."""
        self._peer.complain(text)


def _end_of(path: Path) -> str:
    return path.read_bytes()[-OUTPUT_BYTES:].decode("ascii", "replace")


def main(arguments: Sequence[str]) -> int:
    """Serve; return the exit code."""
    proxy = Proxy(Order.from_json(arguments[0]))
    try:
        proxy.serve()
    except CalendarError as error:
        print(error, file=sys.stderr, flush=True)
        proxy.complain(str(error))
        return 1
    print("{}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
