# SPDX-License-Identifier: Apache-2.0
"""Draw the figures of one group of cells: from metrics to `Plot`s."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from common.contracts import FAITHFUL
from parsers.measure.comparison import Group
from parsers.measure.series import thinned
from parsers.measure.summary import CellMetrics, ReceiverMetrics
from parsers.measure.verdicts import worst_verdict
from parsers.report.drawing import (
    DASHES,
    GREY,
    HATCHES,
    Plot,
    blank,
    colour_of,
    place_of,
    save,
    single,
    style,
)

LONG_RUN_S = 600.0  # from this length on, bandwidth is shown per minute, as in the papers


def _present(group: Group) -> list[tuple[str, CellMetrics]]:
    found = [(p, group.first(p)) for p in group.protocols]
    return [(p, c) for p, c in found if c is not None]


def _mean_throughput(group: Group, protocol: str, host: str) -> float | None:
    found = [
        r.throughput.value
        for cell in group.cells.get(protocol, ())
        for r in cell.receivers
        if r.host == host and r.throughput.value is not None
    ]
    return float(np.mean(found)) if found else None


def _by_site(receivers: tuple[ReceiverMetrics, ...]) -> list[ReceiverMetrics]:
    """Return receivers by their site's RTT; the hosts of a site are in the cell's order."""
    listed = {r.host: i for i, r in enumerate(receivers)}
    return sorted(
        receivers,
        key=lambda r: (r.rtt_ms if r.rtt_ms is not None else 1e9, r.site, listed[r.host]),
    )


def _throughput(group: Group) -> Figure | None:
    present = _present(group)
    if not present:
        return None
    ordered = _by_site(present[0][1].receivers)
    figure, axes = single(4.4)
    positions, spans = _placed(ordered)
    highest = _throughput_bars(axes, group, positions, ordered)
    many = len(ordered) > 10
    axes.set_xticks(
        positions,
        [r.host for r in ordered],
        rotation=60 if many else 0,
        ha="right" if many else "center",
        fontsize=8 if many else 9,
        rotation_mode="anchor" if many else "default",
    )
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, highest * 1.32 if highest else 1)
    for label, left, right in spans:
        axes.text(
            (left + right) / 2,
            highest * 1.30 if highest else 0.97,
            label,
            ha="center",
            va="top",
            fontsize=9,
            color="#333333",
        )
        axes.axvspan(left - 0.62, right + 0.62, color="#f5f5f5", zorder=-2, lw=0)
    axes.set_xlim(positions[0] - 0.8, positions[-1] + 0.8)
    axes.set_ylabel("Throughput (Mbit/s)")
    axes.set_xlabel("Receiver, grouped by site")
    axes.set_title("Throughput per receiver: sum of sizes / sum of latencies")
    _finish(figure, axes, group)
    return figure


Span = tuple[str, float, float]  # a site's label, and its first and last position


def _placed(ordered: Sequence[ReceiverMetrics]) -> tuple[list[float], list[Span]]:
    """Return each receiver's place on the x axis, with a gap between sites, and the sites'
    spans."""
    positions: list[float] = []
    spans: list[Span] = []
    x = 0.0
    for index, receiver in enumerate(ordered):
        if index and receiver.site != ordered[index - 1].site:
            x += 0.7
        positions.append(x)
        rtt = f"RTT {receiver.rtt_ms:g} ms" if receiver.rtt_ms is not None else "RTT unknown"
        label = f"{receiver.site}\n{rtt}"
        if spans and spans[-1][0] == label:
            spans[-1] = (label, spans[-1][1], x)
        else:
            spans.append((label, x, x))
        x += 1.0
    return positions, spans


def _throughput_bars(
    axes: Axes, group: Group, positions: Sequence[float], ordered: Sequence[ReceiverMetrics]
) -> float:
    """Draw each receiver's bars; return the height of the highest, in Mbit/s."""
    present = _present(group)
    width = 0.8 / len(present)
    highest = 0.0
    few = len(ordered) * len(present) <= 24
    for number, (protocol, _) in enumerate(present):
        for index, (at, receiver) in enumerate(zip(positions, ordered, strict=True)):
            value = _mean_throughput(group, protocol, receiver.host)
            centre = at + (number - (len(present) - 1) / 2) * width
            if value is None:
                axes.text(centre, 0, "n/a", rotation=90, ha="center", va="bottom", fontsize=8)
                continue
            mbps = value / 1e6
            highest = max(highest, mbps)
            axes.bar(
                centre,
                mbps,
                width,
                color=colour_of(protocol),
                edgecolor="white",
                hatch=HATCHES[place_of(protocol) % len(HATCHES)],
                label=protocol.upper() if index == 0 else None,
            )
            if few:
                axes.text(centre, mbps, f"{mbps:.1f}", ha="center", va="bottom", fontsize=8)
    return highest


