# SPDX-License-Identifier: Apache-2.0
"""The input of a run: a trace file (the papers' format, or a log of notifyme), or a generated hour,
cut to the replay's duration."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from experiments.design import paced_hour, trace_model
from experiments.design.parameters import MIN_DURATION_S
from experiments.design.spec import MODEL, PACED, Error, SpecErrors, UsageError
from parsers.base.times import MICROSECONDS
from parsers.read.trace import Trace, TraceProduct, parse_any_trace

MAX_TRACE_BYTES: Final = 256_000_000
FORMAT: Final = (
    "'SIZE YYYYMMDDhhmmss.mmm' per line, e.g. '90654 20150615000000.009', or a log of notifyme"
)


class TraceInfo(TypedDict):
    """What cell.json says of the trace."""

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
        """Return what cell.json says of the trace."""
        found: TraceInfo = {
            "source": self.source,
            "products": self.products,
            "bytes": self.size_bytes,
        }
        if rows := [row.to_dict() for row in self.model_check]:
            found["model_check"] = rows
        return found


def prepare(trace: str, duration_s: float, seed: int) -> ReplayTrace:
    """`trace`: "model", "paced" or a path. Raises SpecErrors with every broken line (file:line)."""
    if trace == PACED:
        return from_paced_model(duration_s, seed)
    if trace == MODEL:
        return from_model(duration_s, seed)
    return from_file(Path(trace), duration_s)


def from_model(duration_s: float, seed: int) -> ReplayTrace:
    """Return the first seconds of a generated hour, checked against the published one."""
    hour = trace_model.generate_hour(seed)
    source = f"NGRID model, seed {seed}"
    return _generated(hour, source, tuple(trace_model.model_check(hour)), duration_s, seed)


def from_paced_model(duration_s: float, seed: int) -> ReplayTrace:
    """The same of an hour whose source has a ceiling."""
    hour = paced_hour.generate_paced_hour(seed)
    source = f"paced NGRID model, seed {seed}"
    return _generated(hour, source, tuple(paced_hour.paced_check(hour)), duration_s, seed)


def _generated(
    hour: Sequence[trace_model.Arrival],
    source: str,
    check: tuple[trace_model.ModelRow, ...],
    duration_s: float,
    seed: int,
) -> ReplayTrace:
    start_us = int(trace_model.START.timestamp()) * MICROSECONDS
    products = (TraceProduct(a.size_bytes, start_us + a.time_ms * 1000) for a in hour)
    parsed = Trace(source, tuple(products), ())
    return _cut(parsed, duration_s, file_of(seed), source, check)


def file_of(seed: int) -> str:
    """Name of a generated trace's file in the run's directory."""
    return f"trace-{seed}.txt"


def from_file(path: Path, duration_s: float) -> ReplayTrace:
    """Read a trace file and cut it. Raises SpecErrors with every broken line (file:line)."""
    parsed = parse_any_trace(_text_of(path), str(path))
    broken = [p for p in parsed.problems if not p.is_cut_off]
    if broken or not parsed.products:
        raise SpecErrors(
            [
                Error(p.file, max(1, p.line), f"{p.text!r} ({p.reason})", FORMAT)
                for p in (broken or parsed.problems)[:20]
            ]
        )
    return _cut(parsed, duration_s, "trace.txt", path.name, ())


def _text_of(path: Path) -> str:
    """Read a regular file within the bound; anything else might never end. Raises SpecErrors."""
    found = ""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            found = "no regular file (a FIFO, a device or a socket)"
        else:
            with path.open("rb") as stream:
                data = stream.read(MAX_TRACE_BYTES + 1)
            if len(data) <= MAX_TRACE_BYTES:
                return data.decode("ascii", errors="replace")
            found = f"more than {MAX_TRACE_BYTES} bytes"
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        found = f"no readable file ({getattr(error, 'strerror', None) or error})"
    valid = f"model, or a regular file of at most {MAX_TRACE_BYTES} bytes: {FORMAT}"
    raise SpecErrors([Error(str(path), 1, found, valid)])


def _cut(
    trace: Trace,
    duration_s: float,
    file: str,
    source: str,
    check: tuple[trace_model.ModelRow, ...],
) -> ReplayTrace:
    """The products of the first `duration_s` seconds, counted from the first product."""
    end_us = trace.products[0].time_us + duration_s * MICROSECONDS
    kept = [p for p in trace.products if p.time_us < end_us]
    if not kept:
        raise UsageError(
            f"duration: found {duration_s:g} s; valid: {MIN_DURATION_S:g} s or more, the "
            "resolution of times in traces"
        )
    return ReplayTrace(
        file=file,
        source=source,
        text="".join(f"{p.size_bytes} {trace_model.stamp(p.time_us)}\n" for p in kept),
        products=len(kept),
        size_bytes=sum(p.size_bytes for p in kept),
        largest_bytes=max(p.size_bytes for p in kept),
        model_check=check,
    )
