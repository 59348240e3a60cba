# SPDX-License-Identifier: Apache-2.0
"""Compare cells of several runs side by side: repeats with one clock, or one clock with the
other.

Pure: `Column`s in, differences out. Nothing is rounded before the comparison.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parsers.base.factors import Scalar, show
from parsers.base.metric_units import (
    TRANSPORT_METRICS,
    Metric,
    Value,
    absent,
)
from parsers.base.times import MICROSECONDS
from parsers.measure.carousel import CarouselData
from parsers.measure.deliveries import ingested, receiver_of
from parsers.measure.summary import CellData, CellMetrics
from parsers.measure.verdicts import worst_verdict
from parsers.read.cell_files import Cell, Clock

# Round trips that cell.json has in addition to the logs.
ROUND_TRIPS = {
    m.name: m
    for m in (
        Metric("rtt", "RTT measured, mean", "s", "ms", 1e-3, 3, "ping, cell.json"),
        Metric("rtt_error", "RTT error, largest", "s", "ms", 1e-3, 3, "ping, cell.json"),
    )
}
COMPARED = {**TRANSPORT_METRICS, **ROUND_TRIPS}
RUNS_ON = ("kernel", "datapath", "delay_mechanism", "edge_tags", "cores")  # of facts.json


@dataclass(frozen=True, slots=True)
class Delivered:
    """One product's arrival; times in microseconds after the first product's creation."""

    product: tuple[str, int, str, int]  # ident, size in bytes, feed, number
    created_us: int
    arrived_us: int
    how: str
    delay_s: float | None
    retrans: int

    @property
    def latency_us(self) -> int:
        """Return creation to arrival, microseconds."""
        return self.arrived_us - self.created_us


@dataclass(frozen=True)
class Column:
    """One cell of one run. `name`: its name in tables."""

    name: str
    run: str
    metrics: CellMetrics
    deliveries: Mapping[str, tuple[Delivered, ...]]  # receiver -> in order of arrival
    digests: Mapping[str, str] = field(default_factory=dict)  # file of the cell -> SHA-256
    facts: Mapping[str, object] = field(default_factory=dict)  # facts.json

    @property
    def cell(self) -> Cell:
        """Return the description of the column's cell."""
        return self.metrics.cell


def deliveries_of(data: CellData) -> dict[str, tuple[Delivered, ...]]:
    """Return, for each receiver with a log, its products in order of arrival."""
    if data.carousel is not None:
        return _of_a_carousel(data.carousel, data.cell.trace.bytes or 0)
    found = {h: receiver_of(data.logs[h]) for h in data.cell.subscribers if h in data.logs}
    created = [p.created_us for p in ingested(data.ingest)]
    created += [p.created_us for receiver in found.values() for p in receiver.arrivals]
    first_us = min(created, default=0)
    return {
        host: tuple(
            Delivered(
                (product.ident, product.size_bytes, product.feed, product.seqno),
                product.created_us - first_us,
                arrival.time_us - first_us,
                arrival.how,
                arrival.delay_s,
                arrival.retrans,
            )
            for product, arrival in sorted(
                receiver.arrivals.items(), key=lambda item: (item[1].time_us, item[0].ident)
            )
        )
        for host, receiver in found.items()
    }


def _of_a_carousel(data: CarouselData, file_bytes: int) -> dict[str, tuple[Delivered, ...]]:
    """Return the same for a carousel's file. Times count from when the receiver tuned in; what it
    missed until then counts as repaired."""
    return {
        host: ()
        if r.file_s is None
        else (
            Delivered(
                product=("file", file_bytes, "", 0),
                created_us=0,
                arrived_us=round(r.file_s * MICROSECONDS),
                how="fcast",
                delay_s=None,
                retrans=r.file_lost or 0,
            ),
        )
        for host, r in data.receivers.items()
        if r is not None
    }


def numbers_of(metrics: CellMetrics) -> dict[str, Value]:
    """Return all values of `COMPARED`."""
    cell = metrics.cell
    measured = cell.rtt_measured_ms
    if not measured:
        none = absent("s", "cell.json has no measured round trips")
        return {**metrics.values, "rtt": none, "rtt_error": none}
    errors = [
        round(abs(ms - cell.rtt_ms[host]), 6)
        for host, ms in measured.items()
        if host in cell.rtt_ms
    ]
    return {
        **metrics.values,
        "rtt": Value(statistics.fmean(measured.values()) / 1e3, "s"),
        "rtt_error": Value(max(errors) / 1e3, "s")
        if errors
        else absent("s", "cell.json has no asked round trips"),
    }


@dataclass(frozen=True)
class Spread:
    """One metric over repeats. `relative` is of the mean."""

    values: tuple[Value, ...]
    low: float | None
    high: float | None
    spread: float | None
    relative: float | None
    same: bool  # all runs have exactly this value, or none for the same reason


