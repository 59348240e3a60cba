# SPDX-License-Identifier: Apache-2.0
"""Report a sweep: first the findings (headlines, claims, figures, points), then the conditions,
then each group of cells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.contracts import DEGRADED, FAITHFUL, INVALID, UNKNOWN, WORST_FIRST
from common.counting import counted
from parsers.base.factors import FACTORS, Scalar
from parsers.base.factors import show as show_factors
from parsers.base.intervals import ONE_RUN, Estimate
from parsers.base.metric_units import METRICS, Metric
from parsers.measure.claims import ClaimResult
from parsers.measure.evaluate import Subscriptions, Transports
from parsers.measure.paper import Headline
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import APART, Point, varying
from parsers.read.cell_files import Verdict
from parsers.read.published import PaperValue, Published
from parsers.report.document import Banner, Section, Table
from parsers.report.figures import Drawn
from parsers.report.points_table import PEER_METRICS
from parsers.report.wording import LISTED, labelled

DEFAULT_METRICS = ("throughput", "ffdr", "nic_bandwidth", "latency_p50")
METRICS_AT_ONCE = 4  # columns of a table of points
Run = Transports | Subscriptions
DEFAULT_AT_MOST = 8  # for a run of another kind whose file names none


@dataclass(frozen=True)
class Failed:
    """A cell that could not run."""

    cell: str
    reason: str
    artefacts: str = ""  # what it left; relative to the run directory


def excluded_of(found: Run) -> tuple[str, ...]:
    """Return the cells that are in no point."""
    return tuple(dict.fromkeys(name for p in found.points for name in p.excluded))


def failed_of(manifest: Mapping[str, object]) -> tuple[Failed, ...]:
    """Return the cells in the manifest's `failed`: {cell: {reason, artefacts}} or [{cell, reason,
    artefacts}]."""
    raw: Any = manifest.get("failed") or ()
    if isinstance(raw, Mapping):
        raw = [
            {"cell": cell, **(v if isinstance(v, Mapping) else {"reason": v})}
            for cell, v in raw.items()
        ]
    return tuple(
        Failed(str(f.get("cell")), str(f.get("reason", "")), str(f.get("artefacts", "")))
        for f in raw
        if isinstance(f, Mapping)
    )


def interval_text(metric: Metric, found: Estimate, *, unit: bool = False) -> str:
    """Return e.g. `12.34 ± 0.05`, or `12.34 [11.90, 13.02]` if it is not symmetric; for one run,
    the value."""
    shown = f" {metric.shown_unit}" if unit and metric.shown_unit else ""

    def number(value: float) -> str:
        return f"{value / metric.scale:.{metric.digits}f}"

    if not found.has_interval:
        return number(found.mean) + shown
    above, below = found.high - found.mean, found.mean - found.low
    if abs(above - below) <= 0.02 * max(above, below, 1e-300):
        return f"{number(found.mean)} ± {number(above)}{shown}"
    return f"{number(found.mean)} [{number(found.low)}, {number(found.high)}]{shown}"


def banner(found: Run, lines: Sequence[str]) -> Banner:
    """Return the banner, with the number of each verdict. `lines`: what is wrong with cells."""
    verdicts = {c.cell.cell: c.verdict.verdict if c.verdict else "unknown" for c in found.cells}
    counts = Counter(verdicts.values())
    parts = [f"{counts[v]} {v}" for v in (FAITHFUL, DEGRADED, UNKNOWN) if counts[v]]
    excluded = excluded_of(found)
    failed = failed_of(found.manifest.raw)
    if counts[INVALID]:
        kept = counts[INVALID] - len(excluded)
        parts += [f"{len(excluded)} invalid and excluded"] if excluded else []
        parts += [f"{kept} INVALID but not excluded, as was asked"] if kept else []
    if failed:
        parts.append(f"{len(failed)} failed")
    used = {verdicts[name] for name in verdicts if name not in excluded}
    verdict = next((v for v in WORST_FIRST if v in used), INVALID)
    if verdict == FAITHFUL and (excluded or failed):
        verdict = DEGRADED
    total = len(found.cells) + len(failed)
    headline = f"{counted(total, 'cell')}: {', '.join(parts)}."
    return Banner(verdict, headline, tuple(lines))


def spoilt(cells: Sequence[CellMetrics]) -> list[str]:
    """Return what is wrong with cells, with each reason of a verdict once."""
    by_check: dict[tuple[str, str], list[tuple[str, str]]] = {}
    lines = different_clocks(cells)
    for cell in cells:
        for check in cell.verdict.checks if cell.verdict is not None else ():
            if check.status in ("fail", "warn"):
                found = by_check.setdefault((check.status, check.name), [])
                found.append((cell.cell.cell, check.text))
    for (status, name), where in sorted(by_check.items()):
        first, text = where[0]
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        lines.append(f"{status}: {name}: {first}{more}{': ' + text if text else ''}")
    named = []
    for cell in cells:
        if cell.uninjected:
            total = sum(d.packets for d in cell.uninjected)
            named.append(f"{cell.cell.cell}: UNINJECTED LOSS: {counted(total, 'packet')}")
        if cell.identical.value is None:
            named.append(f"{cell.cell.cell}: contents not checked: {cell.identical.reason}")
        elif cell.identical.value < cell.cell.m:
            named.append(
                f"{cell.cell.cell}: CONTENTS DIFFER: only {cell.identical.value:.0f} of"
                f" {cell.cell.m} receivers hold exactly the publisher's products"
            )
    return lines + _some(named)


def different_clocks(cells: Sequence[CellMetrics]) -> list[str]:
    """Return a line that names the cells of each clock, if there are both."""
    by_clock: dict[str, list[str]] = {}
    for cell in cells:
        by_clock.setdefault(cell.cell.clock, []).append(cell.cell.cell)
    if len(by_clock) < 2:
        return []
    named = (f"{clock}: {', '.join(sorted(names))}" for clock, names in sorted(by_clock.items()))
    return [f"CLOCKS DIFFER: {'; '.join(named)}"]


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - LISTED
    return [*lines[:LISTED], *([f"and {more} more such lines"] if more > 0 else [])]


# -- what was found ---------------------------------------------------------------------------
def findings(found: Run, drawn: Drawn, conditions: Section) -> list[Section]:
    """Return the beginning of every sweep's report."""
    first = (
        headline_section(found.headlines, found.published.paper),
        claims_section(found.claims),
        figures_section(drawn),
        conditions,
        points_section(found),
    )
    return [section for section in first if section is not None]


