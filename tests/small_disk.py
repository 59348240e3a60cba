# SPDX-License-Identifier: Apache-2.0
"""Run a function or a command with a directory on a small disk: a tmpfs that only this process and
its children see. Root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from virtual import syscalls

PIECE_BYTES = 4096


def on_small_disk(directory: Path, size_bytes: int, function: Callable[[], str]) -> str:
    """Return what `function` returns in a child process where `directory` is on such a disk."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.mount("none", str(directory), "tmpfs", 0, f"size={size_bytes},mode=1777")
            text = function()
        except BaseException:
            text = traceback.format_exc()
        with contextlib.suppress(OSError):
            os.write(write, text.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return text


def fill(directory: Path) -> None:
    """Fill the disk of a directory to the last byte."""
    with (directory / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(PIECE_BYTES))


def command_until_full(
    argv: list[str], directory: Path, sign: str, *, limit_s: float = 400.0
) -> str:
    """Run a command, and fill the disk of `directory` once a file matches `sign`. Call this on a
    small disk. Return the exit code, the output, and then the names in the directory."""
    log = directory.with_suffix(".log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
        deadline = time.monotonic() + limit_s
        while process.poll() is None and not list(directory.glob(sign)):
            if time.monotonic() > deadline:
                process.terminate()
            time.sleep(0.05)
        fill(directory)
        process.wait(limit_s)
    names = sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))
    return f"exit {process.returncode}\n{log.read_text(errors='replace')}\nFILES {names}"
