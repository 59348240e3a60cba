# SPDX-License-Identifier: Apache-2.0
"""Prepare the input of a run: a trace file (the papers' format, or a log of notifyme), or a
generated hour, cut to the replay's duration."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NotRequired, Protocol, TypedDict, TypeVar

from common.files import endless
from common.nearest import did_you_mean
from experiments.design import paced_hour, trace_model
from experiments.design.parameters import MIN_DURATION_S
from experiments.design.spec import (
    FEED_MODELS,
    GENERATED,
    MODEL,
    PACED,
    Error,
    SpecErrors,
    UsageError,
    valid_traces,
)
from parsers.base.times import MICROSECONDS
from parsers.read.trace import Trace, TraceProduct, parse_any_trace

MAX_TRACE_BYTES: Final = 256_000_000
HOUR_SEEDS: Final = 100_003  # distance of the seeds of a trace's hours
# How long a replay may last after the last product, with which a trace ends.
LAST_GAP_S: Final = 60.0
LAST_GAP_SHARE: Final = 0.05
FORMAT: Final = (
    "'SIZE YYYYMMDDhhmmss.mmm' per line, e.g. '90654 20150615000000.009', or a log of notifyme"
)


class Arrival(Protocol):
    """A product of a generated hour."""

    @property
    def size_bytes(self) -> int:
        """Return the product's size."""

    @property
    def time_us(self) -> int:
        """Return the creation time, counted from the hour's start."""


A = TypeVar("A", bound=Arrival)


class TraceInfo(TypedDict):
    """What cell.json says about the trace."""

    source: str
    products: int
    bytes: int
    model_check: NotRequired[Sequence[Mapping[str, object]]]  # of a generated trace


