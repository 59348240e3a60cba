# SPDX-License-Identifier: Apache-2.0
"""Draw the spread of throughput over file-sets against their size G (MPUP16 Fig. 2): boxes, and
below them the interquartile range with the published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from common.counting import counted
from parsers.base.factors import FACTORS, show
from parsers.base.metric_units import METRICS
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import Line, Point, lines
from parsers.read.published import Figure, PaperValue
from parsers.report.drawing import (
    COLOURS,
    GREY,
    Plot,
    blank,
    save,
)
from parsers.report.overlays import (
    Look,
    Places,
    axis_label,
    caption_of,
    draw_published,
    errors,
    factor_label,
    published,
)

OUTLIERS = 60  # drawn for each box; more would overlap
SPREAD = "throughput_iqr"


def gammas(cells: Sequence[CellMetrics], size_bytes: int) -> list[float]:
    """Return the throughput of every file-set of that size, of all cells together, in bit/s."""
    return [
        s.throughput.value
        for cell in cells
        for s in cell.file_sets_by.get(size_bytes, ())
        if s.throughput.value is not None
    ]


def box(values: Sequence[float], scale: float) -> dict[str, Any]:
    """Return quartiles, whiskers to the last value within 1.5 IQR, and at most OUTLIERS beyond
    them: the outermost, and evenly chosen others."""
    ordered = np.sort(np.asarray(values, dtype=float)) / scale
    q1, median, q3 = (float(q) for q in np.percentile(ordered, [25, 50, 75]))
    reach = 1.5 * (q3 - q1)
    inside = ordered[(ordered >= q1 - reach) & (ordered <= q3 + reach)]
    outside = ordered[(ordered < q1 - reach) | (ordered > q3 + reach)]
    if len(outside) > OUTLIERS:
        outside = outside[np.linspace(0, len(outside) - 1, OUTLIERS).round().astype(int)]
    return {
        "q1": q1,
        "med": median,
        "q3": q3,
        "whislo": float(min(q1, inside[0] if len(inside) else q1)),
        "whishi": float(max(q3, inside[-1] if len(inside) else q3)),
        "fliers": outside,
    }


def draw(
    figure: Figure,
    points: Sequence[Point],
    cells: Sequence[CellMetrics],
    paper: Sequence[PaperValue],
) -> Plot | str:
    """Draw boxes of the file-sets' throughput over their size, and below them the IQR.

    `cells`: without those that the points exclude. If there is nothing to draw, return why.
    """
    found = lines(points, x="file_set_bytes", metric=SPREAD, by=figure.by, where=figure.where)
    if not found:
        return "no valid cell has two file-sets of these sizes"
    sizes = sorted({int(level) for line in found for level in line.x})
    canvas = blank(6.2)
    upper, lower = canvas.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    counts: dict[int, int] = {}
    for number, line in enumerate(found):
        colour = COLOURS.get(str(line.factors.get("protocol")), tuple(COLOURS.values())[number % 2])
        sets = _sets_of(line, cells)
        for size, values in sets.items():
            counts[size] = max(counts.get(size, 0), len(values))
        _boxes(upper, sets, sizes, colour, (number, len(found)))
        _spread_line(lower, line, sizes, colour, (number, len(found)))
    places = Places("file_set_bytes", (), True, tuple(sizes))
    looks = [Look(COLOURS["ldm7"], "o", "-", "")] * len(found)
    overlays = published(figure, SPREAD, found, looks, places, paper)
    draw_published(lower, overlays, METRICS[SPREAD], on_bars=False)
    _dress(upper, lower, figure.title, {size: counts.get(size, 0) for size in sizes})
    if overlays or len(found) > 1:
        handles, labels = lower.get_legend_handles_labels()
        if overlays:
            handles.append(Line2D([], [], ls="", marker="o", ms=8, mfc="none", mec="black"))
            labels.append("published")
        canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    boxes_are = (
        "Boxes: quartiles over all file-sets of all runs; whiskers: to the last one within 1.5 IQR;"
        f" of those beyond at most {OUTLIERS}"
    )
    caption = caption_of(figure, [y for line in found for y in line.y], bool(overlays))
    alt = f"{figure.title}. {' '.join(map(_in_words, found))}"
    return save(canvas, figure.name, figure.title, alt, f"{caption}. {boxes_are}")


def _sets_of(line: Line, cells: Sequence[CellMetrics]) -> dict[int, list[float]]:
    """Return size -> throughputs of its file-sets in bit/s, without sizes that have none."""
    by_name = {c.cell.cell: c for c in cells}
    found = {
        int(level): gammas([by_name[n] for n in point.cells if n in by_name], int(level))
        for level, point in zip(line.x, line.points, strict=True)
    }
    return {size: values for size, values in found.items() if values}


def _boxes(
    axes: Axes,
    sets: Mapping[int, Sequence[float]],
    sizes: Sequence[int],
    colour: str,
    place: tuple[int, int],
) -> None:
    """Draw one line's boxes. `place`: the line's number, from 0, and the number of lines."""
    number, of = place
    width = 0.7 / of
    shift = (number - (of - 1) / 2) * width
    look = {"color": colour, "lw": 1.3}
    axes.bxp(
        [box(values, METRICS["throughput"].scale) for values in sets.values()],
        positions=[sizes.index(size) + shift for size in sets],
        widths=0.85 * width,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": f"{colour}33", "edgecolor": colour},
        medianprops={"color": "black", "lw": 1.6},
        whiskerprops=look,
        capprops=look,
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": GREY},
    )


def _spread_line(
    axes: Axes, line: Line, sizes: Sequence[int], colour: str, place: tuple[int, int]
) -> None:
    number, of = place
    spread = METRICS[SPREAD]
    axes.errorbar(
        [sizes.index(int(level)) for level in line.x],
        [y.mean / spread.scale for y in line.y],
        yerr=errors(line.y, spread),
        color=colour,
        marker="os"[number % 2],
        ls="-" if number == 0 else "--",
        capsize=3.5,
        label=line.label if of > 1 else "measured",
    )


def _dress(upper: Axes, lower: Axes, title: str, counts: Mapping[int, int]) -> None:
    """Set titles, labels and ticks. `counts`: size -> number of file-sets."""
    shown = FACTORS["file_set_bytes"]
    lower.set_xticks(
        range(len(counts)),
        [f"{size / shown.scale:g}\n{counted(count, 'set')}" for size, count in counts.items()],
    )
    lower.set_xlabel(factor_label("file_set_bytes"))
    lower.set_ylim(bottom=0)
    lower.set_ylabel(f"IQR ({METRICS[SPREAD].shown_unit})")
    upper.set_ylabel(axis_label(METRICS["throughput"]))
    upper.grid(visible=False, axis="x")
    upper.set_title(title)
    lower.set_title("Inter-quartile range", fontsize=10)


def _in_words(line: Line) -> str:
    metric = METRICS[SPREAD]
    ends: Mapping[str, str] = {
        show({"file_set_bytes": level}): metric.show(y.mean)
        for level, y in ((line.x[0], line.y[0]), (line.x[-1], line.y[-1]))
    }
    return f"{line.label}: IQR {', '.join(f'{v} at {k}' for k, v in ends.items())}."
