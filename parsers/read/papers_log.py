# SPDX-License-Identifier: Apache-2.0
"""Parse logs of the LDM7 and LDM6 of 2015/16, by the columns that the papers' scripts use.

Columns are separated by white space and count from 0. Column 0 is the time of arrival,
`YYYYMMDDThhmmss.ffffffZ`.

    FMTP        a line with 'mldm', later 'Received': size in column 6, creation in column 7
    backstop    a line with 'down7', later 'Inserted': size in column 5, creation in column 6
    LDM6        every other line with a size in column 3 and a creation time in column 4

The last column is the product's index: pq_test_insert numbered the products of a trace and used the
numbers as names. Other lines are counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from parsers.base.problems import (
    Lines,
    Problem,
    complete_lines,
    problem,
)
from parsers.base.times import MICROSECONDS, utc_microseconds
from parsers.read.ldm_log import How

_ARRIVAL = re.compile(r"(\d{8})T(\d{6})\.(\d{1,6})Z?", re.ASCII)
_CREATION = re.compile(r"(\d{14})\.(\d{1,6})", re.ASCII)
_FMTP = re.compile(r"mldm.*Received")
_BACKSTOP = re.compile(r"down7.*Inserted")


@dataclass(frozen=True, slots=True)
class PapersDelivery:
    time_us: int
    how: How
    size_bytes: int
    created_us: int
    index: int

    @property
    def latency_s(self) -> float:
        """Return creation to arrival, seconds."""
        return (self.time_us - self.created_us) / MICROSECONDS


@dataclass(frozen=True, slots=True)
class PapersLog:
    file: str
    deliveries: tuple[PapersDelivery, ...]
    problems: tuple[Problem, ...]
    other_lines: int


def parse_papers_log(text: Lines, file: str) -> PapersLog:
    """Parse a log. Never raises."""
    found: list[PapersDelivery] = []
    problems: list[Problem] = []
    other = 0
    for number, raw in complete_lines(text, file, problems):
        words = raw.split()
        try:
            delivery = _delivery(raw, words)
            if delivery is not None:
                found.append(delivery)
            elif words:
                other += 1
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return PapersLog(file, tuple(found), tuple(problems), other)


def _delivery(line: str, words: list[str]) -> PapersDelivery | None:
    """Return the delivery; None if the line is not one. Raises ValueError if the line is a
    malformed one."""
    how: How
    if _FMTP.search(line):
        how, size_column = "fmtp", 6
    elif _BACKSTOP.search(line):
        how, size_column = "backstop", 5
    elif len(words) > 5 and words[3].isdigit() and _CREATION.fullmatch(words[4]):
        how, size_column = "ldm6", 3
    else:
        return None
    if len(words) < size_column + 3:
        raise ValueError(f"expected more than {size_column + 2} columns, found {len(words)}")
    arrival = _ARRIVAL.fullmatch(words[0])
    size, created, index = (
        words[size_column],
        _CREATION.fullmatch(words[size_column + 1]),
        words[-1],
    )
    if arrival is None:
        raise ValueError("column 0: expected YYYYMMDDThhmmss.ffffffZ")
    if not size.isdigit():
        raise ValueError(f"column {size_column}: expected a size in bytes, found {size!r}")
    if created is None:
        raise ValueError(f"column {size_column + 1}: expected YYYYMMDDhhmmss.mmm")
    if not index.isdigit():
        raise ValueError(f"the last column: expected a product's index, found {index!r}")
    return PapersDelivery(
        utc_microseconds(arrival[1] + arrival[2], arrival[3]),
        how,
        int(size),
        utc_microseconds(created[1], created[2]),
        int(index),
    )
