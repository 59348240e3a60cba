# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments compare RUN [RUN ...]`: runs side by side.

Cells under the same conditions (topology, protocol, m, r, loss, duration) are compared, wherever
they were made: those of one clock as repeats, to the last digit; those of different clocks as
native against virtual.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from experiments.rundir import write_json, write_text
from parsers.comparison import verdict_of, worst_verdict
from parsers.jsonfiles import BadFile
from parsers.page import render_html
from parsers.report import Banner, Report, Section, Table, render_text
from parsers.rundir import cell_directories, load_cell
from parsers.sections import clock_text
from parsers.side_by_side import (
    COMPARED,
    RUNS_ON,
    Clocks,
    Column,
    Comparison,
    Repeats,
    Sameness,
    Spread,
    compare,
    conditions_of,
    deliveries_of,
)
from parsers.summary import summarize
from parsers.units import Value

EXIT_OK, EXIT_DIFFERENT, EXIT_USAGE = 0, 1, 2
MORE_DIGITS: Final = 3  # than a report shows
COLUMNS_AT_ONCE: Final = 4  # as many values as fit beside each other
FILES_LISTED: Final = 12

# Of native against virtual; the rest is in the JSON.
SHOWN: Final = (
    *("throughput", "throughput_whole", "ffdr", "mplr", "retransmitted_blocks"),
    *("input_rate", "nic_bandwidth", "bandwidth_over_offered", "cpu", "cpu_one_core"),
    *("latency_p50", "latency_p90", "latency_p99", "latency_max", "latency_mean"),
    *("fmtp_delay_p50", "fmtp_delay_p99", "loss_injected", "loss_measured", "rtt", "rtt_error"),
    "products_identical",
)
ERRORS: Final = frozenset({"rtt_error"})  # should be 0: no share of them tells anything
CPU: Final = frozenset({"cpu", "cpu_one_core", "cpu_ps"})


@dataclass(frozen=True)
class Run:
    """One run directory. `letter` is its short name in tables."""

    letter: str
    name: str
    columns: tuple[Column, ...]


class NotComparable(Exception):
    """The runs given cannot be compared; the text says why."""


