# SPDX-License-Identifier: Apache-2.0
"""Make the sections of a run's `Report` from its groups of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from common.contracts import FAITHFUL
from common.counting import counted
from parsers.base.metric_units import METRICS, Value
from parsers.measure.comparison import (
    Group,
    clocks_of,
)
from parsers.measure.evaluate import Transports
from parsers.measure.latency_parts import METRICS_OF
from parsers.measure.summary import CellMetrics, ReceiverMetrics
from parsers.measure.verdicts import verdict_of, worst_verdict
from parsers.read.cell_files import NO_CPU, ModelCheck, Verdict
from parsers.report.conditions import (
    conditions_section,
    level_of,
    provenance_section,
    repeat_section,
)
from parsers.report.document import (
    Banner,
    Report,
    Section,
    Table,
)
from parsers.report.drawing import Plot
from parsers.report.figures import Drawn
from parsers.report.fmtp_section import fmtp_section
from parsers.report.input_section import input_section
from parsers.report.latency import latency_section
from parsers.report.protocols_section import protocols_section
from parsers.report.sweep_sections import (
    banner,
    different_clocks,
    findings,
    folded,
    spoilt,
    unused_sections,
)
from parsers.report.wording import (
    HEADLINES,
    LISTED,
    labelled,
    number,
    published_and_difference,
    some,
)

_MAIN = (
    "throughput",
    "ffdr",
    "mplr",
    "input_rate",
    "nic_bandwidth",
    "bandwidth_over_offered",
    "cpu",
    "cpu_one_core",
    "latency_p50",
    "latency_p99",
    "loss_injected",
    "loss_measured",
)
_FURTHER = (
    "throughput_sets",
    "throughput_fmtp",
    "throughput_mc",
    "throughput_retx",
    "ffdr_count",
    "ffdr_size",
    "retransmitted_blocks",
    "nic1_bandwidth",
    "nic2_bandwidth",
    "multicast_bandwidth",
    "repair_bandwidth",
    "pull_bandwidth",
    "control_bandwidth",
    "nic_bandwidth_sar",
    "cpu_ps",
    "latency_mean",
    "latency_p90",
    "latency_max",
    *METRICS_OF.values(),
    "fmtp_delay_p50",
    "fmtp_delay_p99",
)


def _identical(cells: Sequence[CellMetrics]) -> str:
    values = [c.identical.value for c in cells]
    if any(v is None for v in values):
        return "n/a"
    return " ".join(
        f"{v:.0f}/{c.cell.m}" for v, c in zip(values, cells, strict=True) if v is not None
    )


def _mark(cells: Sequence[CellMetrics]) -> str:
    return " !" if any(c.uninjected for c in cells) else ""


def _main_table(group: Group) -> Table:
    protocols = group.protocols
    header = ["Metric"]
    for protocol in protocols:
        header += [protocol.upper() + _mark(group.cells[protocol]), "paper", "difference"]
    rows = []
    for name in _MAIN:
        row = [_cpu_label(name, group) if name in ("cpu", "cpu_one_core") else labelled(name)]
        for protocol in protocols:
            row.append(number(name, group.values[protocol][name]))
            row += published_and_difference(group.comparisons.of(name, protocol))
        rows.append(tuple(row))
    rows.append(
        (
            "Receivers with identical files",
            *(x for p in protocols for x in (_identical(group.cells[p]), "n/a", "")),
        )
    )
    rows.append(
        (
            "Products sent",
            *(x for p in protocols for x in (_joined(group.cells[p]), "n/a", "")),
        )
    )
    rows.append(
        (
            "Verdict",
            *(
                x
                for p in protocols
                for x in (" ".join(sorted({verdict_of(c) for c in group.cells[p]})), "", "")
            ),
        )
    )
    rows.append(("Clock", *(x for _ in protocols for x in (group.clock, "", ""))))
    return Table("", tuple(header), tuple(rows), frozenset({"Metric"}))


def clock_text(cell: CellMetrics) -> str:
    """Say which clock a cell's figures are from and, for virtual time, its cost."""
    if cell.cell.clock == "native":
        return "clock: native"
    run = cell.virtual
    if run is None:
        return "clock: virtual (the real time it took is not known: there is no virtual.json)"
    seed = "not seeded" if run.seed is None else f"seed {run.seed}"
    duration_s = cell.cell.duration_s
    # A launcher that could not read the guest's clock writes 0.
    whole = f"; {run.virtual_s:.1f} s of virtual time with set-up and end" if run.virtual_s else ""
    return (
        f"clock: virtual (kernel {run.kernel}, {seed}, {duration_s:g} s took {run.real_s:.1f} s of"
        f" real time, ratio {duration_s / run.real_s:.2f}{whole})"
    )


