# SPDX-License-Identifier: Apache-2.0
"""Writes what a run directory says: metrics.json and report/. With `rundir`, which reads, the only
module of this room that touches files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsers import join_leave, join_leave_report, metrics
from parsers.cell import parse_manifest
from parsers.comparison import group_cells, to_json
from parsers.markdown import render_markdown
from parsers.page import render_html
from parsers.paper import PaperRow, parse_paper
from parsers.plots import render_plots
from parsers.report import Report, render_text
from parsers.rundir import cell_directories, load_cell, load_join_leave, read_text
from parsers.sections import build_report
from parsers.summary import summarize
from parsers.units import SUBSCRIPTION_METRICS


@dataclass(frozen=True)
class Written:
    """What `write_report` made. `text` is the contents of report.txt."""

    report: Report
    text: str
    metrics_path: Path
    report_dir: Path


def write_report(run_dir: Path, group_bytes: int = metrics.GROUP_BYTES) -> Written:
    """Re-creates metrics.json and report/ of a run from its other files.

    Nothing else is changed and nothing is left half-written: files are made under temporary names
    and renamed. Running it again gives the same bytes. Raises `BadFile` or `OSError`.
    """
    directories = cell_directories(run_dir)
    manifest_file = run_dir / "manifest.json"
    complaints: tuple[str, ...] = ()
    rows: tuple[PaperRow, ...] = ()
    name = ""
    if manifest_file.is_file():
        manifest = parse_manifest(read_text(manifest_file), str(manifest_file))
        rows, complaints = parse_paper(manifest.paper_rows)
        name = manifest.name
    else:
        complaints = ("manifest.json is missing: no published values to compare with",)
    run_name = run_dir.resolve().name.removeprefix(".").removesuffix(".partial")
    described = [d / "cell.json" for d in directories if (d / "cell.json").is_file()]
    if all(join_leave.is_join_leave(read_text(file)) for file in described):
        made = _join_leave(directories, name, run_name, complaints)
    else:
        made = _transports(directories, name, run_name, rows, complaints, group_bytes)
    text = render_text(made.report)
    document = json.dumps(made.metrics, indent=1, sort_keys=True, allow_nan=False)
    metrics_path = run_dir / "metrics.json"
    _replace_file(metrics_path, document + "\n")
    report_dir = run_dir / "report"
    _replace_directory(
        report_dir,
        {
            "report.txt": text.encode(),
            "index.html": render_html(made.report).encode(),
            "report.md": render_markdown(made.report).encode(),
            **{n: b for plot in made.report.plots for n, b in plot.files.items()},
        },
    )
    return Written(made.report, text, metrics_path, report_dir)


@dataclass(frozen=True)
class _Made:
    report: Report
    metrics: dict[str, Any]  # metrics.json


def _transports(
    directories: Sequence[Path],
    name: str,
    run_name: str,
    rows: tuple[PaperRow, ...],
    complaints: Sequence[str],
    group_bytes: int,
) -> _Made:
    """Of cells that compare LDM7 with LDM6."""
    cells = [summarize(load_cell(directory), group_bytes) for directory in directories]
    groups = group_cells(cells, rows)
    experiment = name or cells[0].cell.experiment
    plots = {
        group.slug: render_plots(group, "" if len(groups) == 1 else f"-{group.slug}")
        for group in groups
    }
    title = f"run {experiment}/{run_name}"
    report = build_report(experiment, title, groups, plots, complaints)
    return _Made(report, to_json(experiment, groups, complaints))


def _join_leave(
    directories: Sequence[Path], name: str, run_name: str, complaints: Sequence[str]
) -> _Made:
    """Of cells whose subscribers join and leave."""
    cells = [join_leave.summarize(load_join_leave(directory)) for directory in directories]
    experiment = name or cells[0].cell.experiment
    title = f"run {experiment}/{run_name}"
    report = join_leave_report.build_report(experiment, title, cells, complaints)
    document = {
        "experiment": experiment,
        "verdict": join_leave_report.worst_verdict(cells),
        "clock": " and ".join(sorted({c.cell.clock for c in cells})),
        "metrics": {
            m.name: {"label": m.label, "unit": m.unit, "source": m.source}
            for m in SUBSCRIPTION_METRICS.values()
        },
        "cells": join_leave.to_json(cells),
        "paper_problems": list(complaints),
    }
    return _Made(report, document)


def _replace_file(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _replace_directory(path: Path, files: dict[str, bytes]) -> None:
    """rename() cannot replace a non-empty directory: the old one steps aside for an instant."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    old = path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
    try:
        fresh.mkdir()
        for name, contents in files.items():
            (fresh / name).write_bytes(contents)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
