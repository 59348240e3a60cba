# SPDX-License-Identifier: Apache-2.0
"""Compute medians from results, then tables and the comparison with the targets. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.jobs import Job
from bench.statistics import median
from bench.store import Result
from bench.tools import BY_NAME, tools_of
from common.counting import counted

OURS: Final = "fmtp"
NO_MAC: Final = "fmtp-mac0"
MAC_COST: Final = 0.05  # of CPU and of goodput, against no MAC at all
OUR_QUEUE: Final = "pq"
CEILINGS: Final = ("bare", "bare-gso", "bare-file", "bare-open")
MULTICAST_PEERS: Final = ("uftp", "udpcast", "norm", "norm-fec")
CAROUSELS: Final = ("fcast", "fcast-plain")
CAROUSEL_PEERS: Final = ("flute", "uftp")
CAROUSEL_FRACTION: Final = 0.9  # of FMTP's goodput


@dataclass(frozen=True)
class Column:
    title: str
    text: Callable[[Job, dict[str, Any]], str]


@dataclass(frozen=True)
class Row:
    """One tool in one cell: medians of the runs that succeeded."""

    job: Job
    values: dict[str, float]
    runs: int
    failures: tuple[str, ...]
    spread: tuple[float, float]  # smallest and largest goodput (or median delay)


def _leading(result: dict[str, Any]) -> float:
    for name in ("goodput_bps", "p50_s", "inserts_1000_per_s", "join_1000_s"):
        if name in result:
            return float(result[name])
    return math.nan


def rows(results: Iterable[Result]) -> list[Row]:
    """Return the rows in order of first appearance."""
    groups: dict[tuple[str, str, str, str], list[Result]] = {}
    for job, result in results:
        groups.setdefault((job.section, job.clock, job.cell, job.tool), []).append((job, result))
    found = []
    for group in groups.values():
        good = [result for _, result in group if result["status"] == "ok"]
        names = [k for k, v in good[0].items() if isinstance(v, int | float)] if good else []
        values = {name: median([float(r[name]) for r in good if name in r]) for name in names}
        leading = [_leading(result) for result in good] or [math.nan]
        failures = tuple(r.get("reason", "?") for _, r in group if r["status"] != "ok")
        found.append(Row(group[0][0], values, len(good), failures, (min(leading), max(leading))))
    return found


def _mbps(value: float) -> str:
    return f"{value / 1e6:.1f}"


def cpu_per_gb(job: Job, values: dict[str, float]) -> float:
    """Return the CPU seconds of sender and receivers per delivered GB (counting all receivers'
    files)."""
    cpu = values["cpu_sender_s"] + values["cpu_receivers_s"]
    fraction = values.get("delivered_fraction", 1.0)
    return cpu / (job.size_bytes * job.receivers * fraction / 1e9)


def percent_of_rate(job: Job, values: dict[str, float]) -> float:
    """Return the goodput in percent of the link's rate."""
    return 100 * values["goodput_bps"] / job.rate_bps


