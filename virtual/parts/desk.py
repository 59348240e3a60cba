# SPDX-License-Identifier: Apache-2.0
"""The calendar's process: answers the kernels of guests that run together.

    python3 -S -m virtual.parts.desk ORDER

ORDER is a line of JSON (`Order`). The protocol is that of User-Mode Linux,
`time-travel=ext` (include/uapi/linux/um_timetravel.h, Berg 2019 to 2023), with shared memory; but
each guest gets its own page, so that all may run at once. A window then costs a guest two messages.
It ends when all parts have ended, and prints a line of JSON (`Report`). Exit code 1: a guest or
another machine broke the protocol, or ended without a result. When it ends, all guests end
(`warden`). Only the standard library.

Guests on other machines have a proxy there (`proxy`), and one TCP connection for each machine
carries their windows and what they exchange with the guests here.
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from virtual.parts.calendar import Calendar, CalendarError, Grant
from virtual.parts.links import LinkFile, LinkFiles
from virtual.parts.messages import Ended, Kind, Message
from virtual.parts.peer import SILENT_S, Peer

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
    the longest time that a part ran in it: what the same run needs with a core for each part.
    `ended`: how the parts on other machines ended."""

    windows: int = 0
    grants: int = 0
    real_s: float = 0.0
    running_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    ended: dict[str, Ended] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a part's kernel calls. `fd`: a listening socket; `result`: the file that exists once
    the part's command has ended."""

    part: int
    fd: int
    result: str


@dataclass(frozen=True)
class Machine:
    """Another machine. `fd`: a connection to it; `parts`: those that run there."""

    name: str
    fd: int
    parts: Sequence[int]


@dataclass(frozen=True)
class Order:
    """What the launcher orders. `together`: see `Calendar`. `machines`: for a proxy, the one with
    the calendar. `directory`: of the files of `links`."""

    window_ns: int
    together: bool
    parts: Sequence[Place]
    machines: Sequence[Machine] = ()
    directory: str = ""
    links: Sequence[LinkFile] = ()

    @classmethod
    def from_json(cls, text: str) -> Order:
        """Return the order that the text, of `json.dumps`, contains."""
        raw = json.loads(text)
        raw["parts"] = [Place(**part) for part in raw["parts"]]
        raw["machines"] = [Machine(**machine) for machine in raw["machines"]]
        raw["links"] = [LinkFile(**link) for link in raw["links"]]
        return cls(**raw)

    @property
    def count(self) -> int:
        """Return the number of parts on all machines that this one knows."""
        return len(self.parts) + sum(len(machine.parts) for machine in self.machines)

    def link_files(self) -> LinkFiles:
        """Open the files of links to other machines."""
        here = [place.part for place in self.parts]
        return LinkFiles(Path(self.directory), self.links, here)


class Client:
    """The connection to the kernel of one guest. `result`: see `Place`."""

    def __init__(self, part: int, connection: socket.socket, result: Path) -> None:
        self.part, self._connection, self.result = part, connection, result
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

    def check_result(self) -> None:
        """Raise CalendarError if the guest, which is gone, has left no result."""
        if not self.result.exists():
            raise CalendarError(f"part {self.part}: its kernel ended without a result")

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

    @property
    def running(self) -> set[int]:
        """Return the parts that run."""
        return set(self._since)

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


class Server(Protocol):
    """What hears of guests' messages: the calendar, or a proxy of it."""

    def waits(self, part: int, wish_ns: int | None) -> None:
        """Note that a part waits, and until when."""

    def gone(self, part: int) -> None:
        """Note that a part has ended."""


