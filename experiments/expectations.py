# SPDX-License-Identifier: Apache-2.0
"""What a run must show (`--check`): the experiment's expectations against metrics.json. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.spec import Expectation
from parsers.units import METRICS, canonical


@dataclass(frozen=True)
class Finding:
    """An expectation at one cell."""

    cell: str
    metric: str
    expected: str
    found: float | None
    met: bool
    text: str  # the reason of the expectation, or why there is no value


def bounds(expectation: Expectation) -> str:
    """at least 99 %; at most 2"""
    unit = METRICS[canonical(expectation.metric) or ""].unit
    parts = []
    if expectation.at_least is not None:
        parts.append(f"at least {expectation.at_least:g}")
    if expectation.at_most is not None:
        parts.append(f"at most {expectation.at_most:g}")
    return f"{' and '.join(parts)} {unit}".rstrip()


def check(expectations: Sequence[Expectation], metrics: Mapping[str, Any]) -> list[Finding]:
    """Every expectation at every cell it is about; a metric without value is not met, and so is
    an expectation that no cell is about, unless it is one for another clock."""
    found: list[Finding] = []
    cells: Mapping[str, Any] = metrics.get("cells", {})
    for expectation in expectations:
        name = canonical(expectation.metric) or expectation.metric
        about = [
            (cell, data)
            for cell, data in sorted(cells.items())
            if expectation.protocol in ("all", data["cell"]["protocol"])
            and expectation.clock in ("any", data["cell"].get("clock", "native"))
        ]
        for cell, data in about:
            found.append(_finding(cell, name, expectation, data.get("values", {}).get(name, {})))
        clocks = {data["cell"].get("clock", "native") for data in cells.values()}
        if not about and expectation.clock in ("any", *clocks):
            text = f"no cell with protocol {expectation.protocol}"
            found.append(Finding("-", name, bounds(expectation), None, False, text))
    return found


def _finding(cell: str, metric: str, expectation: Expectation, value: Mapping[str, Any]) -> Finding:
    number = value.get("value")
    if not isinstance(number, (int, float)):
        reason = str(value.get("reason") or "the metric is missing")
        return Finding(cell, metric, bounds(expectation), None, False, reason)
    low, high = expectation.at_least, expectation.at_most
    met = (low is None or number >= low) and (high is None or number <= high)
    return Finding(cell, metric, bounds(expectation), float(number), met, expectation.reason)


def table(findings: Iterable[Finding]) -> str:
    """Plain text, one line per finding."""
    rows = [("", "cell", "metric", "expected", "found", "why")]
    for f in findings:
        found = "-" if f.found is None else f"{f.found:.4g}"
        rows.append(("met" if f.met else "NOT MET", f.cell, f.metric, f.expected, found, f.text))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row[:5], widths, strict=True)]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines) + "\n"