def headline_section(headlines: Sequence[Headline], paper: Sequence[PaperValue]) -> Section | None:
    """Show the run's value beside each published number, and the papers' other statements."""
    rows = [_headline_row(h) for h in headlines]
    sentences = [
        f'{row.source} says: "{row.text}"' + (f" ({row.conditions})." if row.conditions else ".")
        for row in paper
        if row.value is None
    ]
    if not rows and not sentences:
        return None
    header = ("Metric", "At", "ours", "paper", "difference", "in bar", "Remark")
    left = frozenset({"Metric", "At", "Remark"})
    tables = (Table("", header, tuple(rows), left, 20),) if rows else ()
    if rows:
        sentences.insert(
            0,
            "Ours: mean ± 95 % confidence interval over the repeats; one run has none. Difference:"
            " ours - paper. In bar: the published value lies within our interval.",
        )
    return Section("Ours and the papers'", tuple(sentences), tables)


def _headline_row(found: Headline) -> tuple[str, ...]:
    metric = METRICS[found.metric]
    published = found.published
    at = show_factors({n: v for n, v in found.at.items() if n != "protocol"})
    remark = [found.paper.source, *([found.context] if found.context else [])]
    unit = f", {metric.shown_unit}" if metric.shown_unit else ""
    label = f"{found.protocol.upper()} {metric.label}{unit}"
    paper = f"{published / metric.scale:g}"
    if found.ours is None or found.difference is None:
        return (label, at, "n/a", paper, "n/a", "", "; ".join([found.reason, *remark]))
    share = found.difference_percent
    percent = f" ({share:+.0f}%)" if share is not None else ""
    return (
        label,
        at,
        interval_text(metric, found.ours),
        paper,
        f"{found.difference / metric.scale:+.{metric.digits}f}{percent}",
        "" if found.within is None else "yes" if found.within else "no",
        "; ".join(remark),
    )


