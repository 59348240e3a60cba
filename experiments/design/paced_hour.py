# SPDX-License-Identifier: Apache-2.0
"""Generate an NGRID-like hour whose source has a maximum rate, as the real one had.

The real hour came from a paced upstream: products of 0.5 MB and more are 8 x size / gap = 26.9
Mbit/s apart in the median, and no minute exceeds 26.7 Mbit/s. `trace_model` draws gaps and sizes
without such a limit: its minutes reach 31 to 59 Mbit/s, and a queue at 60 Mbit/s gives its products
14 instead of 21 Mbit/s.

Here a first-in, first-out server takes what `trace_model` draws, and a product is created when the
server is done with it. The hour is a circle: what is left at its end waits at its beginning, so
that the output also lasts an hour. The constants were chosen on seeds 1 to 17, 2053, 2099 and 7
so that every statistic of `STATISTICS` is within two standard deviations of the real hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.design.trace_model import (
    HOUR_S,
    Arrival,
    ModelRow,
    TailModulation,
    draw,
)

Floats = NDArray[np.float64]

LARGE_BYTES: Final = 100_000
LARGE_BPS: Final = 26.2e6  # the source's rate
SMALL_BPS: Final = 150e6  # small products arrive within one window of the upstream's connection
TAIL: Final = TailModulation(gain=1.2, tau_products=900.0)

FILE_SET_BYTES: Final = 200_000_000  # G of MPUP16 V-C
HEADERS: Final = 1.0463  # frames' bytes for each byte of a product
ONE_WAY_S: Final = 0.027


def generate_paced_hour(seed: int) -> list[Arrival]:
    """Generate an hour of 28,166 products in order of time. The same seed gives the same hour."""
    sizes, gaps_ms = draw(seed, TAIL)
    offered_s = np.cumsum(gaps_ms) / 1000
    offered_s *= min(1.0, HOUR_S / float(offered_s[-1]))
    service_s = 8 * sizes / np.where(sizes >= LARGE_BYTES, LARGE_BPS, SMALL_BPS)
    left_s = max(0.0, float(_served(offered_s, service_s, 0.0)[-1]) - HOUR_S)
    done_s = _served(offered_s, service_s, left_s) % HOUR_S
    order = np.argsort(done_s, kind="stable")
    times_ms = np.rint(1000 * done_s[order])
    return [Arrival(int(s), int(t)) for s, t in zip(sizes[order], times_ms, strict=True)]


def _served(offered_s: Floats, service_s: Floats, busy_until_s: float) -> Floats:
    """Return when the server is done with each product, one after another."""
    free, done = busy_until_s, np.empty_like(offered_s)
    for i, (at, takes) in enumerate(zip(offered_s.tolist(), service_s.tolist(), strict=True)):
        free = max(free, at) + takes
        done[i] = free
    return done


@dataclass(frozen=True)
class Statistic:
    """One property of an hour. `real`: its value in the papers' hour, computed by `statistics` from
    the trace. `spread`: the standard deviation over that hour's six windows of ten minutes."""

    name: str
    unit: str
    real: float
    spread: float


# Real hour: 15 June 2015, 00:00-01:00 UTC (28,166 products, 5,550,349,517 bytes; MPUP16 Table II).
STATISTICS: Final = (
    Statistic("rate at 1 s, variation", "", 1.249, 0.73),
    Statistic("rate at 1 s, 99 %", "Mbit/s", 47.26, 5.62),
    Statistic("rate at 1 s, highest", "Mbit/s", 444.7, 151.0),
    Statistic("rate at 10 s, variation", "", 0.834, 0.29),
    Statistic("rate at 10 s, 99 %", "Mbit/s", 28.25, 7.42),
    Statistic("rate at 10 s, highest", "Mbit/s", 60.96, 14.8),
    Statistic("rate at 60 s, variation", "", 0.640, 0.15),
    Statistic("rate at 60 s, 99 %", "Mbit/s", 26.51, 6.83),
    Statistic("rate at 60 s, highest", "Mbit/s", 26.68, 6.85),
    Statistic("Hurst exponent, aggregated variance", "", 0.837, 0.16),
    Statistic("autocorrelation of log size, lag 1", "", 0.660, 0.14),
    Statistic("autocorrelation of log size, lag 50", "", 0.300, 0.15),
    Statistic("correlation of log gap and log size", "", 0.645, 0.17),
    Statistic("rank correlation of gap and size", "", 0.692, 0.11),
    Statistic("autocorrelation of log gap, lag 1", "", 0.480, 0.10),
    Statistic("throughput of a queue at 20 Mbit/s", "Mbit/s", 0.517, 0.39),
    Statistic("throughput of a queue at 60 Mbit/s", "Mbit/s", 21.43, 10.9),
    Statistic("throughput of a queue at 100 Mbit/s", "Mbit/s", 32.86, 15.8),
)
ALLOWED_SPREADS: Final = 2.0