def _cpu_label(name: str, group: Group) -> str:
    """Return the row's label with its source: cpu.log, ps, or both if the cells differ."""
    sources = {c.series.sender_cpu_source for cells in group.cells.values() for c in cells}
    known = " or ".join(sorted(s for s in sources if s))
    label = labelled(name)
    return label.replace("Sender CPU", f"CPU by {known}") if known else label


def _joined(cells: Sequence[CellMetrics]) -> str:
    return " ".join(str(n) for n in sorted({c.sent for c in cells}))


def _main_section(group: Group) -> Section:
    sentences = [
        "Mean of sets: eq. 3 of MPUP16 for file-sets of G, its latencies from a file's creation, as"
        " the authors' scripts have it (the equation: from its hand-over to FMTP); run throughput:"
        " the same for all files as one set, which no paper has; FFDR: eq. 4; NIC bandwidth: eq. 5,"
        " all NICs, from first insertion to last arrival; MPLR: eq. 6 of DRFSM21. Difference: ours"
        " - paper. n/a: not published, not defined or not measured (below)."
    ]
    if any(_mark(cells) for cells in group.cells.values()):
        sentences.append("! marks a run with losses that were not injected: see 'Losses'.")
    sentences += [
        f"The paper's {c.protocol.upper()} {METRICS[c.metric].label} of"
        f" {METRICS[c.metric].show(c.published)} is {c.source}."
        for c in group.comparisons.compared
        if c.derived
    ]
    sentences += _remarks(group, _MAIN)
    sentences += [f"{c.cell.cell}: {clock_text(c)}." for c in _cells(group)]
    return Section(f"LDM7 and LDM6 at {group.label}", tuple(sentences), (_main_table(group),))


def _remarks(group: Group, names: Iterable[str]) -> list[str]:
    """Return the reasons of absent values, and notes, each text once."""
    about: dict[str, dict[str, list[str]]] = {}  # text -> metric -> protocols
    for name in names:
        for protocol in group.protocols:
            value = group.values.get(protocol, {}).get(name)
            if value is None:
                continue
            text = f"n/a: {value.reason}" if value.reason else value.note
            if value.reason and value.note:
                text += f" ({value.note})"
            if text:
                metrics = about.setdefault(text, {})
                metrics.setdefault(METRICS[name].label, []).append(protocol.upper())
    sentences = []
    for text, metrics in about.items():
        by_protocols: dict[str, list[str]] = {}
        for label, protocols in metrics.items():
            by_protocols.setdefault(" and ".join(protocols), []).append(label)
        for who, labels in by_protocols.items():
            sentences.append(f"{who}, {'; '.join(labels)}: {text}.")
    return sentences


def _with_unit(name: str, value: Value) -> str:
    return "n/a" if value.value is None else METRICS[name].show(value.value)


