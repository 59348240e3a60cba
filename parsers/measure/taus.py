# SPDX-License-Identifier: Apache-2.0
"""Compute DRFSM21's metrics in each interval tau (3.2) at each subscriber, as in its Fig. 8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from parsers.base.times import MICROSECONDS
from parsers.measure import metrics
from parsers.measure.deliveries import Arrival
from parsers.measure.metrics import FmtpFile, FmtpMetrics
from parsers.read.ldm_log import Product

INTERVALS_S = (60, 30, 10, 5, 2, 1)
LEAST_INTERVALS = 10


@dataclass(frozen=True, slots=True)
class Tau:
    """Metrics of the files that arrived in an interval. `end_s`: after the first insertion."""

    end_s: float
    fmtp: FmtpMetrics


def interval_s(duration_s: float) -> int:
    """Return the longest of INTERVALS_S of which the run has at least LEAST_INTERVALS."""
    return next((i for i in INTERVALS_S if duration_s / i >= LEAST_INTERVALS), INTERVALS_S[-1])


def fmtp_of(arrivals: Iterable[tuple[Product, Arrival]]) -> FmtpMetrics:
    """Return DRFSM21 3.2's metrics of some files at one subscriber."""
    files, backstop = [], []
    for product, arrival in arrivals:
        if arrival.how == "fmtp" and arrival.delay_s is not None:
            files.append(FmtpFile(product.size_bytes, arrival.delay_s, arrival.retrans))
        elif arrival.how == "backstop":
            backstop.append(product.size_bytes)
    return metrics.fmtp_metrics(sorted(files, key=attrgetter("delay_s")), backstop)


def per_tau(arrivals: Mapping[Product, Arrival], begin_s: float, width_s: float) -> tuple[Tau, ...]:
    """Return the metrics of each interval of `width_s` after `begin_s` (epoch) in which a file
    arrived."""
    found: dict[int, list[tuple[Product, Arrival]]] = {}
    for product, arrival in arrivals.items():
        number = int((arrival.time_us / MICROSECONDS - begin_s) // width_s)
        found.setdefault(max(0, number), []).append((product, arrival))
    return tuple(Tau((n + 1) * width_s, fmtp_of(found[n])) for n in sorted(found))
