# SPDX-License-Identifier: Apache-2.0
"""Write a sweep as CSV (RFC 4180) for other programs: a row for each point or cell, a column for
each factor and value, units in the header, all digits, and an empty cell for a missing value."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from parsers.base.factors import FACTORS, Scalar
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import Point
from parsers.measure.verdicts import verdict_of

_UNITS = {
    "rate_bps": "bit/s",
    "loss": "share",
    "handoff_loss": "share",
    "rtt_ms": "ms",
    "clock_offset_ms": "ms",
    "pause_ms": "ms",
    "file_set_bytes": "bytes",
}


def points_csv(points: Sequence[Point]) -> str:
    """Return all points. Those at single subscribers and of file-sets have a value in the column of
    that factor."""
    factors = _in_order(name for p in points for name in p.factors)
    metrics = [name for name in METRICS if any(name in p.estimates for p in points)]
    header = [_factor(name) for name in factors]
    for name in metrics:
        unit = _unit(METRICS[name].unit)
        header += [f"{name}{unit}", f"{name} low{unit}", f"{name} high{unit}", f"{name} n"]
    header += ["method", "cells", "excluded"]
    rows: list[list[object]] = []
    for point in points:
        row: list[object] = [point.factors.get(name, "") for name in factors]
        for name in metrics:
            found = point.estimates.get(name)
            row += ["", "", "", ""] if found is None else [found.mean, *_ends(found), found.n]
        methods = dict.fromkeys(e.method for e in point.estimates.values())
        row += ["; ".join(methods), " ".join(point.cells), " ".join(point.excluded)]
        rows.append(row)
    return _written(header, rows)


def _ends(found: Estimate) -> tuple[object, object]:
    return (found.low, found.high) if found.has_interval else ("", "")


def cells_csv(cells: Sequence[CellMetrics]) -> str:
    """Return the cells, including excluded ones: see the column `verdict`."""
    factors = _in_order(name for c in cells for name in c.cell.factors)
    metrics = [n for n in METRICS if any(n in c.values for c in cells)]
    header = ["cell", *(_factor(name) for name in factors)]
    header += ["repeat", "seed", "duration [s]", "clock", "verdict", "products sent"]
    header += [f"{name}{_unit(METRICS[name].unit)}" for name in metrics]
    rows = []
    for metrics_of in cells:
        cell = metrics_of.cell
        row: list[object] = [cell.cell, *(cell.factors.get(name, "") for name in factors)]
        row += [cell.repeat, "" if cell.seed is None else cell.seed, cell.duration_s, cell.clock]
        row += [verdict_of(metrics_of), metrics_of.sent]
        for name in metrics:
            value = metrics_of.values.get(name)
            row.append("" if value is None or value.value is None else value.value)
        rows.append(row)
    return _written(header, rows)


def _in_order(names: Iterable[str]) -> list[str]:
    found = dict.fromkeys(names)
    return [n for n in FACTORS if n in found] + [n for n in found if n not in FACTORS]


def _factor(name: str) -> str:
    return f"{name}{_unit(_UNITS.get(name, ''))}"


def _unit(unit: str) -> str:
    return f" [{unit}]" if unit else ""


def _written(header: Sequence[str], rows: Iterable[Sequence[Scalar | object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
