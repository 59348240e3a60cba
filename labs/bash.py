# SPDX-License-Identifier: Apache-2.0
"""One bash for a whole lab: variables, directory and background commands persist from line to
line."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

INTERRUPTED: Final = 130
# An interrupt ends the running program and its line; programs started with `&` continue.
PRELUDE: Final = "trap 'return 130' INT\n"


class Bash:
    """Runs lines; their output is appended to `out` and `err` of the exchange directory."""

    def __init__(
        self,
        exchange: Path,
        directory: Path,
        environment: Mapping[str, str],
        pids: Mapping[str, int],
    ) -> None:
        self._exchange, self._directory = exchange, directory
        self._environment = dict(environment)
        self._hosts = "".join(
            f'@{host}() {{ mnexec -a {pid} "${{@:-hostname}}"; }}\n' for host, pid in pids.items()
        )
        self._number = 0
        self._start()

    def _start(self) -> None:
        status_read, status_write = os.pipe()
        with (self._exchange / "out").open("ab") as out, (self._exchange / "err").open("ab") as err:
            self._process = subprocess.Popen(
                ["bash", "--norc", "--noprofile"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=self._directory,
                env=self._environment,
                pass_fds=[status_write],
                start_new_session=True,
            )
        os.close(status_write)
        self._status, self._status_fd = status_read, status_write
        self._ended = os.pidfd_open(self._process.pid)
        self._write(f"{PRELUDE}{self._hosts}")

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()

    def begin(self, line: str) -> None:
        """Start a line in the shell; `finished` says when it has ended."""
        self._number += 1
        script = self._exchange / f"line-{self._number}"
        script.write_text(line + "\n", encoding="utf-8")
        self._script = script
        # Programs of the line must not inherit the pipe: a background one would keep it open.
        fd = self._status_fd
        self._write(f". {shlex.quote(str(script))} </dev/null {fd}>&-\n"
                    f"echo $? >&{fd}\n")  # fmt: skip

    def wait(self, seconds: float, other: socket.socket, serve: Callable[[], None]) -> int | None:
        """Return the line's exit code, or None if it has not ended after at most `seconds`.
        Meanwhile serve what arrives at `other`."""
        watched = [self._status, self._ended, other.fileno()]
        ready, _, _ = select.select(watched, [], [], seconds)
        if other.fileno() in ready:
            serve()
        if self._status in ready:
            text = os.read(self._status, 100).decode()
            if text.strip():
                self._script.unlink(missing_ok=True)
                return int(text.split()[-1])
        if self._ended in ready:
            code = self._process.wait()
            self._script.unlink(missing_ok=True)
            self._complain("the shell has ended; a new one starts, without the variables")
            self._forget()
            self._start()
            return code if code >= 0 else 128 - code
        return None

    def _complain(self, text: str) -> None:
        with (self._exchange / "err").open("a", encoding="utf-8") as err:
            err.write(f"lab: {text}\n")

    def interrupt(self, *, hard: bool) -> None:
        """Interrupt the line, as Ctrl-C does; `hard`: end the shell itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL if hard else signal.SIGINT)

    def _forget(self) -> None:
        for fd in (self._status, self._ended):
            os.close(fd)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self) -> None:
        """End the shell and all that it started, and remove its files."""
        self.interrupt(hard=True)
        self._process.wait()
        self._forget()
