# SPDX-License-Identifier: Apache-2.0
"""Read the cells of a run directory. In this room, only this module, `changed`, which reads
digests, and `publish`, which writes the report, access files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from common.contracts import JOIN_LEAVE, WITH_OWN_LOGS
from common.files import endless
from parsers.base.jsonfiles import BadFile
from parsers.base.problems import Lines
from parsers.measure import join_leave
from parsers.measure.carousel import CarouselData, parse_tune_ins
from parsers.measure.join_leave import JoinLeaveData
from parsers.measure.layers import LayersData
from parsers.measure.subscriptions import parse_events
from parsers.measure.summary import CellData
from parsers.read import m2c_log
from parsers.read.cell_files import (
    Cell,
    lossy_link_directions,
    parse_about,
    parse_cell,
    parse_verdict,
    parse_virtual,
)
from parsers.read.counters import parse_counters
from parsers.read.cpu_log import parse_cpu_log
from parsers.read.fcast_log import parse_receiver, parse_sender
from parsers.read.iperf3 import parse_iperf3
from parsers.read.ldm_log import parse_ldm_log
from parsers.read.products import parse_products
from parsers.read.ps_log import parse_ps_log
from parsers.read.sar_log import parse_sar_log

T = TypeVar("T")


def read_text(path: Path) -> str:
    """Return the file's text; bytes that are not UTF-8 are replaced. Raises OSError."""
    return path.read_text(encoding="utf-8", errors="replace")


