# SPDX-License-Identifier: Apache-2.0
"""A recording: the series of one source and their values over time."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

GONE: Final = -1  # instead of a value: the process or receiver is no longer there
MOST_VALUE: Final = 2**63 - 1
MOST_SERIES: Final = 50_000
SAMPLED: Final = "sampled"  # the series that has a value whenever a sample was taken
KINDS: Final = ("counter", "gauge")
MOST_DECIMALS: Final = 9  # of a series
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,254}", re.ASCII)
_LABEL: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)


@dataclass(frozen=True)
class Series:
    """What is counted. Values are integers in units of 10^-decimals of the unit in the name."""

    name: str
    kind: str
    decimals: int = 0
    help: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return the key that distinguishes series."""
        return self.name, self.labels


def labels_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels in the order in which they are compared."""
    return tuple(sorted(labels.items()))


def wrong_name(series: Series) -> str:
    """Return what Prometheus would refuse of a series' names; "" if nothing."""
    if not _NAME.fullmatch(series.name):
        return f"found metric {series.name[:60]!r}; valid: letters, digits, _ and :"
    for key, _ in series.labels:
        if not _LABEL.fullmatch(key):
            return f"found label {key[:60]!r}; valid: letters, digits and _, without __ first"
    return ""


@dataclass
class Points:
    """Values of a series by time, in order of arrival. Times: µs since 1970."""

    times_us: array[int] = field(default_factory=lambda: array("q"))
    values: array[int] = field(default_factory=lambda: array("q"))

    def add(self, time_us: int, value: int) -> None:
        """Append a value."""
        self.times_us.append(time_us)
        self.values.append(value)

    def replace(self, time_us: int, value: int) -> None:
        """Keep only this value."""
        del self.times_us[:], self.values[:]
        self.add(time_us, value)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.times_us, self.values, strict=True)


@dataclass
class Recording:
    """Each value holds until the next value, or until GONE. `bad`: how many lines were left out,
    and the first of them."""

    points: dict[Series, Points] = field(default_factory=dict)
    bad: int = 0
    first_bad: str = ""

    def of(self, series: Series) -> Points:
        """Return the points of a series, new ones if it has none yet."""
        return self.points.setdefault(series, Points())


def shown(value: int, decimals: int) -> str:
    """Return `value`, in units of 10^-decimals, as an exact decimal number."""
    if decimals == 0:
        return str(value)
    whole, rest = divmod(value, 10**decimals)
    return f"{whole}.{rest:0{decimals}d}"
