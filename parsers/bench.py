# SPDX-License-Identifier: Apache-2.0
"""`downpour bench parsers`: measure how fast each format is read, and what a cell of the papers'
length costs. Every measurement runs in its own process and takes CPU time and the peak of resident
memory."""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.counting import counted
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from parsers.read.formats import by_name
from parsers.synthetic_hour import Hour, write_cell, write_others


@dataclass(frozen=True)
class Measured:
    what: str
    size_bytes: int
    cpu_s: float
    peak_bytes: int  # of the process, including the interpreter and all modules

    @property
    def line(self) -> str:
        """Return the measurement as one line of text: MB, s, MB/s and peak memory."""
        size = self.size_bytes / 1e6
        return (
            f"{self.what:28} {size:8.1f} MB {self.cpu_s:7.2f} s {size / self.cpu_s:7.1f} MB/s "
            f"{self.peak_bytes / 1e6:7.0f} MB"
        )


def _read(name: str, path: Path) -> None:
    known = by_name(name)
    with path.open(encoding="utf-8", newline="\n") as stream:
        records, problems = known.read(stream.read() if known.is_document else stream, path.name)
    if problems or not records:
        raise ValueError(f"{path}: {problems[:1] or 'no record'}")


def _cell(_name: str, directory: Path) -> None:
    metrics = summarize(load_cell(directory))
    if metrics.problems:
        raise ValueError(str(metrics.problems[0]))


def _nothing(_name: str, _path: Path) -> None:
    """Read nothing: measure what the interpreter and the modules need."""


def _timed(work: Callable[[str, Path], None], name: str, path: Path) -> tuple[float, int]:
    before = time.process_time()
    work(name, path)
    used = time.process_time() - before
    return used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _measure(work: Callable[[str, Path], None], name: str, path: Path, what: str) -> Measured:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    # In its own process, since ru_maxrss never falls.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        cpu_s, peak = pool.apply(_timed, (work, name, path))
    return Measured(what, sum(p.stat().st_size for p in files), max(cpu_s, 1e-6), peak)


def measure_file(name: str, path: Path) -> Measured:
    """Measure a file of a format. Raises ValueError unless it is read completely, without a
    problem."""
    return _measure(_read, name, path, name)


def measure(receivers: int, directory: Path) -> list[Measured]:
    """Write synthetic files into `directory` and read them."""
    hour = Hour(receivers=receivers)
    cell = directory / "cells" / f"ldm7-m{receivers}"
    write_cell(cell, hour)
    others = write_others(directory / "others", hour)
    logs = {
        "ldm-log": cell / "logs/r1.ldmd.log",
        "products": cell / "products/r1.txt",
        "sar": cell / "logs/sar.log",
        "ps": cell / "logs/ps.log",
        "cpu": cell / "logs/cpu.log",
        **others,
    }
    found = [measure_file(name, path) for name, path in logs.items()]
    what = f"cell: 1 h, {counted(receivers, 'receiver')}"
    return [*found, _measure(_cell, "", cell, what)]


def run(receivers: int, out: Path | None) -> int:
    """Print the table. Return 0."""
    print(f"{'format':28} {'file':>11} {'CPU':>9} {'speed':>12} {'peak':>10}")
    with tempfile.TemporaryDirectory(prefix="downpour-parsers-") as directory:
        found = measure(receivers, Path(directory))
        baseline = _measure(_nothing, "", Path(directory), "").peak_bytes
    for measured in found:
        print(measured.line)
    print(f"(peak: of the process; {baseline / 1e6:.0f} MB of it without reading anything)")
    if out is not None:
        out.write_text(json.dumps([asdict(m) for m in found], indent=2) + "\n", encoding="utf-8")
    return 0