def _paper_section(group: Group) -> Section | None:
    comparisons = group.comparisons
    sentences = [c.sentence for c in comparisons.compared if c.sentence]
    if comparisons.compared and not sentences:
        sentences.append("All compared values agree with the paper within the tolerance.")
    rows = [
        (
            f"{c.protocol.upper()} {METRICS[c.metric].label}",
            METRICS[c.metric].show(c.ours.mean) if c.ours is not None else "n/a",
            METRICS[c.metric].show(c.published),
            published_and_difference(c)[1],
            f"{c.source}: {c.conditions}"
            + ("" if c.sentence or not c.context else f"; {c.context}"),
        )
        for c in comparisons.compared
    ]
    for row in comparisons.statements:
        ours = ", ".join(
            f"{p.upper()} {_with_unit(row.metric, group.values[p][row.metric])}"
            for p in group.protocols
            if p in group.values
        )
        sentences.append(f'{row.source} says: "{row.text}" ({row.conditions}). Ours: {ours}.')
    tables = []
    if rows:
        left = frozenset({"Metric", "Published in, under"})
        header = ("Metric", "ours", "paper", "difference", "Published in, under")
        tables.append(Table("", header, tuple(rows), left))
    if comparisons.elsewhere:
        others = tuple(
            (
                f"{r.protocol.upper()} {METRICS[r.metric].label}",
                METRICS[r.metric].show(r.value_si) if r.value_si is not None else r.text or "",
                f"{r.source}: {r.conditions}",
            )
            for r in comparisons.elsewhere
        )
        tables.append(
            Table(
                "Published for other conditions (not compared)",
                ("Metric", "paper", "Published in, under"),
                others,
                frozenset({"Metric", "Published in, under"}),
            )
        )
    if not sentences and not tables:
        return None
    return Section("Ours and the paper's", tuple(sentences), tuple(tables))


def _show(value: Value | None, scale: float, digits: int) -> str:
    if value is None or value.value is None:
        return "n/a"
    return f"{value.value / scale:.{digits}f}"


def _delivered(receiver: ReceiverMetrics) -> str:
    how = ("fmtp", "backstop", "backlog", "ldm6", "file")
    return " + ".join(f"{receiver.by[h]} {h}" for h in how if h in receiver.by) or "none"


def _receivers_section(group: Group) -> Section:
    tables = []
    sentences: list[str] = []
    for protocol in group.protocols:
        for cell in group.cells.get(protocol, ()):
            rows = []
            for receiver in cell.receivers:
                check = receiver.content
                rows.append(
                    (
                        receiver.host,
                        receiver.site,
                        f"{receiver.rtt_ms:g}" if receiver.rtt_ms is not None else "?",
                        _show(receiver.throughput, 1e6, 2),
                        _show(receiver.latency_p50, 1e-3, 0),
                        _show(receiver.latency_p99, 1e-3, 0),
                        _show(receiver.fmtp.mplr if receiver.fmtp else None, 1.0, 2),
                        _show(receiver.loss_measured, 1.0, 2),
                        _delivered(receiver),
                        "n/a" if check is None else "yes" if check.identical else "NO",
                    )
                )
                sentences += _content(cell, receiver)
            header = (
                "Host",
                "Site",
                "RTT ms",
                "Mbit/s",
                "p50 ms",
                "p99 ms",
                "MPLR %",
                "loss %",
                "Delivered by",
                "same",
            )
            left = frozenset({"Host", "Site", "Delivered by"})
            tables.append(
                Table(f"{protocol.upper()}, cell {cell.cell.cell}", header, tuple(rows), left)
            )
    return Section("Receivers", tuple(sentences), tuple(tables))


def _content(cell: CellMetrics, receiver: ReceiverMetrics) -> list[str]:
    check = receiver.content
    if check is None or check.identical:
        return []
    kinds = (("missing", check.missing), ("extra", check.extra), ("different", check.different))
    return [
        f"{cell.cell.cell}: {receiver.host}: {len(names)} {kind}: {some(names)}."
        for kind, names in kinds
        if names
    ]


