# SPDX-License-Identifier: Apache-2.0
"""Accepted bands of a run's metrics, kept in their own file, and how a run compares with them.

`bands/NAME.yaml` belongs to the experiment NAME. A band with both ends holds a measured value; one
with a single end is a demand. Pure except `load`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from ruamel.yaml import YAML
from ruamel.yaml.scalarfloat import ScalarFloat

from common.contracts import Protocol
from common.nearest import did_you_mean
from common.places import EXPERIMENTS
from experiments.design.parameters import Block, Clocks, MetricName
from experiments.design.spec import SpecErrors, UsageError
from experiments.design.spec_reports import Reports, keys_by_block
from parsers.base.metric_units import (
    METRICS,
    Metric,
    canonical,
    to_si,
)
from topologies.model.document import Document, read_document
from topologies.model.spec import Text

FOLDER: Final = EXPERIMENTS / "bands"
Finite = Annotated[float, Field(allow_inf_nan=False)]
Status = Literal["within", "outside", "not asked"]
SHOWN_DIGITS: Final = 7


class Band(Block):
    """The values that one metric may have, in every cell that the band covers. Without `unit`, the
    ends are in the metric's SI unit (parsers/base/metric_units.py)."""

    metric: MetricName
    protocol: Protocol | Literal["all"] = "all"
    clock: Clocks = "any"
    duration_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="applies only to runs of this length of the trace"
    )
    low: Finite | None = None
    high: Finite | None = None
    unit: Text | None = None
    reason: Text

    @property
    def name(self) -> str:
        """Return the metric's name without aliases."""
        return canonical(self.metric) or self.metric

    @property
    def shown_unit(self) -> str:
        """Return the unit in which the band's metric is shown."""
        return self.unit if self.unit is not None else METRICS[self.name].unit

    def found_in_unit(self, value: float) -> float:
        """Convert a value from SI units to the band's unit."""
        return value / _factor(METRICS[self.name], self.unit)

    def holds(self, value: float) -> bool:
        """Return whether `value`, in SI units, is within the band."""
        factor = _factor(METRICS[self.name], self.unit)
        low = -math.inf if self.low is None else self.low * factor
        high = math.inf if self.high is None else self.high * factor
        return low <= value <= high

    def __str__(self) -> str:
        """at least 99 %; 8.3 to 8.65; exactly 2427 blocks"""
        if self.low is None:
            text = f"at most {number(self.high)}"
        elif self.high is None:
            text = f"at least {number(self.low)}"
        elif self.low == self.high:
            text = f"exactly {number(self.low)}"
        else:
            text = f"{number(self.low)} to {number(self.high)}"
        return f"{text} {self.shown_unit}".rstrip()


class BandsFile(Block):
    """bands/NAME.yaml."""

    experiment: Text
    bands: Annotated[tuple[Band, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Finding:
    """A band at one cell; `cell` is "-" if the band covers no cell. `found` is in the band's unit.
    `text`: the reason for the band, or for the missing value."""

    cell: str
    band: Band
    found: float | None
    status: Status
    text: str

    @property
    def offends(self) -> bool:
        """Return whether the metric is outside its band."""
        return self.status == "outside"

    @property
    def found_text(self) -> str:
        """Return the measured value with its unit."""
        if self.found is None:
            return "no value"
        return f"{number(self.found)} {self.band.shown_unit}".rstrip()

    def __str__(self) -> str:
        return (
            f"{self.cell}: {self.band.name}: found {self.found_text}; valid: {self.band} "
            f"({self.text})"
        )


def number(value: float | None) -> str:
    """Return a number with as many digits as bands show."""
    return "none" if value is None else f"{value:.{SHOWN_DIGITS}g}"


def _factor(metric: Metric, unit: str | None) -> float:
    return 1.0 if unit is None else to_si(1.0, unit, metric)


# -- the file ---------------------------------------------------------------------------------
def path_of(experiment: str) -> Path:
    """Return the file of the bands of an experiment that comes with Downpour. Raises UsageError."""
    path = FOLDER / f"{experiment}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.yaml")))
        raise UsageError(f"bands: found no {path.name}; valid: an experiment with bands: {known}")
    return path


def load(path: Path) -> BandsFile:
    """Read a bands file. Raises SpecErrors, which lists every mistake."""
    return check_file(read_document(path, "bands: keys experiment, bands"))


