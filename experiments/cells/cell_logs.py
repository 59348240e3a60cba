# SPDX-License-Identifier: Apache-2.0
"""Read the programs' logs while a cell runs."""

from __future__ import annotations

import re
from pathlib import Path

from common.files import Tail


class LineCounter:
    """Counts lines with one of `words` in a growing log, reading only what is new."""

    def __init__(self, path: Path, words: tuple[str, ...]) -> None:
        self._tail = Tail(path)
        self._words = tuple(w.encode() for w in words)
        self.count = 0

    def poll(self) -> int:
        """Return how many such lines the log has by now."""
        self.count += sum(any(w in line for w in self._words) for line in self._tail.lines())
        return self.count


def parse_ping_min_ms(text: str) -> float | None:
    """Return the smallest round trip in ping's summary; None without an answer."""
    found = re.search(r"min/avg/max(?:/mdev)? = ([0-9.]+)/", text)
    return float(found[1]) if found else None
