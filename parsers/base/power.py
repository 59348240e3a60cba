# SPDX-License-Identifier: Apache-2.0
"""Compute which difference an interval could have seen, and how many repeats would decide.

Both assume a paired t test at 5 %, two-sided, with a power of 80 %: if the true difference has this
size, the intervals of four in five runs exclude 0.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
from scipy import optimize, stats

from parsers.base.intervals import CONFIDENCE, Estimate

POWER: Final = 0.8
MOST_REPEATS: Final = 1000  # advice to run more would be useless
# With normal quantiles, for intervals that are not based on repeats.
_FACTOR: Final = float(stats.norm.ppf(0.5 + CONFIDENCE / 2) + stats.norm.ppf(POWER))


@cache
def least_effect(repeats: int) -> float:
    """Return the least true mean, in standard deviations of one repeat, that `repeats` can see.
    Raises ValueError below two."""
    if repeats < 2:
        raise ValueError(f"{repeats} repeats have no interval")
    limit = float(stats.t.ppf(0.5 + CONFIDENCE / 2, repeats - 1))

    def lacking(effect: float) -> float:
        return float(stats.nct.sf(limit, repeats - 1, effect * math.sqrt(repeats))) - POWER

    return float(optimize.brentq(lacking, 1e-6, 60.0))


def repeats_for(effect: float, spread: float) -> int | None:
    """Return how many repeats can see a true mean `effect` of values with a standard deviation
    `spread`; None if more than MOST_REPEATS."""
    if spread <= 0:
        return 2 if effect else None
    wanted = abs(effect) / spread
    if wanted < least_effect(MOST_REPEATS):
        return None
    low, high = 2, MOST_REPEATS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if least_effect(middle) <= wanted else (middle + 1, high)
    return low


@cache
def signs_for(share: float) -> int | None:
    """Return how many pairs let the sign test see that one side has this share of them; None if
    more than MOST_REPEATS."""
    share = max(share, 1 - share)
    for pairs in range(2, MOST_REPEATS + 1):
        # The least number on one side that the two-sided test finds too many.
        least = int(stats.binom.isf((1 - CONFIDENCE) / 2, pairs, 0.5)) + 1
        if least <= pairs and stats.binom.sf(least - 1, pairs, share) >= POWER:
            return pairs
    return None


def spread_of(found: Estimate) -> float:
    """Return the standard deviation of one repeat. For an interval that is not from repeats, return
    the value that gives its width with `n` repeats."""
    if len(found.values) > 1:
        return float(np.std(found.values, ddof=1))
    half = (found.high - found.low) / 2
    return half / float(stats.norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt(found.n)


def visible(found: Estimate) -> float | None:
    """Return the least true difference that an interval like this one can see; None without one."""
    if not found.has_interval:
        return None
    if len(found.values) > 1:
        return least_effect(len(found.values)) * spread_of(found)
    return _FACTOR * spread_of(found) / math.sqrt(found.n)
