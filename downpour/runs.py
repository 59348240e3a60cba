# SPDX-License-Identifier: Apache-2.0
"""Read a finished run from Python: `from downpour.runs import load_run`.

Values are in SI units: seconds, bits per second, bytes. Shares are from 0 to 1 if the name says
`loss`, and percentages if `Run.units` says "%".
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.files import write_text
from parsers.base.jsonfiles import BadFile
from parsers.measure.deliveries import receiver_of
from parsers.measure.run_files import cell_directories, load_cell

__all__ = ["BadFile", "Cell", "Delivery", "Run", "load_run"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The first arrival of one product at one receiver. Times are epoch seconds, UTC."""

    receiver: str
    product: str
    size_bytes: int
    created_s: float
    arrived_s: float
    how: str  # fmtp, backstop, backlog or ldm6
    retransmitted_blocks: int

    @property
    def latency_s(self) -> float:
        """Return the time from the product's creation to its arrival."""
        return self.arrived_s - self.created_s


@dataclass(frozen=True)
class Cell:
    """One run of one combination of an experiment's factors."""

    name: str
    factors: Mapping[str, Any]
    repeat: int
    seed: int | None
    verdict: str  # faithful, degraded or invalid
    metrics: Mapping[str, float]  # metrics that have a value
    reasons: Mapping[str, str]  # metric -> why it has no value
    path: Path

    def deliveries(self) -> Iterator[Delivery]:
        """Yield every delivery that the receivers' logs report, receiver by receiver. Raises
        OSError, and BadFile for a cell whose subscribers join and leave."""
        data = load_cell(self.path)
        for host, log in sorted(data.logs.items()):
            for product, arrival in receiver_of(log).arrivals.items():
                yield Delivery(
                    host,
                    product.ident,
                    product.size_bytes,
                    product.created_us / 1e6,
                    arrival.time_us / 1e6,
                    arrival.how,
                    arrival.retrans,
                )


@dataclass(frozen=True)
class Run:
    """A run directory."""

    path: Path
    experiment: str
    clock: str
    cells: tuple[Cell, ...]
    units: Mapping[str, str] = field(default_factory=dict)  # metric -> unit; "" for a plain number

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each cell: name, factors, repeat, seed, verdict and metrics, in the form
        that `pandas.DataFrame` takes."""
        return [
            {
                "cell": cell.name,
                **cell.factors,
                "repeat": cell.repeat,
                "seed": cell.seed,
                "verdict": cell.verdict,
                **cell.metrics,
            }
            for cell in self.cells
        ]

    def save_deliveries(self, file: Path) -> int:
        """Write all deliveries of all cells as CSV, completely or not at all; return their number.
        Raises BadFile, OSError."""
        count = 0
        text = io.StringIO(newline="")
        out = csv.writer(text)
        out.writerow(["cell", *Delivery.__slots__, "latency_s"])
        for cell in self.cells:
            for d in cell.deliveries():
                values = [getattr(d, name) for name in Delivery.__slots__]
                out.writerow([cell.name, *values, d.latency_s])
                count += 1
        write_text(file, text.getvalue())
        return count


def load_run(path: str | Path) -> Run:
    """Read a run directory, such as "runs/lossy/latest". Raises BadFile if it is not a run, or has
    no metrics (`downpour report RUN` computes them)."""
    run = Path(path)
    directories = {d.name: d for d in cell_directories(run)}
    found = run / "metrics.json"
    try:
        document = json.loads(found.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadFile(f"{found}: not there; valid: `downpour report {run}` writes it") from None
    except ValueError as error:
        raise BadFile(f"{found}: {error}") from None
    cells = [
        _cell(name, cell, directories[name])
        for name, cell in document["cells"].items()
        if name in directories
    ]
    units = {name: metric["unit"] for name, metric in document["metrics"].items()}
    return Run(run, document["experiment"], document["clock"], tuple(cells), units)


def _cell(name: str, found: Mapping[str, Any], path: Path) -> Cell:
    values = found["values"]
    return Cell(
        name,
        found["cell"].get("factors", {}),
        found["cell"].get("repeat", 0),
        found["cell"].get("seed"),
        found["verdict"],
        {n: v["value"] for n, v in values.items() if v["value"] is not None},
        {n: v["reason"] for n, v in values.items() if v["value"] is None},
        path,
    )
