# SPDX-License-Identifier: Apache-2.0
"""`downpour report RUN RUN ...`: runs side by side.

Points (combinations of factor levels) appear side by side with their error bars. Cells under the
same conditions (topology, factors, duration) are compared wherever they ran: cells of one clock as
repeats, to the last digit, and cells of different clocks as native against virtual. Memory holds
only the records of cells under the same conditions at a time.
"""

from __future__ import annotations

import hashlib
import json
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from common.terminal import columns, is_ascii_only
from experiments.cells.run_directory import no_run, write_json
from experiments.runs.comparison_files import PAGE, TITLE, NoPlace, place_for, written
from parsers.base.jsonfiles import BadFile
from parsers.measure import join_leave, sweep
from parsers.measure.agreement import agreement
from parsers.measure.evaluate import evaluate
from parsers.measure.run_files import cell_directories, load_cell, read_text
from parsers.measure.side_by_side import (
    Column,
    Comparison,
    Conditions,
    compare,
    conditions_of,
    deliveries_of,
    without_deliveries,
)
from parsers.measure.summary import CellMetrics, summarize
from parsers.measure.sweep import Point
from parsers.measure.verdicts import verdict_of, worst_verdict
from parsers.read.cell_files import Cell, parse_cell, parse_manifest
from parsers.read.published import Published, parse_published
from parsers.report.brief import BriefTable, shown_brief
from parsers.report.document import (
    Banner,
    Report,
    Section,
    Table,
    brief_of,
    render_text,
)
from parsers.report.figures import Drawn, draw
from parsers.report.markdown import render_markdown
from parsers.report.page import render_html
from parsers.report.sections import clock_text
from parsers.report.side_by_side_json import to_json
from parsers.report.side_by_side_report import (
    clocks_section,
    findings,
    inputs_section,
    repeats_section,
)
from parsers.report.sweep_sections import figures_section, folded
from parsers.report.two_runs import (
    agreement_text,
    differences_section,
    differing_table,
    marked,
    points_section,
)

FOLDED_FROM: Final = 5  # from this many comparisons on, tables are folded, and left out of text
LISTED: Final = 12  # findings before "and N more"
FIGURES: Final = ("lines", "bars")  # kinds that can have a line of each run


@dataclass(frozen=True)
class Run:
    """One run directory. `letter` is its short name in tables. `cells`: each cell's name in tables,
    directory and description; none for a run whose subscribers join and leave."""

    letter: str
    name: str
    path: Path
    manifest: Mapping[str, Any]
    published: Published
    cells: tuple[tuple[str, Path, Cell], ...]


class NotComparable(Exception):
    """The runs given cannot be compared; the text says why."""


