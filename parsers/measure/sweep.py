# SPDX-License-Identifier: Apache-2.0
"""Turn the cells of a sweep into points: combinations of factor levels, with estimates over their
repeats.

Cells with an invalid verdict are named and left out, unless requested. A point whose factors
include `subscriber` has one receiver's metrics. A point with `file_set_bytes` has those of the run
cut into file-sets of that size, and one with `first_s` those of its first seconds. Other points
have the cell's metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from common.contracts import INVALID
from parsers.base import intervals
from parsers.base.factors import (
    FACTORS,
    Scalar,
    same,
    show,
)
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS, PARTS_OF_A_WHOLE, Value, absent
from parsers.base.moving_block import OverTime
from parsers.measure import latency_parts
from parsers.measure.join_leave import JoinLeaveCell, JoinLeaveMetrics
from parsers.measure.pieces import Pieces, of_file_sets
from parsers.measure.set_throughput import FileSetMetrics, file_set_values
from parsers.measure.summary import CellMetrics, ReceiverMetrics
from parsers.read.cell_files import Cell
from parsers.read.published import Where

APART = ("subscriber", "file_set_bytes", "first_s")  # these are not properties of a cell: see above
SHARES = (8, 4, 2, 1)  # shares of a run's length, for points of its first seconds


@dataclass(frozen=True)
class Point:
    """What was measured at one combination of levels; values in the metrics' SI units."""

    factors: Mapping[str, Scalar]
    estimates: Mapping[str, Estimate]
    cells: tuple[str, ...]  # whose values are in the estimates
    excluded: tuple[str, ...] = ()  # cells with an invalid verdict
    fixed: Mapping[str, Scalar] = field(default_factory=dict)  # what else the cells have in common
    reasons: Mapping[str, str] = field(default_factory=dict)  # metric -> why (some) have none

    @property
    def conditions(self) -> dict[str, Scalar]:
        """Return the levels of all factors, including those that did not vary."""
        return {**self.fixed, **self.factors}

    @property
    def label(self) -> str:
        """Return the levels of the point's factors in words."""
        return show(self.factors)


@dataclass(frozen=True)
class Measured:
    """What `points` needs of a cell of any kind."""

    cell: str
    repeat: int
    factors: Mapping[str, Scalar]
    fixed: Mapping[str, Scalar]
    verdict: str | None
    values: Mapping[str, Value]
    at_subscribers: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    file_sets_by: Mapping[int, Sequence[FileSetMetrics]] = field(default_factory=dict)
    file_sets: Sequence[FileSetMetrics] = ()  # of the usual G; none in a shorter run
    pieces: Pieces = Pieces()


# A run that is too short for the first metric has the second, which no paper uses.
WHOLE_RUN: Mapping[str, str] = {"throughput_sets": "throughput"}


def metric_of(points: Iterable[Point], name: str) -> str:
    """Return the metric, or its whole-run counterpart if no point has a value for it."""
    return name if any(name in p.estimates for p in points) else WHOLE_RUN.get(name, name)


def measured(metrics: CellMetrics | JoinLeaveMetrics) -> Measured:
    """Return what `points` needs of a cell of either kind."""
    cell = metrics.cell
    common = Measured(
        cell.cell,
        cell.repeat,
        cell.factors,
        fixed_of(cell),
        metrics.verdict.verdict if metrics.verdict is not None else None,
        metrics.values,
    )
    if isinstance(metrics, JoinLeaveMetrics):
        return common
    at_subscribers = {r.host: subscriber_values(r) for r in metrics.receivers}
    return replace(
        common,
        at_subscribers=at_subscribers,
        file_sets_by=metrics.file_sets_by,
        file_sets=metrics.file_sets if metrics.file_sets_complete else (),
        pieces=metrics.pieces,
    )


