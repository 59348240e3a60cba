# SPDX-License-Identifier: Apache-2.0
"""Read lines of counters.jsonl (`experiments/cells/counters_log.py`) into a `Recording`.

Invalid lines are left out and counted, so that they do not stop a monitor. The last line of a
growing file may be incomplete: it is kept for the next reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeGuard

from monitor.recording import (
    GONE,
    KINDS,
    MOST_SERIES,
    MOST_VALUE,
    SAMPLED,
    Recording,
    Series,
    labels_of,
    wrong_name,
)

MOST_LINE: Final = 4 << 20  # characters
_SAMPLED: Final = Series(SAMPLED, "gauge", 0, "1 whenever a sample was taken.")


class _Bad(Exception):
    pass


def _is(value: Any, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _series(line: dict[str, Any]) -> Series:
    name, kind, labels = line.get("name"), line.get("kind"), line.get("labels")
    decimals, text = line.get("decimals", 0), line.get("help", "")
    if not (isinstance(name, str) and kind in KINDS):
        raise _Bad(f"a series of name {name!r} and kind {kind!r}")
    if not (_is(decimals, 0, 9) and isinstance(text, str) and isinstance(labels, dict)):
        raise _Bad(f"series {name}: decimals {decimals!r}")
    if not all(isinstance(v, str) for v in labels.values()):
        raise _Bad(f"series {name}: labels {labels!r}")
    series = Series(name, kind, decimals, text, labels_of(labels))
    if wrong := wrong_name(series):
        raise _Bad(wrong)
    return series


class Reader:
    """Reads the lines of one source as they come. `newest`: keep only each series' last value, so
    that memory does not grow with time."""

    def __init__(self, *, newest: bool = False) -> None:
        self.recording = Recording()
        self._newest = newest
        self._series: dict[int, Series] = {}

    def take(self, lines: Iterable[str]) -> None:
        """Add complete lines."""
        for line in lines:
            try:
                self._line(line)
            except (_Bad, ValueError, RecursionError) as error:
                self.recording.bad += 1
                self.recording.first_bad = self.recording.first_bad or (
                    f"found {line.strip()[:60]!r}: {error}"
                )

    def _line(self, text: str) -> None:
        if len(text) > MOST_LINE:
            raise _Bad(f"a line of {len(text)} characters; valid: at most {MOST_LINE}")
        line = json.loads(text)
        if not isinstance(line, dict):
            raise _Bad("no object")
        if "series" in line:
            number = line["series"]
            if not _is(number, 0, MOST_SERIES - 1):
                raise _Bad(f"series {number!r}; valid: 0 to {MOST_SERIES - 1}")
            self._series[number] = _series(line)
        else:
            self._sample(line)

    def _sample(self, line: dict[str, Any]) -> None:
        time_us, values, gone = line.get("time_us"), line.get("values"), line.get("gone", [])
        if not _is(time_us, 0, MOST_VALUE) or not isinstance(values, list):
            raise _Bad("a sample without time_us and values")
        pairs = []
        for pair in values:
            if not (isinstance(pair, list) and len(pair) == 2 and _is(pair[1], 0, MOST_VALUE)):
                raise _Bad(f"value {pair!r}; valid: [series, number]")
            pairs.append((self._known(pair[0]), pair[1]))
        if not isinstance(gone, list):
            raise _Bad(f"gone {gone!r}; valid: a list")
        pairs += [(self._known(number), GONE) for number in gone]
        pairs.append((_SAMPLED, 1))
        for series, value in pairs:
            points = self.recording.of(series)
            (points.replace if self._newest else points.add)(time_us, value)

    def _known(self, number: Any) -> Series:
        if not isinstance(number, int) or number not in self._series:
            raise _Bad(f"series {number!r} was not announced")
        return self._series[number]


def read(text: str) -> Recording:
    """Read a whole file; leave out a last line without a line end."""
    reader = Reader()
    reader.take(text[: text.rfind("\n") + 1].splitlines())
    return reader.recording