def statistics(sizes: Floats, times_s: Floats) -> list[float]:
    """Compute `STATISTICS`, in its order, of an hour of products."""
    found: list[float] = []
    for seconds in (1.0, 10.0, 60.0):
        rates = rates_mbps(sizes, times_s, seconds)
        found += [float(rates.std() / rates.mean()), float(np.quantile(rates, 0.99))]
        found.append(float(rates.max()))
    found.append(hurst(rates_mbps(sizes, times_s, 1.0)))
    size, gaps = np.log(sizes), np.diff(times_s, prepend=times_s[0])
    gap = np.log(np.maximum(gaps, 0.0) + 0.0005)
    found += [_lagged(size, 1), _lagged(size, 50), float(np.corrcoef(gap[1:], size[1:])[0, 1])]
    found.append(float(np.corrcoef(_ranks(sizes), _ranks(gaps))[0, 1]))
    found.append(_lagged(gap[1:], 1))
    found += [queue_throughput_mbps(sizes, times_s, rate * 1e6) for rate in (20, 60, 100)]
    return found


def rates_mbps(sizes: Floats, times_s: Floats, seconds: float) -> Floats:
    """Return the offered load in each piece of the hour, `seconds` long."""
    count = int(HOUR_S / seconds)
    at = np.minimum((times_s / seconds).astype(np.int64), count - 1)
    return np.bincount(at, weights=sizes, minlength=count) * 8 / seconds / 1e6


def hurst(rates: Floats) -> float:
    """Return the Hurst exponent by the variance of means over 1 to 128 values."""
    lengths = [2**k for k in range(8)]
    variances = [
        np.log(rates[: len(rates) // m * m].reshape(-1, m).mean(axis=1).var()) for m in lengths
    ]
    return float(1 + np.polyfit(np.log(lengths), variances, 1)[0] / 2)


def queue_throughput_mbps(sizes: Floats, times_s: Floats, rate_bps: float) -> float:
    """Return sum of sizes / sum of latencies, as the mean over file-sets of G, if products leave
    one after another at a rate: what an experiment measures, without the protocols' own delays."""
    done = _served(times_s, HEADERS * 8 * sizes / rate_bps, 0.0)
    latency = done - times_s + ONE_WAY_S
    sets: list[float] = []
    begin, total = 0, 0.0
    for end, size in enumerate(sizes.tolist(), start=1):
        total += size
        if total >= FILE_SET_BYTES:
            sets.append(8 * total / float(latency[begin:end].sum()) / 1e6)
            begin, total = end, 0.0
    return float(np.mean(sets))


def _lagged(values: Floats, lag: int) -> float:
    return float(np.corrcoef(values[lag:], values[:-lag])[0, 1])


def _ranks(values: Floats) -> Floats:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def of_arrivals(arrivals: Sequence[Arrival]) -> list[float]:
    """Compute `statistics` of a generated hour."""
    sizes = np.array([a.size_bytes for a in arrivals], dtype=np.float64)
    times = np.array([a.time_ms for a in arrivals], dtype=np.float64) / 1000
    return statistics(sizes, times)


def paced_check(arrivals: Sequence[Arrival]) -> list[ModelRow]:
    """Compare a generated hour with the papers'."""
    return [
        ModelRow(s.name, s.unit, s.real, value)
        for s, value in zip(STATISTICS, of_arrivals(arrivals), strict=True)
    ]


def beyond(found: Sequence[float]) -> list[str]:
    """Return a text for each statistic that differs from the real hour's by more than two standard
    deviations of its windows."""
    return [
        f"{s.name}: {value:.3g} {s.unit}, real {s.real:g} ± {ALLOWED_SPREADS:g} x {s.spread:g}"
        for s, value in zip(STATISTICS, found, strict=True)
        if abs(value - s.real) > ALLOWED_SPREADS * s.spread
    ]