_COLUMNS: Final[dict[str, list[Column]]] = {
    "blast": [
        Column("Mbit/s", lambda _, v: _mbps(v["goodput_bps"])),
        Column("CPU s/GB", lambda j, v: f"{cpu_per_gb(j, v):.3f}"),
        Column("sender s", lambda _, v: f"{v['cpu_sender_s']:.2f}"),
        Column("receivers s", lambda _, v: f"{v['cpu_receivers_s']:.2f}"),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}" if "wire_ratio" in v else "-"),
        Column("delivered", lambda _, v: f"{100 * v.get('delivered_fraction', 1.0):.0f} %"),
    ],
    "shaped": [
        Column("Mbit/s", lambda _, v: _mbps(v["goodput_bps"])),
        Column("of rate", lambda j, v: f"{percent_of_rate(j, v):.1f} %"),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}"),
    ],
    "stream": [
        Column("p50 s", lambda _, v: f"{v['p50_s']:.3f}"),
        Column("p99 s", lambda _, v: f"{v['p99_s']:.3f}"),
        Column("max s", lambda _, v: f"{v['max_s']:.3f}"),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}"),
        Column("missing", lambda _, v: f"{v['missing']:.0f}"),
    ],
    "small": [
        Column("p50 s", lambda _, v: f"{v['p50_s']:.4f}"),
        Column("p99 s", lambda _, v: f"{v['p99_s']:.4f}"),
        Column("missing", lambda _, v: f"{v['missing']:.0f}"),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}"),
        Column("more B/product", lambda _, v: f"{v['overhead_bytes_per_file']:.0f}"),
        Column("CPU us/product", lambda _, v: f"{1e6 * v['cpu_s_per_file']:.0f}"),
    ],
    "receivers": [
        Column("Mbit/s", lambda _, v: _mbps(v["goodput_bps"])),
        Column("sender CPU s", lambda _, v: f"{v['cpu_sender_s']:.3f}"),
        Column("user s", lambda _, v: f"{v['sender_user_s']:.3f}"),
        Column("system s", lambda _, v: f"{v['sender_system_s']:.3f}"),
        Column("sender MB", lambda j, v: f"{(v['sender_peak_bytes'] - j.size_bytes) / 1e6:.1f}"),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}"),
    ],
    "interop": [
        Column("Mbit/s", lambda _, v: _mbps(v["goodput_bps"])),
        Column("wire", lambda _, v: f"{v['wire_ratio']:.3f}"),
    ],
    "paths": [
        *(
            Column(f"{what} {size}th ms", lambda _, v, n=f"{what}_{size}_s": f"{1e3 * v[n]:.1f}")  # type: ignore[misc]
            for what in ("join", "branch", "leave")
            for size in (8, 100, 1000)
        ),
        Column("join 1000th/8th", lambda _, v: f"{v['join_1000_s'] / v['join_8_s']:.2f}"),
        Column("entries", lambda _, v: f"{v['entries']:,.0f}"),
        Column("same s", lambda _, v: f"{v['reconcile_same_s']:.2f}"),
        Column("empty s", lambda _, v: f"{v['reconcile_empty_s']:.2f}"),
    ],
    "queue": [
        Column(f"{size} B {what}/s", lambda _, v, n=f"{what}_{size}_per_s": f"{v[n]:,.0f}")  # type: ignore[misc]
        for size in (1000, 100000)
        for what in ("inserts", "reads")
    ],
}
_NOTES: Final = {
    "blast": "no rate limit; goodput = size / time until the last receiver holds the file; sender "
    "and receivers share the cores",
    "shaped": "HTB and 600 MB bfifo at the sender; of rate: of HTB's (Ethernet) rate; wire: bytes "
    "the sender's NIC sent / file size",
    "stream": "200 files, Poisson arrivals, log-normal sizes of mean 80 kB, 10 Mbit/s offered; "
    "delay from a file's appearance to its arrival at a receiver",
    "small": "10,000 products of NGRID's sizes up to 100 kB, Poisson arrivals, 60 Mbit/s offered; "
    "CPU: sender and receivers",
    "receivers": "no loss, a process and a namespace per receiver; system s includes the "
    "bridge's copies to all receivers; sender MB: peak without the file's own pages",
    "interop": "our carousel with the flute crate's programs; every receiver's bytes are compared",
    "paths": "from request to answer, when all switches have confirmed: join where the tree is, "
    "branch to a new switch (two phases), as the 8th, 100th, 1,000th leaf; same: 100 switches come "
    "back and hold what they should; empty: they hold nothing",
    "queue": "products through a 64 MB store in memory, oldest replaced; reads touch "
    "every cache line",
}


def title(tool: str) -> str:
    """Return a tool's name in tables."""
    return BY_NAME[tool].title if tool in BY_NAME else tool


def text_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return aligned columns: the first to the left, others to the right."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    out = []
    for line in (head, *lines):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    out.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(out)


def _ratio(row: Row, ours: Row | None) -> str:
    """Return the goodput (or median delay, or inserts) of Downpour's tool divided by this one's."""
    if ours is None or row is ours or not row.runs or not ours.runs:
        return ""
    name = next((n for n in ("p50_s", "goodput_bps", "inserts_1000_per_s") if n in row.values), "")
    if name not in row.values or not row.values[name]:
        return ""
    return f"{ours.values[name] / row.values[name]:.2f}"


