# SPDX-License-Identifier: Apache-2.0
"""Files that grow, and files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, Final

PARTIAL: Final = ".partial"  # ends the name of an unfinished directory, which begins with a dot


def whole_name(partial: Path) -> str:
    """Return the final name of a directory."""
    return partial.name.removeprefix(".").removesuffix(PARTIAL)


class Tail:
    """What is new in a growing file. A file that was cut, or replaced by another with its name, is
    read from its start. `most_bytes`: limit of a read, and of a line, which is dropped beyond;
    None: none."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._inode = 0
        self._offset = 0
        self._rest = b""  # the beginning of an incomplete line

    def read(self) -> bytes:
        """Return what is new; b"" if nothing is, or if there is no file yet."""
        try:
            status = self._path.stat()
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
            if status.st_size == self._offset:  # the usual case: one system call instead of nine
                return b""
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read(self._most_bytes)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def lines(self) -> list[bytes]:
        """Return the new complete lines, without their ends."""
        new = self.read()  # `read` drops the rest of a deleted file
        *lines, self._rest = (self._rest + new).split(b"\n")
        if self._most_bytes is not None and len(self._rest) > self._most_bytes:
            self._rest = b""
        return lines


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `write_bytes` does. Raises OSError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary file, so that the file is complete or absent. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # the user knows no temporary file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def write_json(path: Path, value: Any) -> None:
    """Write through a temporary file. Raises OSError."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def os_error_text(error: OSError) -> str:
    """Return one line: the file if it is known, what is wrong, and what would help."""
    text = error.strerror or str(error)
    if error.filename is not None:
        text = f"{error.filename}: {text}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text += "; valid: room on the disk, for results and for TMPDIR"
    return text


def endless(path: Path) -> str:
    """Return what a path is if reading it might never end; "" for a regular file or a directory.
    Raises OSError."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    return "no regular file (a FIFO, a device or a socket)"


def tail(path: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error text."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


def contents(path: Path) -> str:
    """Return the text of a small file. `open` would ask whether it is a terminal; in virtual time,
    a system call that fails costs any program a microsecond. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="replace")