def _finish(figure: Figure, axes: Axes, group: Group) -> None:
    """Draw conditions and verdict above the axes on the left, and the legend on the right."""
    cells = [c for repeats in group.cells.values() for c in repeats]
    verdict = worst_verdict(cells)
    repeats = max((len(c) for c in group.cells.values()), default=0)
    figure.text(
        0.008,
        0.985,
        group.label
        + (f"; first of {repeats} repeats" if repeats > 1 else "")
        + ("" if verdict == FAITHFUL else f"; verdict: {verdict.upper()}"),
        ha="left",
        va="top",
        fontsize=9,
        color="#555555" if verdict == FAITHFUL else "#a03000",
    )
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles,
            labels,
            loc="outside upper right",
            ncols=len(handles) if len(handles) < 4 else 2,
            fontsize=9,
            frameon=False,
        )


def _bandwidth(group: Group) -> Figure | None:
    present = _present(group)
    long = any(c.active_s[1] > LONG_RUN_S for _, c in present)
    figure, axes = single()
    drawn = False
    offered = next((c for _, c in present if c.series.input_bps), None)
    if offered is not None and not long:
        times = [t for t, _ in offered.series.input_bps]
        axes.fill_between(
            [0.0, *times],
            [rate / 1e6 for rate in _extended(offered.series.input_bps)],
            step="pre",
            color="#cfcfcf",
            lw=0,
            label=f"files created ({offered.cell.protocol.upper()} run)",
        )
    limit = 0.0
    for protocol, cell in present:
        series = cell.series.nic_bps_per_minute if long else cell.series.nic_bps
        if not series:
            continue
        drawn = True
        limit = max(limit, cell.active_s[1])
        if long:
            series = ((0.0, series[0][1]), *series)
        axes.plot(
            [t / (60.0 if long else 1.0) for t, _ in series],
            [rate / 1e6 for _, rate in series],
            color=colour_of(protocol),
            ls=DASHES[place_of(protocol) % len(DASHES)],
            lw=1.8,
            drawstyle="steps-pre",
            label=protocol.upper(),
        )
        mean = cell.values["nic_bandwidth"].value
        if mean is not None:
            axes.axhline(mean / 1e6, color=colour_of(protocol), lw=0.9, ls=":")
            axes.annotate(
                f"mean {mean / 1e6:.1f}",
                xy=(1.0, mean / 1e6),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 2),
                textcoords="offset points",
                ha="right",
                va="bottom",
                fontsize=8.5,
                color=colour_of(protocol),
            )
    if not drawn:
        return None
    scale = 60.0 if long else 1.0
    axes.set_xlim(0, limit * 1.08 / scale)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"Time after the first insertion ({'min' if long else 's'})")
    axes.set_ylabel("Sent by the sender's NIC (Mbit/s)")
    axes.set_title(f"Sender NIC bandwidth, per {'minute' if long else 'second'}")
    _finish(figure, axes, group)
    return figure


def _extended(series: tuple[tuple[float, float], ...]) -> list[float]:
    rates = [rate for _, rate in series]
    return [rates[0], *rates]


