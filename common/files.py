# SPDX-License-Identifier: Apache-2.0
"""Files that grow, and files that are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path
from typing import Any


class Tail:
    """What is new in a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> bytes:
        """b"" if there is nothing new, or no file yet."""
        try:
            if self._path.stat().st_size == self._offset:  # mostly: one system call, not nine
                return b""
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except OSError:
            return b""
        self._offset += len(data)
        return data


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8. OSError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Through a temporary file: complete or absent, and nothing beside it. OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Through a temporary file. OSError."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def os_error_text(error: OSError) -> str:
    """In one line: the file, if the system says which, what is wrong, and what would help."""
    text = error.strerror or str(error)
    if error.filename is not None:
        text = f"{error.filename}: {text}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text += "; valid: room on the disk, for results and for TMPDIR"
    return text


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error text."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
