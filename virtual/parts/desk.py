# SPDX-License-Identifier: Apache-2.0
"""The calendar's process: answers the kernels of guests that run together.

    python3 -S -m virtual.parts.desk [--in-turn] WINDOW_NS FD...

Each FD is a listening socket, for one part. The protocol is that of User-Mode Linux,
`time-travel=ext` (include/uapi/linux/um_timetravel.h, Berg 2019 to 2023), with shared memory; but
each guest gets its own page, so that all may run at once. A window then costs a guest two messages.
It ends when all parts have ended, and prints a line of JSON (`Report`). Exit code 1: a guest broke
the protocol. Only the standard library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from virtual.parts.calendar import Calendar, CalendarError, Grant

ACK, START, WAIT, RUN = 0, 1, 3, 6  # enum um_timetravel_ops
_MESSAGE: Final = struct.Struct("=IIQ")  # struct um_timetravel_msg: op, seq, time
VERSION: Final = 2
CLIENT: Final = 1  # each guest's number in its own page
_CLIENTS: Final = CLIENT + 1
_HEADER_BYTES, _CLIENT_BYTES = 4096, 128
PAGE_BYTES: Final = _HEADER_BYTES + _CLIENTS * _CLIENT_BYTES
# struct um_timetravel_schedshm: version, length, end of the free run, time, runner, clients.
_PAGE: Final = struct.Struct("=IIQQHH")
_TIMES: Final = struct.Struct("=QQ")
_TIMES_AT: Final = 8
_OWN: Final = struct.Struct(
    "=IIQ"
)  # union um_timetravel_schedshm_client: capabilities, flags, time
_OWN_AT: Final = _HEADER_BYTES + CLIENT * _CLIENT_BYTES
_SHARES_TIME, _WISHES = 1, 1  # a bit of the capabilities, a bit of the flags


@dataclass
class Report:
    """Real times in seconds. `running_s`: of each part; `longest_s`: the sum, over all windows, of
    the longest time that a part ran in it: what the same run needs with a core for each part."""

    windows: int = 0
    grants: int = 0
    real_s: float = 0.0
    running_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0


class Client:
    """The connection to the kernel of one guest."""

    def __init__(self, part: int, connection: socket.socket) -> None:
        self.part, self._connection = part, connection
        self._memory_fd = os.memfd_create("calendar", os.MFD_CLOEXEC)
        os.ftruncate(self._memory_fd, mmap.PAGESIZE * -(-PAGE_BYTES // mmap.PAGESIZE))
        self._page = mmap.mmap(self._memory_fd, PAGE_BYTES)
        _PAGE.pack_into(self._page, 0, VERSION, PAGE_BYTES, 0, 0, CLIENT, _CLIENTS)
        self._sequence = 0

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._connection.fileno()

    def message(self) -> tuple[int, int] | None:
        """Read (operation, sequence number); None: the guest has ended."""
        try:
            data = self._connection.recv(_MESSAGE.size, socket.MSG_WAITALL)
        except ConnectionResetError:
            return None
        if len(data) < _MESSAGE.size:
            return None
        operation, sequence, _ = _MESSAGE.unpack(data)
        return operation, sequence

    def share(self, sequence: int) -> None:
        """Answer START: hand over the page, and a file for a log that is not used."""
        with Path(os.devnull).open("wb") as log:
            socket.send_fds(
                self._connection,
                [_MESSAGE.pack(ACK, sequence, CLIENT)],
                [self._memory_fd, log.fileno()],
            )

    def wish_ns(self) -> int | None:
        """Return until when it waits. Raises CalendarError if it does not use the page."""
        capabilities, flags, time_ns = _OWN.unpack_from(self._page, _OWN_AT)
        if not capabilities & _SHARES_TIME:
            raise CalendarError(f"part {self.part}: its kernel does not share its time")
        return time_ns if flags & _WISHES else None

    def run(self, grant: Grant) -> None:
        """Let the guest run as the grant says."""
        _TIMES.pack_into(self._page, _TIMES_AT, grant.end_ns, grant.begin_ns)
        self._sequence += 1
        # If the guest has ended, `message` will say so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(_MESSAGE.pack(RUN, self._sequence, grant.begin_ns))

    def close(self) -> None:
        """Close the connection and the page."""
        self._connection.close()
        self._page.close()
        os.close(self._memory_fd)


class Watch:
    """Measures how long parts run in each window."""

    def __init__(self, parts: int) -> None:
        self.report = Report(running_s=[0.0] * parts)
        self._began = time.monotonic()
        self._since: dict[int, float] = {}
        self._longest_s = 0.0  # in the present window

    def begins(self, grant: Grant, *, new_window: bool) -> None:
        """Note that a part runs from now on."""
        if new_window:
            self._end_window()
        self._since[grant.part] = time.monotonic()
        self.report.grants += 1

    def ends(self, part: int) -> None:
        """Note that a part has stopped running."""
        since = self._since.pop(part, None)
        if since is not None:
            ran_s = time.monotonic() - since
            self.report.running_s[part] += ran_s
            self._longest_s = max(self._longest_s, ran_s)

    def _end_window(self) -> None:
        self.report.longest_s += self._longest_s
        self._longest_s = 0.0

    def result(self, windows: int) -> Report:
        """Return the report of everything so far."""
        self._end_window()
        self.report.windows = windows
        self.report.real_s = time.monotonic() - self._began
        return self.report


def serve(listeners: Sequence[socket.socket], calendar: Calendar) -> Report:
    """Serve a guest at each listener until all have ended. Raises CalendarError."""
    clients = {part: Client(part, listener.accept()[0]) for part, listener in enumerate(listeners)}
    watch = Watch(len(listeners))
    poll = select.poll()
    parts = {client.fileno(): client.part for client in clients.values()}
    for fd in parts:
        poll.register(fd, select.POLLIN)
    while not calendar.over:
        for fd, _ in poll.poll():
            client = clients[parts[fd]]
            if not _handle(client, calendar, watch):
                poll.unregister(fd)
                client.close()
        _release(clients, calendar, watch)
    return watch.result(calendar.windows)


def _handle(client: Client, calendar: Calendar, watch: Watch) -> bool:
    """Handle a guest's message; return whether the guest is still there."""
    found = client.message()
    if found is None:
        watch.ends(client.part)
        calendar.gone(client.part)
        return False
    operation, sequence = found
    if operation == START:
        client.share(sequence)
    elif operation == WAIT:
        watch.ends(client.part)
        calendar.waits(client.part, client.wish_ns())
    else:
        raise CalendarError(
            f"part {client.part}: found message {operation}; valid: {START} (start), {WAIT} (wait)"
        )
    return True


def _release(clients: Mapping[int, Client], calendar: Calendar, watch: Watch) -> None:
    """Let those parts run that may."""
    before = calendar.windows
    for grant in calendar.grants():
        watch.begins(grant, new_window=calendar.windows != before)
        before = calendar.windows
        clients[grant.part].run(grant)


def main(arguments: Sequence[str]) -> int:
    """Serve; return the exit code."""
    together = "--in-turn" not in arguments
    window_ns, *fds = (int(word) for word in arguments if word != "--in-turn")
    listeners = [socket.socket(fileno=fd) for fd in fds]
    calendar = Calendar(len(fds), window_ns, together=together)
    try:
        report = serve(listeners, calendar)
    except CalendarError as error:
        print(f"calendar: {error}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
