# SPDX-License-Identifier: Apache-2.0
"""Generate NGRID-like hours: product sizes and inter-arrival gaps with their correlation.

The papers replay one hour of the NGRID feed (15 June 2015, 00:00-01:00 UTC: 28,166 products, 5.55
GB; MPUP16 Table II and V-F). Its metadata may be unavailable, so this module makes hours that
behave like it. Four things are taken from the real hour, as numbers only:

* the marginal distributions of size and gap, as quantile tables (`QUANTILES`);
* the autocorrelation of both series and their cross-correlation, in normal scores, over lags of
  1 to 4000 products, fitted by four shared first-order autoregressive components plus white noise
  (`COMPONENTS`, `NOISE_CORRELATION`); least squares with weights 1/sqrt(lag), largest residual
  0.05;
* a slow modulation of the upper tail of the sizes (`TailModulation`), without which the rate per
  minute varies half as much as it did; its gain was chosen so that the standard deviation of the
  60 per-minute rates is the real hour's (7.9 Mbit/s);
* the number of products.

The marginals are imposed by rank (Iman and Conover, 1982: a Gaussian dependence structure whose
ranks index the tables), so every seed carries the same set of sizes and gaps, hence the same mean
rate over the hour; seeds differ in the order, that is, in the bursts.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

PRODUCTS: Final = 28_166
HOUR_S: Final = 3600.0
START: Final = datetime.datetime(2015, 6, 15, tzinfo=datetime.UTC)

# (probability, size in bytes, gap to the product before in ms), from the real hour.
QUANTILES: Final[tuple[tuple[float, int, float], ...]] = (
    (0, 217, 0),
    (0.0005, 217, 0),
    (0.002, 240, 0),
    (0.005, 297, 0),
    (0.01, 1428, 0),
    (0.02, 4609, 0),
    (0.035, 6766, 1),
    (0.05, 8583, 1),
    (0.075, 11669, 1),
    (0.1, 14104, 2),
    (0.15, 16334, 2),
    (0.2, 22799, 3),
    (0.25, 26620, 3),
    (0.3, 30304, 4),
    (0.35, 31762, 4),
    (0.4, 32952, 5),
    (0.45, 34040, 6),
    (0.5, 39080, 8),
    (0.55, 49636, 10),
    (0.6, 55336, 12),
    (0.65, 64200, 16),
    (0.7, 79563, 22),
    (0.75, 96083, 34),
    (0.775, 110473, 44),
    (0.8, 119817, 76),
    (0.825, 182419, 133),
    (0.85, 257321, 170),
    (0.875, 294458, 213),
    (0.9, 357348, 297),
    (0.91, 387546, 388.3),
    (0.92, 452516, 458),
    (0.93, 566106, 504),
    (0.94, 1179049, 549),
    (0.95, 1253922, 705.8),
    (0.96, 1366783, 851),
    (0.97, 1550744, 1261),
    (0.975, 1766204, 1475.1),
    (0.98, 1893689, 1662),
    (0.985, 2031371, 1781),
    (0.99, 2212405, 1863),
    (0.9925, 2583527, 1901),
    (0.995, 3054732, 1938.3),
    (0.9965, 3955378, 1987),
    (0.998, 4430722, 2869.7),
    (0.999, 5169138, 4736),
    (0.9995, 5907554, 6077.8),
    (0.9998, 14018713, 10268.4),
    (1, 53932143, 19486),
)


@dataclass(frozen=True)
class Component:
    """A shared autoregressive component: weights in the normal scores of size and gap, and the
    time constant in products."""

    size_weight: float
    gap_weight: float
    tau_products: float


COMPONENTS: Final = (
    Component(0.252, 0.674, 0.862),
    Component(0.254, 0.115, 7.28),
    Component(0.717, 0.515, 78.9),
    Component(0.221, 0.166, 10_960.0),
)
NOISE_CORRELATION: Final = 0.174  # of the white remainders of size and gap
# Normal scores of size above TAIL_START are stretched by exp(gain * a unit AR(1) process).
TAIL_START: Final = 0.3


@dataclass(frozen=True)
class TailModulation:
    """How much the sizes' upper tail swells and shrinks, and for how many products."""

    gain: float = 0.4
    tau_products: float = 1500.0


