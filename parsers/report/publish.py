# SPDX-License-Identifier: Apache-2.0
"""Write metrics.json and report/ of a run directory. In this room, only this module and those which
read (`run_files`, `changed`) access files."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from common import digests
from common.files import whole_name
from parsers.measure import metrics
from parsers.measure.evaluate import Subscriptions, Transports, evaluate
from parsers.report import join_leave_report
from parsers.report.board import BOARD_FILE, board_of, render_board
from parsers.report.brief import BRIEF_FILE, Brief
from parsers.report.changed import changed_documents, warning_about
from parsers.report.document import Report, brief_of, render_text
from parsers.report.drawing import Plot
from parsers.report.figures import draw
from parsers.report.markdown import render_markdown
from parsers.report.page import render_html
from parsers.report.plots import render_plots
from parsers.report.result import result_of
from parsers.report.sections import build_report
from parsers.report.tidy import cells_csv, points_csv

FIGURES_OF_GROUPS: Final = 4  # with more groups of cells, groups have no separate figures


@dataclass(frozen=True)
class Written:
    """The result of `write_report`. `text`: the content of report.txt."""

    report: Report
    brief: Brief
    text: str
    metrics_path: Path
    report_dir: Path


def write_report(
    run_dir: Path, group_bytes: int = metrics.GROUP_BYTES, *, include_invalid: bool = False
) -> Written:
    """Re-create metrics.json and report/ of a run from its other files.

    Nothing else changes, and no file is left half-written: files are written under temporary names
    and renamed. Running it again gives the same bytes. `include_invalid`: means, figures and claims
    also use cells whose verdict is invalid. Raises `BadFile` or `OSError`.
    """
    found = evaluate(run_dir, group_bytes, include_invalid=include_invalid)
    run = f"{found.experiment}/{whole_name(run_dir.resolve())}"
    warning = warning_about(changed_documents(run_dir), run)
    report = replace(make_report(found, run), warning=warning)
    text, brief = render_text(report), brief_of(report)
    document = json.dumps(found.document, indent=1, sort_keys=True, allow_nan=False)
    metrics_path = run_dir / "metrics.json"
    _replace_file(metrics_path, document + "\n")
    report_dir = run_dir / "report"
    files = {
        "report.txt": text.encode(),
        BRIEF_FILE: (brief.model_dump_json(indent=1) + "\n").encode(),
        "index.html": render_html(report).encode(),
        "report.md": render_markdown(report).encode(),
        "points.csv": points_csv(found.points).encode(),
        BOARD_FILE: render_board(*board_of(found, brief, run, run_dir)).encode(),
        **{n: b for plot in report.plots for n, b in plot.files.items()},
    }
    if isinstance(found, Transports):
        files["cells.csv"] = cells_csv(found.cells).encode()
    listed = {name: digests.digest_of_bytes(content) for name, content in sorted(files.items())}
    files[digests.NAME] = (json.dumps(digests.described(listed), indent=1) + "\n").encode()
    _replace_directory(report_dir, files)
    return Written(report, brief, text, metrics_path, report_dir)


def make_report(found: Transports | Subscriptions, run: str) -> Report:
    """Draw the figures and word the report; write nothing. `run`: EXPERIMENT/STAMP."""
    published = found.published
    excluded = {name for point in found.points for name in point.excluded}
    cells = found.cells if isinstance(found, Transports) else ()
    used = [cell for cell in cells if cell.cell.cell not in excluded]
    drawn = draw(published.figures, found.points, used, published.paper)
    if isinstance(found, Subscriptions):
        report = join_leave_report.build_report(run, found, drawn)
    else:
        report = build_report(run, found, drawn, _plots_of_groups(found))
    result = result_of(found)
    return replace(report, result=result.sentences, main_tables=result.tables)


def _plots_of_groups(found: Transports) -> dict[str, tuple[Plot, ...]]:
    groups = found.groups
    if found.published.figures or len(groups) > FIGURES_OF_GROUPS:
        return {}
    return {
        group.slug: render_plots(group, "" if len(groups) == 1 else f"-{group.slug}")
        for group in groups
    }


def _replace_file(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _replace_directory(path: Path, files: dict[str, bytes]) -> None:
    """Replace a directory. rename() cannot replace a directory that is not empty, so the old one is
    moved aside briefly."""
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
