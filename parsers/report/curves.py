# SPDX-License-Identifier: Apache-2.0
"""Draw a metric over a factor: lines or bars with error bars; a second metric dashed, with its own
axis; published values as hollow markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from parsers.base.factors import FACTORS, Scalar, same
from parsers.base.factors import show as show_factors
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS, Metric
from parsers.measure.sweep import Line, Point, lines, metric_of
from parsers.read.published import Figure, PaperValue
from parsers.report.drawing import (
    COLOURS,
    DASHES,
    GREY,
    HATCHES,
    MARKERS,
    PALETTE,
    Plot,
    blank,
    save,
)
from parsers.report.overlays import (
    Look,
    Overlay,
    Places,
    axis_label,
    caption_of,
    draw_published,
    errors,
    factor_label,
    published,
)

ALT_LINES = 8  # curves that are described for screen readers


def draw(figure: Figure, points: Sequence[Point], paper: Sequence[PaperValue]) -> Plot | str:
    """Draw `lines` or `bars`; if there is no data, return why."""
    assert figure.x is not None and figure.metric is not None
    name = metric_of(points, figure.metric)
    metric = METRICS[name]
    found = lines(points, x=figure.x, metric=name, by=figure.by, where=figure.where)
    if not found:
        return why_nothing(figure, points)
    second: tuple[Line, ...] = ()
    if figure.second is not None:
        second = lines(points, x=figure.x, metric=figure.second, by=figure.by, where=figure.where)
    canvas = blank(4.6)
    axes = canvas.add_subplot()
    looks = looks_of(found)
    places = _places((*found, *second), figure.x)
    if figure.kind == "bars":
        _bars(axes, found, looks, places, metric)
    else:
        _lines(axes, found, looks, places, metric)
    overlays = published(figure, figure.metric, found, looks, places, paper)
    draw_published(axes, overlays, metric, figure.kind == "bars")
    other = None
    if second:
        assert figure.second is not None
        other = _second_axis(axes, second, looks_of(second), places, METRICS[figure.second])
        overlay = published(figure, figure.second, second, looks_of(second), places, paper)
        draw_published(other, overlay, METRICS[figure.second], False)
        overlays += overlay
    _x_axis(axes, figure, places, [x for o in overlays for x in (o.begin, o.end)])
    _y_axis(axes, figure, metric, [y for line in found for y in line.y], overlays)
    axes.set_title(figure.title)
    _legend(
        canvas,
        axes,
        found,
        bool(overlays),
        METRICS[figure.second or figure.metric] if other is not None else None,
    )
    caption = caption_of(figure, [y for line in found for y in line.y], bool(overlays))
    alt = f"{figure.title}. {_in_words(found, metric, figure.x)}"
    return save(canvas, figure.name, figure.title, alt, caption)


def why_nothing(figure: Figure, points: Sequence[Point]) -> str:
    """Return why there is no value to draw."""
    name = str(figure.metric)
    reasons = [p.reasons[name] for p in points if name in p.reasons]
    if reasons and not any(name in p.estimates for p in points):
        return reasons[0]
    demands = figure.where.levels
    where = f" at the levels of {', '.join(demands)} that it asks for" if demands else ""
    return f"no valid cell{where} has {name} over {figure.x}"


def looks_of(found: Sequence[Line]) -> list[Look]:
    """Return the lines' styles. Each protocol has a colour, and other differences have a marker and
    a dash. Without protocols, each line has its own colour."""
    protocols = {line.factors.get("protocol") for line in found}
    rest = [{n: v for n, v in line.factors.items() if n != "protocol"} for line in found]
    kinds: list[Mapping[str, Scalar]] = []
    for factors in rest:
        if factors not in kinds:
            kinds.append(factors)
    looks = []
    for number, (line, factors) in enumerate(zip(found, rest, strict=True)):
        kind = kinds.index(factors)
        protocol = line.factors.get("protocol")
        if len(protocols) > 1 or len(kinds) == 1:
            colour = COLOURS.get(str(protocol), PALETTE[number % len(PALETTE)])
            other = list(COLOURS).index(str(protocol)) if protocol in COLOURS else 0
            single = len(kinds) == 1
            marker = MARKERS[(other if single else kind) % len(MARKERS)]
            dash = DASHES[(other if single else kind) % len(DASHES)]
            hatch = HATCHES[(2 * kind + other) % len(HATCHES)]
        else:
            colour, marker = PALETTE[kind % len(PALETTE)], MARKERS[kind % len(MARKERS)]
            dash, hatch = DASHES[kind % len(DASHES)], HATCHES[kind % len(HATCHES)]
        looks.append(Look(colour, marker, dash, hatch))
    return looks


def _places(found: Iterable[Line], x: str, *, even: bool = False) -> Places:
    levels: list[Scalar] = []
    for line in found:
        levels += [v for v in line.x if not any(same(v, known) for known in levels)]
    if any(isinstance(v, str) for v in levels):
        return Places(x, tuple(str(v) for v in levels), True, tuple(levels))
    return Places(x, (), even, tuple(sorted(levels)))


def _lines(
    axes: Axes, found: Sequence[Line], looks: Sequence[Look], places: Places, metric: Metric
) -> None:
    for line, look in zip(found, looks, strict=True):
        dash = look.dash if not places.names else ""
        style = {"ls": dash, "markersize": 6, "lw": 1.8, "capsize": 3.5, "label": line.label}
        _curve(axes, line, look, places, metric, style)


def _curve(
    axes: Axes, line: Line, look: Look, places: Places, metric: Metric, style: Mapping[str, Any]
) -> None:
    at = [places.at(level) for level in line.x]
    axes.errorbar(
        [x for x in at if x is not None],
        [y.mean / metric.scale for y, x in zip(line.y, at, strict=True) if x is not None],
        yerr=errors(line.y, metric),
        color=look.colour,
        marker=look.marker,
        **style,
    )


def _bars(
    axes: Axes, found: Sequence[Line], looks: Sequence[Look], places: Places, metric: Metric
) -> None:
    places = replace(places, even=True)
    width = 0.8 / len(found)
    few = sum(len(line.x) for line in found) <= 24
    for number, (line, look) in enumerate(zip(found, looks, strict=True)):
        shift = (number - (len(found) - 1) / 2) * width
        at = [(places.at(level) or 0.0) + shift for level in line.x]
        heights = [y.mean / metric.scale for y in line.y]
        axes.bar(
            at,
            heights,
            width,
            yerr=errors(line.y, metric),
            capsize=3.5,
            color=look.colour,
            edgecolor="white",
            hatch=look.hatch,
            label=line.label,
        )
        for x, y, estimate in zip(at, heights, line.y, strict=True):
            if few and not estimate.has_interval:
                text = f"{y:.{min(metric.digits, 1)}f}"
                axes.text(x, y, text, ha="center", va="bottom", fontsize=8)
    axes.grid(visible=False, axis="x")


def _second_axis(
    axes: Axes,
    found: Sequence[Line],
    looks: Sequence[Look],
    places: Places,
    metric: Metric,
) -> Axes:
    other = axes.twinx()
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    style = {"ls": (0, (2, 2)), "markersize": 4, "lw": 1.2, "capsize": 2.5, "alpha": 0.85}
    for line, look in zip(found, looks, strict=True):
        _curve(other, line, look, places, metric, style)
    other.set_ylabel(f"{axis_label(metric)}, dashed")
    other.set_ylim(bottom=0)
    return other


def _x_axis(axes: Axes, figure: Figure, places: Places, also: Sequence[float]) -> None:
    assert figure.x is not None
    axes.set_xlabel(factor_label(figure.x))
    if places.names:
        many = len(places.names) > 10
        axes.set_xticks(
            range(len(places.names)),
            places.names,
            rotation=60 if many else 0,
            ha="right" if many else "center",
        )
        _side_by_side(axes, len(places.names))
        return
    ticks = [float(v) / FACTORS[figure.x].scale for v in places.levels if not isinstance(v, str)]
    if figure.kind == "bars":
        axes.set_xticks(range(len(ticks)), [f"{t:g}" for t in ticks])
        _side_by_side(axes, len(ticks))
    elif "x" in figure.log and all(t > 0 for t in ticks):
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif len(ticks) <= 12:
        axes.set_xticks(_apart([*ticks, *also]))


def _side_by_side(axes: Axes, count: int) -> None:
    """Add margins if there are few levels, so that bars do not fill the figure."""
    margin = 0.6 if count > 2 else 1.4
    axes.set_xlim(-margin, count - 1 + margin)


def _apart(ticks: Sequence[float]) -> list[float]:
    """Return the ticks without those that would overlap: closer than 4 % of the axis."""
    ordered = sorted(ticks)
    span = ordered[-1] - ordered[0] if ordered else 0.0
    kept: list[float] = []
    for tick in ordered:
        if not kept or tick - kept[-1] >= 0.04 * span:
            kept.append(tick)
    return kept


def _y_axis(
    axes: Axes,
    figure: Figure,
    metric: Metric,
    values: Sequence[Estimate],
    overlays: Sequence[Overlay],
) -> None:
    axes.set_ylabel(axis_label(metric))
    every = [v.mean for v in values] + [o.value for o in overlays]
    if "y" in figure.log and min(every) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif figure.kind == "bars" or min(every) < 0.6 * max(every):
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0] if min(every) < 0 else 0.0))
    if metric.name.startswith("ffdr") and max(every) >= 99.9:
        axes.set_ylim(top=107.0 if figure.kind == "bars" else 102.0)


def _legend(
    canvas: Canvas, axes: Axes, found: Sequence[Line], published: bool, second: Metric | None
) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(found) == 1 and not published and second is None:
        return
    if published:
        handles.append(
            Line2D([], [], ls="", marker="o", markersize=8, mfc="none", mec="black", mew=1.6)
        )
        labels.append("published")
    if second is not None:
        handles.append(Line2D([], [], color=GREY, ls=(0, (2, 2)), lw=1.2))
        labels.append(f"{second.label} (right)")
    canvas.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=9
    )


def _in_words(found: Sequence[Line], metric: Metric, x: str) -> str:
    """Describe the curves for readers who cannot see them."""
    parts = []
    for line in found[:ALT_LINES]:
        first, last = line.y[0].mean, line.y[-1].mean
        ends = [show_factors({x: level}) for level in (line.x[0], line.x[-1])]
        text = f"{line.label}: {metric.show(first)} at {ends[0]}"
        parts.append(text + (f", {metric.show(last)} at {ends[1]}" if len(line.x) > 1 else ""))
    more = len(found) - ALT_LINES
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "") + "."
