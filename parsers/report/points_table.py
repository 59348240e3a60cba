# SPDX-License-Identifier: Apache-2.0
"""The main table of a run of many cells: a row for each point or, if there are too many points to
print, a row for each line of points, with a value for each level of one factor. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from parsers.base.factors import FACTORS, Scalar, show
from parsers.base.metric_units import METRICS
from parsers.measure.sweep import Point, select, varying
from parsers.report.brief import TABLE_ROWS, BriefTable

PEER_METRICS: Final = (  # if other protocols take part; a narrow terminal omits the last
    "latency_p50",
    "latency_p99",
    "wire_per_delivered",
    "products_missing",
    "throughput",
    "feedback_packets",
    "cpu",
)
TRANSFER_METRICS: Final = ("transfer_time", "gput", "dup", "net", "transfer_loss")  # of one file
SWEEP_METRICS: Final = ("throughput", "nic_bandwidth", "latency_p50", "ffdr")  # without a paper
SHORT: Final = {
    "nic_bandwidth": "NIC",
    "throughput": "Thr.",
    "latency_p50": "Lat. p50",
    "latency_p99": "p99",
    "wire_per_delivered": "wire",
    "feedback_packets": "feedback",
    "cpu": "CPU",
    "products_missing": "missing",
    "transfer_time": "time",
    "gput": "gput",
    "dup": "dup",
    "net": "net",
    "transfer_loss": "loss",
}
MOST_FOLDED: Final = 4  # levels in a row
DIGITS: Final = 3  # of a value in a row of several
Rest = tuple[tuple[str, Scalar], ...]  # the levels that identify a row


def metrics_of(points: Sequence[Point], *, peers: bool) -> Sequence[str]:
    """Return the metrics that a run's points are shown by. `peers`: other protocols took part."""
    if any("transfer_time" in p.estimates for p in points):
        return TRANSFER_METRICS
    return PEER_METRICS if peers else SWEEP_METRICS


def points_tables(points: Sequence[Point], metrics: Sequence[str]) -> list[BriefTable]:
    """Return the table of the points, by the first metric first; none without points or values."""
    own = select(points, {})
    names = [n for n in metrics if any(n in p.estimates for p in own)]
    if not own or not names:
        return []
    factors = varying(own)
    folded = _folded(own, factors)
    if folded is None:
        rows = [(_label(p, factors), *(_whole(p, n) for n in names)) for p in own]
    else:
        rows = _folded_rows(own, factors, folded, names)
    at = "At" if folded is None else _levels_text(own, folded)
    header = (at, *(_short(n) for n in names))
    return [BriefTable(header=header, rows=tuple(rows), optional=tuple(reversed(header[2:])))]


def _label(point: Point, factors: Sequence[str]) -> str:
    return show({n: v for n, v in point.factors.items() if n in factors}) or point.label


def _whole(point: Point, name: str) -> str:
    found = point.estimates.get(name)
    metric = METRICS[name]
    return "n/a" if found is None else f"{found.mean / metric.scale:.{metric.digits}f}"


def _short(name: str) -> str:
    """Return a heading that leaves room for other columns."""
    metric = METRICS[name]
    label = SHORT.get(name, metric.label)
    return f"{label}, {metric.shown_unit}" if metric.shown_unit else label


# -- several levels in a row ------------------------------------------------------------------
def _folded(points: Sequence[Point], factors: Sequence[str]) -> str | None:
    """Return the factor whose levels share a row, so that all rows can be printed. None if each
    point can have its own row, or if no factor helps."""
    if len(points) <= TABLE_ROWS:
        return None
    for name in factors:
        levels = {p.factors.get(name) for p in points}
        if not 2 <= len(levels) <= MOST_FOLDED or any(isinstance(v, str | None) for v in levels):
            continue
        if len({_rest(p, factors, name) for p in points}) <= TABLE_ROWS:
            return name
    return None


def _rest(point: Point, factors: Sequence[str], folded: str) -> Rest:
    return tuple((n, point.factors[n]) for n in factors if n != folded and n in point.factors)


def _levels(points: Sequence[Point], folded: str) -> list[float]:
    return sorted({float(p.factors[folded]) for p in points})


def _levels_text(points: Sequence[Point], folded: str) -> str:
    """Return e.g. `p = 0, 1, 5 %`."""
    factor = FACTORS[folded]
    levels = ", ".join(f"{level / factor.scale:g}" for level in _levels(points, folded))
    return f"{factor.symbol} = {levels} {factor.shown_unit}".rstrip()


def _folded_rows(
    points: Sequence[Point], factors: Sequence[str], folded: str, names: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the rows, in the order of their labels."""
    lines: dict[Rest, dict[float, Point]] = {}
    for point in points:
        rest = _rest(point, factors, folded)
        lines.setdefault(rest, {})[float(point.factors[folded])] = point
    levels = _levels(points, folded)
    rows = [
        (show(dict(rest)), *(_values(line, levels, name) for name in names))
        for rest, line in lines.items()
    ]
    return sorted(rows)


def _values(line: Mapping[float, Point], levels: Sequence[float], name: str) -> str:
    return " ".join(_few_digits(line.get(level), name) for level in levels)


def _few_digits(point: Point | None, name: str) -> str:
    """Return the value with at most `DIGITS` digits, or with all digits of a whole number; `-` if
    there is none."""
    found = None if point is None else point.estimates.get(name)
    if found is None:
        return "-"
    metric = METRICS[name]
    value = found.mean / metric.scale
    before = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:.{min(metric.digits, max(0, DIGITS - before))}f}"
