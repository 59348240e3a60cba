# SPDX-License-Identifier: Apache-2.0
"""A recording as Parquet, with a row for each change of a value; and reading it back. Needs
pyarrow.

Columns: `time` (UTC), `metric` (as in CSV), `label_...` for each label, `value` (null: the process
or receiver was no longer there). `units`, an integer in units of 10^-`decimals`, `kind` and `help`
make it possible to read the same recording back.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from monitor.recording import (
    GONE,
    KINDS,
    MOST_DECIMALS,
    MOST_SERIES,
    Recording,
    Series,
    labels_of,
    wrong_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_ROWS: Final = 1 << 25  # equal values are stored as counts, so a small file can have this many
MOST_COLUMNS: Final = 200
LABEL: Final = "label_"
_FIXED: Final = ("time", "metric", "units", "decimals", "kind", "help")
_BATCH: Final = 1 << 16


class ParquetError(Exception):
    """A file that is not such a table, or no pyarrow. The message is one line."""


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ParquetError(
            "found no package pyarrow; valid: install it with "
            "`.venv/bin/pip install 'downpour[parquet]'`"
        ) from None
    return pyarrow


def _label(key: str, series: Series) -> str | None:
    return dict(series.labels).get(key)


def _table(recording: Recording) -> Any:
    """Return a recording as an Arrow table, one series after another."""
    arrow = _arrow()
    every = sorted(recording.points.items(), key=lambda item: item[0].key)
    counts = [len(points.times_us) for _, points in every]

    def repeated(of: Callable[[Series], str | None]) -> Any:
        """Return a text for each series' rows, stored once."""
        texts = [of(series) for series, _ in every]
        values = sorted({text for text in texts if text is not None})
        place = {None: -1} | {value: at for at, value in enumerate(values)}
        rows = np.repeat(np.array([place[text] for text in texts], np.int32), counts)
        indices = arrow.array(rows, mask=rows < 0)
        return arrow.DictionaryArray.from_arrays(indices, arrow.array(values, arrow.string()))

    def joined(parts: Iterable[Any]) -> Any:
        return np.concatenate([np.empty(0, np.int64), *(np.frombuffer(p, np.int64) for p in parts)])

    units = joined(points.values for _, points in every)
    decimals = np.repeat(np.array([series.decimals for series, _ in every], np.int8), counts)
    gone = units == GONE
    columns = {
        "time": arrow.array(joined(p.times_us for _, p in every), arrow.timestamp("us", "UTC")),
        "metric": repeated(lambda series: series.name),
    }
    for key in sorted({key for series, _ in every for key, _ in series.labels}):
        columns[LABEL + key] = repeated(partial(_label, key))
    columns |= {
        "value": arrow.array(units / 10.0**decimals, mask=gone),
        "units": arrow.array(units, mask=gone),
        "decimals": arrow.array(decimals),
        "kind": repeated(lambda series: series.kind),
        "help": repeated(lambda series: series.help),
    }
    return arrow.table(columns)


def content(recording: Recording) -> bytes:
    """Return a file's bytes. Raises ParquetError."""
    arrow = _arrow()
    file = io.BytesIO()
    arrow.parquet.write_table(_table(recording), file, compression="zstd")
    return file.getvalue()


def _check(file: Any) -> None:
    """Refuse files that are too large, and foreign tables. Raises ParquetError."""
    names = file.schema_arrow.names
    if len(names) > MOST_COLUMNS or len(set(names)) != len(names):
        raise ParquetError(f"found {len(names)} columns; valid: at most {MOST_COLUMNS}, each once")
    missing = [name for name in _FIXED if name not in names]
    if missing:
        raise ParquetError(f"found no column {missing[0]}; valid: what `monitor export` writes")
    if file.metadata.num_rows > MOST_ROWS:
        raise ParquetError(f"found {file.metadata.num_rows} rows; valid: at most {MOST_ROWS}")


def _series(name: object, row: dict[str, object]) -> Series:
    """Return the series that a row's texts describe. Raises ParquetError."""
    kind, decimals, text = row["kind"], row["decimals"], row["help"]
    labels = {
        key.removeprefix(LABEL): value
        for key, value in row.items()
        if key.startswith(LABEL) and value is not None
    }
    if not (isinstance(name, str) and kind in KINDS and isinstance(text, str)):
        raise ParquetError(
            f"found metric {name!r}, kind {kind!r}; valid: texts, {', '.join(KINDS)}"
        )
    if not (isinstance(decimals, int) and 0 <= decimals <= MOST_DECIMALS):
        raise ParquetError(f"found decimals {decimals!r}; valid: 0 to {MOST_DECIMALS}")
    if not all(isinstance(value, str) for value in labels.values()):
        raise ParquetError(f"found labels {labels!r}; valid: texts")
    series = Series(
        name, str(kind), decimals, text, labels_of({k: str(v) for k, v in labels.items()})
    )
    if wrong := wrong_name(series):
        raise ParquetError(wrong)
    return series


def _take(recording: Recording, batch: Any, known: dict[tuple[object, ...], Series]) -> None:
    """Add a batch's rows. Raises ParquetError."""
    arrow = _arrow()
    times = batch.column("time").cast(arrow.timestamp("us", "UTC")).cast(arrow.int64()).to_pylist()
    units = batch.column("units").cast(arrow.int64()).to_pylist()
    about = [n for n in batch.schema.names if n.startswith(LABEL)] + ["decimals", "kind", "help"]
    texts = [batch.column(name).to_pylist() for name in ("metric", *about)]
    for time_us, value, key in zip(times, units, zip(*texts, strict=True), strict=True):
        series = known.get(key)
        if series is None:
            series = known[key] = _series(key[0], dict(zip(about, key[1:], strict=True)))
            if len(known) > MOST_SERIES:
                raise ParquetError(f"found more than {MOST_SERIES} series")
        value = GONE if value is None else value
        if not (isinstance(time_us, int) and time_us >= 0 and value >= GONE):
            raise ParquetError(f"found time {time_us!r}, units {value!r}; valid: from 0")
        recording.of(series).add(time_us, value)


def read(path: Path) -> Recording:
    """Read a file. Raises ParquetError, OSError."""
    arrow = _arrow()
    recording = Recording()
    known: dict[tuple[object, ...], Series] = {}
    with path.open("rb") as opened:
        try:
            file = arrow.parquet.ParquetFile(opened)
            _check(file)
            for batch in file.iter_batches(_BATCH):
                _take(recording, batch, known)
        except (arrow.ArrowException, OSError, ValueError, TypeError) as error:
            raise ParquetError(f"no Parquet: {' '.join(str(error).split())[:200]}") from None
    return recording
