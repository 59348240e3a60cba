# SPDX-License-Identifier: Apache-2.0
"""Print results as the tables of docs/results/benchmarks.md. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.jobs import CARD_WORDS, MB, MBIT, STEERED, Card
from bench.store import Result
from bench.table import Row, cpu_per_gb, percent_of_rate, rows, title
from bench.tools import TOOLS

_ORDER = {tool.name: i for i, tool in enumerate(TOOLS)}
# Columns of shaped and stream: (one-way delay in ms, loss).
_SHAPED = tuple((delay, loss) for delay in (0.0, 25.0) for loss in (0.0, 0.01, 0.05))
_STREAM = tuple((delay, loss) for delay in (0.0, 25.0) for loss in (0.0, 0.01))


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    out = [
        f"| {' | '.join(['', *head])} |".replace("|  |", "| |", 1),
        "|---" * (len(head) + 1) + "|",
    ]
    return "\n".join([*out, *(f"| {' | '.join(line)} |" for line in lines)])


def _words(delay_ms: float, loss: float) -> str:
    found = [f"{delay_ms:g} ms"] * bool(delay_ms) + [f"{100 * loss:g} %"] * bool(loss)
    return ", ".join(found) or "no loss"


def _runs(row: Row) -> str:
    """Return how many runs there are; empty for the usual five."""
    failed = f" of {row.runs + len(row.failures)}" if row.failures else ""
    return "" if row.runs == 5 and not failed else f" [{row.runs}{failed}]"


def _lines(
    found: Sequence[Row],
    columns: Sequence[tuple[float, float]],
    text: Callable[[Row], str],
) -> list[list[str]]:
    """Return a line per tool with a cell per column, empty where nothing was measured."""
    out = []
    for tool in sorted({row.job.tool for row in found}, key=_ORDER.__getitem__):
        at = {(r.job.delay_ms, r.job.loss): r for r in found if r.job.tool == tool}
        line = [title(tool)]
        for column in columns:
            row = at.get(column)
            line.append("" if row is None else (text(row) if row.runs else "fails") + _runs(row))
        out.append(line)
    return out


def _shaped(found: Sequence[Row]) -> list[str]:
    out = []
    for rate, receivers in dict.fromkeys((r.job.rate_bps, r.job.receivers) for r in found):
        here = [r for r in found if (r.job.rate_bps, r.job.receivers) == (rate, receivers)]
        lines = _lines(
            here,
            _SHAPED,
            lambda r: f"{percent_of_rate(r.job, r.values):.1f} ({r.values['wire_ratio']:.3f})",
        )
        head = f"**shaped**, {rate // MBIT} Mbit/s, N = {receivers}: % of the rate (wire)"
        out.append(f"{head}\n\n{_table([_words(*c) for c in _SHAPED], lines)}")
    return out


def _stream(found: Sequence[Row]) -> list[str]:
    def text(row: Row) -> str:
        return "{p50_s:.3f} / {p99_s:.3f} ({wire_ratio:.3f}), {missing:.0f}".format(**row.values)

    lines = _lines(found, _STREAM, text)
    head = "**stream**, 20 Mbit/s, N = 8: p50 / p99 in s (wire), missing of 1,600"
    return [f"{head}\n\n{_table([_words(*c) for c in _STREAM], lines)}"]


def _blast(found: Sequence[Row]) -> list[str]:
    def speed(row: Row) -> str:
        spread = f" ({row.spread[0] / 1e6:,.0f}–{row.spread[1] / 1e6:,.0f})" if row.runs > 1 else ""
        return f"{row.values['goodput_bps'] / 1e6:,.0f}{spread}"

    def wire(row: Row) -> str:
        return f"{row.values['wire_ratio']:.2f}" if "wire_ratio" in row.values else "-"

    def cpu(row: Row) -> str:
        return f"{cpu_per_gb(row.job, row.values):.2f}"

    def group(row: Row) -> tuple[int, Card, bool]:
        return row.job.size_bytes, row.job.card, row.job.steered

    out = []
    for conditions in dict.fromkeys(map(group, found)):
        here = [row for row in found if group(row) == conditions]
        size, card, steered = conditions
        lines = []
        for tool in sorted({row.job.tool for row in here}, key=_ORDER.__getitem__):
            at = {row.job.loss: row for row in here if row.job.tool == tool and row.runs}
            both = [at.get(0.0), at.get(0.01)]
            cells = [fn(r) if r else "" for fn in (speed, cpu, wire) for r in both]
            runs = ", ".join(str(r.runs) if r else "0" for r in both)
            lines.append([title(tool), *cells, runs])
        words = (f"{size // MB} MB", CARD_WORDS[card], STEERED if steered else "")
        name = ", ".join(filter(None, words))
        head = (
            f"**blast, {name}, 8 receivers**: Mbit/s per receiver (smallest–largest), CPU seconds "
            "of sender and receivers per delivered GB, wire"
        )
        columns = [f"{what}no loss|{what}1 %" for what in ("", "CPU, ", "wire, ")]
        titles = [part for column in columns for part in column.split("|")]
        out.append(f"{head}\n\n{_table([*titles, 'runs'], lines)}")
    return out


_SECTIONS = {"blast": _blast, "shaped": _shaped, "stream": _stream}


def markdown(results: Sequence[Result]) -> str:
    """Return the tables of blast, shaped and stream, with medians; [n]: of n runs instead of
    five."""
    found = rows(results)
    parts: list[str] = []
    for section, tables in _SECTIONS.items():
        if here := [row for row in found if row.job.section == section]:
            parts += tables(here)
    return "\n\n".join(parts) + "\n"
