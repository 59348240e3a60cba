# SPDX-License-Identifier: Apache-2.0
"""Guests that run together: started under one calendar, watched, and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from common.places import ROOT
from common.shell import die_with_parent, interrupts_deferred
from common.virtual_time import LINKS as VARIABLE
from virtual.cores import beside
from virtual.guest import CALENDAR, EXCHANGE, POLL_S, Guest, GuestError, GuestSpec, Share
from virtual.kernel_build import Kernel
from virtual.parts.desk import Report

DESK: Final = (sys.executable, "-B", "-S", "-m", "virtual.parts.desk")
# Where the batches of cut links are: a directory of the first guest, which the others share.
LINKS: Final = "links"
SHARED: Final = Path("/guest/links")
LINK_FILE_BYTES: Final = 32 << 20  # topologies/wire/src/batch.h: BATCH_SLOTS * BATCH_BYTES
END_S: Final = 1.0  # the calendar ends as soon as its last guest has ended


class Together:
    """Running guests, one for each of `specs`, made by the constructor, ended by `stop`
    (idempotent; a context manager). `links`: names of files for cut-link, each for one direction.
    `window_ns`: see `calendar.window_of`. `at_once`: run them at the same time, else one after the
    other, with the same result. `prepare`: puts files into each exchange directory. Raises
    GuestError."""

    def __init__(
        self,
        kernel: Kernel,
        specs: Sequence[GuestSpec],
        links: Sequence[str],
        window_ns: int,
        *,
        at_once: bool = True,
        prepare: Callable[[Path], None] | None = None,
    ) -> None:
        self._links, self._more = links, prepare
        self._stack = ExitStack()
        self.guests: list[Guest] = []
        self._listeners: list[socket.socket] = []
        self._codes: dict[int, int] = {}
        try:
            for spec in specs:
                self._begin(kernel, spec)
            self.calendar = self._start_calendar(window_ns, at_once)
        except BaseException:
            self.stop()
            raise

    def _begin(self, kernel: Kernel, spec: GuestSpec) -> None:
        shares, place = spec.shares, EXCHANGE / LINKS
        if self.guests:
            place = SHARED
            shares = (*shares, Share(self.guests[0].exchange / LINKS, SHARED, writable=True))
        env = {**spec.env, VARIABLE: str(place)}
        spec = dataclasses.replace(spec, shares=shares, env=env, in_parts=True)
        with beside(len(self.guests)):
            guest = Guest(kernel, spec, prepare=self._prepare)
        self.guests.append(guest)
        self._stack.callback(guest.stop)

    def _prepare(self, exchange: Path) -> None:
        if not self.guests:
            (exchange / LINKS).mkdir()
            for name in self._links:
                # Sparse; the guests' kernels must see its full length from the beginning.
                with (exchange / LINKS / name).open("wb") as stream:
                    stream.truncate(LINK_FILE_BYTES)
        if self._more is not None:
            self._more(exchange)
        listener = socket.socket(socket.AF_UNIX)
        self._stack.callback(listener.close)
        listener.bind(str(exchange / CALENDAR))
        listener.listen(1)
        self._listeners.append(listener)

    def _start_calendar(self, window_ns: int, at_once: bool) -> subprocess.Popen[str]:
        fds = [listener.fileno() for listener in self._listeners]
        order = [] if at_once else ["--in-turn"]
        calendar = subprocess.Popen(
            [*DESK, *order, str(window_ns), *map(str, fds)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=fds,
            preexec_fn=die_with_parent(),
        )
        self._stack.callback(_end, calendar)
        for listener in self._listeners:
            listener.close()
        return calendar

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
            for part, guest in enumerate(self.guests):
                if part not in self._codes and (code := self._poll(part, guest)) is not None:
                    self._codes[part] = code
            if len(self._codes) == len(self.guests):
                return [self._codes[part] for part in range(len(self.guests))]
            if self.calendar.poll():  # with code 0 it ends just before its last guest is reaped
                raise GuestError(self._complaint())
            return None
        except GuestError:
            for guest in self.guests:
                guest.tell_to_stop()
            for guest in self.guests:
                guest.kill()
            raise

    def _poll(self, part: int, guest: Guest) -> int | None:
        try:
            return guest.poll()
        except GuestError as error:
            # Guests end when the calendar ends: if it is gone, that is the reason.
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self.calendar.wait(POLL_S) != 0:
                    raise GuestError(self._complaint()) from None
            raise GuestError(f"part {part}: {error}") from None

    def _complaint(self) -> str:
        _, said = self.calendar.communicate()
        code = self.calendar.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the calendar of the parts ended ({how}): {said.strip() or 'it said nothing'}"

    def wait(self) -> list[int]:
        """Wait for the end; return the exit codes. Raises GuestError, see `poll`."""
        while (codes := self.poll()) is None:
            time.sleep(POLL_S)
        return codes

    def report(self) -> Report:
        """Return what the calendar measured; call it after the end. Raises GuestError."""
        try:
            out, _ = self.calendar.communicate(timeout=END_S)
            found: Mapping[str, object] = json.loads(out)
            return Report(**found)  # type: ignore[arg-type]  # its own words
        except (subprocess.TimeoutExpired, ValueError, TypeError):
            raise GuestError("the calendar of the parts gave no report") from None

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
