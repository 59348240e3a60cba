# SPDX-License-Identifier: Apache-2.0
"""`downpour rate-for`: report what the least rate for a trace achieves, or a given rate."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.counting import counted
from common.quantities import parse_loss
from experiments.design import trace_input
from experiments.design.spec import GENERATED, UsageError
from experiments.design.trace_rate import (
    RATE_MOST_BPS,
    Arrival,
    Repairs,
    Served,
    delivery_ratio,
    rate_for,
    serve,
)
from parsers.base.times import MICROSECONDS
from parsers.read.trace import parse_trace

_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|min)?", re.ASCII)
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0}
TIMES: Final = "a time above 0: seconds, or a number with ms, s or min, e.g. 5s"
BESIDE: Final = (0.5, 0.8, 1.25, 2.0)  # other rates to show, as multiples


@dataclass(frozen=True)
class Asked:
    """The command line's request, as text where it has units. `rate_bps`: use this rate, not the
    least. `loss`: also report the share of files that FMTP delivers."""

    latency: str | None = None
    buffer_bytes: int | None = None
    rate_bps: int | None = None
    loss: str | None = None
    f_snd: float = 5000.0
    round_trips: str = "36ms,41ms,50ms,90ms"  # of MPUP16 V-A


def seconds_of(text: str, option: str = "--latency") -> float:
    """Return a time in seconds. Raises UsageError."""
    match = _TIME.fullmatch(text.strip())
    value = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if value <= 0:
        raise UsageError(f"{option}: found '{text}'; valid: {TIMES}")
    return value


def repairs_of(asked: Asked) -> Repairs | None:
    """Return what `delivery_ratio` needs; None without a loss. Raises UsageError."""
    if asked.loss is None:
        return None
    valid = "a probability below 1, or a percentage, e.g. 1%"
    try:
        loss = parse_loss(asked.loss if "%" in asked.loss else float(asked.loss))
    except ValueError:
        raise UsageError(f"--loss: found '{asked.loss}'; valid: {valid}") from None
    if loss == 1:
        raise UsageError(f"--loss: found '{asked.loss}'; valid: {valid}")
    if not 0 < asked.f_snd <= 1e6:
        raise UsageError(f"--f-snd: found '{asked.f_snd:g}'; valid: a number above 0, to 1e6")
    times = tuple(seconds_of(text, "--rtt") for text in asked.round_trips.split(","))
    return Repairs(loss, asked.f_snd, times)


def arrivals_of(trace: str, seed: int) -> list[Arrival]:
    """Return the files of a whole trace. Raises SpecErrors with every broken line."""
    cut = trace_input.prepare(trace, MODEL_S if trace in GENERATED else None, seed)
    products = parse_trace(cut.text, cut.file).products
    first = products[0].time_us
    return [Arrival((p.time_us - first) / MICROSECONDS, p.size_bytes) for p in products]


MODEL_S: Final = 3600.0


def _served(asked: Asked, trace: str, seed: int) -> tuple[list[Arrival], Served]:
    """Return the files and what the rate gives. Raises UsageError, SpecErrors."""
    bounded = asked.latency is not None or asked.buffer_bytes is not None
    if asked.rate_bps is not None and bounded:
        raise UsageError("rate-for: found --rate with --latency or --buffer; valid: without them")
    if asked.rate_bps is None and not bounded:
        raise UsageError(
            "rate-for: found neither --latency nor --buffer; valid: at least one, or --rate"
        )
    latency_s = None if asked.latency is None else seconds_of(asked.latency)
    arrivals = arrivals_of(trace, seed)
    if asked.rate_bps is not None:
        return arrivals, serve(arrivals, asked.rate_bps)
    found = rate_for(arrivals, latency_s, asked.buffer_bytes)
    if found is None:
        least = serve(arrivals, RATE_MOST_BPS).buffer_bytes
        raise UsageError(f"found no rate; valid: a buffer of at least {_shown(least / 1e6, 1)} MB")
    return arrivals, found


def report(trace: str, seed: int, asked: Asked) -> str:
    """Return the text of the command. Raises UsageError, SpecErrors."""
    if seed < 0:
        raise UsageError(f"--seed: found '{seed}'; valid: a whole number from 0 on")
    repairs = repairs_of(asked)
    arrivals, found = _served(asked, trace, seed)
    total, span_s = sum(a.size_bytes for a in arrivals), arrivals[-1].time_s
    mean = f", {_shown(8 * total / span_s / 1e6, 2)} Mbit/s on average" if span_s else ""
    which = "least rate" if asked.rate_bps is None else "rate"
    lines = [
        f"{counted(len(arrivals), 'file')}, {_shown(total / 1e6, 1)} MB in {span_s:.1f} s{mean}",
        f"{which}: {_shown(found.rate_bps / 1e6, 2)} Mbit/s (headers included)",
        f"buffer: {_shown(found.buffer_bytes / 1e6, 1)} MB",
        "",
        f"{'rate, Mbit/s':>12} {'latency p50':>12} {'p99':>9} {'longest, s':>11} "
        f"{'buffer, MB':>11}",
    ]
    rates = sorted({1.0, *BESIDE})
    lines += [_row(serve(arrivals, found.rate_bps * share)) for share in rates]
    lines.append("Loss, retransmissions and propagation are extra.")
    if repairs is not None:
        lines += ["", _fmtp(arrivals, found.rate_bps, repairs)]
    return "\n".join(lines) + "\n"


def _shown(value: float, decimals: int) -> str:
    """Return a number with `decimals`, or with three digits if these would show less than two."""
    if 0 < value < 10 ** (1 - decimals):
        decimals = 2 - math.floor(math.log10(value))
    return f"{value:.{decimals}f}"


def _row(served: Served) -> str:
    return (
        f"{_shown(served.rate_bps / 1e6, 2):>12} {_shown(served.quantile_s(0.5), 3):>12} "
        f"{_shown(served.quantile_s(0.99), 3):>9} {_shown(served.latency_s, 3):>11} "
        f"{_shown(served.buffer_bytes / 1e6, 1):>11}"
    )


def _fmtp(arrivals: Sequence[Arrival], rate_bps: float, repairs: Repairs) -> str:
    ratio = delivery_ratio(arrivals, rate_bps, repairs)
    rate = _shown(rate_bps / 1e6, 2)
    return (
        f"FFDR: {100 * ratio:.2f} % at {rate} Mbit/s, with {100 * repairs.loss:g} % "
        f"of the packets lost and f_snd = {repairs.f_snd:g}, where files wait behind FMTP (b_snd)"
    )
