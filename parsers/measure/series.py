# SPDX-License-Identifier: Apache-2.0
"""Turn one cell's samples into the time series that the plots show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parsers.base.times import MICROSECONDS
from parsers.measure import metrics
from parsers.measure.metrics import CpuSample, RateSample
from parsers.measure.taus import Tau
from parsers.read.ldm_log import Product

MOST_S = 8 * 86_400.0  # limit for a cell: a log may contain any year
CPU_WINDOW_S = 5.0  # ps's CPU times are too coarse for shorter windows


@dataclass(frozen=True)
class Series:
    """Series for the plots; times in seconds after the first insertion."""

    nic_bps: tuple[tuple[float, float], ...] = ()
    nic_bps_per_minute: tuple[tuple[float, float], ...] = ()
    input_bps: tuple[tuple[float, float], ...] = ()  # per second, at the second's end
    arrivals: tuple[tuple[float, int], ...] = ()  # (when it was created, bytes) of each file
    machine_cpu: tuple[tuple[float, float], ...] = ()  # % of all cores: not idle, no iowait, steal
    sender_cpu: tuple[tuple[float, float], ...] = ()  # % of all cores: the LDM processes
    sender_cpu_source: str = ""  # cpu.log or ps
    latency_cdf: tuple[tuple[float, float], ...] = ()
    per_tau: Mapping[str, tuple[Tau, ...]] = field(default_factory=dict)  # by subscriber


def thinned(
    series: Sequence[tuple[float, float]], points: int = 600
) -> tuple[tuple[float, float], ...]:
    """Return at most `points` of (end of an interval, mean over it): means of neighbours, so that
    the mean over equal intervals stays the same. Shorter series are returned unchanged."""
    if len(series) <= points:
        return tuple(series)
    size = -(-len(series) // points)
    parts = [series[i : i + size] for i in range(0, len(series), size)]
    return tuple((part[-1][0], sum(y for _, y in part) / len(part)) for part in parts)


def per_minute(
    samples: Sequence[RateSample], begin: float, end: float
) -> tuple[tuple[float, float], ...]:
    """Return (end of a minute in seconds after `begin`, mean rate) where samples cover the
    minute."""
    found = []
    minute = begin
    last = max((sample.time_s for sample in samples), default=begin)
    while minute < min(end, last, begin + MOST_S):
        until = min(minute + 60.0, end)
        rate = metrics.mean_rate(samples, minute, until)
        if rate is not None:
            found.append((until - begin, rate))
        minute += 60.0
    return tuple(found)


def input_series(
    inserted: Sequence[Product], begin: float, end: float
) -> tuple[tuple[float, float], ...]:
    """Return (end of a second after `begin`, bit/s of the files created in it)."""
    if not inserted:
        return ()
    seconds = [0.0] * max(1, int(min(end - begin, MOST_S)) + 1)
    for product in inserted:
        second = int(product.created_us / MICROSECONDS - begin)
        if 0 <= second < len(seconds):
            seconds[second] += 8.0 * product.size_bytes
    return tuple((i + 1.0, rate) for i, rate in enumerate(seconds))


def arrivals(inserted: Sequence[Product], begin: float) -> tuple[tuple[float, int], ...]:
    """Return (seconds after `begin` at which a file was created, its bytes), in the order of
    creation."""
    return tuple(sorted((p.created_us / MICROSECONDS - begin, p.size_bytes) for p in inserted))


def cpu_series(
    samples: Sequence[CpuSample], cores: int, begin: float
) -> tuple[tuple[float, float], ...]:
    """Return Phi over consecutive windows of at least CPU_WINDOW_S (the blocks' spacing if
    longer)."""
    found = []
    totals = metrics.cumulative_cpu(samples)
    if not totals:
        return ()
    last_s, last_cpu_s = totals[0]
    for time_s, cpu_s in totals[1:]:
        span = time_s - last_s
        if span >= CPU_WINDOW_S - 0.5:
            share = 100.0 * max(0.0, cpu_s - last_cpu_s) / (span * cores)
            found.append((time_s - begin, share))
            last_s, last_cpu_s = time_s, cpu_s
    return tuple(found)
