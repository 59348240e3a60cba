# SPDX-License-Identifier: Apache-2.0
"""Files that grow, and files that are complete or absent."""

from __future__ import annotations

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


def write_json(path: Path, value: Any) -> None:
    """Through a temporary file. OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error text."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