@dataclass(frozen=True)
class Arrival:
    """One product: its size and its creation time, in ms after the hour's start."""

    size_bytes: int
    time_ms: int

    @property
    def time_us(self) -> int:
        """Return the creation time in microseconds."""
        return self.time_ms * 1000


@dataclass(frozen=True)
class ModelRow:
    """One statistic: the published hour's value, and the generated hour's."""

    name: str
    unit: str
    published: float
    model: float

    @property
    def difference(self) -> float:
        """Return the deviation relative to the published value."""
        return self.model / self.published - 1.0

    def to_dict(self) -> dict[str, float | str]:
        """Return the row for cell.json."""
        return {
            "statistic": f"{self.name} ({self.unit})" if self.unit else self.name,
            "published": self.published,
            "model": self.model,
            "difference": f"{100 * self.difference:+.1f} %",
        }


def _autoregressive(rng: np.random.Generator, tau: float, count: int) -> NDArray[np.float64]:
    """Return a stationary unit-variance AR(1) whose autocorrelation at lag k is exp(-k/tau)."""
    phi = float(np.exp(-1.0 / tau))
    innovations = rng.standard_normal(count)
    innovations[1:] *= np.sqrt(1.0 - phi * phi)
    out = np.empty(count)
    value = 0.0
    for i, step in enumerate(innovations):
        value = phi * value + float(step)
        out[i] = value
    return out


