# SPDX-License-Identifier: Apache-2.0
"""Report runs side by side: make the sections of a `Report` from `Comparison`s. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from common.counting import counted
from parsers.base.metric_units import Value, two_digits
from parsers.measure.side_by_side import (
    COMPARED,
    RUNS_ON,
    Clocks,
    Comparison,
    Repeats,
    Sameness,
    Spread,
)
from parsers.report.document import Section, Table

MORE_DIGITS: Final = 3  # more than in a report
COLUMNS_AT_ONCE: Final = 4  # as many values as fit side by side
FILES_LISTED: Final = 12

# For native against virtual; the JSON has all metrics.
SHOWN: Final = (
    *("throughput", "throughput_sets", "ffdr", "mplr", "retransmitted_blocks"),
    *("input_rate", "nic_bandwidth", "bandwidth_over_offered", "cpu", "cpu_one_core"),
    *("latency_p50", "latency_p90", "latency_p99", "latency_max", "latency_mean"),
    *("fmtp_delay_p50", "fmtp_delay_p99", "loss_injected", "loss_measured", "rtt", "rtt_error"),
    "products_identical",
)
ERRORS: Final = frozenset({"rtt_error"})  # should be 0, so a share of them is meaningless
CPU: Final = frozenset({"cpu", "cpu_one_core", "cpu_ps"})


def _show(name: str, value: float | None, more: int = MORE_DIGITS) -> str:
    metric = COMPARED[name]
    return "n/a" if value is None else f"{value / metric.scale:.{metric.digits + more}f}"


def _label(name: str) -> str:
    metric = COMPARED[name]
    return f"{metric.label}, {metric.shown_unit}" if metric.shown_unit else metric.label


def _amount(name: str, value: float | None) -> str:
    """Return a spread as short as possible, but as 0 only if it is 0."""
    return "n/a" if value is None else f"{value / COMPARED[name].scale:.3g}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{two_digits(100 * value)} %"


def repeats_title(found: Repeats) -> str:
    """Return which runs are compared, and with which clock."""
    names = ", ".join(c.name for c in found.columns)
    return f"{counted(len(found.columns), 'repeat')}, {found.clock} time ({names})"


def repeats_text(found: Repeats) -> str:
    """Return the finding in one sentence."""
    if found.identical:
        text = "identical to the last digit: every metric, and every product's arrival"
        return text + _beforehand(found.different_inputs)
    different = found.different_metrics
    parts = []
    if different:
        shares = ((found.metrics[n].relative, n) for n in different if n not in ERRORS)
        known = sorted(((r, n) for r, n in shares if r is not None), reverse=True)
        most = f"; most: {COMPARED[known[0][1]].label} by {_percent(known[0][0])}" if known else ""
        parts.append(f"{len(different)} of {len(found.metrics)} metrics differ{most}")
    if hosts := [r.host for r in found.receivers if not r.identical]:
        parts.append(f"deliveries differ at {len(hosts)} of {len(found.receivers)} receivers")
    return f"not identical: {'; '.join(parts)}{_beforehand(found.different_inputs)}"


def _beforehand(different: Sequence[str]) -> str:
    return f"; different inputs: {', '.join(different)}" if different else ""


def _spread_table(found: Repeats) -> Table:
    """Return the table of spreads. With two runs, minimum and maximum are the values themselves."""
    two = len(found.columns) == 2
    limits = tuple(c.name for c in found.columns) if two else ("minimum", "maximum")
    header = ("Metric", *limits, "spread", "of the mean", "same")
    rows = []
    for name, metric in found.metrics.items():
        if metric.low is None and metric.same:
            continue  # a sentence below the tables gives the reason
        rows.append(
            (
                _label(name),
                *(_show(name, v) for v in (_values(metric) if two else (metric.low, metric.high))),
                _amount(name, metric.spread),
                _percent(metric.relative),
                "yes" if metric.same else "NO",
            )
        )
    return Table(repeats_title(found), header, tuple(rows), frozenset({"Metric"}))


def _values(metric: Spread) -> tuple[float | None, ...]:
    return tuple(v.value for v in metric.values)


def _value_tables(found: Repeats) -> Iterator[Table]:
    if len(found.columns) == 2:
        return
    for first in range(0, len(found.columns), COLUMNS_AT_ONCE):
        part = slice(first, first + COLUMNS_AT_ONCE)
        rows = tuple(
            (_label(name), *(_show(name, v.value) for v in metric.values[part]))
            for name, metric in found.metrics.items()
            if metric.low is not None
        )
        header = ("Metric", *(c.name for c in found.columns[part]))
        yield Table("Every run's value", header, rows, frozenset({"Metric"}))


def _yes(flag: bool) -> str:
    return "yes" if flag else "NO"


def _receiver_row(found: Sameness) -> tuple[str, ...]:
    if found.missing:
        return (found.host, *(("n/a",) * 8), f"no log in {found.missing}")
    return (
        found.host,
        *(_yes(f) for f in (found.products, found.order, found.how, found.retrans)),
        str(found.retrans_differ),
        _yes(found.times),
        f"{1e3 * found.time_differs_s:.3f}",
        _yes(found.latencies),
        f"{1e3 * found.latency_differs_s:.3f}",
    )


def _receiver_table(found: Repeats) -> Table:
    header = (
        *("Receiver", "products", "order", "way", "retrans", "n", "times", "ms", "latencies"),
        "ms ",
    )
    rows = tuple(_receiver_row(r) for r in found.receivers)
    return Table("Deliveries: the same in all runs?", header, rows, frozenset({"Receiver"}))


def _reasons(numbers: Mapping[str, Sequence[Value]]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, values in numbers.items():
        for reason in {v.reason for v in values if v.value is None}:
            by_reason.setdefault(reason, []).append(COMPARED[name].label)
    return [f"n/a: {', '.join(labels)}: {reason}." for reason, labels in by_reason.items()]


def _files_text(found: Repeats) -> str:
    total = found.files_same + len(found.files_different)
    text = f"{found.files_same} of {total} logs and lists are the same byte for byte"
    if found.files_different:
        named = ", ".join(found.files_different[:FILES_LISTED])
        more = len(found.files_different) - FILES_LISTED
        text += f"; different: {named}" + (f" and {more} more" if more > 0 else "")
    return text + "."


def repeats_section(comparison: Comparison, found: Repeats) -> Section:
    """Return the tables of repeats with one clock."""
    sentences = [
        f"{repeats_text(found).capitalize()}.",
        _files_text(found),
        "Deliveries: the same set of products, in the same order, by the same way (FMTP, backstop,"
        " backlog), with the same retransmitted blocks (n: products with others), at the same times"
        " after the first product's creation and with the same latencies (ms: the largest"
        " difference); each against the first run.",
        *_reasons({n: m.values for n, m in found.metrics.items()}),
    ]
    tables = (_spread_table(found), *_value_tables(found), _receiver_table(found))
    return Section(comparison.conditions.label, tuple(sentences), tables)


def clocks_title(found: Clocks) -> str:
    """Return which runs are compared across clocks."""
    native = ", ".join(c.name for c in found.native)
    virtual = ", ".join(c.name for c in found.virtual)
    return f"native ({native}) and virtual ({virtual})"


def clocks_text(found: Clocks) -> str:
    """Return the finding in one sentence."""
    parts = []
    for name in ("throughput", "latency_p50", "nic_bandwidth", "rtt"):
        relative = found.metrics[name].relative
        if relative is not None:
            parts.append(f"{COMPARED[name].label} {100 * relative:+.2f} %")
    text = ", ".join(parts) or "nothing both measured"
    # The environment that the network runs on always differs.
    different = [name for name in found.different_inputs if name not in RUNS_ON]
    return f"virtual against native: {text}{_beforehand(different)}"


def _signed(name: str, value: float | None) -> str:
    if value is None:
        return ""
    metric = COMPARED[name]
    return f"{value / metric.scale:+.{metric.digits + 1}f}"


def _clocks_table(found: Clocks) -> Table:
    several = len(found.native) > 1
    header = ["Metric", "native", "virtual", "difference", "relative"]
    if several:
        header.append("inside")
    rows = []
    for name in SHOWN:
        metric = found.metrics[name]
        if metric.native.value is None and metric.virtual.value is None:
            continue
        virtual = _show(name, metric.virtual.value, 1)
        if name in CPU and metric.virtual.value is None:
            virtual = "n/a: virtual time"
        relative = "" if metric.relative is None else f"{100 * metric.relative:+.2f} %"
        row = [_label(name), _show(name, metric.native.value, 1), virtual]
        row += [_signed(name, metric.difference), relative]
        if several:
            low, high, other = metric.native_low, metric.native_high, metric.virtual.value
            known = low is not None and high is not None and other is not None
            row.append(_yes(low <= other <= high) if known else "")  # type: ignore[operator]
        rows.append(tuple(row))
    more = ("",) if several else ()
    rows.append(("Verdict", found.native_verdict, found.virtual_verdict, "", "", *more))
    return Table(clocks_title(found), tuple(header), tuple(rows), frozenset({"Metric"}))


def clocks_section(comparison: Comparison, found: Clocks) -> Section:
    """Return the table of native beside virtual time."""
    sentences = ["Difference: virtual - native, each the mean over its runs."]
    if len(found.native) > 1:
        sentences.append(
            "Inside: virtual time's value lies between the native runs' minimum and maximum."
        )
    sentences += _reasons(
        {n: (m.native, m.virtual) for n, m in found.metrics.items() if n in SHOWN}
    )
    title = f"{comparison.conditions.label}: native and virtual time"
    return Section(title, tuple(sentences), (_clocks_table(found),))


def inputs_section(comparison: Comparison) -> Section | None:
    """Return what differed before the runs began; None if nothing did."""
    if not comparison.different_inputs:
        return None
    header = ("What", *(c.name for c in comparison.columns))
    rows = tuple((name, *row) for name, row in comparison.different_inputs.items())
    table = Table("", header, rows, frozenset(header), 30)
    return Section(f"{comparison.conditions.label}: inputs that differ", (), (table,))


def findings(comparisons: Sequence[Comparison]) -> list[str]:
    """Return one line for each comparison, as a summary."""
    lines = []
    for found in comparisons:
        label = found.conditions.label
        lines += [f"{label}: {repeats_title(r)}: {repeats_text(r)}" for r in found.repeats]
        if found.clocks is not None:
            lines.append(f"{label}: {clocks_text(found.clocks)}")
        if found.is_one:
            lines.append(f"{label}: only in {found.columns[0].name}: nothing to compare")
    return lines
