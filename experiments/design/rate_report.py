# SPDX-License-Identifier: Apache-2.0
"""`downpour rate-for`: the least rate for a trace, and what it gives, in words."""

from __future__ import annotations

import re
from typing import Final

from experiments.design import trace_input
from experiments.design.spec import GENERATED, UsageError
from experiments.design.trace_rate import RATE_MOST_BPS, Arrival, Served, rate_for, serve
from parsers.base.times import MICROSECONDS
from parsers.read.trace import parse_trace

_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|min)?", re.ASCII)
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0}
TIMES: Final = "a time above 0: seconds, or a number with ms, s or min, e.g. 5s"
BESIDE: Final = (0.5, 0.8, 1.25, 2.0)  # other rates that are shown, as multiples


def seconds_of(text: str) -> float:
    """Return a time in seconds. Raises UsageError."""
    match = _TIME.fullmatch(text.strip())
    value = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if value <= 0:
        raise UsageError(f"--latency: found '{text}'; valid: {TIMES}")
    return value


def arrivals_of(trace: str, seed: int) -> list[Arrival]:
    """Return the files of a whole trace. Raises SpecErrors with every broken line."""
    cut = trace_input.prepare(trace, MODEL_S if trace in GENERATED else None, seed)
    products = parse_trace(cut.text, cut.file).products
    first = products[0].time_us
    return [Arrival((p.time_us - first) / MICROSECONDS, p.size_bytes) for p in products]


MODEL_S: Final = 3600.0


def report(trace: str, seed: int, latency: str | None, buffer_bytes: int | None) -> str:
    """Return the text of the command. Raises UsageError, SpecErrors."""
    if latency is None and buffer_bytes is None:
        raise UsageError("rate-for: found neither --latency nor --buffer; valid: at least one")
    if seed < 0:
        raise UsageError(f"--seed: found '{seed}'; valid: a whole number from 0 on")
    latency_s = None if latency is None else seconds_of(latency)
    arrivals = arrivals_of(trace, seed)
    found = rate_for(arrivals, latency_s, buffer_bytes)
    if found is None:
        least = serve(arrivals, RATE_MOST_BPS).buffer_bytes
        raise UsageError(f"found no rate; valid: a buffer of at least {least / 1e6:.1f} MB")
    total, span_s = sum(a.size_bytes for a in arrivals), arrivals[-1].time_s
    mean = f", {8 * total / span_s / 1e6:.2f} Mbit/s on average" if span_s else ""
    lines = [
        f"{len(arrivals)} files, {total / 1e6:.1f} MB in {span_s:.1f} s{mean}",
        f"least rate: {found.rate_bps / 1e6:.2f} Mbit/s (headers included)",
        f"buffer: {found.buffer_bytes / 1e6:.1f} MB",
        "",
        f"{'rate, Mbit/s':>12} {'latency p50':>12} {'p99':>9} {'longest, s':>11} "
        f"{'buffer, MB':>11}",
    ]
    rates = sorted({1.0, *BESIDE})
    lines += [_row(serve(arrivals, found.rate_bps * share)) for share in rates]
    lines.append("Loss, retransmissions and propagation come on top.")
    return "\n".join(lines) + "\n"


def _row(served: Served) -> str:
    return (
        f"{served.rate_bps / 1e6:>12.2f} {served.quantile_s(0.5):>12.3f} "
        f"{served.quantile_s(0.99):>9.3f} {served.latency_s:>11.3f} "
        f"{served.buffer_bytes / 1e6:>11.1f}"
    )
