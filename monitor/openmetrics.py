# SPDX-License-Identifier: Apache-2.0
"""A recording as OpenMetrics text with time stamps, which Prometheus (`promtool tsdb
create-blocks-from openmetrics`) and VictoriaMetrics import; and reading it back. The text cannot
express GONE: such a series just ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import groupby
from typing import Final, TextIO

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_fd_to_metric_families

from monitor.recording import (
    GONE,
    MOST_SERIES,
    MOST_VALUE,
    SAMPLED,
    Points,
    Recording,
    Series,
    labels_of,
    shown,
    wrong_name,
)

PREFIX: Final = "downpour_"
REPEAT_US: Final = 5_000_000  # rate() over 15 s finds two; Prometheus drops them after five minutes
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_MICRO: Final = 6
# Damaged text makes the library's parser raise these, besides the ValueError that it promises.
_UNREADABLE: Final = (
    ValueError, ArithmeticError, LookupError, AttributeError, TypeError, AssertionError
)  # fmt: skip


class TextError(Exception):
    """Text that is not OpenMetrics, or does not fit a recording. The message is one line."""


def metric_name(series: Series) -> str:
    """Return the name of a series' samples."""
    return f"{PREFIX}{series.name}{'_total' if series.kind == 'counter' else ''}"


def repeated(points: Points, sampled: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the points, and between them the value that still holds, at times of other samples, so
    that no value is older than REPEAT_US."""
    at, last_us, last = 0, 0, GONE
    for time_us, value in [*points, (MOST_VALUE, GONE)]:
        while at < len(sampled) and sampled[at] < time_us:
            if last != GONE and sampled[at] >= last_us + REPEAT_US:
                last_us = sampled[at]
                yield last_us, last
            at += 1
        if time_us != MOST_VALUE and value != GONE:
            yield time_us, value
        last_us, last = time_us, value


def escaped(text: str) -> str:
    """Return a help text or a label's value with the escapes of both exposition formats."""
    return text.translate(_ESCAPES)


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return labels in the form in which they are written between braces."""
    return ",".join(f'{key}="{escaped(text)}"' for key, text in labels)


def sampled_us(recording: Recording) -> list[int]:
    """Return the times of all samples."""
    return sorted({t for s, p in recording.points.items() if s.name == SAMPLED for t, _ in p})


def _seconds(time_us: int) -> str:
    return shown(time_us, _MICRO)


def sample_lines(
    series: Series,
    points: Points,
    sampled: list[int],
    stamp: Callable[[int], str] = _seconds,
) -> Iterator[str]:
    """Yield a line for each sample. `stamp`: writes a time in microseconds."""
    labels = label_text(series.labels)
    name = metric_name(series) + (f"{{{labels}}}" if labels else "")
    for time_us, value in repeated(points, sampled):
        yield f"{name} {shown(value, series.decimals)} {stamp(time_us)}\n"


def lines(recording: Recording) -> Iterator[str]:
    """Yield the text of a recording line by line."""
    sampled = sampled_us(recording)
    every = sorted(recording.points.items(), key=lambda item: item[0].key)
    for name, members in groupby(every, key=lambda item: item[0].name):
        group = list(members)
        first = group[0][0]
        yield f"# TYPE {PREFIX}{name} {first.kind}\n"
        yield f"# HELP {PREFIX}{name} {escaped(first.help)}\n"
        for series, points in group:
            yield from sample_lines(series, points, sampled)
    yield "# EOF\n"


# -- back ------------------------------------------------------------------------------------------
def _time_us(stamp: object, name: str) -> int:
    if stamp is None:
        raise TextError(f"{name}: found a sample without a time stamp; valid: one with")
    return round(Decimal(str(stamp)) * 1_000_000)


def _family(family: Metric, recording: Recording) -> None:
    kind = "counter" if family.type == "counter" else "gauge"
    samples = [s for s in family.samples if not s.name.endswith("_created")]
    # As many decimals as the most exact value needs, so that the text gives the same values back.
    exact = [Decimal(repr(float(s.value))) for s in samples]
    if not all(value.is_finite() and 0 <= value <= MOST_VALUE for value in exact):
        raise TextError(f"{family.name}: found a value that is negative, too large or not a number")
    decimals = max((-int(v.normalize().as_tuple().exponent) for v in exact), default=0)
    decimals = min(max(decimals, 0), 9)
    for sample, value in zip(samples, exact, strict=True):
        series = Series(
            family.name.removeprefix(PREFIX),
            kind,
            decimals,
            family.documentation,
            labels_of(sample.labels),
        )
        if series not in recording.points:
            if wrong := wrong_name(series):
                raise TextError(wrong)
            if len(recording.points) >= MOST_SERIES:
                raise TextError(f"found more than {MOST_SERIES} series")
        number = min(round(value * 10**decimals), MOST_VALUE)
        recording.of(series).add(_time_us(sample.timestamp, sample.name), number)


class _Numbered:
    """A file's lines, and the number of the last one that was read."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.line = file, 0

    def __iter__(self) -> Iterator[str]:
        for text in self._file:
            self.line += 1
            yield text


def read(file: TextIO) -> Recording:
    """Read OpenMetrics text. Raises TextError."""
    recording, lines = Recording(), _Numbered(file)
    try:
        families: Iterable[Metric] = text_fd_to_metric_families(lines)  # type: ignore[no-untyped-call]
        for family in families:
            _family(family, recording)
    except UnicodeDecodeError:
        raise
    except _UNREADABLE as error:
        why = " ".join(str(error).split())[:200] or "another form"
        raise TextError(f"no OpenMetrics text: line {lines.line}: {why}") from None
    return recording
