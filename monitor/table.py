# SPDX-License-Identifier: Apache-2.0
"""A recording as CSV, with a line for each change of a value; and reading it back.

Columns: `time_s` since 1970, `metric` (as in OpenMetrics, without `downpour_`), a column for each
label, `value`. An empty value: the process or receiver was no longer there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from typing import Final, TextIO

from monitor.recording import (
    GONE,
    MOST_SERIES,
    MOST_VALUE,
    Recording,
    Series,
    labels_of,
    shown,
    wrong_name,
)

_FIXED: Final = ("time_s", "metric", "value")
_TOTAL: Final = "_total"
_MICRO: Final = 6


class TableError(Exception):
    """A file that is not such a table. The message is one line."""


def write(recording: Recording, file: TextIO) -> None:
    """Write all series, one after another."""
    keys = sorted({key for series in recording.points for key, _ in series.labels})
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["time_s", "metric", *keys, "value"])
    for series, points in sorted(recording.points.items(), key=lambda item: item[0].key):
        metric = series.name + (_TOTAL if series.kind == "counter" else "")
        own = dict(series.labels)
        labels = [own.get(key, "") for key in keys]
        for time_us, value in points:
            text = "" if value == GONE else shown(value, series.decimals)
            writer.writerow([shown(time_us, _MICRO), metric, *labels, text])


def _number(text: str, decimals: int, line: int) -> int:
    try:
        value = Decimal(text).scaleb(decimals)
    except DecimalException:
        raise TableError(f"line {line}: found {text!r}; valid: a number") from None
    if not (value.is_finite() and 0 <= value <= MOST_VALUE):
        raise TableError(f"line {line}: found {text!r}; valid: 0 to {MOST_VALUE}")
    return round(value)


def _rows(file: TextIO) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(file, strict=True)
    try:
        missing = [name for name in _FIXED if name not in (reader.fieldnames or ())]
        if missing:
            raise TableError(f"line 1: found no column {missing[0]}; valid: {', '.join(_FIXED)}")
        for row in reader:
            if None in row or None in row.values():
                raise TableError(f"line {reader.line_num}: found another number of columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise TableError(f"after line {reader.line_num}: {error}") from None


def _places(text: str) -> int:
    return min(len(text.partition(".")[2]), 9)


def read(file: TextIO) -> Recording:
    """Read a table. Raises TableError."""
    rows = list(_rows(file))
    decimals: dict[str, int] = {}
    for _, row in rows:
        decimals[row["metric"]] = max(decimals.get(row["metric"], 0), _places(row["value"]))
    recording = Recording()
    for line, row in rows:
        metric = row["metric"]
        kind = "counter" if metric.endswith(_TOTAL) else "gauge"
        labels = labels_of({k: v for k, v in row.items() if k not in _FIXED and v})
        series = Series(metric.removesuffix(_TOTAL), kind, decimals[metric], "", labels)
        if series not in recording.points:
            if wrong := wrong_name(series):
                raise TableError(f"line {line}: {wrong}")
            if len(recording.points) >= MOST_SERIES:
                raise TableError(f"line {line}: found more than {MOST_SERIES} series")
        value = _number(row["value"], decimals[metric], line) if row["value"] else GONE
        recording.of(series).add(_number(row["time_s"], _MICRO, line), value)
    return recording
