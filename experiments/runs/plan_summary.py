# SPDX-License-Identifier: Apache-2.0
"""Describe what a run would do: its cells, and the time and disk space that they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.counting import counted
from common.quantities import duration_text
from experiments.design.spec import AnySpec
from experiments.runs.estimates import Estimates
from experiments.runs.preparation import Planned
from experiments.runs.until_decided import Until
from parsers.base.factors import FACTORS, Scalar
from topologies.model import parts

MOST_SOURCES: Final = 7  # of a cell's feeds, named in full


def summary(
    spec: AnySpec,
    planned: Sequence[Planned],
    estimates: Estimates,
    *,
    order: str,
    clock: str,
    jobs: int,
) -> list[str]:
    """Return the lines printed before a run: what varies, how many cells, how long, and the
    estimate's basis."""
    cells = [item.cell for item in planned]
    level = f", {cells[0].level} level" if cells[0].level is not None else ""
    total_s = sum(estimates.of(item) for item in planned)
    lines = [f"{spec.name}: {spec.description}{level}"]
    lines += [f"  {name}: {text}" for name, text in _varied(planned)]
    seeds = sorted({cell.seed for cell in cells})
    several = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    in_order = "in the order of the file" if order == "file" else "in random order"
    repeats = len({cell.repeat for cell in cells})
    lines.append(
        f"  {counted(len(cells), 'cell')} ({repeats} of each kind, {several}) of "
        f"{cells[0].duration_s:g} s, "
        f"{in_order}; {clock} clock"
    )
    at_once = min(jobs, len(cells))
    shared = f" with {at_once} at once" if at_once > 1 else ""
    most = max(item.disk_bytes for item in planned)
    lines.append(
        f"  about {duration_text(total_s / at_once)}{shared} (estimated {estimates.basis}); "
        f"{most / 1e9:.2f} GB for the queues of the largest cell"
    )
    return lines


def parts_line(planned: Sequence[Planned], most: int) -> str:
    """Return the line of a run in parts: how its largest cell is cut, or why it is not."""
    largest = max(planned, key=lambda item: item.cell.m)
    found = parts.plan(largest.network, most)
    if found.count == 1:
        host, why = next(iter(found.stay.items()), ("it", "no host can leave"))
        return f"  one part remains: {host} stays: {why}"
    sizes = ", ".join(str(len(hosts)) for hosts in found.others)
    here = largest.cell.m - sum(len(hosts) for hosts in found.others)
    return (
        f"  {found.count} parts (largest cell): the switches, the publisher and "
        f"{counted(here, 'receiver')}; {sizes} receivers"
    )


def until_line(until: Until, most: int) -> str:
    """Return the line of a run that adds repeats."""
    return (
        "  then repeats of the cells whose claims are open, until they are decided: at most "
        f"{most} of each cell, none begun after {duration_text(until.budget_s)}"
    )


def _varied(planned: Sequence[Planned]) -> list[tuple[str, str]]:
    """Return the levels by factor, of the factors that have several."""
    levels: dict[str, dict[Scalar, None]] = {}
    for item in planned:
        for name, level in item.cell.factors.items():
            levels.setdefault(name, {})[level] = None
    return [
        (name, ", ".join(_shown(name, level) for level in found))
        for name, found in levels.items()
        if len(found) > 1
    ]


def _shown(name: str, level: Scalar) -> str:
    if isinstance(level, str):
        return level
    factor = FACTORS.get(name)
    if factor is None:
        return f"{level:g}"
    return f"{level / factor.scale:g} {factor.shown_unit}".rstrip()


def _few_sources(source: str) -> str:
    """Return the first of many feeds' sources, and how many more there are."""
    first, *more = source.split("; ")
    return source if len(more) <= MOST_SOURCES else f"{first}; {counted(len(more), 'more source')}"


def cell_lines(planned: Sequence[Planned], estimates: Estimates) -> list[str]:
    """Return a line for each cell that has its own trace, in the order in which cells run."""
    width = max(len(item.cell.cell) for item in planned)
    lines = [
        f"  {number:4} {item.cell.cell:{width}}  {counted(item.trace.products, 'product')}, "
        f"{item.trace.size_bytes / 1e6:.1f} MB ({_few_sources(item.trace.source)}), about "
        f"{duration_text(estimates.of(item))}, {item.disk_bytes / 1e9:.2f} GB of disk"
        for number, item in enumerate(planned, start=1)
        if not item.borrowed
    ]
    if left := len(planned) - len(lines):
        lines.append(f"  and {counted(left, 'more cell')} of other seeds, estimated from these")
    return lines