def fixed_of(cell: Cell | JoinLeaveCell) -> dict[str, Scalar]:
    """Return the levels of factors that did not vary, as far as the cell has them."""
    found: dict[str, Scalar] = {"loss_burst_packets": 1.0, "background_flows": 0}
    for name in FACTORS:
        level = cell.parameters.get(name)
        if isinstance(level, (int, float, str)) and not isinstance(level, bool):
            found[name] = level
    run: dict[str, Scalar] = {"duration_s": cell.duration_s, "clock": cell.clock}
    return {"protocol": cell.protocol, **found, **run}


def points(
    cells: Iterable[CellMetrics | JoinLeaveMetrics],
    *,
    include_invalid: bool = False,
    by_length: bool = False,
) -> tuple[Point, ...]:
    """Return all points, in order of their levels. For each combination: the cell's own, then
    file-sets, then (`by_length`) its first seconds, then subscribers. Cells with different lengths
    or clocks make different points."""
    ordered = sorted((measured(c) for c in cells), key=lambda c: (c.repeat, c.cell))
    of_run = {name: {c.fixed[name] for c in ordered} for name in ("duration_s", "clock")}
    also = [name for name, levels in of_run.items() if len(levels) > 1]
    groups: dict[tuple[tuple[str, Scalar], ...], list[Measured]] = {}
    for cell in ordered:
        factors = {**cell.factors, **{name: cell.fixed[name] for name in also}}
        groups.setdefault(tuple(sorted(factors.items())), []).append(cell)
    return tuple(
        point
        for key in sorted(groups, key=lambda k: _order(dict(k)))
        for point in _points(dict(key), groups[key], include_invalid, by_length)
    )


def _order(factors: Mapping[str, Scalar]) -> tuple[tuple[int, float, str], ...]:
    """Return a sort key: numbers ascend; protocols come last, in the order of FACTORS, so that LDM7
    and LDM6 are adjacent."""
    names = [n for n in FACTORS if n in factors and n != "protocol"]
    names += [n for n in sorted(factors) if n not in FACTORS] + ["protocol"]
    found = []
    for name in names:
        level = factors.get(name, "")
        listed = FACTORS[name].names or FACTORS[name].first if name in FACTORS else None
        if isinstance(level, str):
            found.append((listed.index(level) if listed and level in listed else 99, 0.0, level))
        else:
            found.append((0, float(level), ""))
    return tuple(found)


def _points(
    factors: dict[str, Scalar], cells: Sequence[Measured], include_invalid: bool, by_length: bool
) -> Iterator[Point]:
    invalid = [c.cell for c in cells if c.verdict == INVALID]
    used = [c for c in cells if include_invalid or c.cell not in invalid]
    excluded = () if include_invalid else tuple(invalid)
    fixed = {n: v for n, v in cells[0].fixed.items() if n not in factors}

    def point(
        more: Mapping[str, Scalar],
        of: Sequence[Mapping[str, Value]],
        over_time: Mapping[str, OverTime] = NOTHING,
    ) -> Point:
        estimates, reasons = _estimates(of, [c.repeat for c in used], over_time)
        return Point(
            {**factors, **more},
            estimates,
            tuple(c.cell for c in used),
            excluded,
            {n: v for n, v in fixed.items() if n not in more},
            reasons,
        )

    only = used[0] if len(used) == 1 else None  # no repeats: the pieces over time give intervals
    own = point({}, [c.values for c in used], only.pieces.whole if only else NOTHING)
    yield _with_file_sets(own, only.file_sets, only.repeat) if only else own
    for size in sorted({size for c in used for size in c.file_sets_by}):
        cut = [c.file_sets_by.get(size, ()) for c in used]
        found = point({"file_set_bytes": size}, [file_set_values(sets) for sets in cut])
        yield _with_file_sets(found, cut[0], only.repeat) if only else found
    for share in SHARES if by_length else ():
        if first_s := min((_first_s(c.pieces, share) for c in used), default=0.0):
            yield point({"first_s": first_s}, [_values_of_first(c.pieces, share) for c in used])
    for host in dict.fromkeys(host for c in used for host in c.at_subscribers):
        yield point(
            {"subscriber": host},
            [c.at_subscribers.get(host, {}) for c in used],
            only.pieces.at.get(host, NOTHING) if only else NOTHING,
        )


