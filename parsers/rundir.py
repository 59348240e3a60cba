# SPDX-License-Identifier: Apache-2.0
"""The only module of this room that touches files: a run directory in, its report out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from parsers import join_leave, join_leave_report, metrics
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
from parsers.join_leave import JoinLeaveData
from parsers.jsonfiles import BadFile
from parsers.ldm_log import parse_ldm_log
from parsers.paper import PaperRow, parse_paper
from parsers.plots import Plot, render_plots
from parsers.products import parse_products
from parsers.ps_log import parse_ps_log
from parsers.report import Report, render_html, render_text
from parsers.sar_log import parse_sar_log
from parsers.sections import build_report
from parsers.subscriptions import parse_events
from parsers.summary import CellData, summarize
from parsers.units import SUBSCRIPTION_METRICS

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
    text = _read(cell_file)
    if join_leave.is_join_leave(text):
        raise BadFile(f"{cell_file}: found a cell of kind '{join_leave.KIND}'; valid: LDM7 or LDM6")
    cell = parse_cell(text, str(cell_file))
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


def load_join_leave(directory: Path) -> JoinLeaveData:
    """Reads `cells/<cell>/` of a cell whose subscribers join and leave. `BadFile` as `load_cell`;
    without events.json nothing can be said of it."""
    missing: list[str] = []

    def optional(name: str, parse: Callable[[str, str], T]) -> T | None:
        path = directory / name
        if not path.is_file():
            missing.append(name)
            return None
        return parse(_read(path), _shown(path))

    def present(found: Mapping[str, T | None]) -> dict[str, T]:
        return {name: value for name, value in found.items() if value is not None}

    cell = join_leave.parse_cell(_read(directory / "cell.json"), str(directory / "cell.json"))
    events = optional("events.json", parse_events)
    if events is None:
        raise BadFile(f"{directory / 'events.json'} is missing: who joined what is not known")
    names = list(cell.endpoints)
    feeds = [feed.name for feed in cell.feeds]
    lists = [*(f"{cell.publisher}.{feed}" for feed in feeds), *names]
    virtual = optional("virtual.json", parse_virtual)
    if virtual is None and cell.clock == "native":
        missing.remove("virtual.json")
    return JoinLeaveData(
        cell=cell,
        verdict=optional("verdict.json", parse_verdict),
        events=events,
        logs=present(
            {n: optional(f"logs/{n}.ldmd.log", parse_ldm_log) for n in (cell.publisher, *names)}
        ),
        ingest=present({f: optional(f"logs/pqinsert.{f}.log", parse_ldm_log) for f in feeds}),
        products=present({n: optional(f"products/{n}.txt", parse_products) for n in lists}),
        counters_start=optional("counters-start.json", parse_counters),
        counters_end=optional("counters-end.json", parse_counters),
        paths_end=optional("paths-end.json", join_leave.parse_paths) or (),
        path_counters=optional("path-counters.json", join_leave.parse_path_counters) or (),
        lossy_links=optional("network.json", lossy_link_directions) or frozenset(),
        virtual=virtual,
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
    run_name = run_dir.resolve().name.removeprefix(".").removesuffix(".partial")
    if all(join_leave.is_join_leave(_read(d / "cell.json")) for d in directories if _described(d)):
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
            **_files(made.plots),
        },
    )
    return Written(made.report, text, metrics_path, report_dir)


def _described(directory: Path) -> bool:
    return (directory / "cell.json").is_file()


@dataclass(frozen=True)
class _Made:
    report: Report
    metrics: dict[str, Any]  # metrics.json
    plots: Mapping[str, tuple[Plot, ...]]


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
    return _Made(report, to_json(experiment, groups, complaints), plots)


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
    return _Made(report, document, {})


def _files(plots: Mapping[str, tuple[Plot, ...]]) -> dict[str, bytes]:
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
