# SPDX-License-Identifier: Apache-2.0
"""Sample the counters pages of a cell's ldmd processes into `logs/counters.jsonl`.

A line is a JSON object. A series is announced once, by `series` (its number), `name`, `kind`,
`decimals`, `labels` and `help`. A sample has `time_us` (since 1970, by the cell's clock) and
`values`: [series, value] of each series that changed since the sample before. `gone` lists series
whose process, or receiver, is no longer there. Values are integers in units of 10^-decimals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from experiments.cells.counters_page import Column, Page, PageError, load

FILE: Final = "counters.jsonl"
SUFFIX: Final = ".pq.stats"
Key = tuple[str, tuple[tuple[str, str], ...]]


def series_of(page: Page, host: str) -> Iterator[tuple[Key, Column, int]]:
    """Yield (name and labels, column, value) of every value of a page."""
    for table in page.tables:
        for row in table.rows:
            labels = tuple({"host": host, "program": page.program, **row.labels}.items())
            for column, value in zip(table.columns, row.values, strict=True):
                yield (f"{table.name}_{column.name}", labels), column, value


class CountersLog:
    """The log's state so far. `queues`: the folder of the product queues, one HOST.pq each."""

    def __init__(self, queues: Path) -> None:
        self._queues = queues
        self._numbers: dict[Key, int] = {}
        self._last: dict[int, int] = {}
        self.refused = 0

    def sample(self) -> str:
        """Return the lines of a sample taken now."""
        lines: list[dict[str, Any]] = []
        changed, seen = [], set()
        now_us = time.time_ns() // 1000
        for key, column, value in self._read():
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._numbers)
                lines.append(_announcement(number, key, column))
            seen.add(number)
            if self._last.get(number) != value:
                changed.append([number, value])
                self._last[number] = value
        gone = sorted(self._last.keys() - seen)
        for number in gone:
            del self._last[number]
        lines.append({"time_us": now_us, "values": changed} | ({"gone": gone} if gone else {}))
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)

    def _read(self) -> Iterator[tuple[Key, Column, int]]:
        for path in sorted(self._queues.glob(f"*{SUFFIX}/[!.]*")):
            try:
                page = load(path)
            except FileNotFoundError:  # its process has just ended
                continue
            except (PageError, OSError):
                self.refused += 1
                continue
            yield from series_of(page, path.parent.name.removesuffix(SUFFIX))


def _announcement(number: int, key: Key, column: Column) -> dict[str, Any]:
    name, labels = key
    return {
        "series": number,
        "name": name,
        "kind": column.kind,
        "decimals": column.decimals,
        "labels": dict(labels),
        "help": column.help,
    }