def claims_section(results: Sequence[ClaimResult]) -> Section | None:
    """Return a row for each claim; its parts at several lines or points are folded below."""
    if not results:
        return None
    rows = tuple((r.claim.text, r.verdict, _claim_numbers(r), r.claim.source) for r in results)
    counts = Counter(r.verdict for r in results)
    header = ("Claim", "verdict", "Figures", "Source")
    parts = tuple(
        (
            r.claim.text,
            part.label,
            part.verdict,
            "; ".join(filter(None, (part.numbers, part.reason, part.sees))),
        )
        for r in results
        if len(r.parts) > 1
        for part in r.parts
    )
    part_header = ("Claim", "At", "verdict", "Figures")
    part_table = Table("", part_header, parts, frozenset(part_header), 30)
    one_by_one = Section("Claims one by one", tables=(part_table,), collapsed=True, in_text=False)
    return Section(
        "The papers' claims",
        (
            f"{', '.join(f'{counts[v]} {v}' for v in counts)}. A claim is held or not held where"
            " 95 % confidence intervals decide it, else not decidable. What an interval sees: a"
            " difference that four of five such runs would find.",
        ),
        (Table("", header, rows, frozenset(header), 34),),
        parts=(one_by_one,) if parts else (),
    )


def _claim_numbers(result: ClaimResult) -> str:
    """Return figures, reason and power; for an undecided claim, also what would decide it."""
    sees = [part.sees for part in result.parts if part.sees]
    decides = f"what would decide it: {result.decides}" if result.decides else ""
    if len(result.parts) < 2:
        return "; ".join(filter(None, (result.numbers, result.reason, *sees, decides)))
    counts = Counter(part.verdict for part in result.parts)
    summary = ", ".join(f"{counts[v]} {v}" for v in counts)
    decisive = next(p for p in result.parts if p.verdict == result.verdict)
    example = f"{summary}; e.g. {decisive.label}: {decisive.numbers}"
    return "; ".join(filter(None, (example, decisive.sees, decides)))


def figures_section(drawn: Drawn) -> Section | None:
    """Return the figures, and which were left out and why; None if no figure was requested."""
    if not drawn.plots and not drawn.left_out:
        return None
    return Section("Figures", drawn.left_out, plots=drawn.plots)


def points_section(sweep: Run) -> Section:
    """Return every point; those at single subscribers and of file-sets are folded."""
    metrics = asked(sweep.published, sweep.points)
    if isinstance(sweep, Transports) and sweep.has_peers:
        measured = {name for point in sweep.points for name in point.estimates}
        metrics += [n for n in PEER_METRICS if n in measured and n not in metrics]
    own = [p for p in sweep.points if not any(n in p.factors for n in APART)]
    methods = Counter(e.method for p in own for e in p.estimates.values())
    methods.pop(ONE_RUN, None)
    sentences = [f"Intervals: 95 %, {', '.join(methods)}."] if methods else [f"{ONE_RUN}."]
    sentences += [
        f"{METRICS[name].label}: n/a: {reason}." for name, reason in _reasons(own, metrics).items()
    ]
    parts = []
    for name, title in (
        ("file_set_bytes", "By size G of the file-sets"),
        ("first_s", "By length of the run"),
        ("subscriber", "At each subscriber"),
    ):
        if chosen := [p for p in sweep.points if name in p.factors]:
            tables = tuple(_point_tables(chosen, metrics))
            parts.append(Section(title, tables=tables, collapsed=True, in_text=False))
    return Section(
        "All points",
        tuple(sentences),
        tuple(_point_tables(own, metrics)),
        parts=tuple(parts),
    )


