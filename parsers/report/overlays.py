# SPDX-License-Identifier: Apache-2.0
"""Parts that several kinds of figures share: published values as hollow markers, labels of axes,
captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from parsers.base.factors import FACTORS, Scalar, same
from parsers.base.intervals import Estimate
from parsers.base.metric_units import Metric
from parsers.measure.sweep import Line
from parsers.read.published import (
    Figure,
    PaperValue,
    Range,
    meets,
)

LABELLED = 8  # at most this many published values show their number


@dataclass(frozen=True)
class Look:
    """How a line differs from the others."""

    colour: str
    marker: str
    dash: object
    hatch: str


@dataclass(frozen=True)
class Places:
    """The places of x levels: numbers at their value in the shown unit, texts side by side."""

    name: str
    names: tuple[str, ...]  # of texts; empty if x is a number
    even: bool = False  # numbers are side by side, too (for bars)
    levels: tuple[Scalar, ...] = ()

    def at(self, level: Scalar) -> float | None:
        """Return the place of a level on the x axis; None if it is not on it."""
        if self.names or self.even:
            return next((float(i) for i, v in enumerate(self.levels) if same(v, level)), None)
        if isinstance(level, str):
            return None
        return float(level) / FACTORS[self.name].scale


@dataclass(frozen=True)
class Overlay:
    """A published value: at one x (begin = end), or the same over a range of it."""

    begin: float
    end: float
    value: float
    colour: str
    marker: str


def published(
    figure: Figure,
    metric: str,
    found: Sequence[Line],
    looks: Sequence[Look],
    places: Places,
    paper: Sequence[PaperValue],
) -> list[Overlay]:
    """Return the published values that belong beside these lines."""
    assert figure.x is not None
    if figure.kind == "bars":
        places = replace(places, even=True)
    overlays: list[Overlay] = []
    for row in paper:
        if row.metric != metric or row.value_si is None or not belongs(row, figure):
            continue
        for protocol in row.protocols:
            hit = next(
                (n for n, line in enumerate(found) if fits(line, row, protocol, figure.x)), None
            )
            if hit is None:  # published under conditions that no line here has
                continue
            shift = 0.0
            if figure.kind == "bars":
                shift = (hit - (len(found) - 1) / 2) * 0.8 / len(found)
            overlays += _at(row, figure.x, places, looks[hit], shift)
    return list(dict.fromkeys(overlays))


def _at(row: PaperValue, x: str, places: Places, look: Look, shift: float) -> list[Overlay]:
    value = row.value_si
    demand = row.where.levels.get(x)
    if demand is None or value is None:
        return []
    if isinstance(demand, Range):
        known = [p for v in places.levels if meets(v, demand) and (p := places.at(v)) is not None]
        ends = [
            p
            for end in (demand.at_least, demand.at_most)
            if end is not None and (p := places.at(end)) is not None
        ]
        if not known:
            return []
        across = [*known, *ends]
        return [Overlay(min(across), max(across), value, look.colour, look.marker)]
    at = [p for level in demand if (p := places.at(level)) is not None]
    return [Overlay(x + shift, x + shift, value, look.colour, look.marker) for x in at]


def belongs(row: PaperValue, figure: Figure) -> bool:
    """Return whether the row contradicts none of the figure's conditions."""
    given = row.where.levels
    for name, demand in figure.where.levels.items():
        if name == "protocol":
            if not any(meets(p, demand) for p in row.protocols):
                return False
            continue
        levels = given.get(name)
        if isinstance(levels, tuple) and not any(meets(level, demand) for level in levels):
            return False
    return True


def fits(line: Line, row: PaperValue, protocol: str, x: str) -> bool:
    """Return whether the line was measured under the row's conditions, as far as both say (except
    x)."""
    levels = {**(line.points[0].conditions if line.points else {}), **line.factors}
    if levels.get("protocol", protocol) != protocol:
        return False
    demands = row.where.levels.items()
    return all(n == x or n not in levels or meets(levels[n], demand) for n, demand in demands)


def draw_published(axes: Axes, overlays: Sequence[Overlay], metric: Metric, on_bars: bool) -> None:
    """Draw hollow markers, and a dotted line if the value holds for a range."""
    for overlay in overlays:
        y = overlay.value / metric.scale
        colour = "#000000" if on_bars else overlay.colour
        if overlay.begin < overlay.end:
            axes.plot([overlay.begin, overlay.end], [y, y], color=colour, ls=":", lw=1.6)
        axes.plot(
            [overlay.begin] if overlay.begin == overlay.end else [overlay.begin, overlay.end],
            [y] if overlay.begin == overlay.end else [y, y],
            ls="",
            marker=overlay.marker,
            markersize=9.5,
            markerfacecolor="white" if on_bars else "none",
            markeredgecolor=colour,
            markeredgewidth=1.8,
            zorder=5,
        )
        if len(overlays) <= LABELLED:
            axes.annotate(
                f"{y:g}",
                xy=(overlay.end, y),
                xytext=(9, -13) if on_bars else (8, 4),  # bars show their own number above
                textcoords="offset points",
                fontsize=8.5,
                color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
                zorder=6,
            )


def axis_label(metric: Metric) -> str:
    """Return the label and unit of a metric for an axis."""
    return f"{metric.label} ({metric.shown_unit})" if metric.shown_unit else metric.label


def factor_label(name: str) -> str:
    """Return the label and unit of a factor for an axis."""
    factor = FACTORS[name]
    return f"{factor.label} ({factor.shown_unit})" if factor.shown_unit else factor.label


def errors(values: Sequence[Estimate], metric: Metric) -> list[list[float]] | None:
    """Return the lengths of the error bars; None if no value has an interval."""
    if not any(y.has_interval for y in values):
        return None
    low = [max(0.0, y.mean - y.low) / metric.scale for y in values]
    return [low, [max(0.0, y.high - y.mean) / metric.scale for y in values]]


def caption_of(
    figure: Figure, values: Sequence[Estimate], published: bool, *, bars: bool = True
) -> str:
    """Return the figure's source, the kind of its error bars, and what hollow markers mean."""
    parts = [figure.caption.rstrip(".")] if figure.caption else []
    parts.append(f"{figure.title} ({figure.source})" if figure.source else figure.title)
    methods = list(dict.fromkeys(v.method for v in values if v.has_interval))
    if methods:
        more = " and others" if len(methods) > 2 else ""
        parts.append(f"Error bars: 95 % confidence intervals, {', '.join(methods[:2])}{more}")
    elif bars:
        parts.append("One run for each point: no error bars")
    if published:
        parts.append("Hollow: published values")
    return ". ".join(parts)