def section_text(section: str, found: Sequence[Row], absent: Sequence[str]) -> str:
    """Return the tables of a section as Markdown."""
    columns = _COLUMNS[section]
    out = [f"## {section}", _NOTES[section], ""]
    places = list(dict.fromkeys((row.job.clock, row.job.cell) for row in found))
    for clock, cell in places:
        here = [row for row in found if (row.job.clock, row.job.cell) == (clock, cell)]
        ours = next((row for row in here if row.job.tool in (OURS, OUR_QUEUE)), None)
        head = ["tool", *(c.title for c in columns), "ours / it", "runs", "smallest..largest"]
        lines = []
        for row in here:
            if row.runs:
                values = [c.text(row.job, row.values) for c in columns]
            else:
                values = ["failed", *("" for _ in columns[1:])]
            runs = (
                f"{row.runs}"
                if not row.failures
                else f"{row.runs} of {row.runs + len(row.failures)}"
            )
            lines.append([title(row.job.tool), *values, _ratio(row, ours), runs, _spread(row)])
        out += [f"{cell}; {clock} clock", text_table(head, lines)]
        for row in here:
            out += [
                f"  {title(row.job.tool)} failed: {text}" for text in dict.fromkeys(row.failures)
            ]
        out.append("")
    out += [f"NOT MEASURED: {text}" for text in absent]
    return "\n".join(out).rstrip() + "\n"


def _spread(row: Row) -> str:
    if row.runs < 2:
        return ""
    least, most = row.spread
    if "goodput_bps" in row.values:
        return f"{least / 1e6:.1f}..{most / 1e6:.1f}"
    if "join_1000_s" in row.values:
        return f"{1e3 * least:.1f}..{1e3 * most:.1f}"
    return f"{least:.3f}..{most:.3f}" if "p50_s" in row.values else f"{least:,.0f}..{most:,.0f}"


def absent_tools(section: str, not_installed: dict[str, list[str]]) -> list[str]:
    """Return a line for each tool that is not installed."""
    return [
        f"{tool.title}: {', '.join(not_installed[tool.name])} not found"
        + (f" (make bench-setup installs {package})" if (package := tool.adapter.package) else "")
        for tool in tools_of(section)
        if tool.name in not_installed
    ]


@dataclass(frozen=True)
class Target:
    """One target and what was measured."""

    text: str
    found: str
    met: bool | None  # None: not measured


def _find(found: Sequence[Row], section: str, tool: str, **conditions: Any) -> list[Row]:
    return [
        row
        for row in found
        if row.job.section == section
        and row.job.tool == tool
        and row.runs
        and all(getattr(row.job, name) == value for name, value in conditions.items())
    ]


SHAPED_PERCENT: Final = {(8, 0.0): 96.0, (8, 0.01): 93.0, (8, 0.05): 88.0, (24, 0.05): 75.0}
STREAM_LIMITS: Final = (
    ("p50_s", 0.07, "median delay in s"),
    ("p99_s", 0.9, "99th percentile of the delay in s"),
    ("wire_ratio", 1.10, "wire ratio"),
    ("missing", 0, "missing files"),
)
CEILING_FRACTION: Final = 0.6


def targets(found: Sequence[Row]) -> list[Target]:
    """Return the targets with what was measured."""
    out: list[Target] = []
    shaped = SHAPED_PERCENT.items() if _find(found, "shaped", OURS) else ()
    for (receivers, loss), percent in shaped:
        here = _find(found, "shaped", OURS, receivers=receivers, loss=loss)
        values = [percent_of_rate(row.job, row.values) for row in here]
        text = f"shaped, N={receivers}, loss {100 * loss:g} %: at least {percent:g} % of the rate"
        shown = (
            f"{min(values):.1f} % in the worst of {counted(len(values), 'cell')}"
            if values
            else "not measured"
        )
        out.append(Target(text, shown, min(values) >= percent if values else None))
    for row in _find(found, "stream", OURS, loss=0.01, delay_ms=25.0):
        v = row.values
        for name, most, what in STREAM_LIMITS:
            text = f"stream, loss 1 %, 25 ms: {what} at most {most:g}"
            out.append(Target(text, f"{v[name]:.3f}", v[name] <= most))
    for row in _find(found, "small", OURS):
        shown = f"{row.values['missing']:.0f} missing"
        out.append(
            Target(f"small, {row.job.clock}: all delivered", shown, row.values["missing"] == 0)
        )
    for row in _find(found, "blast", OURS):
        out += _blast_targets(found, row)
    for name in CAROUSELS:
        for row in _find(found, "blast", name):
            out += _carousel_targets(found, row)
    return out


