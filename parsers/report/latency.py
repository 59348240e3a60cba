# SPDX-License-Identifier: Apache-2.0
"""Show the components of latency at each subscriber (DRFSM21 eq. 7), as a stacked figure and a
table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from parsers.base.factors import show
from parsers.measure.latency_parts import NAMES, LatencyParts
from parsers.measure.summary import CellMetrics
from parsers.read.published import Figure
from parsers.report.document import Section, Table
from parsers.report.drawing import HATCHES, PALETTE, Plot, blank, save
from parsers.report.over_time import chosen
from parsers.report.overlays import caption_of

LABELS: Final = {
    "propagation": "propagation",
    "emission": "emission",
    "buffer": "sending buffer",
    "repair": "repair",
    "offset": "clock offset",
    "rest": "rest",
}
HEADER: Final = ("Subscriber", "files", *(LABELS[name] for name in NAMES), "measured", "most rest")
SENTENCES: Final = (
    "Means over the files that FMTP delivered, ms: asked propagation; file and headers at r_mc; "
    "their wait, in a queue that r_mc empties in sending order; the injected clock offset.",
    "What is measured beyond these is repair, of files with retransmitted blocks; of others it is "
    "the rest. The last column has the largest rest of a file.",
)


def latency_section(cells: Iterable[CellMetrics]) -> Section | None:
    """Return a table for each cell; None if FMTP delivered nothing."""
    tables = []
    for cell in cells:
        rows = tuple(_row(r.host, r.parts) for r in cell.receivers if r.parts is not None)
        if rows:
            tables.append(Table(cell.cell.cell, HEADER, rows, frozenset({"Subscriber"})))
    if not tables:
        return None
    return Section("Latency at each subscriber (DRFSM21 eq. 7)", SENTENCES, tuple(tables))


def _row(host: str, parts: LatencyParts) -> tuple[str, ...]:
    means = parts.mean.by_name()
    values = (*(means[name] for name in NAMES), parts.mean.total_s, parts.rest_most_s)
    return (host, str(parts.files), *(f"{1e3 * value:.3f}" for value in values))


def draw(figure: Figure, cells: Sequence[CellMetrics]) -> Plot | str:
    """Draw the means over the repeats of the first cell at the figure's `where`. `cells`: those
    whose verdict is not invalid."""
    having = [c for c in cells if any(r.parts is not None for r in c.receivers)]
    found = chosen(figure, having)
    if not found:
        return "no valid cell at the levels it asks for has files that FMTP delivered"
    factors = found[0].cell.factors
    return stacked(figure, _means([c for c in having if c.cell.factors == factors]), show(factors))


def _means(repeats: Sequence[CellMetrics]) -> dict[str, dict[str, float]]:
    """Return the mean of each component at each host over the repeats that have it, in seconds."""
    kept: dict[str, list[Mapping[str, float]]] = {}
    for receiver in (r for cell in repeats for r in cell.receivers):
        if receiver.parts is not None:
            kept.setdefault(receiver.host, []).append(receiver.parts.mean.by_name())
    return {host: {n: fmean(one[n] for one in all_) for n in NAMES} for host, all_ in kept.items()}


def stacked(figure: Figure, parts: Mapping[str, Mapping[str, float]], levels: str) -> Plot:
    """Draw the components of each host's latency: seconds, by their names in NAMES.

    `levels`: the cell's factors in words.
    """
    canvas = blank(4.4)
    axes = canvas.subplots()
    axes.use_sticky_edges = False  # otherwise the axis would end where the last bar begins
    # Negative parts are stacked separately, downwards.
    tops, bottoms = dict.fromkeys(parts, 0.0), dict.fromkeys(parts, 0.0)
    for number, name in enumerate(NAMES):
        heights = {host: 1e3 * means[name] for host, means in parts.items()}
        stacks = {host: tops if height >= 0 else bottoms for host, height in heights.items()}
        axes.bar(
            list(parts),
            list(heights.values()),
            0.6,
            bottom=[stacks[host][host] for host in parts],
            color=PALETTE[number],
            hatch=HATCHES[number],
            edgecolor="white",
            label=LABELS[name],
        )
        for host, height in heights.items():
            stacks[host][host] += height
    measured = [1e3 * sum(means.values()) for means in parts.values()]
    axes.plot(
        list(parts), measured, ls="", marker="D", mfc="none", mec="black", mew=1.6, label="measured"
    )
    axes.axhline(0, color="black", lw=0.8)
    axes.set_ylabel("Mean latency (ms)")
    axes.set_xlim(-0.8, len(parts) - 0.2)
    axes.grid(visible=False, axis="x")
    axes.set_title(figure.title)
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    words = "; ".join(_in_words(host, means) for host, means in parts.items())
    caption = f"{caption_of(figure, (), False, bars=False)}. {levels}"
    return save(canvas, figure.name, figure.title, f"{figure.title}. {words}.", caption)


def _in_words(host: str, means: Mapping[str, float]) -> str:
    said = ", ".join(f"{LABELS[n]} {1e3 * means[n]:.1f}" for n in NAMES if abs(means[n]) >= 5e-5)
    return f"{host}: {1e3 * sum(means.values()):.1f} ms, {said}"
