# SPDX-License-Identifier: Apache-2.0
"""Generators of hours of other feeds, `trace: model:NAME`, from published figures.

| name | published | source |
|---|---|---|
| conduit | 87,792.9 products and 7,887.856 MB in the mean hour | IDD17 |
| nexrad2 | 62,359.45 products and 5,387.548 MB in the mean hour | IDD17 |
| nexrad3 | 90,171.375 products and 1,803.479 MB in the mean hour | IDD17 |
| ngrid-2020 | 45,703 products; sizes and gaps: median, interquartile range | DRFSM21 4, 5.3 |

IDD17 is a status report (docs/references.md): the volumes that a server of Unidata received,
averaged over a day's hours. Its highest hours (21,436, 7,704 and 2,402 MB) are not modelled.

Nothing else is published, so the rest is assumed:

* IDD17's "M byte" is 10^6 bytes.
* conduit: sizes and gaps have the shape, and the dependence, of the NGRID hour of `trace_model`,
  because both feeds carry output of numerical models.
* nexrad2, nexrad3: gaps are exponential, because about 160 radars send independently. Sizes are
exponential too, which assumes least where only a mean is known. The order is random.
* ngrid-2020: up to the third quartile, sizes and gaps are those of `trace_model`, with their
logarithms stretched about the median until the published interquartile range is met. Above it,
sizes keep their ratio to the third quartile, and gaps are stretched until the products fill the
hour. So the volume is a guess. Dependence as in `trace_model`.

As there, every seed has the same sizes and gaps in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments.design.trace_model import (
    HOUR_S,
    QUANTILES,
    ModelRow,
    TailModulation,
    arranged,
)

Floats = NDArray[np.float64]
HOUR_MS: Final = HOUR_S * 1000
QUARTILES: Final = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Arrival:
    """One product: its size and its creation time, in microseconds after the hour's start."""

    size_bytes: int
    time_us: int


@dataclass(frozen=True)
class MeanHour:
    """IDD17's figures for a feed: means over the hours of a day."""

    products: float
    volume_mb: float

    @property
    def count(self) -> int:
        """Return the products of an hour."""
        return round(self.products)

    @property
    def mean_bytes(self) -> float:
        """Return the mean size of a product."""
        return self.volume_mb * 1e6 / self.products

    @property
    def published(self) -> tuple[tuple[str, str, float], ...]:
        """Return name, unit and value of each statistic."""
        return (
            ("products", "count", self.products),
            ("volume", "MB", self.volume_mb),
            ("size, mean", "B", self.mean_bytes),
        )

    def measured(self, sizes: Floats, _gaps_ms: Floats) -> tuple[float, ...]:
        """Return the same statistics of an hour."""
        return float(len(sizes)), float(sizes.sum()) / 1e6, float(sizes.mean())


@dataclass(frozen=True)
class Quartiles:
    """DRFSM21's figures for an hour."""

    count: int
    size_median: float
    size_range: float
    gap_median_ms: float
    gap_range_ms: float

    @property
    def published(self) -> tuple[tuple[str, str, float], ...]:
        """Return name, unit and value of each statistic."""
        return (
            ("products", "count", self.count),
            ("size, median", "B", self.size_median),
            ("size, interquartile range", "B", self.size_range),
            ("gap, median", "ms", self.gap_median_ms),
            ("gap, interquartile range", "ms", self.gap_range_ms),
        )

    def measured(self, sizes: Floats, gaps_ms: Floats) -> tuple[float, ...]:
        """Return the same statistics of an hour."""
        found = [float(len(sizes))]
        for values in (sizes, gaps_ms[1:]):
            low, middle, high = np.quantile(values, QUARTILES)
            found += [float(middle), float(high - low)]
        return tuple(found)