# -- files ------------------------------------------------------------------------------------
def load_runs(paths: Sequence[Path]) -> tuple[Run, ...]:
    """Raises BadFile, NotComparable or OSError."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise NotComparable(
                f"found {path}, which is no directory; valid: runs/EXPERIMENT/STAMP"
            )
        if (same := seen.get(path.resolve())) is not None:
            raise NotComparable(f"found {path}, the same run as {same}; valid: each run once")
        seen[path.resolve()] = path
    letters = [*string.ascii_uppercase, *(f"R{n}" for n in range(27, len(paths) + 1))]
    return tuple(_load(path, letter) for path, letter in zip(paths, letters, strict=False))


def _load(path: Path, letter: str) -> Run:
    target = path.resolve()
    name = f"{target.parent.name}/{target.name}"
    columns = []
    for directory in cell_directories(path):
        data = load_cell(directory)
        columns.append(
            Column(
                name=letter,
                run=name,
                metrics=summarize(data),
                deliveries=deliveries_of(data),
                digests=dict(_digests(directory)),
                facts=_facts(directory / "facts.json"),
            )
        )
    return Run(letter, name, tuple(columns))


def _digests(directory: Path) -> Iterator[tuple[str, str]]:
    """SHA-256 of every log, time stamps included, and of every list of products."""
    for folder in ("logs", "products"):
        for path in sorted((directory / folder).glob("*")):
            if path.is_file():
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                yield f"{folder}/{path.name}", digest


def _facts(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadFile(f"{path}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BadFile(f"{path}: expected an object, found {type(raw).__name__}")
    return raw


# -- columns ----------------------------------------------------------------------------------
def column_names(runs: Sequence[Run]) -> list[Column]:
    """All columns; a run with several cells under one condition (repeats) numbers them: A1, A2."""
    found = []
    for run in runs:
        together: dict[Any, list[Column]] = {}
        for column in run.columns:
            key = (conditions_of(column.cell), column.cell.clock)
            together.setdefault(key, []).append(column)
        for column in run.columns:
            same = together[(conditions_of(column.cell), column.cell.clock)]
            number = str(same.index(column) + 1) if len(same) > 1 else ""
            found.append(replace(column, name=run.letter + number))
    return found


# -- text -------------------------------------------------------------------------------------
def _show(name: str, value: float | None, more: int = MORE_DIGITS) -> str:
    metric = COMPARED[name]
    return "n/a" if value is None else f"{value / metric.scale:.{metric.digits + more}f}"


def _label(name: str) -> str:
    metric = COMPARED[name]
    return f"{metric.label}, {metric.shown_unit}" if metric.shown_unit else metric.label


def _amount(name: str, value: float | None) -> str:
    """A spread: as short as it may be, but never 0 unless it is."""
    return "n/a" if value is None else f"{value / COMPARED[name].scale:.3g}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.2g} %"


def repeats_title(found: Repeats) -> str:
    names = ", ".join(c.name for c in found.columns)
    return f"{len(found.columns)} repeats, {found.clock} time ({names})"


def repeats_text(found: Repeats) -> str:
    """The finding in one sentence."""
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
    return f"; not the same beforehand: {', '.join(different)}" if different else ""


def _spread_table(found: Repeats) -> Table:
    """Of two runs the values themselves stand for minimum and maximum."""
    two = len(found.columns) == 2
    limits = tuple(c.name for c in found.columns) if two else ("minimum", "maximum")
    header = ("Metric", *limits, "spread", "of the mean", "same")
    rows = []
    for name, metric in found.metrics.items():
        if metric.low is None and metric.same:
            continue  # the sentence below the tables says why
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


def _repeats_section(comparison: Comparison, found: Repeats) -> Section:
    sentences = [
        f"{repeats_text(found).capitalize()}.",
        _files_text(found),
        "Deliveries: the same set of products, in the same order, on the same way (FMTP, backstop,"
        " backlog), with the same retransmitted blocks (n: products with others), at the same times"
        " after the first product's creation and with the same latencies (ms: the largest"
        " difference); each against the first run.",
        *_reasons({n: m.values for n, m in found.metrics.items()}),
    ]
    tables = (_spread_table(found), *_value_tables(found), _receiver_table(found))
    return Section(comparison.conditions.label, tuple(sentences), tables)


def clocks_title(found: Clocks) -> str:
    native = ", ".join(c.name for c in found.native)
    virtual = ", ".join(c.name for c in found.virtual)
    return f"native ({native}) and virtual ({virtual})"


def clocks_text(found: Clocks) -> str:
    """The finding in one sentence."""
    parts = []
    for name in ("throughput", "latency_p50", "nic_bandwidth", "rtt"):
        relative = found.metrics[name].relative
        if relative is not None:
            parts.append(f"{COMPARED[name].label} {100 * relative:+.2f} %")
    text = ", ".join(parts) or "nothing both measured"
    # On what the network runs always differs.
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


def _clocks_section(comparison: Comparison, found: Clocks) -> Section:
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


def _inputs_section(comparison: Comparison) -> Section | None:
    if not comparison.different_inputs:
        return None
    header = ("What", *(c.name for c in comparison.columns))
    rows = tuple((name, *row) for name, row in comparison.different_inputs.items())
    table = Table("", header, rows, frozenset(header), 30)
    return Section(f"{comparison.conditions.label}: what was not the same beforehand", (), (table,))


def _runs_section(runs: Sequence[Run], columns: Sequence[Column]) -> Section:
    rows = []
    for run in runs:
        for column in (c for c in columns if c.name.startswith(run.letter) and c.run == run.name):
            clock = clock_text(column.metrics).removeprefix("clock: ")
            row = (column.name, run.name, column.cell.cell, verdict_of(column.metrics), clock)
            rows.append(row)
    header = ("Run", "Directory", "Cell", "Verdict", "Clock")
    return Section("Runs", (), (Table("", header, tuple(rows), frozenset(header), 28),))


def findings(comparisons: Sequence[Comparison]) -> list[str]:
    """One line per comparison, the summary of all."""
    lines = []
    for found in comparisons:
        label = found.conditions.label
        lines += [f"{label}: {repeats_title(r)}: {repeats_text(r)}" for r in found.repeats]
        if found.clocks is not None:
            lines.append(f"{label}: {clocks_text(found.clocks)}")
        if found.is_one:
            lines.append(f"{label}: only in {found.columns[0].name}: nothing to compare")
    return lines


def build(
    runs: Sequence[Run], columns: Sequence[Column], comparisons: Sequence[Comparison]
) -> Report:
    """The report of all comparisons."""
    verdict = worst_verdict(c.metrics for c in columns)
    sections = [_runs_section(runs, columns)]
    for found in comparisons:
        if (inputs := _inputs_section(found)) is not None:
            sections.append(inputs)
        sections += [_repeats_section(found, r) for r in found.repeats]
        if found.clocks is not None:
            sections.append(_clocks_section(found, found.clocks))
    headline = f"{len(columns)} cells of {len(runs)} runs; the worst verdict is {verdict}."
    banner = Banner(verdict, headline, tuple(findings(comparisons)), "Comparison")
    names = ", ".join(f"{r.letter} = {r.name}" for r in runs)
    return Report("Downpour: comparison", names, banner, tuple(sections))


# -- JSON -------------------------------------------------------------------------------------
def _value_json(value: Value) -> dict[str, Any]:
    return {"value": value.value, "reason": value.reason}


def _repeats_json(found: Repeats) -> dict[str, Any]:
    return {
        "clock": found.clock,
        "columns": [c.name for c in found.columns],
        "identical": found.identical,
        "text": repeats_text(found),
        "metrics": {
            name: {
                "unit": COMPARED[name].unit,
                "values": [_value_json(v) for v in m.values],
                "minimum": m.low,
                "maximum": m.high,
                "spread": m.spread,
                "relative": m.relative,
                "same": m.same,
            }
            for name, m in found.metrics.items()
        },
        "receivers": {
            r.host: {
                "identical": r.identical,
                "products": r.products,
                "order": r.order,
                "way": r.how,
                "retransmissions": r.retrans,
                "retransmissions_differ": r.retrans_differ,
                "times": r.times,
                "time_differs_s": r.time_differs_s,
                "latencies": r.latencies,
                "latency_differs_s": r.latency_differs_s,
                "no_log_in": r.missing,
            }
            for r in found.receivers
        },
        "files": {"same": found.files_same, "different": list(found.files_different)},
    }


def _clocks_json(found: Clocks) -> dict[str, Any]:
    return {
        "native": {"columns": [c.name for c in found.native], "verdict": found.native_verdict},
        "virtual": {"columns": [c.name for c in found.virtual], "verdict": found.virtual_verdict},
        "metrics": {
            name: {
                "unit": COMPARED[name].unit,
                "native": _value_json(m.native),
                "virtual": _value_json(m.virtual),
                "difference": m.difference,
                "relative": m.relative,
                "native_minimum": m.native_low,
                "native_maximum": m.native_high,
            }
            for name, m in found.metrics.items()
        },
    }


def to_json(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Everything the text says, with all digits."""
    return {
        "runs": {r.letter: r.name for r in runs},
        "comparisons": [
            {
                "conditions": {**asdict(found.conditions), "label": found.conditions.label},
                "cells": {
                    c.name: {
                        "run": c.run,
                        "cell": c.cell.cell,
                        "clock": c.cell.clock,
                        "verdict": verdict_of(c.metrics),
                        "virtual": c.metrics.virtual.model_dump() if c.metrics.virtual else None,
                    }
                    for c in found.columns
                },
                "different_inputs": {k: list(v) for k, v in found.different_inputs.items()},
                "repeats": [_repeats_json(r) for r in found.repeats],
                "clocks": _clocks_json(found.clocks) if found.clocks is not None else None,
            }
            for found in comparisons
        ],
    }


