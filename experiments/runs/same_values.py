# SPDX-License-Identifier: Apache-2.0
"""Compare values that were written with the same values computed again."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from parsers.measure.agreement import leaves

RELATIVE: Final = 1e-9


def same_value(a: Any, b: Any) -> bool:
    """Compare numbers to RELATIVE, and whole numbers exactly; everything else must be equal and of
    the same type."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (a, b))
    if not numbers:
        return type(a) is type(b) and bool(a == b)
    if float(a).is_integer() and float(b).is_integer():
        return float(a) == float(b)
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=0.0)


def compare_values(
    written: object, computed: object, has: str = "metrics.json has", gives: str = "the logs give"
) -> tuple[int, list[str]]:
    """Compare two JSON values; return (number of values compared, differences). `has`, `gives`: in
    the differences, where each is from."""
    then, now = dict(leaves(written)), dict(leaves(computed))
    problems = []
    for place in dict.fromkeys([*then, *now]):
        if place not in now:
            problems.append(f"{place}: {has} {shown(then[place])}, {gives} none")
        elif place not in then:
            problems.append(f"{place}: {gives} {shown(now[place])}, {has} none")
        elif not same_value(then[place], now[place]):
            problems.append(f"{place}: {has} {shown(then[place])}, {gives} {shown(now[place])}")
    return len(now), problems


def shown(value: object) -> str:
    """Return a value as JSON, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
