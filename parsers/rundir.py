# SPDX-License-Identifier: Apache-2.0
"""The only module of this room that touches files: a run directory in, its report out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from parsers import metrics
from parsers.cell import (
    lossy_link_directions,
    parse_cell,
    parse_manifest,
    parse_verdict,
    parse_virtual,
)
from parsers.comparison import group_cells, to_json
from parsers.counters import parse_counters
from parsers.cpu_log import parse_cpu_log
from parsers.jsonfiles import BadFile
from parsers.ldm_log import parse_ldm_log
from parsers.paper import PaperRow, parse_paper
from parsers.plots import Plot, render_plots
from parsers.products import parse_products
from parsers.ps_log import parse_ps_log
from parsers.report import Report, render_html, render_text
from parsers.sar_log import parse_sar_log
from parsers.sections import build_report
from parsers.summary import CellData, summarize

T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """What `write_report` made. `text` is the contents of report.txt."""

    report: Report
    text: str
    metrics_path: Path
    report_dir: Path


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def load_cell(directory: Path) -> CellData:
    """Reads `cells/<cell>/`. `BadFile` if cell.json is missing or a JSON file is malformed; every
    other file may be missing, which is told in `missing`."""
    missing: list[str] = []

    def optional(name: str, parse: Callable[[str, str], T]) -> T | None:
        path = directory / name
        if not path.is_file():
            missing.append(name)
            return None
        return parse(_read(path), _shown(path))

    cell_file = directory / "cell.json"
    if not cell_file.is_file():
        raise BadFile(f"{cell_file} is missing: {directory} is not the directory of a cell")
    cell = parse_cell(_read(cell_file), str(cell_file))
    hosts = (cell.publisher, *cell.subscribers)
    logs = {h: optional(f"logs/{h}.ldmd.log", parse_ldm_log) for h in hosts}
    products = {h: optional(f"products/{h}.txt", parse_products) for h in hosts}
    virtual = optional("virtual.json", parse_virtual)
    if virtual is None and cell.clock == "native":
        missing.remove("virtual.json")
    return CellData(
        cell=cell,
        verdict=optional("verdict.json", parse_verdict),
        logs={h: log for h, log in logs.items() if log is not None},
        ingest=optional("logs/pqinsert.log", parse_ldm_log),
        sar=optional("logs/sar.log", parse_sar_log),
        ps=optional("logs/ps.log", parse_ps_log),
        cpu=optional("logs/cpu.log", parse_cpu_log),
        products={h: listing for h, listing in products.items() if listing is not None},
        counters_start=optional("counters-start.json", parse_counters),
        counters_end=optional("counters-end.json", parse_counters),
        virtual=virtual,
        lossy_links=optional("network.json", lossy_link_directions) or frozenset(),
        missing=tuple(missing),
    )


def _shown(path: Path) -> str:
    """The path from its cell on, as problems name it."""
    parts = path.parts
    if "cells" in parts:
        return "/".join(parts[len(parts) - parts[::-1].index("cells") :])
    return str(path)


def cell_directories(run_dir: Path) -> list[Path]:
    """The cells of a run, by name. `BadFile` if there is none."""
    cells = run_dir / "cells"
    found = (
        sorted(d for d in cells.iterdir() if d.is_dir() and not d.name.startswith("."))
        if cells.is_dir()
        else []
    )
    if not found:
        raise BadFile(f"{run_dir}: not a run directory: no cells/<cell>/ in it")
    return found


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
        manifest = parse_manifest(_read(manifest_file), str(manifest_file))
        rows, complaints = parse_paper(manifest.paper_rows)
        name = manifest.name
    else:
        complaints = ("manifest.json is missing: no published values to compare with",)
    cells = [summarize(load_cell(directory), group_bytes) for directory in directories]
    groups = group_cells(cells, rows)
    experiment = name or cells[0].cell.experiment
    plots = {
        group.slug: render_plots(group, "" if len(groups) == 1 else f"-{group.slug}")
        for group in groups
    }
    run = f"{experiment}/{run_dir.resolve().name.removeprefix('.').removesuffix('.partial')}"
    report = build_report(experiment, f"run {run}", groups, plots, complaints)
    text = render_text(report)
    document = json.dumps(
        to_json(experiment, groups, complaints), indent=1, sort_keys=True, allow_nan=False
    )
    metrics_path = run_dir / "metrics.json"
    _replace_file(metrics_path, document + "\n")
    report_dir = run_dir / "report"
    _replace_directory(
        report_dir,
        {"report.txt": text.encode(), "index.html": render_html(report).encode(), **_files(plots)},
    )
    return Written(report, text, metrics_path, report_dir)


def _files(plots: dict[str, tuple[Plot, ...]]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for plot in (p for found in plots.values() for p in found):
        files[f"{plot.name}.png"] = plot.png
        files[f"{plot.name}.svg"] = plot.svg
    return files


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
