# SPDX-License-Identifier: Apache-2.0
"""Draw the figures that an experiment file asks for (`figures:`): a sweep's points as lines or bars
with error bars, distributions over file-sets as boxes, bandwidth per minute, the files of the
trace, and the components of latency. Published values with matching metric and conditions appear as
hollow markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import Point
from parsers.read.published import Figure, PaperValue
from parsers.report import arrivals, curves, latency, over_time, spreads, subscribers
from parsers.report.drawing import Plot, style


@dataclass(frozen=True)
class Drawn:
    """The figures that have data, and a sentence for each of the others."""

    plots: tuple[Plot, ...]
    left_out: tuple[str, ...]


def draw(
    figures: Sequence[Figure],
    points: Sequence[Point],
    cells: Sequence[CellMetrics],
    paper: Sequence[PaperValue],
) -> Drawn:
    """Draw all `figures`, in order. `cells`: without those that the points exclude."""
    plots: list[Plot] = []
    left_out: list[str] = []
    for figure in figures:
        with style():
            found = _draw(figure, points, cells, paper)
        if isinstance(found, str):
            left_out.append(f"Figure '{figure.title}' is left out: {found}.")
        else:
            plots.append(found)
    return Drawn(tuple(plots), tuple(left_out))


def _draw(
    figure: Figure,
    points: Sequence[Point],
    cells: Sequence[CellMetrics],
    paper: Sequence[PaperValue],
) -> Plot | str:
    if figure.kind == "minutes":
        return over_time.draw(figure, cells)
    if figure.kind == "arrivals":
        return arrivals.draw(figure, cells)
    if figure.kind == "latency":
        return latency.draw(figure, cells)
    if figure.kind == "subscribers":
        return subscribers.draw(figure, cells)
    if figure.kind == "boxes":
        return spreads.draw(figure, points, cells, paper)
    return curves.draw(figure, points, paper)