# -- command ----------------------------------------------------------------------------------
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments compare",
        description="Runs side by side: repeats under one clock, native time against virtual time.",
        epilog="exit codes: 0 compared; 1 --identical, and repeats are not; 2 bad usage or input",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="runs/EXPERIMENT/STAMP")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures with all digits")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the tables as one page")
    parser.add_argument(
        "--identical", action="store_true", help="exit 1 unless all repeats are identical"
    )
    return parser


def main(arguments: Sequence[str | Path]) -> int:
    """Compares the runs and prints the tables; files only when all went well."""
    options = _parser().parse_args([os.fspath(a) for a in arguments])
    try:
        runs = load_runs(options.runs)
        columns = column_names(runs)
        comparisons = compare(columns)
        if all(c.is_one for c in comparisons):
            cells = ", ".join(f"{c.name}: {c.cell.cell}" for c in columns)
            raise NotComparable(
                f"found no two cells under the same conditions ({cells}); valid: two runs of one "
                "experiment, or one with repeats"
            )
        report = build(runs, columns, comparisons)
        if options.json is not None:
            write_json(options.json, to_json(runs, comparisons))
        if options.html is not None:
            write_text(options.html, render_html(report))
    except (BadFile, NotComparable) as error:
        print(f"compare: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"compare: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    print(render_text(report), end="")
    if options.identical and not _all_identical(comparisons):
        print("compare: --identical, but there are no identical repeats", file=sys.stderr)
        return EXIT_DIFFERENT
    return EXIT_OK


def _all_identical(comparisons: Sequence[Comparison]) -> bool:
    repeats = [r for c in comparisons for r in c.repeats]
    return bool(repeats) and all(r.identical for r in repeats)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