def asked(published: Published, points: Sequence[Point]) -> list[str]:
    """Return the measured metrics that the experiment file mentions, else the usual ones."""
    names = {row.metric for row in published.paper}
    names |= {c.metric for c in published.claims}
    names |= {c.against_metric for c in published.claims if c.against_metric is not None}
    names |= {m for f in published.figures for m in (f.metric, f.second) if m is not None}
    measured = {name for p in points for name in p.estimates}
    chosen = [n for n in METRICS if n in (names or set(DEFAULT_METRICS)) and n in measured]
    usual = [n for n in DEFAULT_METRICS if n in measured]
    return chosen or usual or [n for n in METRICS if n in measured][:DEFAULT_AT_MOST]


def _reasons(points: Iterable[Point], metrics: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for point in points:
        for name in metrics:
            if name in point.reasons:
                found.setdefault(name, point.reasons[name])
    return found


def _point_tables(points: Sequence[Point], metrics: Sequence[str]) -> Iterable[Table]:
    factors = list(varying(points))
    if not factors and points:
        factors = [n for n in points[0].factors if n == "protocol" or n in APART]
    fixed: Mapping[str, Scalar] = (
        {n: v for n, v in points[0].factors.items() if n not in factors} if points else {}
    )
    having = [n for n in metrics if any(n in p.estimates for p in points)]
    for first in range(0, max(1, len(having)), METRICS_AT_ONCE):
        part = having[first : first + METRICS_AT_ONCE]
        header = [*(_heading(n) for n in factors), *(labelled(n) for n in part), "runs"]
        rows = []
        for point in points:
            row = [_level(n, point.factors.get(n)) for n in factors]
            for name in part:
                found = point.estimates.get(name)
                row.append("n/a" if found is None else interval_text(METRICS[name], found))
            left_out = f", {len(point.excluded)} excluded" if point.excluded else ""
            rows.append((*row, f"{len(point.cells)}{left_out}"))
        left = frozenset(_heading(n) for n in factors if n in ("protocol", "subscriber"))
        title = f"At {show_factors(fixed)}" if fixed else ""
        yield Table(title, tuple(header), tuple(rows), left)


def _heading(name: str) -> str:
    factor = FACTORS.get(name)
    if factor is None:
        return name
    symbol = factor.symbol or factor.label
    return f"{symbol}, {factor.shown_unit}" if factor.shown_unit else symbol


def _level(name: str, level: Scalar | None) -> str:
    if level is None:
        return ""
    if isinstance(level, str):
        return level.upper() if name == "protocol" else level
    return f"{level / (FACTORS[name].scale if name in FACTORS else 1.0):g}"


# -- what was not used ------------------------------------------------------------------------
def unused_sections(found: Run) -> list[Section]:
    """Return failed and excluded cells, if there are any."""
    sections = []
    if listed := failed_of(found.manifest.raw):
        failed = tuple((f.cell, f.reason, f.artefacts) for f in listed)
        left = ("Cell", "Reason", "What it left")
        sections.append(
            Section("Failed cells", tables=(Table("", left, failed, frozenset(left), 30),))
        )
    by_name = {c.cell.cell: c.verdict for c in found.cells}
    if excluded := excluded_of(found):
        rows = tuple((name, _why(by_name[name])) for name in excluded if name in by_name)
        header = ("Cell", "Checks that failed")
        sections.append(
            Section(
                "Excluded cells",
                ("Their verdict is invalid: no mean, figure or claim uses them.",),
                (Table("", header, rows, frozenset(header), 34),),
            )
        )
    return sections


def _why(verdict: Verdict | None) -> str:
    checks = verdict.checks if verdict is not None else ()
    return "; ".join(f"{c.name}: {c.text}" for c in checks if c.status == "fail")


def folded(title: str, parts: Sequence[Section]) -> Section:
    """Return sections that are folded, and only in the page."""
    return Section(
        title,
        parts=tuple(replace(part, in_text=False) for part in parts),
        collapsed=True,
        in_text=False,
    )
