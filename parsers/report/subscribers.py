# SPDX-License-Identifier: Apache-2.0
"""Draw a metric of DRFSM21 3.2 in each interval tau, at each subscriber (Fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from parsers.base.factors import show
from parsers.base.metric_units import METRICS
from parsers.measure.summary import CellMetrics
from parsers.measure.taus import Tau, interval_s
from parsers.read.published import Figure
from parsers.report.drawing import DASHES, PALETTE, Plot, blank, save
from parsers.report.over_time import chosen
from parsers.report.overlays import caption_of


def points(taus: Sequence[Tau], metric: str) -> list[tuple[float, float]]:
    """Return (end of an interval, value in Mbit/s or %) for the intervals that have a value."""
    scale = 1e6 if METRICS[metric].unit == "bit/s" else 1.0
    values = ((tau.end_s, getattr(tau.fmtp, metric).value) for tau in taus)
    return [(end, value / scale) for end, value in values if value is not None]


def draw(figure: Figure, cells: Sequence[CellMetrics]) -> Plot | str:
    """Draw the first cell at the figure's `where`. `cells`: those whose verdict is not invalid."""
    metric = figure.metric or ""
    found = [
        c
        for c in chosen(figure, cells)
        if any(points(taus, metric) for taus in c.series.per_tau.values())
    ]
    if not found:
        return "no valid cell at the levels it asks for has files that it could count"
    cell = found[0]
    duration_s = cell.cell.insertion_ended - cell.cell.insertion_started
    width = interval_s(duration_s)
    unit_s = 60.0 if width >= 30 else 1.0
    canvas = blank(4.2)
    axes = canvas.subplots()
    words = []
    for number, (host, taus) in enumerate(cell.series.per_tau.items()):
        series = points(taus, metric)
        if not series:
            continue
        # An interval without files is a gap in the line.
        whole = [series[0]]
        for (before, _), (end, value) in pairwise(series):
            whole += [(end - width, float("nan"))] if end - before > 1.5 * width else []
            whole.append((end, value))
        axes.plot(
            [end / unit_s for end, _ in whole],
            [value for _, value in whole],
            color=PALETTE[number % len(PALETTE)],
            ls=DASHES[number % len(DASHES)],
            marker=".",
            lw=1.4,
            label=host,
        )
        values = [value for _, value in series]
        words.append(f"{host}: {min(values):.1f} to {max(values):.1f}")
    unit = "Mbit/s" if METRICS[metric].unit == "bit/s" else METRICS[metric].unit
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"{METRICS[metric].label} ({unit})")
    axes.set_xlabel(f"Time after the first insertion ({'min' if unit_s > 1 else 's'})")
    axes.set_title(figure.title)
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    span = "minute" if width == 60 else f"{width} s"
    caption = f"{caption_of(figure, (), False, bars=False)}. Per {span}, {show(cell.cell.factors)}"
    return save(canvas, figure.name, figure.title, f"{figure.title}. {'; '.join(words)}.", caption)