def _losses_section(group: Group) -> Section:
    sentences: list[str] = []
    rows = []
    for cell in _cells(group):
        name = cell.cell.cell
        if not cell.drops_known:
            sentences.append(f"{name}: unknown: the counters of the start or the end are missing.")
            continue
        uninjected = cell.uninjected
        if not uninjected:
            sentences.append(f"{name}: no loss that was not injected.")
        for drop in uninjected[:LISTED]:
            rows.append((name, "UNINJECTED", drop.place, drop.what, str(drop.packets)))
        if len(uninjected) > LISTED:
            rest = uninjected[LISTED:]
            total = sum(d.packets for d in rest)
            rows.append((name, "UNINJECTED", counted(len(rest), "more place"), "", str(total)))
        injected = [d for d in cell.drops if d.injected]
        if injected:
            total = sum(d.packets for d in injected)
            rows.append((name, "injected", counted(len(injected), "place"), "", str(total)))
    header = ("Cell", "Kind", "Place", "What", "packets")
    tables = (Table("", header, tuple(rows), frozenset(header[:4])),) if rows else ()
    return Section("Losses", tuple(sentences), tables)


def _cells(group: Group) -> list[CellMetrics]:
    return [cell for protocol in group.protocols for cell in group.cells[protocol]]


def _verdict_section(cells: Sequence[CellMetrics]) -> Section:
    sentences = []
    tables = []
    for cell in cells:
        if cell.verdict is None:
            sentences.append(f"{cell.cell.cell}: no verdict.json; nothing confirms this cell.")
            continue
        tables.append(verdict_table(cell.cell.cell, cell.verdict))
    return Section("Fidelity verdict and its evidence", tuple(sentences), tuple(tables))


def verdict_table(cell: str, verdict: Verdict) -> Table:
    """Return the checks of a cell, the failed ones first."""
    rows = tuple(
        (
            check.status.upper() if check.status in ("fail", "warn") else check.status,
            check.name,
            _brief(check.asked),
            _brief(check.found),
            check.text,
        )
        for check in sorted(
            verdict.checks, key=lambda c: ("fail", "warn", "pass", "n/a").index(c.status)
        )
    )
    header = ("Status", "Check", "asked", "found", "Evidence")
    return Table(f"{cell}: {verdict.verdict}", header, rows, frozenset(header), 18)


