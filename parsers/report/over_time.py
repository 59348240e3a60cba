# SPDX-License-Identifier: Apache-2.0
"""Draw bandwidth per minute, above the sizes of the files created in each minute (MPUP16 Fig. 5).
Runs of a few minutes use shorter intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from parsers.base.factors import show
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import fixed_of
from parsers.measure.taus import interval_s
from parsers.read.published import Figure
from parsers.report.drawing import (
    DASHES,
    GREY,
    PALETTE,
    Plot,
    blank,
    colour_of,
    save,
)
from parsers.report.overlays import caption_of


def means(
    series: Sequence[tuple[float, float]], width_s: float, until_s: float
) -> list[tuple[float, float]]:
    """Return (end of an interval, mean) of samples (time at their end, rate), weighted by the time
    that each covers. Leave out intervals that are covered by less than 90 %."""
    covered: dict[int, float] = {}
    total: dict[int, float] = {}
    begins = [series[0][0] - _step(series), *(t for t, _ in series)] if series else []
    for begin, (end, rate) in zip(begins, series, strict=False):
        number = max(0, int(begin // width_s))
        while number * width_s < end:
            part = min(end, (number + 1) * width_s) - max(begin, number * width_s, 0.0)
            if part > 0:
                covered[number] = covered.get(number, 0.0) + part
                total[number] = total.get(number, 0.0) + part * rate
            number += 1
    found = []
    for number in sorted(covered):
        end = min((number + 1) * width_s, until_s)
        span = end - number * width_s
        if span > 0 and covered[number] >= 0.9 * span:
            found.append((end, total[number] / covered[number]))
    return found


def _step(series: Sequence[tuple[float, float]]) -> float:
    """Return the usual distance between samples, used as the span of the first sample."""
    gaps = sorted(b - a for (a, _), (b, _) in pairwise(series))
    return gaps[len(gaps) // 2] if gaps else 1.0


def chosen(figure: Figure, cells: Sequence[CellMetrics]) -> list[CellMetrics]:
    """Return the first repeat of each combination of levels that meets the figure's `where`."""
    found: dict[tuple[tuple[str, object], ...], CellMetrics] = {}
    for cell in sorted(cells, key=lambda c: c.cell.repeat):
        factors = cell.cell.factors
        if figure.where.holds({**fixed_of(cell.cell), **factors}) and cell.series.nic_bps:
            found.setdefault(tuple(sorted(factors.items())), cell)
    # LDM7 first, as in the tables; the others keep their order.
    return sorted(found.values(), key=lambda c: c.cell.protocol, reverse=True)


def draw(figure: Figure, cells: Sequence[CellMetrics]) -> Plot | str:
    """Draw the figure. `cells`: those whose verdict is not invalid."""
    found = chosen(figure, cells)
    if not found:
        return "no valid cell at the levels it asks for has samples of the sender's NIC"
    first = found[0]
    longest = max(c.cell.insertion_ended - c.cell.insertion_started for c in found)
    width = interval_s(longest)
    unit_s = 60.0 if width >= 30 else 1.0
    canvas = blank(5.6)
    upper, lower = canvas.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    factors = [c.cell.factors for c in found]
    varied = [n for n in factors[0] if len({f.get(n) for f in factors}) > 1] or ["protocol"]
    by_protocol = len({c.cell.protocol for c in found}) == len(found)
    words = []
    for number, cell in enumerate(found):
        until = cell.active_s[1]
        series = means(cell.series.nic_bps, width, until)
        if not series:
            continue
        label = show({n: cell.cell.factors[n] for n in varied})
        upper.plot(
            [0.0, *(t / unit_s for t, _ in series)],
            [series[0][1] / 1e6, *(rate / 1e6 for _, rate in series)],
            drawstyle="steps-pre",
            color=colour_of(cell.cell.protocol) if by_protocol else PALETTE[number % len(PALETTE)],
            ls=DASHES[number % len(DASHES)],
            lw=1.8,
            label=label,
        )
        rates = [rate for _, rate in series]
        words.append(f"{label}: {min(rates) / 1e6:.1f} to {max(rates) / 1e6:.1f} Mbit/s")
    created = means(first.series.input_bps, width, float(len(first.series.input_bps)))
    lower.bar(
        [(end - width) / unit_s for end, _ in created],
        [rate * width / 8e6 for _, rate in created],
        width / unit_s,
        align="edge",
        color="#bdbdbd",
        edgecolor=GREY,
        linewidth=0.4,
    )
    span = "minute" if width == 60 else f"{width} s"
    upper.set_ylim(bottom=0)
    upper.set_xlim(0, longest / unit_s)
    upper.set_ylabel("Sent by the sender's NIC (Mbit/s)")
    upper.set_title(figure.title)
    lower.set_title(f"Sizes of the files created per {span}", fontsize=10)
    lower.set_ylabel("MB")
    lower.set_xlabel(f"Time after the first insertion ({'min' if unit_s > 1 else 's'})")
    handles, labels = upper.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    at = show({n: v for n, v in first.cell.factors.items() if n not in varied})
    repeats = " of the first repeat" if first.cell.repeat == 0 else ""
    caption = f"{caption_of(figure, (), False, bars=False)}. Means per {span}{repeats}, {at}"
    return save(canvas, figure.name, figure.title, f"{figure.title}. {'; '.join(words)}.", caption)