def _cpu(group: Group) -> Figure | None:
    """Draw the sender's processes above, and the whole machine (by sar) below: their scales
    differ."""
    present = [(p, c) for p, c in _present(group) if c.series.sender_cpu or c.series.machine_cpu]
    if not present:
        return None
    figure = blank(5.2)
    sender, machine = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    limit = max(c.active_s[1] for _, c in present)
    scale = 60.0 if limit > LONG_RUN_S else 1.0
    for protocol, cell in present:
        look = {"color": colour_of(protocol), "ls": DASHES[place_of(protocol) % len(DASHES)]}
        used = thinned(cell.series.sender_cpu)
        everything = thinned(cell.series.machine_cpu)
        sender.plot(
            [t / scale for t, _ in used],
            [share for _, share in used],
            lw=2.0,
            marker="o" if protocol == "ldm7" else "s",
            markersize=4,
            label=protocol.upper(),
            **look,
        )
        machine.plot(
            [t / scale for t, _ in everything],
            [share for _, share in everything],
            lw=1.4,
            **look,
        )
    sender.set_xlim(0, limit * 1.02 / scale)
    sender.set_ylim(0, max(1.0, 1.15 * max(y for y in (*_shares(present), 0.0))))
    machine.set_ylim(0, 105)
    machine.axhline(100, color=GREY, lw=0.9)
    machine.set_xlabel(f"Time after the first insertion ({'min' if scale > 1 else 's'})")
    sender.set_ylabel("% of all cores")
    machine.set_ylabel("% of all cores")
    sources = " and ".join(sorted({c.series.sender_cpu_source or "no log" for _, c in present}))
    sender.set_title(f"CPU utilization of the sender's LDM processes ({sources})")
    machine.set_title("CPU utilization of the whole machine, emulation included (sar)")
    _finish(figure, sender, group)
    return figure


def _shares(present: list[tuple[str, CellMetrics]]) -> list[float]:
    return [share for _, c in present for _, share in c.series.sender_cpu]


def _latency(group: Group) -> Figure | None:
    present = [(p, c) for p, c in _present(group) if c.series.latency_cdf]
    if not present:
        return None
    figure, axes = single()
    every = [x for _, c in present for x, _ in c.series.latency_cdf]
    logarithmic = min(every) > 0
    for protocol, cell in present:
        axes.step(
            [1e3 * x for x, _ in cell.series.latency_cdf],
            [share for _, share in cell.series.latency_cdf],
            where="post",
            color=colour_of(protocol),
            ls=DASHES[place_of(protocol) % len(DASHES)],
            lw=2.0,
            label=protocol.upper(),
        )
        for probability, name in ((0.5, "latency_p50"), (0.99, "latency_p99")):
            value = cell.values[name].value
            if value is None:
                continue
            axes.plot(
                1e3 * value,
                probability,
                marker="o" if protocol == "ldm7" else "s",
                color=colour_of(protocol),
                markeredgecolor="white",
                markersize=7,
            )
            left = (
                protocol == min(present, key=lambda pair: pair[1].values[name].value or 0.0)[0]
                and len(present) > 1
            )
            axes.annotate(
                f"p{100 * probability:.0f} {1e3 * value:.0f} ms",
                xy=(1e3 * value, probability),
                xytext=(-8 if left else 8, 3 if left else -4),
                textcoords="offset points",
                fontsize=8.5,
                color=colour_of(protocol),
                ha="right" if left else "left",
                va="bottom" if left else "top",
            )
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("Product latency, creation to arrival, all receivers (ms)")
    axes.set_ylabel("Share of deliveries")
    axes.set_title("Latency of the products (cumulative distribution)")
    _finish(figure, axes, group)
    return figure


_KINDS: tuple[tuple[str, str, Callable[[Group], Figure | None]], ...] = (
    ("throughput", "Throughput per receiver", _throughput),
    ("bandwidth", "Sender NIC bandwidth over time", _bandwidth),
    ("cpu", "CPU over time", _cpu),
    ("latency", "Distribution of product latency", _latency),
)


def render_plots(group: Group, suffix: str = "") -> tuple[Plot, ...]:
    """Return all figures of a group that have data. `suffix` is added to their names."""
    found = []
    for kind, title, draw in _KINDS:
        name = f"{kind}{suffix}"
        with style():
            figure = draw(group)
            if figure is not None:
                found.append(save(figure, name, title, f"{title}; {group.label}"))
    return tuple(found)
