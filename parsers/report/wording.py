# SPDX-License-Identifier: Apache-2.0
"""How all reports word values, differences and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.contracts import DEGRADED, FAITHFUL, INVALID, UNKNOWN
from parsers.base.metric_units import METRICS, Value
from parsers.measure.paper import Headline

LISTED: Final = 12  # lines of one kind before "and N more"

HEADLINES: Final = {
    FAITHFUL: "FAITHFUL: the network behaved as configured.",
    DEGRADED: "DEGRADED: read these figures with the evidence below.",
    INVALID: "INVALID: do not use these figures.",
    UNKNOWN: "UNKNOWN: a cell has no verdict; nothing confirms these figures.",
}


def number(name: str, value: Value | None) -> str:
    """Return the value of metric `name` in its shown unit, without the unit; `n/a` if absent."""
    if value is None or value.value is None:
        return "n/a"
    metric = METRICS[name]
    return f"{value.value / metric.scale:.{metric.digits}f}"


def labelled(name: str) -> str:
    """Return the label and unit of metric `name`: `Latency p99, ms`."""
    metric = METRICS[name]
    return f"{metric.label}, {metric.shown_unit}" if metric.shown_unit else metric.label


def published_and_difference(comparison: Headline | None) -> tuple[str, str]:
    """Return the paper's value, and the difference to it, also as a share of the paper's value."""
    if comparison is None:
        return "n/a", ""
    metric = METRICS[comparison.metric]
    published = f"{comparison.published / metric.scale:g}"
    if comparison.difference is None:
        return published, "n/a"
    text = f"{comparison.difference / metric.scale:+.{metric.digits}f}"
    if comparison.difference_percent is not None:
        text += f" ({comparison.difference_percent:+.0f}%)"
    return published, text


def some(names: Sequence[str]) -> str:
    """Return the first `LISTED` names, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def in_words(name: str, value: float) -> str:
    """Return a value for a sentence: `14.1 Mbit/s`, `2.14 s`, `99.98 %`; `100 %` only if it is
    exact."""
    metric = METRICS[name]
    if metric.unit == "s":
        return f"{three_digits(value)} s" if abs(value) >= 1 else f"{three_digits(1e3 * value)} ms"
    if metric.unit == "%":
        digits = 2
        while digits < 6 and value != 100 and round(value, digits) == 100:
            digits += 1
        return f"{value:.{digits}f}".rstrip("0").rstrip(".") + " %"
    return f"{three_digits(value / metric.scale)} {metric.shown_unit}".rstrip()


def three_digits(value: float) -> str:
    """Return `value` with three significant digits, never as a power of ten."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