class Desk:
    """The calendar, the guests here, and the machines with the others."""

    def __init__(self, order: Order) -> None:
        """Wait until the guests here have called."""
        self._calendar = Calendar(order.count, order.window_ns, together=order.together)
        self._clients = callers(order.parts)
        self._machines = {
            Peer(one.name, socket.socket(fileno=one.fd)): set(one.parts) for one in order.machines
        }
        self._links = order.link_files()
        self._watch = Watch(order.count)

    def serve(self) -> Report:
        """Serve until all guests have ended. Raises CalendarError."""
        poll = select.poll()
        parts = {client.fileno(): client for client in self._clients.values()}
        machines = {peer.fileno(): peer for peer in self._machines}
        for fd in (*parts, *machines):
            poll.register(fd, select.POLLIN)
        while not self._calendar.over:
            ready = poll.poll(SILENT_S * 1000 if machines else None)
            if not ready:
                self._complain_of_silence()
            for fd, _ in ready:
                if fd in machines:
                    if not self._listen(machines[fd]):
                        poll.unregister(fd)
                elif not handle(parts[fd], self._calendar, self._watch):
                    poll.unregister(fd)
                    parts[fd].close()
            self._release()
        return self._watch.result(self._calendar.windows)

    def _complain_of_silence(self) -> None:
        for peer, parts in self._machines.items():
            if parts & self._watch.running:
                raise CalendarError(f"{peer.name}: it said nothing for {SILENT_S:g} s")

    def _listen(self, peer: Peer) -> bool:
        """Hear another machine; return whether it still has guests."""
        for message in peer.messages():
            self._obey(peer, message)
        return bool(self._machines[peer])

    def _obey(self, peer: Peer, message: Message) -> None:
        parts = self._machines[peer]
        if message.kind == Kind.BATCH:
            self._links.write(message, parts, peer.name)
            return
        part = message.index
        if part not in parts:
            raise CalendarError(f"{peer.name}: found part {part}; valid: {sorted(parts)}")
        if message.kind in (Kind.WAIT, Kind.FOREVER):
            self._watch.ends(part)
            self._calendar.waits(part, message.first if message.kind == Kind.WAIT else None)
        elif message.kind == Kind.GONE:
            ended = Ended.from_json(message.body, peer.name)
            if ended.code != 0:
                said = ended.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                raise CalendarError(f"part {part}: exit code {ended.code}: {said[0][-500:]}")
            self._watch.report.ended[str(part)] = ended
            self._watch.ends(part)
            self._calendar.gone(part)
            parts.remove(part)
        else:
            raise CalendarError(f"{peer.name}: found {message.kind.name}; valid: WAIT, GONE, BATCH")

    def _release(self) -> None:
        """Let those parts run that may."""
        before = self._calendar.windows
        grants = self._calendar.grants()
        if not grants:
            return
        # No part runs now, so what they have written is whole.
        here = list(self._clients)
        there = {p: list(self._links.written(parts, here)) for p, parts in self._machines.items()}
        for grant in grants:
            self._watch.begins(grant, new_window=self._calendar.windows != before)
            before = self._calendar.windows
            for peer, parts in self._machines.items():
                if grant.part in parts:
                    there[peer].append(run_message(grant))
        for peer, messages in there.items():
            if messages:
                peer.send(messages)
        for grant in grants:
            if grant.part in self._clients:
                self._clients[grant.part].run(grant)

    def complain(self, text: str) -> None:
        """Tell the other machines why the emulation ends."""
        for peer, parts in self._machines.items():
            if parts:
                peer.complain(text)


def run_message(grant: Grant) -> Message:
    """Return the message that lets a part on another machine run."""
    return Message(Kind.RUN, grant.part, grant.begin_ns, grant.end_ns)


def callers(places: Sequence[Place]) -> dict[int, Client]:
    """Wait until a kernel has called at each place."""
    clients = {}
    for place in places:
        with socket.socket(fileno=place.fd) as listener:
            clients[place.part] = Client(place.part, listener.accept()[0], Path(place.result))
    return clients


def handle(client: Client, calendar: Server, watch: Watch) -> bool:
    """Handle a guest's message; return whether the guest is still there."""
    found = client.message()
    if found is None:
        client.check_result()
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


def main(arguments: Sequence[str]) -> int:
    """Serve; return the exit code."""
    desk = Desk(Order.from_json(arguments[0]))
    try:
        report = desk.serve()
    except CalendarError as error:
        print(error, file=sys.stderr, flush=True)
        desk.complain(str(error))
        return 1
    print(json.dumps(dataclasses.asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