def spread_of(values: Sequence[Value]) -> Spread:
    """Return minimum, maximum and spread of the defined values; None if there are none."""
    defined = [v.value for v in values if v.value is not None]
    same = len({(v.value, v.reason) for v in values}) == 1
    if not defined:
        return Spread(tuple(values), None, None, None, None, same)
    low, high = min(defined), max(defined)
    mean = statistics.fmean(defined)
    relative = (high - low) / abs(mean) if mean else None
    return Spread(tuple(values), low, high, high - low, relative, same)


@dataclass(frozen=True)
class Sameness:
    """How the deliveries of all runs at one receiver differ from the first run's."""

    host: str
    products: bool
    order: bool
    how: bool
    retrans: bool
    times: bool
    latencies: bool
    retrans_differ: int  # the largest number of products in any run
    time_differs_s: float  # largest difference, over the products that both have
    latency_differs_s: float
    missing: str = ""  # runs without a log of this receiver

    @property
    def identical(self) -> bool:
        """Return whether all runs delivered the same products in the same way at the same times."""
        same = (self.products, self.order, self.how, self.retrans, self.times, self.latencies)
        return all(same) and not self.missing


def _sameness(host: str, columns: Sequence[Column]) -> Sameness:
    if missing := [c.name for c in columns if host not in c.deliveries]:
        flags = (False,) * 6
        return Sameness(host, *flags, 0, 0.0, 0.0, ", ".join(missing))
    lists = [c.deliveries[host] for c in columns]
    first = {d.product: d for d in lists[0]}
    products = order = how = retrans = times = latencies = True
    differ = late_us = latency_us = 0
    for other in lists[1:]:
        products &= {d.product for d in other} == set(first)
        order &= [d.product for d in other] == [d.product for d in lists[0]]
        pairs = [(first[d.product], d) for d in other if d.product in first]
        how &= all(a.how == b.how for a, b in pairs)
        changed = sum(a.retrans != b.retrans for a, b in pairs)
        retrans &= changed == 0
        # The delay since the BOP is also printed to the microsecond.
        times &= all((a.arrived_us, a.delay_s) == (b.arrived_us, b.delay_s) for a, b in pairs)
        latencies &= all(a.latency_us == b.latency_us for a, b in pairs)
        differ = max(differ, changed)
        late_us = max([late_us, *(abs(a.arrived_us - b.arrived_us) for a, b in pairs)])
        latency_us = max([latency_us, *(abs(a.latency_us - b.latency_us) for a, b in pairs)])
    return Sameness(
        host,
        products,
        order,
        how,
        retrans,
        times,
        latencies,
        differ,
        late_us / MICROSECONDS,
        latency_us / MICROSECONDS,
    )


