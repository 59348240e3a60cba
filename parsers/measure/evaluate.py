# SPDX-License-Identifier: Apache-2.0
"""Compute everything measured from a run directory's files. Draws and writes nothing.

The report is made from the result, and `verify` compares it with the existing metrics.json.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from parsers.base.metric_units import SUBSCRIPTION_METRICS
from parsers.measure import (
    claims,
    join_leave,
    metrics,
    sweep,
)
from parsers.measure.claims import ClaimResult
from parsers.measure.comparison import Group, group_cells, to_json
from parsers.measure.join_leave import JoinLeaveMetrics
from parsers.measure.paper import Headline, headlines
from parsers.measure.run_files import (
    cell_directories,
    load_cell,
    load_join_leave,
    read_text,
)
from parsers.measure.summary import CellMetrics, summarize
from parsers.measure.sweep import Point
from parsers.measure.sweep_json import sweep_json
from parsers.measure.verdicts import worst_verdict
from parsers.read.cell_files import Manifest, parse_manifest
from parsers.read.published import Claim, Published, parse_published

PARALLEL_FROM_BYTES: Final = 30_000_000  # of logs; with less, starting processes would take longer

OnCell = Callable[[str], None]  # called with the name of each cell whose logs were read


@dataclass(frozen=True)
class Transports:
    """A run whose cells compare LDM7 with LDM6."""

    experiment: str
    manifest: Manifest
    complaints: tuple[str, ...]  # about the manifest's blocks
    published: Published
    cells: tuple[CellMetrics, ...]
    groups: tuple[Group, ...]
    points: tuple[Point, ...]
    claims: tuple[ClaimResult, ...]
    headlines: tuple[Headline, ...]
    document: dict[str, object]  # metrics.json

    @property
    def has_peers(self) -> bool:
        """Return whether other protocols than LDM7 and LDM6 took part."""
        return any(cell.about is not None for cell in self.cells)


@dataclass(frozen=True)
class Subscriptions:
    """A run whose subscribers join and leave."""

    experiment: str
    manifest: Manifest
    complaints: tuple[str, ...]
    published: Published
    cells: tuple[JoinLeaveMetrics, ...]
    points: tuple[Point, ...]
    claims: tuple[ClaimResult, ...]
    headlines: tuple[Headline, ...]
    document: dict[str, object]


def evaluate(
    run_dir: Path,
    group_bytes: int = metrics.GROUP_BYTES,
    *,
    include_invalid: bool = False,
    on_cell: OnCell = lambda _: None,
    instead: tuple[Claim, ...] | None = None,
) -> Transports | Subscriptions:
    """Read and measure all cells of a run. `instead`: other claims than the manifest's. Raises
    `BadFile` or `OSError`."""
    directories = cell_directories(run_dir)
    manifest_file = run_dir / "manifest.json"
    manifest = Manifest()
    complaints: tuple[str, ...] = ("manifest.json is missing: no published values to compare with",)
    published = Published()
    if manifest_file.is_file():
        manifest = parse_manifest(read_text(manifest_file), str(manifest_file))
        published, complaints = parse_published(manifest.raw)
    if instead is not None:
        published = published.model_copy(update={"claims": instead})
    described = [d / "cell.json" for d in directories if (d / "cell.json").is_file()]
    if all(join_leave.is_join_leave(read_text(file)) for file in described):
        return _subscriptions(
            directories, manifest, published, complaints, include_invalid, on_cell
        )
    return _transports(
        directories, manifest, published, complaints, group_bytes, include_invalid, on_cell
    )


def _transports(
    directories: Sequence[Path],
    manifest: Manifest,
    published: Published,
    complaints: tuple[str, ...],
    group_bytes: int,
    include_invalid: bool,
    on_cell: OnCell,
) -> Transports:
    cells = list(_summaries(directories, group_bytes, published.file_set_bytes, on_cell))
    groups = group_cells(cells, published.paper, include_invalid=include_invalid)
    points = sweep.points(cells, include_invalid=include_invalid, by_length=published.by_length)
    judged = claims.judge(published.claims, points, no_more(manifest.raw))
    beside = headlines(published.paper, points)
    experiment = manifest.name or cells[0].cell.experiment
    document = {
        **to_json(experiment, groups, complaints),
        **sweep_json(points, judged, beside),
        "file_set_bytes": group_bytes,
        "include_invalid": include_invalid,
    }
    return Transports(
        experiment,
        manifest,
        complaints,
        published,
        tuple(cells),
        groups,
        points,
        judged,
        beside,
        document,
    )


def cell_metrics(directory: Path, published: Published) -> CellMetrics | JoinLeaveMetrics:
    """Read and measure one complete cell of either kind. Raises `BadFile` or `OSError`."""
    if join_leave.is_join_leave(read_text(directory / "cell.json")):
        return join_leave.summarize(load_join_leave(directory))
    return _summary(directory, metrics.GROUP_BYTES, published.file_set_bytes)


def no_more(manifest: Mapping[str, object]) -> str:
    """Return, from a run's manifest, why the run has no more repeats."""
    until = manifest.get("until_decided")
    stopped = until.get("stopped") if isinstance(until, Mapping) else None
    return stopped if isinstance(stopped, str) else claims.NO_MORE


def _summaries(
    directories: Sequence[Path],
    group_bytes: int,
    other_group_bytes: Sequence[int],
    on_cell: OnCell,
) -> Iterator[CellMetrics]:
    """Yield the metrics of cells, in order. For large cells, one process per core parses, with the
    records of one cell at a time."""
    one = partial(_summary, group_bytes=group_bytes, other_group_bytes=tuple(other_group_bytes))
    size = sum(f.stat().st_size for d in directories for f in d.glob("logs/*"))
    jobs = min(len(directories), len(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        found: Iterator[CellMetrics] = map(one, directories)
        if jobs > 1 and size >= PARALLEL_FROM_BYTES:
            found = stack.enter_context(ProcessPoolExecutor(jobs)).map(one, directories)
        for directory, cell in zip(directories, found, strict=True):
            on_cell(directory.name)
            yield cell


def _summary(directory: Path, group_bytes: int, other_group_bytes: tuple[int, ...]) -> CellMetrics:
    return summarize(load_cell(directory), group_bytes, other_group_bytes)


def _subscriptions(
    directories: Sequence[Path],
    manifest: Manifest,
    published: Published,
    complaints: tuple[str, ...],
    include_invalid: bool,
    on_cell: OnCell,
) -> Subscriptions:
    cells = []
    for directory in directories:
        cells.append(join_leave.summarize(load_join_leave(directory)))
        on_cell(directory.name)
    points = sweep.points(cells, include_invalid=include_invalid)
    judged = claims.judge(published.claims, points, no_more(manifest.raw))
    beside = headlines(published.paper, points)
    experiment = manifest.name or cells[0].cell.experiment
    document = {
        "experiment": experiment,
        "verdict": worst_verdict(cells),
        "clock": " and ".join(sorted({c.cell.clock for c in cells})),
        "metrics": {
            m.name: {"label": m.label, "unit": m.unit, "source": m.source}
            for m in SUBSCRIPTION_METRICS.values()
        },
        "cells": join_leave.to_json(cells),
        **sweep_json(points, judged, beside),
        "include_invalid": include_invalid,
        "paper_problems": list(complaints),
    }
    return Subscriptions(
        experiment,
        manifest,
        complaints,
        published,
        tuple(cells),
        points,
        judged,
        beside,
        document,
    )