def check_file(document: Document) -> BandsFile:
    """Check a bands file. Raises SpecErrors, which lists every mistake."""
    reports = Reports(document, None, keys_by_block(BandsFile, {"bands": Band}))
    found = reports.read(BandsFile, document.data)
    for index, band in enumerate(found.bands if found is not None else ()):
        place = ("bands", index)
        if canonical(band.metric) is None:
            hint = did_you_mean(band.metric, METRICS)
            document.report((*place, "metric"), f"metric '{band.metric}'", "a metric" + hint)
            continue
        if band.low is None and band.high is None:
            document.report(place, "a band without limits", "low, high or both")
        elif band.low is not None and band.high is not None and band.low > band.high:
            found_text = f"low {number(band.low)} above high {number(band.high)}"
            document.report((*place, "low"), found_text, "low at most high")
        try:
            _factor(METRICS[band.name], band.unit)
        except ValueError as error:
            document.report((*place, "unit"), f"unit '{band.unit}'", str(error))
    if document.errors or found is None:
        raise SpecErrors(document.errors)
    return found


# -- judging ----------------------------------------------------------------------------------
def judge(bands: Sequence[Band], metrics: Mapping[str, Any]) -> list[Finding]:
    """Check every band against each cell of metrics.json that it covers.

    A metric without a value is outside, and so is a band without a cell: something that should
    have run did not. A band for another clock or length of run does not apply.
    """
    cells: Mapping[str, Any] = metrics.get("cells", {})
    found: list[Finding] = []
    for band in bands:
        about = [(n, c) for n, c in sorted(cells.items()) if _is_about(band, c["cell"])]
        found += [_finding(name, band, data) for name, data in about]
        if not about:
            found.append(_missing(band, [data["cell"] for data in cells.values()]))
    return found


def _is_about(band: Band, cell: Mapping[str, Any]) -> bool:
    return band.protocol in ("all", cell["protocol"]) and _in_conditions(band, cell)


def _in_conditions(band: Band, cell: Mapping[str, Any]) -> bool:
    return band.clock in ("any", cell.get("clock", "native")) and band.duration_s in (
        None,
        cell.get("duration_s"),
    )


def _missing(band: Band, cells: Sequence[Mapping[str, Any]]) -> Finding:
    if not cells or any(_in_conditions(band, cell) for cell in cells):
        return Finding("-", band, None, "outside", f"no cell with protocol {band.protocol}")
    only = [f"the {band.clock} clock"] if band.clock != "any" else []
    only += [f"runs of {number(band.duration_s)} s"] if band.duration_s is not None else []
    return Finding("-", band, None, "not asked", f"for {' and '.join(only)} only")


def _finding(cell: str, band: Band, data: Mapping[str, Any]) -> Finding:
    value = data.get("values", {}).get(band.name, {})
    found = value.get("value")
    if not isinstance(found, int | float):
        reason = str(value.get("reason") or "the metric is missing")
        return Finding(cell, band, None, "outside", reason)
    status: Status = "within" if band.holds(float(found)) else "outside"
    return Finding(cell, band, band.found_in_unit(float(found)), status, band.reason)


# -- new bands --------------------------------------------------------------------------------
def propose(text: str, bands: Sequence[Band], findings: Iterable[Finding], share: float) -> str:
    """Return the text of a bands file with the measured values of `findings` in it.

    A band with both ends becomes the range of the measured values (of all cells it covers), widened
    by `share` of them on either side. A band whose ends are equal stays so if the measured values
    are equal. A band with one end, or without a measured value, stays as it is. Reasons and
    comments also stay: the author corrects them.
    """
    measured: dict[int, list[float]] = {}
    places = {id(band): index for index, band in enumerate(bands)}
    for finding in findings:
        if finding.found is not None:
            measured.setdefault(places[id(finding.band)], []).append(finding.found)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    for index, values in measured.items():
        band = bands[index]
        if band.low is None or band.high is None:
            continue
        least, most = min(values), max(values)
        margin = 0.0 if band.low == band.high and least == most else share
        document["bands"][index]["low"] = _scalar(least - margin * abs(least))
        document["bands"][index]["high"] = _scalar(most + margin * abs(most))
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _scalar(value: float) -> int | float | ScalarFloat:
    """Return the value with as few digits as show it to SHOWN_DIGITS."""
    short = float(number(value))
    return int(short) if short.is_integer() else short