@dataclass(frozen=True)
class Repeats:
    """Cells under the same conditions, with the same clock."""

    clock: Clock
    columns: tuple[Column, ...]
    metrics: Mapping[str, Spread]
    receivers: tuple[Sameness, ...]
    files_same: int
    files_different: tuple[str, ...]  # including files that some runs lack
    different_inputs: tuple[str, ...] = ()  # inputs that differ

    @property
    def different_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that differ in any digit."""
        return tuple(name for name, found in self.metrics.items() if not found.same)

    @property
    def identical(self) -> bool:
        """Return whether every metric and every delivery is equal to the last digit."""
        return not self.different_metrics and all(r.identical for r in self.receivers)


def repeats_of(columns: Sequence[Column]) -> Repeats:
    """Compare `columns`: at least one, all with the same clock."""
    numbers = [numbers_of(c.metrics) for c in columns]
    hosts = {host: None for c in columns for host in c.cell.subscribers}
    files = sorted({file for c in columns for file in c.digests})
    different = tuple(f for f in files if len({c.digests.get(f) for c in columns}) > 1)
    return Repeats(
        columns[0].cell.clock,
        tuple(columns),
        {name: spread_of([n[name] for n in numbers]) for name in COMPARED},
        tuple(_sameness(host, columns) for host in hosts),
        len(files) - len(different),
        different,
        tuple(_different(columns)),
    )


@dataclass(frozen=True)
class Difference:
    """One metric with each clock, as the mean over its runs. `relative`: to native."""

    native: Value
    virtual: Value
    difference: float | None
    relative: float | None
    native_low: float | None  # the native runs' own spread
    native_high: float | None


@dataclass(frozen=True)
class Clocks:
    """Cells under the same conditions, with one clock and with the other."""

    native: tuple[Column, ...]
    virtual: tuple[Column, ...]
    metrics: Mapping[str, Difference]
    native_verdict: str
    virtual_verdict: str
    different_inputs: tuple[str, ...] = ()


def _mean(values: Sequence[Value]) -> Value:
    """Return the mean over the runs; undefined if it is undefined for one of them."""
    without = next((v for v in values if v.value is None), None)
    if without is not None:
        return without
    return Value(statistics.fmean(v.value for v in values if v.value is not None), values[0].unit)


def difference_of(native: Sequence[Value], virtual: Sequence[Value]) -> Difference:
    """Return virtual - native; None if either is undefined."""
    one, other = _mean(native), _mean(virtual)
    own = spread_of(native)
    if one.value is None or other.value is None:
        return Difference(one, other, None, None, own.low, own.high)
    difference = other.value - one.value
    relative = difference / abs(one.value) if one.value else None
    return Difference(one, other, difference, relative, own.low, own.high)


def clocks_of(native: Sequence[Column], virtual: Sequence[Column]) -> Clocks:
    """Compare the columns of both clocks, at least one of each."""
    ours = [numbers_of(c.metrics) for c in native]
    theirs = [numbers_of(c.metrics) for c in virtual]
    return Clocks(
        tuple(native),
        tuple(virtual),
        {name: difference_of([n[name] for n in ours], [n[name] for n in theirs])
         for name in COMPARED},
        worst_verdict(c.metrics for c in native),
        worst_verdict(c.metrics for c in virtual),
        tuple(_different([*native, *virtual])),
    )  # fmt: skip


@dataclass(frozen=True)
class Conditions:
    """What cells must have in common to be compared."""

    topology: str
    factors: tuple[tuple[str, Scalar], ...]
    duration_s: float
    repeat: int | None = None  # from 0, if runs have several; equal numbers: equal seeds

    @property
    def label(self) -> str:
        """Return the conditions in words."""
        repeat = "" if self.repeat is None else f", repeat {self.repeat + 1}"
        return f"{show(dict(self.factors))}, {self.duration_s:g} s{repeat}"


def conditions_of(cell: Cell) -> Conditions:
    """Return what cells must share with this one to be compared with it."""
    return Conditions(cell.topology, tuple(sorted(cell.factors.items())), cell.duration_s)


@dataclass(frozen=True)
class Comparison:
    """The comparison of cells under the same conditions."""

    conditions: Conditions
    columns: tuple[Column, ...]
    different_inputs: Mapping[str, tuple[str, ...]]  # input -> its value in each column
    repeats: tuple[Repeats, ...]  # of each clock that has at least two cells
    clocks: Clocks | None

    @property
    def is_one(self) -> bool:
        """Return whether there is only one cell, and so nothing to compare."""
        return len(self.columns) == 1


def without_deliveries(found: Comparison) -> Comparison:
    """Return the same without the data that only the comparison needed."""

    def bare(columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(replace(c, deliveries={}, digests={}) for c in columns)

    clocks = found.clocks
    if clocks is not None:
        clocks = replace(clocks, native=bare(clocks.native), virtual=bare(clocks.virtual))
    return replace(
        found,
        columns=bare(found.columns),
        repeats=tuple(replace(r, columns=bare(r.columns)) for r in found.repeats),
        clocks=clocks,
    )


def _inputs(column: Column) -> dict[str, str]:
    """Return what went into the cell (input and environment), not the outcome."""
    cell, facts = column.cell, column.facts
    parameters = {str(k): str(v) for k, v in cell.parameters.items()}
    trace = f"{cell.trace.products} products, {cell.trace.bytes} bytes ({cell.trace.source})"
    return {
        "seed": str(cell.seed),
        "trace": trace,
        "loss model": cell.loss_model or "not told",
        **parameters,
        **{name: str(facts.get(name, "not told")) for name in RUNS_ON},
    }


def _different(columns: Sequence[Column]) -> dict[str, tuple[str, ...]]:
    found = [_inputs(c) for c in columns]
    names = {name: None for inputs in found for name in inputs}
    rows = {name: tuple(inputs.get(name, "not told") for inputs in found) for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}


def compare(columns: Iterable[Column]) -> tuple[Comparison, ...]:
    """Group columns by conditions. Groups and the columns in them keep their order."""
    by_conditions: dict[Conditions, list[Column]] = {}
    for column in columns:
        by_conditions.setdefault(conditions_of(column.cell), []).append(column)
    found = []
    for conditions, together in by_conditions.items():
        native = [c for c in together if c.cell.clock == "native"]
        virtual = [c for c in together if c.cell.clock == "virtual"]
        found.append(
            Comparison(
                conditions,
                tuple(together),
                _different(together),
                tuple(repeats_of(some) for some in (native, virtual) if len(some) > 1),
                clocks_of(native, virtual) if native and virtual else None,
            )
        )
    return tuple(found)
