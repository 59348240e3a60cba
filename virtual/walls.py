# SPDX-License-Identifier: Apache-2.0
"""The walls around a guest: which of them this machine has, and how the kernel process starts
behind them.

A guest's root reaches the host's files through the kernel process, so that process has no more
rights than the guest may have. Namespaces give it a file system that contains only its view;
Landlock refuses once more what is not in the view; a seccomp filter refuses what neither covers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from common.places import ROOT
from virtual.view import View
from virtual.warden import LANDLOCK, NAMESPACES, PROBE, Order

VARIABLE: Final = "DOWNPOUR_WALLS"  # which walls to use: for tests, and for machines that have none
ALL, NONE = "all", "none"
CHOICES: Final = (ALL, NAMESPACES, LANDLOCK, NONE)
WARDEN: Final = (sys.executable, "-B", "-S", "-m", "virtual.warden")


class WallError(Exception):
    """A guest cannot be confined here; the text says why, and what is valid."""


@dataclass(frozen=True)
class Walls:
    """What confines a guest. `user_namespace`: the other namespaces need a user namespace."""

    namespaces: bool
    landlock: int  # its version, 0: none
    user_namespace: bool = False

    @property
    def names(self) -> list[str]:
        """Return their names in the warden's order."""
        found = [NAMESPACES] if self.namespaces else []
        return [*found, LANDLOCK] if self.landlock else found

    def __str__(self) -> str:
        words = ["namespaces"] if self.namespaces else []
        words += [f"Landlock {self.landlock}"] if self.landlock else []
        return ", ".join([*words, "seccomp filter"])


@functools.cache
def machine_walls() -> Walls:
    """Return what this machine has for this user."""
    done = subprocess.run(
        [*WARDEN, PROBE], cwd=ROOT, capture_output=True, text=True, check=False, env={}
    )
    try:
        return Walls(**json.loads(done.stdout))
    except (ValueError, TypeError):
        raise WallError(f"cannot check the sandbox: {done.stderr.strip()[-300:]}") from None


def chosen_walls() -> Walls:
    """Return what a guest gets: everything, unless VARIABLE says otherwise. Raises WallError."""
    choice = os.environ.get(VARIABLE) or ALL
    if choice not in CHOICES:
        raise WallError(f"found {VARIABLE}={choice}; valid: {', '.join(CHOICES)}")
    found = machine_walls()
    walls = Walls(
        found.namespaces and choice in (ALL, NAMESPACES),
        found.landlock if choice in (ALL, LANDLOCK) else 0,
        found.user_namespace,
    )
    if not walls.names and choice != NONE:
        raise WallError(
            f"found no sandbox for the guest (no {choice.replace(ALL, 'namespaces, Landlock')}"
            f"); valid: a kernel with Landlock or user namespaces, or {VARIABLE}={NONE}, if all "
            "that runs in the guest may write your files"
        )
    return walls


class WalledProcess:
    """A kernel behind `walls`, below its warden. `pid`: of the kernel. `temporary`: directories
    that the warden removes if this process is gone; the first is never empty. `console`: receives
    what the kernel prints. `calendar_fd`: the kernel connects to a calendar, and ends
    when this descriptor closes; namespaces must then hide the host's sockets.
    Raises WallError, OSError."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        view: View,
        temporary: Sequence[Path],
        console: IO[bytes],
        *,
        prepare: Callable[[], None] | None = None,
        calendar_fd: int | None = None,
    ) -> None:
        walls = chosen_walls()
        if calendar_fd is not None and walls.names and not walls.namespaces:
            raise WallError(
                f"found {walls}; valid: namespaces, as guests in parts connect to their calendar"
            )
        self._pidfd = -1
        life_read, self._life = os.pipe()
        report_read, report_write = os.pipe()
        order = Order(
            argv=list(argv), environment=dict(environment), view=asdict(view),
            writable=[*map(str, temporary), *view.write], temporary=[str(p) for p in temporary],
            walls=walls.names, user_namespace=walls.user_namespace,
            connects=calendar_fd is not None,
            life_fd=life_read, calendar_fd=calendar_fd, report_fd=report_write,
        )  # fmt: skip
        try:
            self.warden = subprocess.Popen(
                WARDEN,
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=order.kept_fds,
                start_new_session=True,
                preexec_fn=prepare,
            )
        except BaseException:
            self._close(self._life, report_read)
            raise
        finally:
            self._close(life_read, report_write)
        try:
            self._pidfd = self._begun(order, report_read)
        except BaseException:
            self.kill()
            raise

    @staticmethod
    def _close(*fds: int) -> None:
        for fd in fds:
            os.close(fd)

    def _begun(self, order: Order, report_fd: int) -> int:
        """Give the order and read the report; return a descriptor of the kernel's process."""
        with os.fdopen(report_fd, encoding="utf-8") as report:
            assert self.warden.stdin is not None
            with contextlib.suppress(BrokenPipeError), self.warden.stdin as stdin:
                stdin.write(json.dumps(asdict(order)).encode())
            line = report.readline()
        found = json.loads(line) if line else {"error": "its warden ended without a message"}
        if "error" in found:
            raise WallError(str(found["error"]))
        try:
            return os.pidfd_open(int(found["pid"]))
        except ProcessLookupError:
            raise WallError("its kernel ended at once") from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the kernel, if it is still running."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def poll(self) -> int | None:
        """Return the kernel's exit code once it has ended."""
        return self.warden.poll()

    def kill(self, wait_s: float = 10.0) -> None:
        """End the kernel and its warden. Idempotent."""
        if self.warden.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.warden.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.warden.wait(timeout=wait_s)
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [], wait_s)
        for fd in (self._pidfd, self._life):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._life = -1
