# SPDX-License-Identifier: Apache-2.0
"""Reads the cells of a run directory (`publish` writes its report): with it the only module of
this room that touches files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from parsers import join_leave
from parsers.cell import lossy_link_directions, parse_cell, parse_verdict, parse_virtual
from parsers.counters import parse_counters
from parsers.cpu_log import parse_cpu_log
from parsers.join_leave import JoinLeaveData
from parsers.jsonfiles import BadFile
from parsers.ldm_log import parse_ldm_log
from parsers.products import parse_products
from parsers.ps_log import parse_ps_log
from parsers.sar_log import parse_sar_log
from parsers.subscriptions import parse_events
from parsers.summary import CellData

T = TypeVar("T")


def read_text(path: Path) -> str:
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
        return parse(read_text(path), _shown(path))

    cell_file = directory / "cell.json"
    if not cell_file.is_file():
        raise BadFile(f"{cell_file} is missing: {directory} is not the directory of a cell")
    text = read_text(cell_file)
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
        return parse(read_text(path), _shown(path))

    def present(found: Mapping[str, T | None]) -> dict[str, T]:
        return {name: value for name, value in found.items() if value is not None}

    cell = join_leave.parse_cell(read_text(directory / "cell.json"), str(directory / "cell.json"))
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
