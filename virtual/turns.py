# SPDX-License-Identifier: Apache-2.0
"""Turns on a shared machine: how many guests of all users run at once, and which comes next.

Root makes the directory (Ansible role `seats`): `places/K` for each guest that may run at once, and
`tickets/`, where everybody may write. Without it, guests begin at once.

A place is taken by a lock on its file, and a ticket is valid while its file is locked: the kernel
ends both with the process. The next place goes to the user with the fewest guests running, and
among these to the one who has waited longest. When a user's guest begins or ends, that user's other
tickets go to the end of the queue, so users take turns however many processes they start. No user
can set a ticket's owner or change time to anything better. This is fair among honest users: a user
who locks places without running guests keeps them until an administrator ends the processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

DIRECTORY: Final = Path("/run/downpour-turns")
VARIABLE: Final = "DOWNPOUR_TURNS"
RUNNING: Final = "run"
WAITING: Final = "wait"
TELL_EVERY_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
_numbers = itertools.count()


@dataclass(frozen=True)
class Ticket:
    """A user's guest that runs or waits. `since_ns`: since when (epoch)."""

    name: str
    uid: int
    runs: bool
    since_ns: int


@dataclass
class Turn:
    """The right to run a guest, until `end`. `place`: its number; None: the machine has no
    turns."""

    place: int | None = None
    ticket: Path | None = None
    locks: tuple[IO[bytes], ...] = ()

    def end(self) -> None:
        """Give the place back. Idempotent."""
        if self.ticket is not None:
            self.ticket.unlink(missing_ok=True)
            self.ticket = None
        for lock in self.locks:
            lock.close()
        self.locks = ()


class Turns:
    """The turns of this process's guests, in `directory` (default: see `configured`)."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory if directory is not None else configured()
        self._waiting: tuple[Path, IO[bytes]] | None = None
        self._running: frozenset[str] = frozenset()  # the user's guests at the last reading

    def take(self) -> Turn | None:
        """Return a turn; None: others come first, ask again soon. Raises OSError."""
        if self._directory is None:
            return Turn()
        if self._waiting is None:
            self._waiting, self._running = _draw(self._directory), frozenset()
        path, lock = self._waiting
        found = tickets(self._directory)
        running, self._running = self._running, _running_of(found, os.geteuid())
        if _has_been_served(found, path.name) or running - self._running:
            path.chmod(0o644)  # sets its change time
            return None
        if next((ticket.name for ticket in in_order(found)), path.name) != path.name:
            return None
        for place in places(self._directory):
            taken = _locked(place, fcntl.LOCK_EX)
            if taken is not None:
                runs = path.with_name(path.name.replace(WAITING, RUNNING, 1))
                path.rename(runs)
                self._waiting = None
                return Turn(int(place.name), runs, (taken, lock))
        return None

    def wait(self, tell: Callable[[str], None]) -> Turn:
        """Wait for a turn and return it; `tell` gets the reason for the wait. Raises OSError."""
        tell_at = 0.0
        try:
            while (turn := self.take()) is None:
                if time.monotonic() >= tell_at:
                    tell(self.text)
                    tell_at = time.monotonic() + TELL_EVERY_S
                time.sleep(LOOK_EVERY_S)
        finally:
            self.stop()
        return turn

    @property
    def text(self) -> str:
        """Return what the waiting guest is waiting for; "" if none waits."""
        if self._directory is None or self._waiting is None:
            return ""
        found = tickets(self._directory)
        names = [ticket.name for ticket in in_order(found)]
        own = self._waiting[0].name
        before = names.index(own) if own in names else 0
        running = sum(ticket.runs for ticket in found)
        return f"waiting for a place: {running} guests run on this machine, {before} come first"

    def stop(self) -> None:
        """Stop waiting. Idempotent."""
        if self._waiting is not None:
            path, lock = self._waiting
            path.unlink(missing_ok=True)
            lock.close()
            self._waiting = None


def configured() -> Path | None:
    """Return the machine's directory of turns; None: it has none."""
    directory = Path(os.environ.get(VARIABLE) or DIRECTORY)
    return directory if (directory / "tickets").is_dir() else None


def places(directory: Path) -> list[Path]:
    """Return the places, by number."""
    found = [path for path in (directory / "places").iterdir() if path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def tickets(directory: Path) -> list[Ticket]:
    """Return the tickets whose processes live and are not stopped."""
    return list(_tickets(directory / "tickets"))


def in_order(found: Sequence[Ticket]) -> list[Ticket]:
    """Return the tickets that wait, the next one first."""
    running = Counter(ticket.uid for ticket in found if ticket.runs)
    waiting = [ticket for ticket in found if not ticket.runs]
    return sorted(waiting, key=lambda t: (running[t.uid], t.since_ns, t.name))


def _has_been_served(found: Sequence[Ticket], name: str) -> bool:
    """Return whether a guest of the same user has begun since the ticket `name` began to wait."""
    own = next((ticket for ticket in found if ticket.name == name), None)
    return own is not None and any(
        ticket.runs and ticket.uid == own.uid and ticket.since_ns > own.since_ns for ticket in found
    )


def _running_of(found: Sequence[Ticket], uid: int) -> frozenset[str]:
    """Return the names of a user's guests that run."""
    return frozenset(ticket.name for ticket in found if ticket.runs and ticket.uid == uid)


def _tickets(directory: Path) -> Iterator[Ticket]:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    for name in names:
        kind, _, rest = name.partition("-")
        if kind not in (RUNNING, WAITING):
            continue
        path = directory / name
        with contextlib.suppress(OSError):  # it has just ended
            found = path.stat()
            lock = _locked(path, fcntl.LOCK_SH)
            if lock is not None:
                lock.close()
            elif kind == RUNNING or not _is_stopped(rest.partition("-")[0]):
                yield Ticket(name, found.st_uid, kind == RUNNING, found.st_ctime_ns)


def _is_stopped(pid: str) -> bool:
    """Return whether a process is stopped (Ctrl-Z): others need not wait for it until it
    continues."""
    try:
        stat = (Path("/proc") / pid / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def _draw(directory: Path) -> tuple[Path, IO[bytes]]:
    """Return a new ticket, locked. Raises OSError."""
    path = directory / "tickets" / f"{WAITING}-{os.getpid()}-{next(_numbers)}"
    path.unlink(missing_ok=True)  # of an earlier process with this number
    lock = path.open("xb")
    path.chmod(0o644)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


def _locked(path: Path, kind: int) -> IO[bytes] | None:
    """Return the file with a lock of that kind; None: another process holds it. Raises OSError."""
    stream = path.open("rb")
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        return None
    return stream
