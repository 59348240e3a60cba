# SPDX-License-Identifier: Apache-2.0
"""Draw the trace of a cell: each file's size against its creation time (DRFSM21 Fig. 10).

All points are one image, since an hour has 45,703 of them."""

from __future__ import annotations

from collections.abc import Sequence

from parsers.base.factors import show
from parsers.measure.summary import CellMetrics
from parsers.measure.taus import interval_s
from parsers.read.published import Figure
from parsers.report.drawing import PALETTE, Plot, save, single
from parsers.report.over_time import chosen
from parsers.report.overlays import caption_of


def summary(files: Sequence[tuple[float, int]]) -> str:
    """Return the number of files, their bytes, and the median and largest size, as text."""
    sizes = sorted(size for _, size in files)
    return (
        f"{len(sizes):,} files, {sum(sizes) / 1e6:,.1f} MB; "
        f"median {sizes[(len(sizes) - 1) // 2] / 1e3:,.1f} kB, largest {sizes[-1] / 1e6:,.3f} MB"
    )


def draw(figure: Figure, cells: Sequence[CellMetrics]) -> Plot | str:
    """Draw the first cell at the figure's `where`. `cells`: those whose verdict is not invalid."""
    found = [cell for cell in chosen(figure, cells) if cell.series.arrivals]
    if not found:
        return "no valid cell at the levels it asks for has a trace"
    cell = found[0]
    files = cell.series.arrivals
    duration_s = cell.cell.insertion_ended - cell.cell.insertion_started
    unit_s = 60.0 if interval_s(duration_s) >= 30 else 1.0
    canvas, axes = single()
    axes.plot(
        [time_s / unit_s for time_s, _ in files],
        [max(size, 1) for _, size in files],
        ls="none",
        marker=".",
        markersize=3,
        alpha=0.5,
        color=PALETTE[0],
        rasterized=True,
    )
    axes.set_yscale("log")
    axes.set_ylabel("Size of a file (bytes)")
    axes.set_xlabel(f"Time after the first insertion ({'min' if unit_s > 1 else 's'})")
    axes.set_title(figure.title)
    words = summary(files)
    caption = f"{caption_of(figure, (), False, bars=False)}. {show(cell.cell.factors)}: {words}"
    return save(canvas, figure.name, figure.title, f"{figure.title}. {words}.", caption)
