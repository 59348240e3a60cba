# SPDX-License-Identifier: Apache-2.0
"""Compute intervals of one run's metric by a moving-block bootstrap over time (Kuensch 1989).

Each piece of a run depends on the pieces before it: the stream is bursty on all scales, and queues
have memory. So the bootstrap draws blocks of neighbouring pieces, not single pieces. A block's
length follows from the autocorrelation (Politis and White 2004, corrected by Patton, Politis and
White 2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1999
SEED = 20150615  # of every bootstrap, so that the same values give the same interval
LEAST_PIECES = 10  # with fewer there is no interval


@dataclass(frozen=True, eq=False)
class OverTime:
    """A metric as a ratio of sums over pieces of a run: the mean over the columns (receivers) of
    sum(top) / sum(bottom). Rows are pieces in order of time. `long_enough`: the run is long enough
    for its pieces to show its variation."""

    top: Floats
    bottom: Floats
    long_enough: bool = True

    @property
    def pieces(self) -> int:
        """Return the number of pieces."""
        return len(self.top)

    def value(self, pieces: int | None = None) -> float | None:
        """Return the metric of the first `pieces` (None: of all); None if it is undefined."""
        top, bottom = self.top[:pieces].sum(axis=0), self.bottom[:pieces].sum(axis=0)
        return float((top / bottom).mean()) if len(bottom) and bottom.all() else None


@dataclass(frozen=True)
class Interval:
    """The ends of a 95 % interval, and how many pieces a block had."""

    low: float
    high: float
    block: int


def interval_of(data: OverTime) -> Interval | None:
    """Return the metric's interval; None if there are too few pieces."""
    if not data.long_enough or data.pieces < LEAST_PIECES or data.value() is None:
        return None
    block = block_length(_influence(data))
    return _ends(_resampled(data, _weights(data.pieces, block)), block)


def interval_of_ratio(a: OverTime, b: OverTime) -> Interval | None:
    """Return the interval of a / b over the same pieces, each block drawn from both. None if there
    are too few pieces, if the pieces differ, or if a value is not above 0."""
    if a.pieces != b.pieces or not (a.long_enough and b.long_enough) or a.pieces < LEAST_PIECES:
        return None
    values = a.value(), b.value()
    if values[0] is None or values[1] is None or min(values[0], values[1]) <= 0:
        return None
    block = block_length(_influence(a) / values[0] - _influence(b) / values[1])
    weights = _weights(a.pieces, block)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = _resampled(a, weights) / _resampled(b, weights)
    return _ends(ratios, block)


def interval_of_difference(a: OverTime, b: OverTime) -> Interval | None:
    """Return the interval of a - b in the same way."""
    if a.pieces != b.pieces or not (a.long_enough and b.long_enough) or a.pieces < LEAST_PIECES:
        return None
    if a.value() is None or b.value() is None:
        return None
    block = block_length(_influence(a) - _influence(b))
    weights = _weights(a.pieces, block)
    return _ends(_resampled(a, weights) - _resampled(b, weights), block)


def interval_of_statistic(values: Floats, statistic: Callable[..., Any]) -> Interval | None:
    """Return the interval of a statistic (`np.median`; must take `axis`) of values in order of
    time; None if there are too few."""
    n = len(values)
    if n < LEAST_PIECES:
        return None
    block = block_length(values)
    return _ends(np.asarray(statistic(values[_drawn(n, block)], axis=-1)), block)


def _influence(data: OverTime) -> Floats:
    """Return what each piece adds to the metric, to first order, times the number of pieces."""
    bottom = data.bottom.sum(axis=0)
    share = data.top - data.top.sum(axis=0) / bottom * data.bottom
    found: Floats = (share / bottom).mean(axis=1) * data.pieces
    return found


def _drawn(pieces: int, block: int) -> NDArray[np.int64]:
    """Return which pieces are drawn, a row for each resample."""
    rng = np.random.default_rng(SEED)
    starts = rng.integers(0, pieces - block + 1, size=(RESAMPLES, math.ceil(pieces / block)))
    return (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :pieces]


def _weights(pieces: int, block: int) -> Floats:
    """Return how many times each piece is drawn, a row for each resample."""
    places = _drawn(pieces, block) + pieces * np.arange(RESAMPLES)[:, None]
    counts = np.bincount(places.ravel(), minlength=RESAMPLES * pieces)
    return counts.reshape(RESAMPLES, pieces).astype(np.float64)


def _resampled(data: OverTime, weights: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = ((weights @ data.top) / (weights @ data.bottom)).mean(axis=1)
    return found


def _ends(found: Floats, block: int) -> Interval | None:
    defined = found[np.isfinite(found)]
    if len(defined) < 0.9 * len(found):  # too many resamples have no arrivals
        return None
    low, high = np.percentile(defined, [2.5, 97.5])
    return Interval(float(low), float(high), block)


def block_length(values: Floats) -> int:
    """Return how many neighbouring values a block has, from 1 to a third of them."""
    n = len(values)
    centred = values - values.mean()
    variance = float(centred @ centred) / n
    if n < 4 or variance <= 1e-24 * float(np.abs(values).max(initial=0.0)) ** 2:
        return 1
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(n))))
    most_lags = min(n - 1, math.ceil(math.sqrt(n)) + in_a_row)
    covariances = np.array([centred[k:] @ centred[: n - k] / n for k in range(most_lags + 1)])
    small = np.abs(covariances[1:] / variance) < 2 * math.sqrt(math.log10(n) / n)
    last = next(
        (m for m in range(len(small)) if small[m : m + in_a_row].all()), len(small)
    )  # the last lag with a correlation
    lags = min(2 * max(last, 1), most_lags)
    k = np.arange(1, lags + 1)
    taper = np.minimum(1.0, 2 * (1 - k / lags))  # flat, then falling to 0
    slope = 2 * float(taper * k @ covariances[1 : lags + 1])
    level = float(covariances[0]) + 2 * float(taper @ covariances[1 : lags + 1])
    if level <= 0:
        return 1
    ideal = (1.5 * (slope / level) ** 2 * n) ** (1 / 3)
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    return int(min(max(1, math.ceil(ideal)), longest))