def _conditions(job: Job) -> dict[str, object]:
    names = ("size_bytes", "loss", "card", "steered")
    return {name: getattr(job, name) for name in names}


def _blast_targets(found: Sequence[Row], row: Row) -> list[Target]:
    job = row.job
    same = _conditions(job)
    out = []
    speed, cpu = row.values["goodput_bps"], cpu_per_gb(job, row.values)
    for name in (*MULTICAST_PEERS, "tcp"):
        for peer in _find(found, "blast", name, **same):
            other = peer.values["goodput_bps"]
            other_cpu = cpu_per_gb(peer.job, peer.values)
            shown = f"{speed / other:.2f} times the goodput, {cpu / other_cpu:.2f} times the CPU"
            text = f"blast, {job.cell}: ahead of {title(name)} at no more CPU"
            out.append(Target(text, shown, speed > other and cpu <= other_cpu))
    for peer in _find(found, "blast", NO_MAC, **same):
        more = cpu / cpu_per_gb(peer.job, peer.values) - 1
        slower = 1 - speed / peer.values["goodput_bps"]
        shown = f"{100 * more:+.1f} % CPU, {-100 * slower:+.1f} % goodput"
        text = f"blast, {job.cell}: the default MAC costs at most {100 * MAC_COST:g} %"
        out.append(Target(text, shown, max(more, slower) <= MAC_COST))
    kind = "bare" if job.card == "bare" else "bare-gso"
    for name in dict.fromkeys((kind, "bare")):
        for peer in _find(found, "blast", name, **same):
            part = speed / peer.values["goodput_bps"]
            text = f"blast, {job.cell}: at least 60 % of {title(name)}"
            out.append(Target(text, f"{100 * part:.0f} %", part >= CEILING_FRACTION))
    return out


def _carousel_targets(found: Sequence[Row], row: Row) -> list[Target]:
    job = row.job
    same = _conditions(job)
    out = []
    speed = row.values["goodput_bps"]
    for ours in _find(found, "blast", OURS, **same):
        part = speed / ours.values["goodput_bps"]
        text = f"blast, {job.cell}: {job.tool} at least 90 % of {title(OURS)}"
        out.append(Target(text, f"{100 * part:.0f} %", part >= CAROUSEL_FRACTION))
    for name in CAROUSEL_PEERS:
        for peer in _find(found, "blast", name, **same):
            ratio = speed / peer.values["goodput_bps"]
            text = f"blast, {job.cell}: {job.tool} ahead of {title(name)}"
            out.append(Target(text, f"{ratio:.2f} times the goodput", ratio > 1))
    return out


def targets_text(found: Sequence[Target]) -> str:
    """Return the table of the targets."""
    if not found:
        return ""
    mark = {True: "met", False: "MISSED", None: "-"}
    lines = [[t.text, t.found, mark[t.met]] for t in found]
    return "## targets\n" + text_table(["target", "measured", ""], lines) + "\n"


def report(results: Sequence[Result], not_installed: dict[str, list[str]]) -> str:
    """Return the whole report as Markdown."""
    found = rows(results)
    sections = list(dict.fromkeys(row.job.section for row in found))
    parts = []
    for section in sections:
        here = [row for row in found if row.job.section == section]
        parts.append(section_text(section, here, absent_tools(section, not_installed)))
    parts.append(targets_text(targets(found)))
    return "\n".join(parts)