@dataclass(frozen=True)
class FeedModel:
    """A feed's hours: from a seed, `draw` makes sizes (bytes) and the gap before each (ms)."""

    title: str
    facts: MeanHour | Quartiles
    draw: Callable[[int], tuple[Floats, Floats]]

    def generate(self, seed: int) -> list[Arrival]:
        """Generate an hour in order of time. The same seed gives the same hour."""
        sizes, gaps_ms = self.draw(seed)
        times_us = np.rint(np.cumsum(gaps_ms) * 1000)
        return [
            Arrival(int(size), int(time))
            for size, time in zip(np.maximum(np.rint(sizes), 1), times_us, strict=True)
        ]

    def check(self, hour: Sequence[Arrival]) -> list[ModelRow]:
        """Compare a generated hour with what is published."""
        sizes = np.array([a.size_bytes for a in hour], dtype=np.float64)
        gaps_ms = np.diff([a.time_us / 1000 for a in hour], prepend=0.0)
        found = self.facts.measured(sizes, gaps_ms)
        return [
            ModelRow(name, unit, published, value)
            for (name, unit, published), value in zip(self.facts.published, found, strict=True)
        ]


def _shape(column: int, count: int) -> Floats:
    """Return `count` ascending sizes (1) or gaps (2) of the NGRID hour, not rounded."""
    table, floor = np.array(QUANTILES), 0.5 if column == 2 else 0.0
    at = np.linspace(0.0, 1.0, count)
    return np.exp(np.interp(at, table[:, 0], np.log(table[:, column] + floor))) - floor


def _with_mean(values: Floats, mean: float) -> Floats:
    return values * (mean / float(values.mean()))


def _like_ngrid(facts: MeanHour) -> Callable[[int], tuple[Floats, Floats]]:
    sizes = _with_mean(_shape(1, facts.count), facts.mean_bytes)
    gaps = _with_mean(_shape(2, facts.count), HOUR_MS / facts.count)
    return lambda seed: arranged(seed, TailModulation(), sizes, gaps)


def _independent(facts: MeanHour) -> Callable[[int], tuple[Floats, Floats]]:
    middles = (np.arange(facts.count) + 0.5) / facts.count
    quantiles = -np.log1p(-middles)  # of the exponential distribution with mean 1
    sizes = _with_mean(quantiles, facts.mean_bytes)
    gaps = _with_mean(quantiles, HOUR_MS / facts.count)

    def draw(seed: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(seed)
        return rng.permutation(sizes), rng.permutation(gaps)

    return draw


def _body(values: Floats, median: float, spread: float) -> Floats:
    """Return values whose logarithms are stretched about `median` until their interquartile range
    is `spread`; values above the third quartile keep their ratio to it."""
    low, middle, high = (float(q) for q in np.quantile(values, QUARTILES))

    def excess(power: float) -> float:
        return median * float((high / middle) ** power - (low / middle) ** power) - spread

    power = float(brentq(excess, 0.1, 10.0))
    third = median * (high / middle) ** power
    return np.where(values <= high, median * (values / middle) ** power, third * values / high)


def _filling(gaps: Floats) -> Floats:
    """Return gaps whose upper quarter is stretched until they fill the hour."""
    third = float(np.quantile(gaps, 0.75))

    def stretched(power: float) -> Floats:
        return np.where(gaps <= third, gaps, third * (gaps / third) ** power)

    power = float(brentq(lambda p: float(stretched(p).sum()) - HOUR_MS, 0.1, 3.0))
    return stretched(power)


def _like_quartiles(facts: Quartiles) -> Callable[[int], tuple[Floats, Floats]]:
    sizes = _body(_shape(1, facts.count), facts.size_median, facts.size_range)
    gaps = _body(_shape(2, facts.count), facts.gap_median_ms, facts.gap_range_ms)
    filling = _filling(gaps)
    return lambda seed: arranged(seed, TailModulation(), sizes, filling)


CONDUIT: Final = MeanHour(87_792.9, 7_887.856)
NEXRAD2: Final = MeanHour(62_359.45, 5_387.548)
NEXRAD3: Final = MeanHour(90_171.375, 1_803.479)
NGRID_2020: Final = Quartiles(45_703, 31_290, 118_618, 4.16, 23.79)

MODELS: Final = {
    "conduit": FeedModel("CONDUIT", CONDUIT, _like_ngrid(CONDUIT)),
    "nexrad2": FeedModel("NEXRAD level 2", NEXRAD2, _independent(NEXRAD2)),
    "nexrad3": FeedModel("NEXRAD level 3", NEXRAD3, _independent(NEXRAD3)),
    "ngrid-2020": FeedModel("NGRID July 2020", NGRID_2020, _like_quartiles(NGRID_2020)),
}