NOTHING: Mapping[str, OverTime] = {}


def _first(pieces: Pieces, share: int) -> int:
    """Return how many pieces a share of the run has."""
    return min((data.pieces for data in pieces.whole.values()), default=0) // share


def _first_s(pieces: Pieces, share: int) -> float:
    return _first(pieces, share) * pieces.piece_s


def _values_of_first(pieces: Pieces, share: int) -> dict[str, Value]:
    """Return the metrics of the files that were created in the first part of a run."""
    first = _first(pieces, share)
    return {
        name: absent(METRICS[name].unit, "nothing arrived")
        if (value := data.value(first)) is None
        else Value(value, METRICS[name].unit)
        for name, data in pieces.whole.items()
    }


def _with_file_sets(point: Point, sets: Sequence[FileSetMetrics], repeat: int) -> Point:
    """Return the point of one run, with intervals from its file-sets in order of time."""
    over_time = of_file_sets(sets)
    if over_time is None or over_time.pieces < 2:
        return point
    values = over_time.top[:, 0].tolist()
    found = {"throughput_sets": intervals.of_run(sum(values) / len(values), repeat, over_time)}
    of_values: dict[str, Callable[..., Any]] = {
        "throughput_median": np.median,
        "throughput_iqr": intervals.iqr,
    }
    for name, statistic in of_values.items():
        made = intervals.bootstrap(values, statistic, METRICS[name].label.lower())
        found[name] = replace(made, values=(made.mean,), repeats=(repeat,))
    return replace(point, estimates={**point.estimates, **found})


