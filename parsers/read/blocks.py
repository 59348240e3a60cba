# SPDX-License-Identifier: Apache-2.0
"""Read logs made of blocks: a line `@ SECONDS-SINCE-1970`, then one line per process."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from parsers.base.problems import (
    Lines,
    Problem,
    complete_lines,
    problem,
)

Row = TypeVar("Row")


def parse_blocks(
    text: Lines, file: str, row: Callable[[float, str], Row | None]
) -> tuple[tuple[float, ...], tuple[Row, ...], tuple[Problem, ...]]:
    """Return (times of the blocks, empty ones included; rows; lines that are not understood). Never
    raises.

    `row(time_s, line)` reads a line of the block with that time. It returns None to skip the line,
    and raises ValueError with the reason if it is malformed. Before the first block, the time is
    NaN.
    """
    times: list[float] = []
    rows: list[Row] = []
    problems: list[Problem] = []
    for number, raw in complete_lines(text, file, problems):
        words = raw.split(maxsplit=2)
        if not words:
            continue
        try:
            if words[0] == "@":
                moment = float(words[1]) if len(words) == 2 else math.nan
                if not math.isfinite(moment):
                    raise ValueError("expected '@ SECONDS-SINCE-1970'")
                times.append(moment)
                continue
            found = row(times[-1] if times else math.nan, raw)
            if found is not None:
                rows.append(found)
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return tuple(times), tuple(rows), tuple(problems)


def in_block(time_s: float) -> float:
    """Return the time of the block of a process line. Raises ValueError before the first block."""
    if math.isnan(time_s):
        raise ValueError("a process before the first '@' line")
    return time_s
