# SPDX-License-Identifier: Apache-2.0
"""Read traces: the papers' format, one product per line, `size YYYYMMDDhhmmss.mmm` (UTC), and logs
of `notifyme`, whose lines have the same values.

In the papers' format, times must not go back; sizes are in bytes, 1 or more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from parsers.base.problems import (
    Lines,
    Problem,
    numbered_lines,
    problem,
)
from parsers.base.times import MICROSECONDS, utc_microseconds
from parsers.read.notifyme import FIRST_LINE, parse_notifyme

_LINE = re.compile(r"(\d+)[ \t]+(\d{14})\.(\d{1,6})", re.ASCII)
_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MAX_PRODUCT_BYTES = 2**32 - 1  # FMTP's product size is a 32-bit number


@dataclass(frozen=True, slots=True)
class TraceProduct:
    size_bytes: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Trace:
    file: str
    products: tuple[TraceProduct, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Quantiles are (probability, value), linearly interpolated. Gaps are between neighbours."""

    count: int
    size_bytes: int
    span_s: float
    size_quantiles: tuple[tuple[float, float], ...]
    gap_quantiles_s: tuple[tuple[float, float], ...]
    size_mean: float | None
    gap_mean_s: float | None


def parse_trace(text: Lines, file: str) -> Trace:
    """Parse a trace. Never raises. The last line may lack its newline."""
    products: list[TraceProduct] = []
    problems: list[Problem] = []
    for number, raw, _complete in numbered_lines(text):
        if not raw.strip():
            continue
        try:
            match = _LINE.fullmatch(raw.strip())
            if match is None:
                raise ValueError("expected 'SIZE YYYYMMDDhhmmss.mmm'")
            size = int(match[1])
            if not 1 <= size <= MAX_PRODUCT_BYTES:
                raise ValueError(f"size must be 1 to {MAX_PRODUCT_BYTES} bytes")
            time_us = utc_microseconds(match[2], match[3])
            if products and time_us < products[-1].time_us:
                raise ValueError("time is before the line above; times must not go back")
            products.append(TraceProduct(size, time_us))
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    if not products and not problems:
        problems.append(problem(file, 0, "", "no product in the trace"))
    return Trace(file, tuple(products), tuple(problems))


def parse_notified(text: Lines, file: str) -> Trace:
    """Return the products of a notifyme log in order of creation (UTC), since a server announces
    products from several sources in another order. Never raises."""
    log = parse_notifyme(text, file)
    problems = list(log.problems)
    kept = [n.product for n in log.notifications if 1 <= n.product.size_bytes <= MAX_PRODUCT_BYTES]
    if len(kept) < len(log.notifications):
        left = f"{len(log.notifications) - len(kept)} products"
        reason = f"size must be 1 to {MAX_PRODUCT_BYTES} bytes"
        problems.append(problem(file, 0, left, reason))
    products = [TraceProduct(p.size_bytes, p.created_us) for p in kept]
    if not products and not problems:
        problems.append(problem(file, 0, "", "no product in the log"))
    return Trace(file, tuple(sorted(products, key=lambda p: p.time_us)), tuple(problems))


def parse_any_trace(text: str, file: str) -> Trace:
    """Parse a trace in either form, by its first line that is not blank."""
    form = parse_notified if FIRST_LINE.match(text.lstrip()) else parse_trace
    return form(text, file)


def _quantiles(values: list[int], scale: float) -> tuple[tuple[float, float], ...]:
    if not values:
        return ()
    found = np.quantile(np.asarray(values, dtype=np.float64), _QUANTILES)
    return tuple((q, float(v) / scale) for q, v in zip(_QUANTILES, found, strict=True))


def summarize(trace: Trace) -> TraceSummary:
    """Return count, bytes, quantiles and means of sizes and gaps; None and () if undefined."""
    sizes = [p.size_bytes for p in trace.products]
    times = [p.time_us for p in trace.products]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    return TraceSummary(
        count=len(sizes),
        size_bytes=sum(sizes),
        span_s=(times[-1] - times[0]) / MICROSECONDS if times else 0.0,
        size_quantiles=_quantiles(sizes, 1.0),
        gap_quantiles_s=_quantiles(gaps, float(MICROSECONDS)),
        size_mean=sum(sizes) / len(sizes) if sizes else None,
        gap_mean_s=sum(gaps) / len(gaps) / MICROSECONDS if gaps else None,
    )
