# SPDX-License-Identifier: Apache-2.0
"""Group the cells of a run by conditions, with LDM7 beside LDM6 and the paper."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parsers.base.factors import Scalar, show
from parsers.base.metric_units import TRANSPORT_METRICS, Value, absent
from parsers.measure.paper import Comparisons, compare_all
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import points
from parsers.measure.sweep_json import headline_json
from parsers.measure.verdicts import verdict_of, worst_verdict
from parsers.read.cell_files import Clock
from parsers.read.published import PaperValue

PROTOCOLS = ("ldm7", "ldm6", "fcast")


@dataclass(frozen=True)
class Group:
    """Cells with the same duration, clock, and levels of all factors except the protocol: for each
    protocol, one cell per repeat."""

    factors: Mapping[str, Scalar]  # without the protocol
    duration_s: float
    cells: Mapping[str, tuple[CellMetrics, ...]]  # protocol -> repeats
    values: Mapping[str, Mapping[str, Value]]  # protocol -> metric -> mean over the repeats
    comparisons: Comparisons
    clock: Clock = "native"

    @property
    def m(self) -> int:
        """Return the number of receivers."""
        return int(self.factors["receivers"])

    @property
    def r_bps(self) -> float:
        """Return the base rate r, bit/s."""
        return float(self.factors["rate_bps"])

    @property
    def loss(self) -> float:
        """Return the injected loss, a probability."""
        return float(self.factors["loss"])

    @property
    def label(self) -> str:
        """Return the group's conditions in words."""
        virtual = ", virtual time" if self.clock == "virtual" else ""
        return f"{show(self.factors)}, {self.duration_s:g} s{virtual}"

    @property
    def slug(self) -> str:
        """Return a name for files, like those of cells."""
        name = f"m{self.m}-r{self.r_bps / 1e6:g}-p{100 * self.loss:g}"
        for factor, level in self.factors.items():
            if factor not in ("receivers", "rate_bps", "loss"):
                name += f"-{factor}-{level}" if isinstance(level, str) else f"-{factor}{level:g}"
        name = f"{name}-{self.duration_s:g}s".replace(".", "_")
        return name + ("-virtual" if self.clock == "virtual" else "")

    @property
    def protocols(self) -> tuple[str, ...]:
        """Return the protocols of the cells, the papers' protocols first."""
        own = [p for p in PROTOCOLS if p in self.cells]
        return (*own, *(p for p in self.cells if p not in PROTOCOLS))

    def first(self, protocol: str) -> CellMetrics | None:
        """Return the first repeat of the protocol, if there is one."""
        found = self.cells.get(protocol, ())
        return found[0] if found else None


def mean_of(values: Sequence[Value]) -> Value:
    """Return the mean over repeats; undefined if a repeat is. The note has the spread."""
    if len(values) == 1:
        return values[0]
    unit = values[0].unit
    numbers = [v.value for v in values if v.value is not None]
    if len(numbers) < len(values):
        reason = next(v.reason for v in values if v.value is None)
        return absent(unit, f"{len(values) - len(numbers)} of {len(values)} repeats: {reason}")
    return Value(
        statistics.fmean(numbers),
        unit,
        note=f"mean of {len(numbers)} repeats, standard deviation {statistics.stdev(numbers):.4g}",
    )


def group_cells(
    cells: Iterable[CellMetrics],
    paper: tuple[PaperValue, ...],
    *,
    include_invalid: bool = False,
) -> tuple[Group, ...]:
    """Return groups in order of (r, p, m, duration, clock), then of the other factors. Cells with
    an invalid verdict are shown, but are only compared with published values on request."""
    by_key: dict[tuple[object, ...], list[CellMetrics]] = {}
    for metrics in sorted(cells, key=lambda c: (c.cell.repeat, c.cell.cell)):
        cell = metrics.cell
        others = sorted((n, v) for n, v in cell.factors.items() if n != "protocol")
        key = (cell.r_bps, cell.loss, cell.m, cell.duration_s, cell.clock, tuple(others))
        by_key.setdefault(key, []).append(metrics)
    return tuple(
        _group(found, compare_all(paper, points(found, include_invalid=include_invalid)))
        for _, found in sorted(by_key.items())
    )


def _group(cells: Sequence[CellMetrics], comparisons: Comparisons) -> Group:
    cell = cells[0].cell
    by_protocol: dict[str, list[CellMetrics]] = {}
    for metrics in cells:
        by_protocol.setdefault(metrics.cell.protocol, []).append(metrics)
    values = {
        protocol: {name: mean_of([c.values[name] for c in repeats]) for name in TRANSPORT_METRICS}
        for protocol, repeats in sorted(by_protocol.items())
    }
    return Group(
        {name: level for name, level in cell.factors.items() if name != "protocol"},
        cell.duration_s,
        {protocol: tuple(repeats) for protocol, repeats in by_protocol.items()},
        values,
        comparisons,
        cell.clock,
    )


def clocks_of(cells: Iterable[CellMetrics]) -> str:
    """Return "native", "virtual", or "native and virtual": a resumed run may have both."""
    return " and ".join(sorted({cell.cell.clock for cell in cells})) or "unknown"


def _plain(value: Any) -> Any:
    """Convert dataclasses and pydantic models to JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        written = [f.name for f in dataclasses.fields(value) if f.metadata.get("written", True)]
        return {name: _plain(getattr(value, name)) for name in written}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(_plain(v) for v in value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def to_json(
    experiment: str, groups: Sequence[Group], complaints: Sequence[str]
) -> dict[str, object]:
    """Return the contents of metrics.json: `cells` (by name) and `groups` (means, paper)."""
    cells = {
        c.cell.cell: {
            **_plain(c),
            "verdict": verdict_of(c),
            "checks": _plain(c.verdict.checks) if c.verdict is not None else [],
            "problems": [str(p) for p in c.problems],
        }
        for g in groups
        for repeats in g.cells.values()
        for c in repeats
    }
    return {
        "experiment": experiment,
        "verdict": worst_verdict(c for g in groups for r in g.cells.values() for c in r),
        "clock": clocks_of(c for g in groups for r in g.cells.values() for c in r),
        "metrics": {
            m.name: {"label": m.label, "unit": m.unit, "source": m.source}
            for m in TRANSPORT_METRICS.values()
        },
        "groups": [
            {
                "factors": dict(g.factors),
                "m": g.m,
                "r_bps": g.r_bps,
                "loss": g.loss,
                "duration_s": g.duration_s,
                "clock": g.clock,
                "cells": {p: [c.cell.cell for c in r] for p, r in g.cells.items()},
                "values": _plain(g.values),
                "paper": [headline_json(h) for h in g.comparisons.compared],
            }
            for g in groups
        ],
        "cells": cells,
        "paper_problems": list(complaints),
    }
