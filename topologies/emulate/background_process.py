# SPDX-License-Identifier: Apache-2.0
"""A process that holds something (a network) in the background. It reports its progress over a
pipe, in lines of JSON, [kind, text], and the process that starts it waits until it is ready."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

PROGRESS: Final = "progress"
READY: Final = "ready"
FAILED: Final = "failed"

Report = Callable[[str, str], None]  # kind, text


def reporter(fd: int) -> Report:
    """Return a function that writes reports to the pipe `fd`, or drops them if nothing reads it."""

    def report(kind: str, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(fd, (json.dumps([kind, text]) + "\n").encode())

    return report


def follow(fd: int, progress: Callable[[str], None]) -> str | None:
    """Pass the progress on. Return None when the process is ready, else why it failed ("" if it
    gave no reason)."""
    with os.fdopen(os.dup(fd), encoding="utf-8") as lines:
        for line in lines:
            kind, text = json.loads(line)
            if kind == READY:
                return None
            if kind == FAILED:
                return str(text)
            progress(str(text))
    return ""


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.poll()
    if code is None:
        return "and goes on"
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def start(
    argv: Sequence[str],
    progress: Callable[[str], None],
    end: Callable[[subprocess.Popen[bytes]], None],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """Start the process in its own session. Its last argument is the pipe's descriptor, and its
    output goes to `log`. Return None when it is ready, else why it is not. If it does not become
    ready, or an exception or Ctrl-C comes first, `end` ends it. Raises OSError if `log` cannot be
    written."""
    with log.open("wb") as output:
        read_fd, write_fd = os.pipe()
        try:
            try:
                process = subprocess.Popen(
                    [*argv, str(write_fd)],
                    cwd=cwd,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[write_fd],
                    start_new_session=True,
                )
            finally:
                os.close(write_fd)
            try:
                failure = follow(read_fd, progress)
            except BaseException:
                end(process)
                raise
        finally:
            os.close(read_fd)
    if failure is None:
        return None
    said = failure
    if not said:
        with contextlib.suppress(FileNotFoundError):  # it has removed everything it made
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    end(process)
    return said.strip() or f"its process ended without a message ({_end_of(process)})"