class _Directory:
    """A cell's directory. `missing`: files that were requested but do not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.missing: list[str] = []

    def document(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        path = self.path / name
        if not self._has(name):
            return None
        try:
            return parse(read_text(path), _shown(path))
        except BadFile as error:  # which names the run too: several may be read
            raise BadFile(str(error).replace(_shown(path), str(path))) from None

    def log(self, name: str, parse: Callable[[Lines, str], T]) -> T | None:
        """Parse a log line by line, so that its text is never in memory as a whole."""
        if not self._has(name):
            return None
        path = self.path / name
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return parse(lines, _shown(path))

    def _has(self, name: str) -> bool:
        if (self.path / name).is_file():
            return True
        self.missing.append(name)
        return False


def _iperf3(host: str) -> str:
    """Return the report of the competing flows to a subscriber."""
    return f"logs/iperf3.{host}.json"


def _present(found: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in found.items() if value is not None}


def load_cell(directory: Path) -> CellData:
    """Read `cells/<cell>/`. Raises `BadFile` if cell.json is missing or a JSON file is malformed.
    Any other file may be missing; it is then listed in `missing`."""
    files = _Directory(directory)
    cell_file = directory / "cell.json"
    if not cell_file.is_file():
        raise BadFile(f"{cell_file} is missing: {directory} is not the directory of a cell")
    text = read_text(cell_file)
    if join_leave.is_join_leave(text):
        raise BadFile(f"{cell_file}: found a cell of kind '{JOIN_LEAVE}'; valid: LDM7 or LDM6")
    cell = parse_cell(text, str(cell_file))
    hosts = (cell.publisher, *cell.subscribers)
    is_carousel = cell.protocol == "fcast"
    names, ingest = _logs(cell, hosts)
    logs = {h: files.log(name, parse_ldm_log) for h, name in names.items()}
    products = {h: files.log(f"products/{h}.txt", parse_products) for h in hosts}
    virtual = files.document("virtual.json", parse_virtual)
    if virtual is None and cell.clock == "native":
        files.missing.remove("virtual.json")
    flows = [h for h in cell.subscribers if (directory / _iperf3(h)).is_file()]
    return CellData(
        cell=cell,
        verdict=files.document("verdict.json", parse_verdict),
        logs=_present(logs),
        ingest=files.log(ingest, parse_ldm_log) if ingest else None,
        carousel=load_carousel(directory, cell.subscribers) if is_carousel else None,
        layers=load_layers(directory, cell.subscribers) if cell.protocol == "m2c" else None,
        sar=files.log("logs/sar.log", parse_sar_log),
        ps=files.log("logs/ps.log", parse_ps_log),
        cpu=files.log("logs/cpu.log", parse_cpu_log),
        products=_present(products),
        counters_start=files.document("counters-start.json", parse_counters),
        counters_end=files.document("counters-end.json", parse_counters),
        virtual=virtual,
        about=None
        if cell.protocol in WITH_OWN_LOGS
        else files.document("protocol.json", parse_about),
        lossy_links=files.document("network.json", lossy_link_directions) or frozenset(),
        background=_present({h: files.document(_iperf3(h), parse_iperf3) for h in flows}),
        missing=tuple(files.missing),
    )


def _logs(cell: Cell, hosts: Iterable[str]) -> tuple[dict[str, str], str]:
    """Return host -> log that names products, and the replay's log; ({}, "") for a carousel. For
    protocols that send files, the cell itself writes both."""
    if cell.protocol in ("fcast", "m2c"):
        return {}, ""
    if cell.protocol in WITH_OWN_LOGS:
        return {host: f"logs/{host}.ldmd.log" for host in hosts}, "logs/pqinsert.log"
    return {host: f"logs/{host}.inbox.log" for host in cell.subscribers}, "logs/feed.log"


def load_carousel(directory: Path, hosts: Iterable[str]) -> CarouselData:
    """Read what the programs of a carousel reported. A missing log counts as empty."""

    def text(name: str) -> str:
        path = directory / "logs" / name
        return read_text(path) if path.is_file() else ""

    receivers = {host: parse_receiver(text(f"{host}.fcast-recv.log")) for host in hosts}
    tune_ins = _Directory(directory).document("tune-ins.json", parse_tune_ins) or {}
    return CarouselData(parse_sender(text("fcast-send.log")), receivers, tune_ins)


def load_layers(directory: Path, hosts: Iterable[str]) -> LayersData:
    """Read what the programs of a layered multicast session reported."""

    def text(name: str) -> str:
        path = directory / "logs" / name
        return read_text(path) if path.is_file() else ""

    return LayersData(
        m2c_log.parse_sender(text("m2c-send.log")),
        {host: m2c_log.parse_receiver(text(f"{host}.m2c-recv.log")) for host in hosts},
        m2c_log.parse_receiver(text("rival.m2c-recv.log")),
    )


def load_join_leave(directory: Path) -> JoinLeaveData:
    """Read `cells/<cell>/` of a cell whose subscribers join and leave. Raises `BadFile` as
    `load_cell` does, and if events.json is missing, which everything depends on."""
    files = _Directory(directory)
    cell = join_leave.parse_cell(read_text(directory / "cell.json"), str(directory / "cell.json"))
    events = files.document("events.json", parse_events)
    if events is None:
        raise BadFile(f"{directory / 'events.json'} is missing: it says who joined what")
    names = list(cell.endpoints)
    feeds = [feed.name for feed in cell.feeds]
    lists = [*(f"{cell.publisher}.{feed}" for feed in feeds), *names]
    virtual = files.document("virtual.json", parse_virtual)
    if virtual is None and cell.clock == "native":
        files.missing.remove("virtual.json")
    return JoinLeaveData(
        cell=cell,
        verdict=files.document("verdict.json", parse_verdict),
        events=events,
        logs=_present(
            {n: files.log(f"logs/{n}.ldmd.log", parse_ldm_log) for n in (cell.publisher, *names)}
        ),
        ingest=_present({f: files.log(f"logs/pqinsert.{f}.log", parse_ldm_log) for f in feeds}),
        products=_present({n: files.log(f"products/{n}.txt", parse_products) for n in lists}),
        counters_start=files.document("counters-start.json", parse_counters),
        counters_end=files.document("counters-end.json", parse_counters),
        paths_end=files.document("paths-end.json", join_leave.parse_paths) or (),
        path_counters=files.document("path-counters.json", join_leave.parse_path_counters) or (),
        lossy_links=files.document("network.json", lossy_link_directions) or frozenset(),
        virtual=virtual,
        missing=tuple(files.missing),
    )


def _shown(path: Path) -> str:
    """Return the path relative to its cell, as problems quote it."""
    parts = path.parts
    if "cells" in parts:
        return "/".join(parts[len(parts) - parts[::-1].index("cells") :])
    return str(path)


def check_files_end(run_dir: Path) -> None:
    """Check that reading a run's files ends. Raises `BadFile`, which names the first that might
    not."""
    for path in sorted(run_dir.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a link to nothing
            if kind := endless(path):
                raise BadFile(f"{path}: found {kind}; valid: a file that the run wrote")


def cell_directories(run_dir: Path) -> list[Path]:
    """Return the cells of a run, by name. Raises `BadFile` if there is none, or as
    `check_files_end`."""
    cells = run_dir / "cells"
    found = (
        sorted(d for d in cells.iterdir() if d.is_dir() and not d.name.startswith("."))
        if cells.is_dir()
        else []
    )
    if not found:
        raise BadFile(f"{run_dir}: not a run directory: no cells/<cell>/ in it")
    check_files_end(run_dir)
    return found
