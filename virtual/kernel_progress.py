# SPDX-License-Identifier: Apache-2.0
"""Progress of a kernel's build on the terminal."""

from __future__ import annotations

import time
from typing import IO


class Printer:
    """Progress as lines "kernel: ..."; on a terminal, each line that only counts overwrites the one
    before."""

    def __init__(self, stream: IO[str], plain_every_s: float = 15.0) -> None:
        self._stream = stream
        self._tty = stream.isatty()
        self._every_s = plain_every_s
        self._next_s = 0.0

    def __call__(self, text: str) -> None:
        counting = text.startswith(("compiled", "fetched"))
        if self._tty:
            end = "" if counting else "\n"
            self._stream.write(f"\r\x1b[Kkernel: {text[:100] if counting else text}{end}")
        elif not counting or time.monotonic() >= self._next_s:
            self._stream.write(f"kernel: {text}\n")
            if counting:
                self._next_s = time.monotonic() + self._every_s
        self._stream.flush()

    def close(self) -> None:
        """Remove an unfinished counting line from the terminal."""
        if self._tty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