def _brief(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _model_section(cells: Sequence[CellMetrics]) -> Section | None:
    for cell in cells:
        trace = cell.cell.trace
        if trace.model_check:
            rows = tuple(
                (
                    check.statistic,
                    check.unit,
                    _statistic(check.published),
                    _statistic(check.model),
                    _model_difference(check),
                )
                for check in trace.model_check
            )
            header = ("Statistic", "Unit", "published", "model", "difference")
            sentence = (
                f"No trace file was given: the {trace.products or 'unknown'} products come"
                " from the NGRID model; the table compares its hour with the published hour."
            )
            table = Table("", header, rows, frozenset({"Statistic", "Unit"}))
            return Section("The generated trace", (sentence,), (table,))
    return None


def _statistic(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "n/a" if value is None else value


def _model_difference(check: ModelCheck) -> str:
    """Return the difference in percent of the published value, recomputed so that the column is
    consistent."""
    if isinstance(check.published, float) and isinstance(check.model, float):
        if check.published == 0:
            return f"{check.model:+.4g}"
        return f"{100 * (check.model - check.published) / abs(check.published):+.1f} %"
    return _statistic(check.difference)


def _file_sets_section(group: Group) -> Section:
    tables = []
    for cell in _cells(group):
        if not cell.file_sets_complete:
            continue
        rows = tuple(
            (
                f"{s.files.first}..{s.files.last}",
                f"{s.files.size_bytes / 1e6:.1f}",
                _show(s.throughput, 1e6, 2),
                _show(s.ffdr, 1.0, 2),
            )
            for s in cell.file_sets
        )
        header = ("Files", "MB", "Gamma, Mbit/s", "FFDR, %")
        tables.append(Table(f"File-sets of {cell.cell.cell}", header, rows, frozenset({"Files"})))
    return Section(
        "Further metrics", tuple(_remarks(group, _FURTHER)), (_further_table(group), *tables)
    )


def _further_table(group: Group) -> Table:
    protocols = group.protocols
    rows = tuple(
        (
            labelled(name),
            *(number(name, group.values[p][name]) for p in protocols),
            METRICS[name].source,
        )
        for name in _FURTHER
    )
    header = ("Metric", *(p.upper() for p in protocols), "Source")
    return Table("", header, rows, frozenset({"Metric", "Source"}))


def _banner(cells: Sequence[CellMetrics]) -> Banner:
    verdict = worst_verdict(cells)
    lines = different_clocks(cells)
    for cell in cells:
        name = cell.cell.cell
        checks = cell.verdict.checks if cell.verdict is not None else ()
        bad = sorted(
            (c for c in checks if c.status in ("fail", "warn")),
            key=lambda c: ("fail", "warn").index(c.status),
        )
        if verdict_of(cell) != FAITHFUL:
            lines.append(f"{name}: {verdict_of(cell)}")
        lines += [
            f"{name}: {c.status}: {c.name}{': ' + c.text if c.text else ''}" for c in bad[:LISTED]
        ]
        if cell.uninjected:
            total = sum(d.packets for d in cell.uninjected)
            worst = cell.uninjected[0]
            lines.append(
                f"{name}: UNINJECTED LOSS: {counted(total, 'packet')} "
                f"at {counted(len(cell.uninjected), 'place')}"
                f" (most: {worst.packets} at {worst.place}, {worst.what})"
            )
        if cell.identical.value is None:
            lines.append(f"{name}: contents not checked: {cell.identical.reason}")
        elif cell.identical.value < cell.cell.m:
            lines.append(
                f"{name}: CONTENTS DIFFER: only {cell.identical.value:.0f} of {cell.cell.m}"
                " receivers hold exactly the publisher's products"
            )
    return Banner(verdict, HEADLINES[verdict], tuple(lines))


def _group_sections(group: Group, plots: Sequence[Plot]) -> list[Section]:
    """Return the sections about one group of cells."""
    sections = [_main_section(group)]
    if (paper := _paper_section(group)) is not None:
        sections.append(paper)
    if plots:
        left_out = (f"CPU over time is left out: {NO_CPU}.",)
        sentences = left_out if group.clock == "virtual" else ()
        sections.append(Section(f"Figures at {group.label}", sentences, plots=tuple(plots)))
    sections.append(_receivers_section(group))
    if (fmtp := fmtp_section(_cells(group))) is not None:
        sections.append(fmtp)
    if (latency := latency_section(_cells(group))) is not None:
        sections.append(latency)
    return [*sections, _losses_section(group), _file_sets_section(group)]


def build_report(
    run: str, found: Transports, drawn: Drawn, plots: Mapping[str, Sequence[Plot]]
) -> Report:
    """Return the report. `run`: EXPERIMENT/STAMP; `drawn`: the figures that the experiment file
    asks for; `plots`: each group's, by `Group.slug`."""
    groups = found.groups
    manifest = found.manifest.raw
    cells = [cell for group in groups for cell in _cells(group)]
    described = [c.cell for c in cells]
    conditions = conditions_section(manifest, described)
    model = _model_section(cells)
    verdicts = _verdict_section(cells)
    protocols = protocols_section(cells)
    unused = unused_sections(found)
    about = [
        *([model] if model is not None else []),
        input_section(cells, found.complaints),
        repeat_section(manifest, run),
        provenance_section(manifest),
    ]
    level = level_of(manifest, described)
    subtitle = f"run {run}, {f'level {level}, ' if level else ''}clock: {clocks_of(cells)}"
    title = f"Downpour: {found.experiment}"
    if len(groups) == 1 and not found.published.figures and not found.published.claims:
        (group,) = groups
        sections = _group_sections(group, plots.get(group.slug, ()))
        sections += [*protocols, verdicts, *unused, replace(conditions, in_text=False), *about]
        return Report(title, subtitle, _banner(cells), tuple(sections))
    each = [
        folded(group.label, _group_sections(group, plots.get(group.slug, ()))) for group in groups
    ]
    sections = [*findings(found, drawn, conditions), *protocols]
    sections += [folded("Each group of cells by itself", each), *unused]
    about = [replace(s, in_text=False) if s is model else s for s in about]
    sections += [folded("Fidelity verdicts and their evidence", [verdicts]), *about]
    return Report(title, subtitle, banner(found, spoilt(cells)), tuple(sections))