@dataclass(frozen=True)
class ReplayTrace:
    """What pqinsert replays. `text` is the cut trace in the papers' format; `file`: its name in the
    run's directory."""

    file: str
    source: str
    text: str
    products: int
    size_bytes: int
    largest_bytes: int
    model_check: tuple[trace_model.ModelRow, ...] = field(default=())

    @cached_property
    def sha256(self) -> str:
        """Return the digest of the cut trace."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def to_dict(self) -> TraceInfo:
        """Return what cell.json says about the trace."""
        found: TraceInfo = {
            "source": self.source,
            "products": self.products,
            "bytes": self.size_bytes,
        }
        if rows := [row.to_dict() for row in self.model_check]:
            found["model_check"] = rows
        return found


@dataclass(frozen=True)
class Hours:
    """A whole trace; cells replay its beginning or a window. `file`: the name of its copy;
    `lasts_s`: its length."""

    trace: Trace
    file: str
    source: str
    lasts_s: float
    model_check: tuple[trace_model.ModelRow, ...] = ()


def prepare(trace: str, duration_s: float | None, seed: int) -> ReplayTrace:
    """Return what pqinsert replays. `trace`: one of `GENERATED` or a path. `duration_s` None: all
    of a file, or an hour of a model.

    Raises SpecErrors with every broken line (file:line), UsageError if the trace is too short.
    """
    if duration_s is None and trace in GENERATED:
        duration_s = trace_model.HOUR_S
    hours = read(trace, duration_s, seed)
    return cut(hours, hours.lasts_s + LAST_GAP_S if duration_s is None else duration_s)


def read(trace: str, duration_s: float | None, seed: int) -> Hours:
    """Read a trace, or generate as many hours as `duration_s` takes. Raises as `prepare`."""
    if trace == PACED and duration_s is not None:
        generate, check = paced_hour.generate_paced_hour, paced_hour.paced_check
        return _generated("paced NGRID model", generate, check, duration_s, seed)
    if trace == MODEL and duration_s is not None:
        generate_hour, model_check = trace_model.generate_hour, trace_model.model_check
        return _generated("NGRID model", generate_hour, model_check, duration_s, seed)
    if trace in FEED_MODELS and duration_s is not None:
        from experiments.design import feed_models  # needs a second to load

        feed = feed_models.MODELS[trace.removeprefix(f"{MODEL}:")]
        return _generated(f"{feed.title} model", feed.generate, feed.check, duration_s, seed)
    if trace.startswith(f"{MODEL}:"):
        raise UsageError(f"trace: found '{trace}'; valid: {valid_traces(trace)}")
    return from_file(Path(trace), duration_s)


def _generated(
    model: str,
    generate: Callable[[int], Sequence[A]],
    check: Callable[[Sequence[A]], Sequence[trace_model.ModelRow]],
    duration_s: float,
    seed: int,
) -> Hours:
    """Generate as many hours as the duration takes, each an hour after the one before. Each has its
    own seed; the first is the hour of a shorter run."""
    count = max(1, math.ceil(duration_s / trace_model.HOUR_S))
    hours = [generate(seed + HOUR_SEEDS * number) for number in range(count)]
    start_us = int(trace_model.START.timestamp()) * MICROSECONDS
    hour_us = round(trace_model.HOUR_S) * MICROSECONDS
    products = [
        TraceProduct(a.size_bytes, start_us + number * hour_us + a.time_us)
        for number, hour in enumerate(hours)
        for a in hour
    ]
    if count > 1:
        products.sort(key=lambda product: product.time_us)  # an hour's last product may be late
    source = f"{model}, seed {seed}" + (f", {count} hours" if count > 1 else "")
    parsed = Trace(source, tuple(products), ())
    lasts_s = count * trace_model.HOUR_S
    return Hours(parsed, file_of(seed), source, lasts_s, tuple(check(hours[0])))


def window_order(count: int, first: int) -> list[int]:
    """Return which of `count` windows of a trace the `first` repeats take. Every prefix of the list
    is spread over the trace (van der Corput's sequence), so that you can add any number of
    repeats."""
    found: dict[int, None] = {}
    number = 0
    while len(found) < min(count, first):
        bits = f"{number:b}"[::-1]
        found.setdefault(int(bits, 2) * count // 2 ** len(bits))
        number += 1
    return list(found)


def window_count(hours: Hours, duration_s: float) -> int:
    """Return how many windows of a length a trace has, at least one."""
    return max(1, int(hours.lasts_s / duration_s + 1e-9))


def window(hours: Hours, duration_s: float, repeat: int) -> ReplayTrace:
    """Return the window of a trace that a repeat replays. The first repeat replays its beginning.
    After as many repeats as there are windows, the windows start over, with other losses."""
    count = window_count(hours, duration_s) if repeat else 1
    place = window_order(count, repeat % count + 1)[-1]
    if place == 0:
        return cut(hours, duration_s)
    products = hours.trace.products
    begin_us = products[0].time_us + round(place * duration_s * MICROSECONDS)
    rest = tuple(p for p in products if p.time_us >= begin_us) or products[-1:]
    end_us = begin_us + duration_s * MICROSECONDS
    within = tuple(p for p in rest if p.time_us < end_us) or rest[:1]
    stem, _, suffix = hours.file.rpartition(".")
    part = dataclasses.replace(
        hours,
        trace=Trace(hours.source, within, ()),
        file=f"{stem}-w{place}.{suffix}",
        source=f"{hours.source}, from {place * duration_s:g} s",
    )
    return cut(part, duration_s)


def file_of(seed: int) -> str:
    """Return the name of a generated trace's file in the run's directory."""
    return f"trace-{seed}.txt"


def from_file(path: Path, duration_s: float | None) -> Hours:
    """Read a trace file. Raises SpecErrors with every broken line (file:line), UsageError if it is
    shorter than `duration_s`."""
    parsed = parse_any_trace(_text_of(path), str(path))
    broken = [p for p in parsed.problems if not p.is_cut_off]
    if broken or not parsed.products:
        raise SpecErrors(
            [
                Error(p.file, max(1, p.line), f"{p.text!r} ({p.reason})", FORMAT)
                for p in (broken or parsed.problems)[:20]
            ]
        )
    lasts_s = (parsed.products[-1].time_us - parsed.products[0].time_us) / MICROSECONDS
    if duration_s is not None and duration_s > lasts_s + max(LAST_GAP_S, LAST_GAP_SHARE * lasts_s):
        raise UsageError(
            f"duration: found {duration_s:g} s with {path}, whose products span {lasts_s:g} s; "
            f"valid: at most that, e.g. --duration {max(1, math.ceil(lasts_s))} "
            f"(DURATION={max(1, math.ceil(lasts_s))}), or a longer trace"
        )
    return Hours(parsed, "trace.txt", path.name, lasts_s)


def of_file(size_bytes: int) -> ReplayTrace:
    """Return a trace of one product of this size."""
    text = f"{size_bytes} {trace_model.stamp(int(trace_model.START.timestamp()) * MICROSECONDS)}\n"
    source = f"one file of {size_bytes} bytes"
    return ReplayTrace(f"file-{size_bytes}.txt", source, text, 1, size_bytes, size_bytes)


def _text_of(path: Path) -> str:
    """Read a regular file of limited size; other kinds might never end. Raises SpecErrors."""
    found = ""
    try:
        found = endless(path)
        if not found:
            with path.open("rb") as stream:
                data = stream.read(MAX_TRACE_BYTES + 1)
            if len(data) <= MAX_TRACE_BYTES:
                return data.decode("ascii", errors="replace")
            found = f"more than {MAX_TRACE_BYTES} bytes"
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        found = f"no readable file ({getattr(error, 'strerror', None) or error})"
    size = f"a regular file of at most {MAX_TRACE_BYTES} bytes: {FORMAT}"
    valid = f"{', '.join(GENERATED)}, or {size}{did_you_mean(str(path), GENERATED)}"
    raise SpecErrors([Error(str(path), 1, found, valid)])


def cut(hours: Hours, duration_s: float) -> ReplayTrace:
    """Return the products of the first `duration_s` seconds, counted from the first product. Raises
    UsageError if the duration is below the resolution of times in traces."""
    products = hours.trace.products
    end_us = products[0].time_us + duration_s * MICROSECONDS
    kept = [p for p in products if p.time_us < end_us]
    if not kept:
        raise UsageError(
            f"duration: found {duration_s:g} s; valid: {MIN_DURATION_S:g} s or more, the "
            "resolution of times in traces"
        )
    return ReplayTrace(
        file=hours.file,
        source=hours.source,
        text="".join(f"{p.size_bytes} {trace_model.stamp(p.time_us)}\n" for p in kept),
        products=len(kept),
        size_bytes=sum(p.size_bytes for p in kept),
        largest_bytes=max(p.size_bytes for p in kept),
        model_check=hours.model_check,
    )
