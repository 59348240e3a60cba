# SPDX-License-Identifier: Apache-2.0
"""Guests that run together: started under one calendar, watched, and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.places import ROOT
from common.shell import die_with_parent, interrupts_deferred
from common.virtual_time import LINKS as VARIABLE
from virtual.cores import beside
from virtual.guest import (
    CALENDAR,
    EXCHANGE,
    POLL_S,
    RESULT,
    Guest,
    GuestError,
    GuestSpec,
    NoResultError,
    Share,
)
from virtual.kernel_build import Kernel
from virtual.parts.desk import Machine, Order, Place, Report
from virtual.parts.links import LinkFile
from virtual.parts.messages import LINK_BYTES, Ended

DESK: Final = (sys.executable, "-B", "-S", "-m")
CALENDAR_MODULE, PROXY = "virtual.parts.desk", "virtual.parts.proxy"
# Where the batches of cut links are: a directory of the first guest, which the others share.
LINKS: Final = "links"
SHARED: Final = Path("/guest/links")
END_S: Final = 1.0  # the calendar ends as soon as its last guest, or one without a result, has
_PANIC: Final = "Kernel panic"
# How a kernel says that the calendar is gone: at the end of its stream, or by ECONNRESET.
_GONE: Final = ("external link is broken", "invalid time-travel message - -104 bytes")


@dataclass(frozen=True)
class Far:
    """Another machine. `parts`: those that run there."""

    name: str
    connection: socket.socket
    parts: Sequence[int]


def own_panics(consoles: Sequence[str]) -> list[str]:
    """Return why kernels ended by themselves, except that the calendar was gone."""
    lines = [line for text in consoles for line in text.splitlines() if _PANIC in line]
    return [line for line in lines if not any(gone in line for gone in _GONE)]


class Together:
    """Running guests, one for each of `specs` (by the numbers of their parts), made by the
    constructor, ended by `stop` (idempotent; a context manager). `links`: a file for cut-link for
    each direction. `window_ns`: see `calendar.window_of`. `at_once`: run them at the same time,
    else one after the other, with the same result. `prepare`: puts files into each exchange
    directory. `far`: other machines with parts; with `is_proxy` the one that has the calendar.
    Raises GuestError."""

    def __init__(
        self,
        kernel: Kernel,
        specs: Mapping[int, GuestSpec],
        links: Sequence[LinkFile],
        window_ns: int,
        *,
        at_once: bool = True,
        prepare: Callable[[Path], None] | None = None,
        far: Sequence[Far] = (),
        is_proxy: bool = False,
    ) -> None:
        self._links, self._more = links, prepare
        self._far, self._is_proxy = far, is_proxy
        self._report: Report | None = None
        self._stack = ExitStack()
        self.guests: dict[int, Guest] = {}
        self._listeners: list[socket.socket] = []
        self._codes: dict[int, int] = {}
        # Closes when the calendar, which alone will hold its other end, ends: the guests then end.
        self._calendar_fd, self._held_fd = os.pipe()
        self._stack.callback(self._close_pipe)
        try:
            for part, spec in specs.items():
                self._begin(kernel, part, spec)
            self.calendar = self._start_calendar(window_ns, at_once)
        except BaseException:
            self.stop()
            raise

    def _begin(self, kernel: Kernel, part: int, spec: GuestSpec) -> None:
        shares, place = spec.shares, EXCHANGE / LINKS
        if part > 0:  # wherever it runs, so that it sees the same
            place = SHARED
            source = self._directory if self.guests else Path(LINKS)
            shares = (*shares, Share(source, SHARED, writable=True))
        env = {**spec.env, VARIABLE: str(place)}
        spec = dataclasses.replace(spec, shares=shares, env=env, calendar_fd=self._calendar_fd)
        with beside(len(self.guests)):
            guest = Guest(kernel, spec, prepare=self._prepare)
        self.guests[part] = guest
        self._stack.callback(guest.stop)

    def _prepare(self, exchange: Path) -> None:
        if not self.guests:
            (exchange / LINKS).mkdir()
            for link in self._links:
                # Sparse; the guests' kernels must see its full length from the beginning.
                with (exchange / LINKS / link.name).open("wb") as stream:
                    stream.truncate(LINK_BYTES)
        if self._more is not None:
            self._more(exchange)
        listener = socket.socket(socket.AF_UNIX)
        self._stack.callback(listener.close)
        listener.bind(str(exchange / CALENDAR))
        listener.listen(1)
        self._listeners.append(listener)

    def _start_calendar(self, window_ns: int, at_once: bool) -> subprocess.Popen[str]:
        places = [
            Place(part, listener.fileno(), str(guest.exchange / RESULT))
            for listener, (part, guest) in zip(self._listeners, self.guests.items(), strict=True)
        ]
        far = [Machine(one.name, one.connection.fileno(), list(one.parts)) for one in self._far]
        order = Order(window_ns, at_once, places, far, str(self._directory), self._links)
        module = PROXY if self._is_proxy else CALENDAR_MODULE
        calendar = subprocess.Popen(
            [*DESK, module, json.dumps(dataclasses.asdict(order))],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[self._held_fd, *(place.fd for place in places), *(one.fd for one in far)],
            preexec_fn=die_with_parent(),
        )
        self._stack.callback(_end, calendar)
        self._close_pipe()
        for listener in self._listeners:
            listener.close()
        return calendar

    @property
    def _directory(self) -> Path:
        """Return where the links' files are."""
        return next(iter(self.guests.values())).exchange / LINKS

    def _close_pipe(self) -> None:
        for fd in {self._calendar_fd, self._held_fd} - {-1}:
            os.close(fd)
        self._calendar_fd = self._held_fd = -1

    def __enter__(self) -> Together:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def codes(self) -> Mapping[int, int]:
        """Return the exit codes of the parts that had ended at the last `poll`."""
        return self._codes

    def poll(self) -> list[int] | None:
        """Return all exit codes once all guests have ended, None while any is running.

        Raises GuestError when one of them or the calendar fails; all are then ended.
        """
        try:
            for part, guest in self.guests.items():
                if part not in self._codes and (code := self._poll(part, guest)) is not None:
                    self._codes[part] = code
            ended = self.calendar.poll()
            if ended:  # with code 0 it ends just before its last guest is reaped
                raise GuestError(self._complaint())
            if len(self._codes) < len(self.guests) or (self._far and ended is None):
                return None
            if self._far and not self._is_proxy:
                self._codes |= {int(part): one.code for part, one in self.report().ended.items()}
            return [self._codes[part] for part in sorted(self._codes)]
        except GuestError:
            for guest in self.guests.values():
                guest.tell_to_stop()
            for guest in self.guests.values():
                guest.kill()
            raise

    def output(self, part: int) -> tuple[str, str]:
        """Return the outputs of a part that has ended: of one on another machine, their ends."""
        if part not in self.guests:
            ended = self.report().ended[str(part)]
            return ended.stdout, ended.stderr
        place = self.guests[part].exchange
        out, err = ((place / n).read_text(errors="replace") for n in ("stdout", "stderr"))
        return out, err

    def _poll(self, part: int, guest: Guest) -> int | None:
        try:
            return guest.poll()
        except NoResultError as error:
            # All guests end when one ends so, or the calendar ends: the calendar knows the reason.
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self.calendar.wait(END_S) != 0:
                    raise GuestError(self._complaint()) from None
            raise GuestError(f"part {part}: {error}") from None
        except GuestError as error:
            raise GuestError(f"part {part}: {error}") from None

    def _complaint(self) -> str:
        """Return why the calendar ended, in one line."""
        _, said = self.calendar.communicate()
        code = self.calendar.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        text = said.strip() or f"the calendar of the parts ended ({how})"
        guests = self.guests.values()
        consoles = [(one.exchange / "console").read_text("utf-8", "replace") for one in guests]
        return ": ".join([text.splitlines()[-1], *own_panics(consoles)[:1]])

    def wait(self) -> list[int]:
        """Wait for the end; return the exit codes. Raises GuestError, see `poll`."""
        while (codes := self.poll()) is None:
            time.sleep(POLL_S)
        return codes

    def report(self) -> Report:
        """Return what the calendar measured; call it after the end. Raises GuestError."""
        if self._report is None:
            try:
                out, _ = self.calendar.communicate(timeout=END_S)
                found = json.loads(out)
                found["ended"] = {part: Ended(**one) for part, one in found["ended"].items()}
                self._report = Report(**found)
            except (subprocess.TimeoutExpired, ValueError, TypeError, KeyError):
                raise GuestError("the calendar of the parts gave no report") from None
        return self._report

    def stop(self) -> None:
        """End all guests and the calendar, and remove their files. Idempotent."""
        with interrupts_deferred():
            self._stack.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
