# SPDX-License-Identifier: Apache-2.0
"""Report a run whose subscribers join and leave: make the sections of a `Report` from its cells.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.counting import counted
from parsers.base.metric_units import METRICS
from parsers.measure.evaluate import Subscriptions
from parsers.measure.join_leave import FeedMetrics, JoinLeaveMetrics
from parsers.measure.subscriptions import Session, Subscription
from parsers.measure.verdicts import worst_verdict
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
from parsers.report.figures import Drawn
from parsers.report.input_section import input_section
from parsers.report.sections import verdict_table
from parsers.report.sweep_sections import (
    banner,
    findings,
    folded,
    unused_sections,
)
from parsers.report.wording import HEADLINES, LISTED, number, some


def build_report(run: str, found: Subscriptions, drawn: Drawn) -> Report:
    """Return the report. `run`: EXPERIMENT/STAMP; `drawn`: the figures that the experiment file
    asks for."""
    manifest, cells = found.manifest.raw, found.cells
    conditions = conditions_section(manifest, [c.cell for c in cells])
    about = [
        input_section(cells, found.complaints),
        repeat_section(manifest, run),
        provenance_section(manifest),
    ]
    clocks = " and ".join(sorted({c.cell.clock for c in cells}))
    level = level_of(manifest, [c.cell for c in cells])
    subtitle = f"run {run}, {f'level {level}, ' if level else ''}clock: {clocks}"
    title = f"Downpour: {found.experiment}"
    if len(cells) == 1 and not found.published.figures and not found.published.claims:
        sections = [*_cell(cells[0]), *unused_sections(found), replace(conditions, in_text=False)]
        return Report(title, subtitle, _banner(cells), (*sections, *about))
    each = [folded(cell.cell.cell, _cell(cell)) for cell in cells]
    sections = [*findings(found, drawn, conditions), folded("Each cell by itself", each)]
    return Report(
        title,
        subtitle,
        banner(found, _banner(cells).lines),
        (*sections, *unused_sections(found), *about),
    )


def _cell(cell: JoinLeaveMetrics) -> list[Section]:
    """Return the sections about one cell."""
    return [
        *(_main(cell), _feeds(cell), _subscriptions(cell), _sessions(cell)),
        *(_losses(cell), _verdict(cell)),
    ]


def _banner(cells: Sequence[JoinLeaveMetrics]) -> Banner:
    verdict = worst_verdict(cells)
    lines = []
    for cell in cells:
        checks = () if cell.verdict is None else cell.verdict.checks
        for status in ("fail", "warn"):
            bad = [c for c in checks if c.status == status]
            lines += [f"{cell.cell.cell}: {status}: {c.name}: {c.text}" for c in bad[:LISTED]]
        lost = cell.values["lost_products"]
        if lost.value:
            lines.append(f"{cell.cell.cell}: PRODUCTS LOST: {lost.value:.0f}")
        elif lost.value is None:
            lines.append(f"{cell.cell.cell}: losses not known: {lost.reason}")
    return Banner(verdict, HEADLINES[verdict], tuple(lines))


def _ms(value: float | None) -> str:
    return "n/a" if value is None else f"{1e3 * value:.1f}"


def _main(cell: JoinLeaveMetrics) -> Section:
    rows = []
    sentences = []
    for name, value in cell.values.items():
        metric = METRICS[name]
        unit = f", {metric.shown_unit}" if metric.shown_unit else ""
        rows.append((f"{metric.label}{unit}", number(name, value), metric.source))
        if value.reason or value.note:
            sentences.append(f"{metric.label}: {value.reason or value.note}.")
    header = ("Metric", "value", "Source")
    described = cell.cell
    stayed = sum(s.stayed for s in cell.subscriptions)
    kills = sum(k.how == "killed" for s in cell.subscriptions for k in s.sessions)
    again = sum(len(s.sessions) > 1 for s in cell.subscriptions)
    at_once = {s.subscriber for s in cell.subscriptions}
    several = sum(
        sum(s.subscriber == host for s in cell.subscriptions) > 1 for host in sorted(at_once)
    )
    sentences.insert(
        0,
        f"{described.duration_s:g} s of {counted(len(described.feeds), 'feed')} "
        f"to {counted(described.m, 'subscriber')}:"
        f" {counted(len(cell.subscriptions), 'subscription')}, "
        f"{stayed} of them throughout, {again} with"
        f" several sessions; {counted(kills, 'session')} ended "
        f"by kill -9; {counted(several, 'subscriber')} had several"
        " feeds. A product counts as sent to a subscriber if it was inserted after its FMTP"
        " connection was up and had reached the ones that stayed before it left.",
    )
    return Section(
        f"Joining and leaving, cell {described.cell}",
        tuple(sentences),
        (Table("", header, tuple(rows), frozenset({"Metric", "Source"})),),
    )


def _feeds(cell: JoinLeaveMetrics) -> Section:
    rows = tuple(_feed_row(feed) for feed in cell.feeds)
    header = (
        *("Feed", "r Mbit/s", "sent", "files", "path ms", "leaf p50"),
        *("joins", "added", "gone", "FMTP p50", "p99", "file p50", "p99 s", "Mbit/s"),
    )
    sentences = []
    for feed in cell.feeds:
        if feed.branches != feed.subscribed:
            extra = sorted(feed.branches - feed.subscribed)
            lacking = sorted(feed.subscribed - feed.branches)
            sentences.append(
                f"{feed.info.name}: at the end the tree does not match the subscriptions: "
                f"without subscriber: {', '.join(extra) or 'none'}; without branch: "
                f"{', '.join(lacking) or 'none'}."
            )
    if not sentences:
        sentences.append("At the end each tree has exactly the branches of the subscriptions.")
    sentences.append(
        "sent: Mbit/s of the products; path, leaf: ms from the request to the path service until"
        " its switches had confirmed; added, gone: leaves; FMTP: ms from the beginning of a"
        " product's multicast until a subscriber had all of it; file: from a product's creation"
        " until a subscriber who stayed had it, and the throughput by that (MPUP16 eq. 3)."
    )
    tables = [Table("", header, rows, frozenset({"Feed"}))]
    if counted := tuple(_counted_row(feed) for feed in cell.feeds if feed.counters is not None):
        columns = ("Feed", "entered", "meter dropped", "refused")
        title = "Frames, as the switches counted them"
        tables.append(Table(title, columns, counted, frozenset({"Feed"})))
        sentences.append(
            "entered: multicast at the root; refused: with a source or destination that their"
            " endpoint may not have, such as the IGMP reports by which a subscriber's kernel joins"
            " and leaves the group: multicast comes from the root alone."
        )
    return Section("Feeds", tuple(sentences), tuple(tables))


def _counted_row(feed: FeedMetrics) -> tuple[str, ...]:
    counters = feed.counters
    assert counters is not None
    entered, dropped = counters.entered.multicast.packets, counters.meter_dropped.packets
    return (feed.info.name, str(entered), str(dropped), str(counters.refused))


def _feed_row(feed: FeedMetrics) -> tuple[str, ...]:
    sent = feed.input_bps.value
    return (
        feed.info.name,
        f"{feed.info.r_mc_bps / 1e6:g}",
        "n/a" if sent is None else f"{sent / 1e6:.2f}",
        str(feed.info.products),
        _ms(feed.path_setup_s.value),
        _ms(feed.leaf_setup_p50.value),
        str(feed.sessions),
        str(feed.leaves_added),
        str(feed.leaves_removed),
        _ms(feed.latency_p50.value),
        _ms(feed.latency_p99.value),
        _ms(feed.whole_p50.value),
        "n/a" if feed.whole_p99.value is None else f"{feed.whole_p99.value:.3f}",
        "n/a" if feed.throughput.value is None else f"{feed.throughput.value / 1e6:.2f}",
    )


def _subscriptions(cell: JoinLeaveMetrics) -> Section:
    header = (
        *("Subscriber", "Feed", "sessions", "sent", "there", "flying", "LOST"),
        *("away", "back", "twice", "bad"),
    )
    rows = []
    sentences = []
    for s in cell.subscriptions:
        kills = sum(k.how == "killed" for k in s.sessions)
        sessions = "stayed" if s.stayed else str(len(s.sessions))
        sessions += f" ({kills} killed)" if kills else ""
        rows.append(
            (
                s.subscriber,
                s.feed,
                sessions,
                *(str(n) for n in (s.sent, s.received, s.in_flight, len(s.lost))),
                *(str(n) for n in (s.away, s.recovered, s.duplicates, s.damaged)),
            )
        )
        if s.lost:
            sentences.append(f"{s.subscriber} lost of {s.feed}: {some(s.lost)}.")
        if s.not_recovered:
            text = some(s.not_recovered)
            sentences.append(f"{s.subscriber} did not recover of {s.feed}: {text}.")
    sentences.append(
        "Products sent while subscribed, those of them in the queue intact, in flight at a leave,"
        " and lost; away: sent between sessions, back: those of them that came afterwards; twice:"
        " more than once in the queue; bad: with other bytes than the publisher's."
    )
    left = frozenset({"Subscriber", "Feed", "sessions"})
    return Section("Subscriptions", tuple(sentences), (Table("", header, tuple(rows), left),))


def _sessions(cell: JoinLeaveMetrics) -> Section:
    header = (
        *("Subscriber", "Feed", "joined s", "ended s", "how"),
        *("leaf ms", "FMTP ms", "product ms", "multicast ms", "pruned ms"),
    )
    begin = cell.cell.insertion_started
    rows = sorted(
        (k.join_s, _session_row(s, k, begin)) for s in cell.subscriptions for k in s.sessions
    )
    sentence = (
        "Milliseconds after the join until the path service had confirmed the leaf (its own time),"
        " until FMTP was connected, until the first product of any kind and the first by multicast"
        " (which waits for the feed's next product); after the end until the branch was pruned."
    )
    table = Table(
        "", header, tuple(row for _, row in rows), frozenset({"Subscriber", "Feed", "how"})
    )
    return Section("Sessions", (sentence,), (table,))


def _session_row(s: Subscription, k: Session, begin: float) -> tuple[str, ...]:
    return (
        s.subscriber,
        s.feed,
        f"{k.join_s - begin:.2f}",
        "" if k.end_s is None else f"{k.end_s - begin:.2f}",
        k.how,
        _ms(k.leaf_added_took_s),
        _ms(k.after_join(k.ready_s)),
        _ms(k.after_join(k.first_product_s)),
        _ms(k.after_join(k.first_multicast_s)),
        "" if k.end_s is None else _ms(k.prune_took_s),
    )


def _losses(cell: JoinLeaveMetrics) -> Section:
    if cell.drops is None:
        return Section("Losses", ("Unknown: the counters of the start or the end are missing.",))
    if not cell.drops:
        return Section("Losses", ("No packet was lost anywhere.",))
    header = ("Place", "What", "packets")
    rows = tuple((d.place, d.what, str(d.packets)) for d in cell.drops[:LISTED])
    return Section("Losses", (), (Table("", header, rows, frozenset(header[:2])),))


def _verdict(cell: JoinLeaveMetrics) -> Section:
    if cell.verdict is None:
        sentence = f"{cell.cell.cell}: no verdict.json; nothing confirms this cell."
        return Section("Verdict", (sentence,))
    return Section("Verdict", (), (verdict_table(cell.cell.cell, cell.verdict),))
