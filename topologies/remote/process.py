# SPDX-License-Identifier: Apache-2.0
"""A program on another machine, with the methods of a process here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

POLL_S: Final = 0.05


class Watcher(Protocol):
    """What knows how a machine's programs fare."""

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a program that has ended, after copying all that it wrote."""

    def send(self, pid: int, number: int) -> None:
        """Send a signal to a program."""

    def contents(self, path: str) -> bytes:
        """Return the whole of a file."""


class RemoteProcess(subprocess.Popen[bytes]):
    """A program that an agent started. `pid`: on its machine; `collected`: the file there with its
    standard output, which `communicate` returns ("": none)."""

    _child_created = False  # `Popen` has no process of its own to wait for

    def __init__(
        self, watcher: Watcher, pid: int, argv: Sequence[str], collected: str = ""
    ) -> None:
        self.args = list(argv)
        self.pid = pid
        self.returncode: int | Any = None
        self.stdin = self.stdout = self.stderr = None
        self._watcher, self._collected = watcher, collected

    def poll(self) -> int | None:
        """Return the exit code once the program has ended."""
        if self.returncode is None:
            self.returncode = self._watcher.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            self._watcher.send(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(
        self,
        input: bytes | None = None,
        timeout: float | None = None,  # noqa: A002
    ) -> tuple[bytes, bytes]:
        """Wait for the end; return what the program wrote. Raises subprocess.TimeoutExpired."""
        del input
        self.wait(timeout)
        return (self._watcher.contents(self._collected) if self._collected else b""), b""

    def __enter__(self) -> RemoteProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def __del__(self, _warn: object = None) -> None:
        """Leave the program to its agent."""


def descriptor(stream: object) -> int | None:
    """Return a new descriptor of a file for output; None for none or DEVNULL. Raises
    ValueError."""
    if stream is None or stream == subprocess.DEVNULL:
        return None
    if isinstance(stream, int):
        if stream < 0:
            raise ValueError(f"found stream {stream}; valid: a file, PIPE, DEVNULL")
        return os.dup(stream)
    return os.dup(stream.fileno())  # type: ignore[attr-defined]
