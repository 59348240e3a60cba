# SPDX-License-Identifier: Apache-2.0
"""Whole lines of a file that grows, is cut, or is replaced by another of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MOST_BYTES: Final = 8 << 20  # read at once
MOST_LINE: Final = 4 << 20  # a longer line is dropped


class Tail:
    """What a file has had since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._inode = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the complete lines that are new; [] if there is no file."""
        try:
            with self.path.open("rb") as file:
                status = self.path.stat()
                if status.st_ino != self._inode or status.st_size < self._at:
                    self._inode, self._at, self._rest = status.st_ino, 0, b""
                file.seek(self._at)
                data = file.read(MOST_BYTES)
        except OSError:
            return []
        self._at += len(data)
        whole, end, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest if len(rest) <= MOST_LINE else b""
        return (whole + end).decode(errors="replace").splitlines() if end else []

    @property
    def more(self) -> bool:
        """Tell whether the file is longer than what was read of it."""
        try:
            return self.path.stat().st_size > self._at
        except OSError:
            return False
