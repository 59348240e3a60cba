# SPDX-License-Identifier: Apache-2.0
"""Compute how much less of a resource the same performance needs (DRFSM21 5.4: the VLAN rate at
which LDM6 reaches LDM7's throughput)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from parsers.base import intervals
from parsers.base.intervals import Estimate

Bound = Literal["", "at least", "at most"]


@dataclass(frozen=True)
class Saving:
    """`share`: 1 - level / `needed`, over the repeats. `needed`: the mean level at which the other
    line reaches the same value. `bound`: "at least" if some repeat does not reach the value within
    the measured levels; "at most" if some repeat is above the value at the lowest level."""

    share: Estimate
    needed: float
    bound: Bound


def saving(
    level: float, value: Estimate, levels: Sequence[float], values: Sequence[Estimate]
) -> Saving | None:
    """Return what `level` with `value` saves against the line of `levels` (ascending) and `values`.

    Between two levels the line is straight. Each repeat is compared with itself. None if no repeat
    has all values, or if the repeats disagree on whether the line reaches the value.
    """
    shares: list[float] = []
    needed: list[float] = []
    bounds: set[Bound] = set()
    repeats = value.repeats or (0,)
    kept = []
    for position, repeat in enumerate(repeats):
        line = [_of_repeat(v, repeat) for v in values]
        if any(v is None for v in line):
            continue
        wanted = value.values[position] if value.values else value.mean
        reached, bound = _level_of(wanted, levels, [v for v in line if v is not None])
        if reached <= 0:
            continue
        needed.append(reached)
        shares.append(1 - level / reached)
        kept.append(repeat)
        bounds.add(bound)
    if not shares or {"at least", "at most"} <= bounds:
        return None
    bound = next((b for b in bounds if b), "")
    return Saving(intervals.over_repeats(shares, kept), sum(needed) / len(needed), bound)


def _of_repeat(estimate: Estimate, repeat: int) -> float | None:
    if not estimate.values:
        return estimate.mean
    if not estimate.repeats:
        return estimate.values[0] if len(estimate.values) == 1 else None
    if repeat not in estimate.repeats:
        return None
    return estimate.values[estimate.repeats.index(repeat)]


def _level_of(wanted: float, levels: Sequence[float], line: Sequence[float]) -> tuple[float, Bound]:
    """Return the lowest level at which the line reaches `wanted`."""
    if line[0] >= wanted:
        return levels[0], "" if line[0] == wanted else "at most"
    for i in range(1, len(line)):
        if line[i] >= wanted:
            part = (wanted - line[i - 1]) / (line[i] - line[i - 1])
            return levels[i - 1] + part * (levels[i] - levels[i - 1]), ""
    return levels[-1], "at least"