# -- files ------------------------------------------------------------------------------------
def find_runs(paths: Sequence[Path]) -> tuple[Run, ...]:
    """Read the runs. Raises BadFile, NotComparable or OSError."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise NotComparable(no_run(path))
        if (same := seen.get(path.resolve())) is not None:
            raise NotComparable(f"found {path}, the same run as {same}; valid: each run once")
        seen[path.resolve()] = path
    letters = [*string.ascii_uppercase, *(f"R{n}" for n in range(27, len(paths) + 1))]
    return tuple(_find(path, letter) for path, letter in zip(paths, letters, strict=False))


def _find(path: Path, letter: str) -> Run:
    target, directories = path.resolve(), cell_directories(path)
    manifest: Mapping[str, Any] = {}
    if (file := path / "manifest.json").is_file():
        manifest = parse_manifest(read_text(file), str(file)).raw
    described = []
    for directory in directories:
        if not (file := directory / "cell.json").is_file():
            raise BadFile(f"{file} is missing: {directory} is not the directory of a cell")
        text = read_text(file)
        if not join_leave.is_join_leave(text):
            described.append((directory, parse_cell(text, str(file))))
    name = f"{target.parent.name}/{target.name}"
    published, _ = parse_published(manifest)
    return Run(letter, name, path, manifest, published, tuple(_named(letter, described)))


def _named(letter: str, cells: Sequence[tuple[Path, Cell]]) -> Iterator[tuple[str, Path, Cell]]:
    """Yield the names of cells. If a run has several cells under one condition (repeats), they are
    numbered: A1, A2."""
    many = Counter((conditions_of(cell), cell.clock) for _, cell in cells)
    numbers: Counter[tuple[Conditions, str]] = Counter()
    for directory, cell in cells:
        key = (conditions_of(cell), cell.clock)
        numbers[key] += 1
        yield letter + (str(numbers[key]) if many[key] > 1 else ""), directory, cell


def _column(run: Run, name: str, directory: Path) -> Column:
    data = load_cell(directory)
    return Column(
        name=name,
        run=run.name,
        metrics=summarize(data, other_group_bytes=run.published.file_set_bytes),
        deliveries=deliveries_of(data),
        digests=dict(_digests(directory)),
        facts=_facts(directory / "facts.json"),
    )


def _digests(directory: Path) -> Iterator[tuple[str, str]]:
    """Return the SHA-256 of every log, time stamps included, and of every list of products."""
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


# -- comparing --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Compared:
    """All findings. The columns no longer contain their deliveries."""

    runs: tuple[Run, ...]
    columns: tuple[Column, ...]
    comparisons: tuple[Comparison, ...]
    points: Mapping[str, tuple[Point, ...]]  # letter -> of that run


def compare_runs(runs: Sequence[Run]) -> Compared:
    """Read and compare the cells, one group with the same conditions at a time."""
    metrics: dict[str, list[CellMetrics]] = {run.letter: [] for run in runs}
    comparisons = []
    for conditions, group in _together(runs).items():
        columns = [_column(*one) for one in group]
        for (run, _, _), column in zip(group, columns, strict=True):
            metrics[run.letter].append(column.metrics)
        comparisons += [
            replace(without_deliveries(found), conditions=conditions) for found in compare(columns)
        ]
    points = {
        run.letter: sweep.points(metrics[run.letter]) if run.cells else evaluate(run.path).points
        for run in runs
    }
    columns = [column for found in comparisons for column in found.columns]
    order = {name: n for n, name in enumerate(n for run in runs for n, _, _ in run.cells)}
    columns.sort(key=lambda c: order[c.name])
    return Compared(tuple(runs), tuple(columns), tuple(comparisons), points)


def _together(runs: Sequence[Run]) -> dict[Conditions, list[tuple[Run, str, Path]]]:
    """Return the cells (run, name, directory) to compare. If two or more runs have several repeats,
    repeats with the same number are compared: they have the same seed."""
    several = Counter(
        conditions
        for run in runs
        for conditions, count in Counter(conditions_of(c) for _, _, c in run.cells).items()
        if count > 1
    )
    found: dict[Conditions, list[tuple[Run, str, Path]]] = {}
    for run in runs:
        for name, directory, cell in run.cells:
            conditions = conditions_of(cell)
            if several[conditions] > 1:
                conditions = replace(conditions, repeat=cell.repeat)
            found.setdefault(conditions, []).append((run, name, directory))
    return found


def _runs_section(found: Compared) -> Section:
    rows = []
    for run in found.runs:
        for column in (c for c in found.columns if c.run == run.name):
            clock = clock_text(column.metrics).removeprefix("clock: ")
            row = (column.name, run.name, column.cell.cell, verdict_of(column.metrics), clock)
            rows.append(row)
    header = ("Run", "Directory", "Cell", "Verdict", "Clock")
    return Section("Runs", (), (Table("", header, tuple(rows), frozenset(header), 28),))


def same_seeds(runs: Sequence[Run]) -> bool:
    """Return whether repeats of the same number have the same seed in all runs, as far as their
    manifests say."""
    known: dict[int, int] = {}
    cells = [cell for run in runs for cell in run.manifest.get("cells", ())]
    return all(known.setdefault(c.get("repeat"), c.get("seed")) == c.get("seed") for c in cells)


def build(found: Compared) -> Report:
    """Build the report of all comparisons."""
    verdict = worst_verdict(c.metrics for c in found.columns)
    letters = {run.letter: run for run in found.runs}
    several = len(found.runs) > 1
    manifests = {letter: run.manifest for letter, run in letters.items()}
    published, equal = found.runs[0].published, same_seeds(found.runs)
    kinds = tuple(f for f in published.figures if f.kind in FIGURES)
    drawn = Drawn((), ())
    if several:
        drawn = draw(kinds, marked(found.points), (), published.paper)
    each: list[Section] = []
    for comparison in found.comparisons:
        if (inputs := inputs_section(comparison)) is not None:
            each.append(inputs)
        each += [repeats_section(comparison, r) for r in comparison.repeats]
        if comparison.clocks is not None:
            each.append(clocks_section(comparison, comparison.clocks))
    if len(found.comparisons) >= FOLDED_FROM:
        each = [folded("Cells under the same conditions", each)]
    sections = [
        _runs_section(found),
        differences_section(manifests) if several else None,
        points_section(found.points, published, same_seeds=equal) if several else None,
        figures_section(drawn),
        *each,
    ]
    headline = (
        f"{counted(len(found.columns), 'cell')} of "
        f"{counted(len(found.runs), 'run')}; the worst verdict is {verdict}."
    )
    lines = findings(found.comparisons)
    main_tables: tuple[BriefTable, ...] = ()
    if len(found.runs) == 2:
        a, b = letters
        agreed = agreement(found.points[a], found.points[b], same_seeds=equal)
        lines.insert(0, f"{agreement_text(agreed, a, b)}.")
        main_tables = (differing_table(agreed, found.points),)
    if len(lines) > LISTED:
        lines = [*lines[:LISTED], f"and {len(lines) - LISTED} more"]
    names = ", ".join(f"{run.letter} = {run.name}" for run in found.runs)
    return Report(
        TITLE,
        names,
        Banner(verdict, headline, tuple(lines), "Comparison"),
        tuple(s for s in sections if s is not None),
        main_tables=main_tables,
    )


# -- command ----------------------------------------------------------------------------------
def default_output(runs: Sequence[Run]) -> Path:
    """Return runs/compared/EXPERIMENT-STAMP--EXPERIMENT-STAMP beside the runs."""
    names = [run.name.replace("/", "-") for run in runs]
    named = "--".join(names if len(names) < 3 else [names[0], names[-1], f"{len(names)}-runs"])
    return runs[-1].path.resolve().parent.parent / "compared" / named


def main(
    paths: Sequence[Path],
    *,
    output: Path | None = None,
    json_file: Path | None = None,
    identical: bool = False,
    full: bool = False,
) -> int:
    """Compare the runs, print the result (`full`: the whole text), and write page, Markdown and
    figures to `output`, unless anything goes wrong. Return the exit code."""
    try:
        runs = find_runs(paths)
        target = place_for(output if output is not None else default_output(runs), json_file)
        found = _comparable(runs)
        report = build(found)
        with written(target, _files(report)):  # all, or nothing
            if json_file is not None:
                names = {run.letter: run.name for run in runs}
                write_json(json_file, to_json(names, found.comparisons))
    except (BadFile, NoPlace, NotComparable) as error:
        print(f"report: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"report: {os_error_text(error)}", file=sys.stderr)
        return EXIT_USAGE
    page = str((output if output is not None else target) / PAGE)
    if full:
        ascii_only = is_ascii_only(sys.stdout)
        print(f"{render_text(report, columns(), ascii_only=ascii_only)}\nReport: {page}")
    else:
        print(shown_brief(brief_of(report), page), end="")
    if identical and not _all_identical(found.comparisons):
        print("report: --identical, but there are no identical repeats", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _comparable(runs: Sequence[Run]) -> Compared:
    """Compare the runs. Raises NotComparable if no two cells have the same conditions."""
    found = compare_runs(runs)
    alone = all(c.is_one for c in found.comparisons)
    if alone and (len(runs) == 1 or found.comparisons):
        cells = ", ".join(f"{c.name}: {c.cell.cell}" for c in found.columns)
        raise NotComparable(
            f"found no two cells under the same conditions ({cells}); valid: two runs of one "
            "experiment, or one with repeats"
        )
    return found


def _files(report: Report) -> dict[str, bytes]:
    """Return the content of the comparison's files, by name."""
    texts = {
        "report.txt": render_text(report),
        "report.md": render_markdown(report),
        PAGE: render_html(report),
    }
    figures = {name: content for plot in report.plots for name, content in plot.files.items()}
    return figures | {name: text.encode("utf-8") for name, text in texts.items()}


def _all_identical(comparisons: Sequence[Comparison]) -> bool:
    repeats = [r for c in comparisons for r in c.repeats]
    return bool(repeats) and all(r.identical for r in repeats)