def _ranked(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `values` (ascending) in the order of the scores' ranks."""
    out = np.empty_like(values)
    out[np.argsort(scores, kind="stable")] = values
    return out


def _marginals(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `count` ascending sizes (bytes) and gaps (ms): the tables, interpolated in the
    logarithm (gaps + 0.5 ms, because the smallest are 0)."""
    table = np.array(QUANTILES)
    at = np.linspace(0.0, 1.0, count)
    sizes = np.exp(np.interp(at, table[:, 0], np.log(table[:, 1])))
    gaps = np.exp(np.interp(at, table[:, 0], np.log(table[:, 2] + 0.5))) - 0.5
    return np.maximum(np.rint(sizes), 1.0), np.maximum(np.rint(gaps), 0.0)


def generate_hour(seed: int) -> list[Arrival]:
    """Generate an NGRID-like hour: 28,166 products in order of time. The same seed gives the same
    hour."""
    sizes, gaps_ms = draw(seed, TailModulation())
    times_ms = np.cumsum(gaps_ms)
    return [Arrival(int(s), int(t)) for s, t in zip(sizes, times_ms, strict=True)]


def draw(seed: int, modulation: TailModulation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the sizes in bytes, and the gap before each product in ms."""
    return arranged(seed, modulation, *_marginals(PRODUCTS))


def arranged(
    seed: int,
    modulation: TailModulation,
    sizes: NDArray[np.float64],
    gaps: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return as many ascending sizes as gaps, in an order that has the real hour's dependence."""
    rng = np.random.default_rng(seed)
    count = len(sizes)
    size_score = np.zeros(count)
    gap_score = np.zeros(count)
    for component in COMPONENTS:
        common = _autoregressive(rng, component.tau_products, count)
        size_score += component.size_weight * common
        gap_score += component.gap_weight * common
    size_noise = np.sqrt(1.0 - sum(c.size_weight**2 for c in COMPONENTS))
    gap_noise = np.sqrt(1.0 - sum(c.gap_weight**2 for c in COMPONENTS))
    white = rng.standard_normal((2, count))
    rho = NOISE_CORRELATION
    size_score += size_noise * white[0]
    gap_score += gap_noise * (rho * white[0] + np.sqrt(1.0 - rho * rho) * white[1])
    tail = np.maximum(size_score - TAIL_START, 0.0)
    slow = _autoregressive(rng, modulation.tau_products, count)
    size_score += tail * (np.exp(modulation.gain * slow) - 1.0)
    return _ranked(size_score, sizes), _ranked(gap_score, gaps)


def stamp(time_us: int) -> str:
    """Return `YYYYMMDDhhmmss.mmm`, or 6 decimals if the time has microseconds (UTC)."""
    moment = datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC)
    fraction = time_us % 1_000_000
    decimals = f"{fraction:06d}" if fraction % 1000 else f"{fraction // 1000:03d}"
    return f"{moment:%Y%m%d%H%M%S}.{decimals}"


def format_trace(arrivals: Sequence[Arrival]) -> str:
    """Write products in the papers' format: `size_bytes YYYYMMDDhhmmss.mmm` per line."""
    start_us = int(START.timestamp()) * 1_000_000
    return "".join(f"{a.size_bytes} {stamp(start_us + a.time_ms * 1000)}\n" for a in arrivals)


# Statistics of the real hour. Those of sizes, gaps and mean rate are published with the data set
# and (gaps: 75 %, 90 %, 99 %) in MPUP16 V-F; those per minute are computed from the hour.
PUBLISHED: Final[tuple[tuple[str, str, float], ...]] = (
    ("products", "count", 28_166),
    ("mean rate", "Mbit/s", 12.33),
    ("size, median", "B", 39_080),
    ("size, 75 %", "B", 96_083),
    ("size, 90 %", "B", 357_348),
    ("size, 99 %", "B", 2_212_405),
    ("size, largest", "B", 53_932_143),
    ("gap, median", "ms", 8),
    ("gap, 75 %", "ms", 34),
    ("gap, 90 %", "ms", 297),
    ("gap, 99 %", "ms", 1863),
    ("rate per minute, lowest", "Mbit/s", 1.6),
    ("rate per minute, median", "Mbit/s", 12.9),
    ("rate per minute, highest", "Mbit/s", 26.7),
    ("rate per minute, standard deviation", "Mbit/s", 7.88),
    ("rank correlation of size and gap before", "", 0.69),
    ("rank autocorrelation of size, lag 1", "", 0.64),
    ("rank autocorrelation of size, lag 50", "", 0.34),
)


def _scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standardised ranks: the mean product of two such series is Spearman's correlation."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    standardised: NDArray[np.float64] = (ranks - ranks.mean()) / ranks.std()
    return standardised


def minute_rates_mbps(arrivals: Sequence[Arrival]) -> NDArray[np.float64]:
    """Return the offered load in each of the hour's 60 minutes, in Mbit/s."""
    rates = np.zeros(60)
    for arrival in arrivals:
        minute = arrival.time_ms // 60_000
        if minute < 60:
            rates[minute] += arrival.size_bytes * 8 / 60 / 1e6
    return rates


def statistics(arrivals: Sequence[Arrival]) -> list[float]:
    """Compute the statistics of `PUBLISHED`, in its order, for an hour of products."""
    sizes = np.array([a.size_bytes for a in arrivals], dtype=np.float64)
    times = np.array([a.time_ms for a in arrivals], dtype=np.float64)
    gaps = np.diff(times, prepend=0.0)
    rates = minute_rates_mbps(arrivals)
    size_scores, gap_scores = _scores(sizes), _scores(gaps)
    return [
        float(len(arrivals)),
        float(sizes.sum() * 8 / HOUR_S / 1e6),
        *(float(np.quantile(sizes, q)) for q in (0.5, 0.75, 0.9, 0.99, 1.0)),
        *(float(np.quantile(gaps[1:], q)) for q in (0.5, 0.75, 0.9, 0.99)),
        float(rates.min()),
        float(np.median(rates)),
        float(rates.max()),
        float(rates.std()),
        float(np.mean(size_scores * gap_scores)),
        float(np.mean(size_scores[:-1] * size_scores[1:])),
        float(np.mean(size_scores[:-50] * size_scores[50:])),
    ]


def model_check(arrivals: Sequence[Arrival]) -> list[ModelRow]:
    """Compare a generated hour with the published one."""
    found = statistics(arrivals)
    return [
        ModelRow(name, unit, published, value)
        for (name, unit, published), value in zip(PUBLISHED, found, strict=True)
    ]