def _estimates(
    of: Sequence[Mapping[str, Value]], repeats: Sequence[int], over_time: Mapping[str, OverTime]
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Return metric -> estimate over the repeats that have a value, and metric -> why others have
    none. `over_time`: the pieces of one run's metrics."""
    estimates: dict[str, Estimate] = {}
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(n for values in of for n in values):
        pairs = [(v.get(name), r) for v, r in zip(of, repeats, strict=True)]
        known = [(v.value, r) for v, r in pairs if v is not None and v.value is not None]
        missing = [v.reason if v is not None else "not measured" for v, _ in pairs
                   if v is None or v.value is None]  # fmt: skip
        if missing:
            of_all = f"{len(missing)} of {len(pairs)} repeats: " if len(pairs) > 1 else ""
            reasons[name] = of_all + missing[0]
        if known and name in over_time:
            estimates[name] = intervals.of_run(*known[0], over_time[name])
        elif known:
            estimates[name] = intervals.over_repeats([v for v, _ in known], [r for _, r in known])
    return estimates, reasons


_FMTP = (
    "throughput_fmtp",
    "throughput_mc",
    "throughput_retx",
    "ffdr_count",
    "ffdr_size",
    "mplr",
    "repaired_files",
)


def subscriber_values(receiver: ReceiverMetrics) -> dict[str, Value]:
    """Return a receiver's metrics under the names of the cell's."""
    found = {
        "throughput": receiver.throughput,
        "latency_p50": receiver.latency_p50,
        "latency_p99": receiver.latency_p99,
        "loss_measured": receiver.loss_measured,
    }
    if (fmtp := receiver.fmtp) is not None:
        found |= {name: getattr(fmtp, name) for name in _FMTP}
        found["retransmitted_blocks"] = Value(float(fmtp.retx_blocks), "blocks")
    if receiver.parts is not None:
        found |= latency_parts.values_of({receiver.host: receiver.parts})
    return found


def shown(metric: str, estimate: Estimate) -> str:
    """Return e.g. `12.40 [12.31, 12.49] Mbit/s`, or `12.40 Mbit/s (one run)`. The ends of a share's
    interval stay within 0 and 100 %."""
    how = METRICS[metric]
    low, high = estimate.low, estimate.high
    if metric in PARTS_OF_A_WHOLE:
        low, high = max(low, 0.0), min(high, 100.0)
    mean, *ends = (f"{v / how.scale:.{how.digits}f}" for v in (estimate.mean, low, high))
    if not estimate.has_interval:
        return f"{mean} {how.shown_unit}".rstrip() + " (one run)"
    return f"{mean} [{', '.join(ends)}] {how.shown_unit}".rstrip()


Demands = Where | Mapping[str, object]
EVERYTHING = Where()


def select(
    points: Iterable[Point], where: Demands, also: Iterable[str | None] = ()
) -> tuple[Point, ...]:
    """Return the points that meet `where`. If `where` or `also` (names of factors) mention single
    subscribers, file-sets or first seconds, return only such points; otherwise none of these."""
    where = where if isinstance(where, Where) else Where.model_validate(where)
    named = {*where.levels, *also}
    return tuple(
        p
        for p in points
        if all((name in p.factors) == (name in named) for name in APART)
        and where.holds(p.conditions)
    )


def varying(points: Sequence[Point]) -> tuple[str, ...]:
    """Return the factors with more than one level among the points, in the order of FACTORS."""
    names = dict.fromkeys([*FACTORS, *(n for p in points for n in p.factors)])
    return tuple(n for n in names if len({p.factors.get(n) for p in points}) > 1)


@dataclass(frozen=True)
class Line:
    """A metric over one factor, all else being equal. `factors`: what identifies the line."""

    label: str
    factors: Mapping[str, Scalar]
    x: tuple[Scalar, ...]
    y: tuple[Estimate, ...]
    points: tuple[Point, ...] = ()


def lines(
    points: Iterable[Point],
    *,
    x: str,
    metric: str,
    by: Sequence[str] = (),
    where: Demands = EVERYTHING,
) -> tuple[Line, ...]:
    """Return one line for each combination of levels of `by`, and of every other factor that varies
    (only repeats are averaged). Points without a value of the metric are left out."""
    chosen = [
        p for p in select(points, where, (x, *by)) if metric in p.estimates and x in p.factors
    ]
    others = [n for n in varying(chosen) if n != x and n not in by]
    found: dict[tuple[Scalar | None, ...], list[Point]] = {}
    for point in chosen:
        key = tuple(point.factors.get(n) for n in (*by, *others))
        found.setdefault(key, []).append(point)
    made = []
    for key, members in found.items():
        levels = zip((*by, *others), key, strict=True)
        factors = {n: level for n, level in levels if level is not None}
        if not any(isinstance(p.factors[x], str) for p in members):
            members = sorted(members, key=lambda p: float(p.factors[x]))
        made.append(
            Line(
                show(factors) or "all",
                factors,
                tuple(p.factors[x] for p in members),
                tuple(p.estimates[metric] for p in members),
                tuple(members),
            )
        )
    return tuple(made)


def counterpart(
    point: Point, points: Iterable[Point], instead: Mapping[str, Scalar]
) -> Point | None:
    """Return the point that has the levels `instead`, and otherwise those of `point`. If there is
    none, return the only point that lacks factors which not every protocol has."""
    wanted = {**point.factors, **instead}
    apart = wanted.keys() & set(APART)
    lacking: list[Point] = []
    for other in points:
        has = other.factors.keys()
        if not instead.keys() <= has <= wanted.keys() or has & set(APART) != apart:
            continue
        if all(same(level, wanted[n]) for n, level in other.factors.items()):
            if has == wanted.keys():
                return other
            lacking.append(other)
    return lacking[0] if len(lacking) == 1 else None
