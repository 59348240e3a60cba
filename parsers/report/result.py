# SPDX-License-Identifier: Apache-2.0
"""Word what a run found: the first sentences of the page and of the printed text, and the main
table.

The experiment file gives the reasons for differences from the papers (`why` in its `paper:` block).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.counting import counted
from parsers.base.factors import show
from parsers.base.metric_units import METRICS
from parsers.measure.claims import ClaimResult
from parsers.measure.comparison import Group
from parsers.measure.evaluate import Subscriptions, Transports
from parsers.measure.join_leave import JoinLeaveMetrics
from parsers.measure.paper import Headline
from parsers.measure.summary import CellMetrics
from parsers.measure.undecided import HELD, NOT_DECIDABLE, NOT_HELD
from parsers.report.brief import BriefTable
from parsers.report.points_table import metrics_of, points_tables
from parsers.report.wording import in_words, labelled, number

ROWS = (
    "throughput_sets",
    "throughput",
    "ffdr",
    "nic_bandwidth",
    "input_rate",
    "bandwidth_over_offered",
    "cpu",
    "latency_p50",
    "latency_p99",
    "loss_measured",
)
JOIN_LEAVE_ROWS = (
    "lost_products",
    "not_recovered_products",
    "duplicate_products",
    "damaged_products",
    "joins",
    "ends",
    "path_setup",
    "leaf_setup_p50",
    "leaf_setup_max",
    "join_ready_p50",
    "join_product_p50",
    "prune_p50",
    "throughput_stayed",
    "latency_p99_stayed",
)
ORDER = (NOT_HELD, NOT_DECIDABLE, HELD)
REASONS = 3  # differences that the sentences explain; the table has all of them


@dataclass(frozen=True)
class Result:
    """The first sentences, and their tables, the main one first."""

    sentences: tuple[str, ...]
    tables: tuple[BriefTable, ...]


def result_of(found: Transports | Subscriptions) -> Result:
    """Return the result of a run."""
    if found.claims or found.published.figures or len(found.cells) > 2 or not found.cells:
        return _of_sweep(found)
    if isinstance(found, Subscriptions):
        if len(found.cells) == 1:
            return _of_join_leave(found.cells[0])
        return _of_sweep(found)
    if len(found.groups) == 1:
        return _of_group(found.groups[0])
    return _of_sweep(found)


# -- LDM7 beside LDM6 -------------------------------------------------------------------------
def _of_group(group: Group) -> Result:
    return Result((*_delivered(group), *_compared(group), *_differences(group)), (_table(group),))


def _delivered(group: Group) -> list[str]:
    """Say what arrived. Protocols with the same outcome share a sentence."""
    outcomes: dict[str, list[str]] = {}
    for protocol in group.protocols:
        if cells := group.cells.get(protocol, ()):
            outcomes.setdefault(_outcome(cells), []).append(protocol.upper())
    return [f"{' and '.join(names)} {outcome}." for outcome, names in outcomes.items()]


def _outcome(cells: Sequence[CellMetrics]) -> str:
    sent = " or ".join(str(n) for n in sorted({c.sent for c in cells}))
    runs = f" in each of {len(cells)} runs" if len(cells) > 1 else ""
    counts = [c.identical.value for c in cells]
    known = [n for n in counts if n is not None]
    if len(known) < len(counts):
        reason = next(c.identical.reason for c in cells if c.identical.value is None)
        return f"sent {sent} products{runs}; what arrived was not checked ({reason})"
    m = cells[0].cell.m
    if min(known) == m:
        return f"delivered all {sent} products to {m} of {counted(m, 'receiver')}{runs}"
    worst = f"only {min(known):.0f} of {counted(m, 'receiver')}" if min(known) else "no receiver"
    return f"delivered all {sent} products to {worst}" + (
        f" in the worst of {len(cells)} runs" if runs else ""
    )


def _value(group: Group, protocol: str, name: str) -> float | None:
    found = group.values.get(protocol, {}).get(name)
    return None if found is None else found.value


def _compared(group: Group) -> list[str]:
    """Say LDM7's bandwidth and latency beside LDM6's."""
    clauses = []
    bandwidth = [_value(group, p, "nic_bandwidth") for p in ("ldm7", "ldm6", *group.protocols)]
    if bandwidth[0] is not None and bandwidth[1] is not None:
        first, second = (in_words("nic_bandwidth", b) for b in bandwidth[:2] if b is not None)
        times = f" ({bandwidth[1] / bandwidth[0]:.1f} times as much)" if bandwidth[0] else ""
        clauses.append(f"LDM7's sender sent {first}, LDM6's {second}{times}")
    elif (only := next((b for b in bandwidth if b is not None), None)) is not None:
        clauses.append(f"The sender sent {in_words('nic_bandwidth', only)}")
    latency = [_value(group, p, "latency_p99") for p in ("ldm7", "ldm6", *group.protocols)]
    if latency[0] is not None and latency[1] is not None:
        first, second = (in_words("latency_p99", s) for s in latency[:2] if s is not None)
        clauses.append(f"p99 latency was {first} for LDM7 and {second} for LDM6")
    elif (only := next((s for s in latency if s is not None), None)) is not None:
        clauses.append(f"p99 latency was {in_words('latency_p99', only)}")
    return [f"{'; '.join(clauses)}."] if clauses else []


def _differences(group: Group) -> list[str]:
    """Say what differs from the paper by more than its tolerance, with the reason. Leave out a
    derived value if a value that it is derived from also differs."""
    differing = [c for c in group.comparisons.compared if c.beyond_tolerance and c.ours is not None]
    published = [c for c in differing if not c.derived]
    if not differing:
        compared = [c for c in group.comparisons.compared if c.ours is not None]
        same = "All values that the paper gives for these conditions agree within their tolerance."
        return [same] if compared else []
    return _reasons(published or differing, "")


def _reasons(differing: Iterable[Headline], at: str) -> list[str]:
    """Return one sentence for each reason. Equal values of both protocols are together, and input
    rates come last."""
    same: dict[tuple[str, str, str, str], list[str]] = {}
    for found in sorted(differing, key=lambda c: c.metric == "input_rate"):
        assert found.ours is not None
        ours = in_words(found.metric, found.ours.mean)
        paper = in_words(found.metric, found.published)
        why = f", because {found.why}" if found.why else f"; {_instead(found)}"
        same.setdefault((found.metric, ours, paper, why), []).append(found.protocol.upper())
    by_reason: dict[str, list[str]] = {}
    for (metric, ours, paper, why), protocols in same.items():
        label = METRICS[metric].label
        name = label if label[:2].isupper() else label[0].lower() + label[1:]
        whose = f"{protocols[0]}'s {name}" if len(protocols) == 1 else f"The {name}"
        by_reason.setdefault(why, []).append(f"{whose}{at} is {ours}, the paper's {paper}")
    made = [f"{'; '.join(texts)}{why}." for why, texts in by_reason.items()]
    more = len(made) - REASONS
    return [*made[:REASONS], *([f"{more} more differ: see the table."] if more > 0 else [])]


def _instead(found: Headline) -> str:
    """Return what is known about a difference that the experiment file does not explain."""
    if found.context:
        return found.context
    if found.paper.published_s is not None:
        return f"the paper's covers {found.paper.published_s:g} s"
    return "the experiment file gives no reason"


def _table(group: Group) -> BriefTable:
    protocols = group.protocols
    header = ["Metric"]
    for protocol in protocols:
        header += [protocol.upper(), "paper", "diff."]
    rows = []
    for name in ROWS:
        if all(_value(group, p, name) is None for p in protocols):
            continue
        row = [labelled(name)]
        for protocol in protocols:
            row.append(number(name, group.values[protocol].get(name)))
            row += _paper(group.comparisons.of(name, protocol))
        rows.append(row)
    keep = [i for i in range(len(header)) if i == 0 or i % 3 == 1 or any(r[i] for r in rows)]
    return BriefTable(
        header=tuple(header[i] for i in keep),
        rows=tuple(tuple(r[i] for i in keep) for r in rows),
        optional=("diff.", "paper"),
    )


def _paper(found: Headline | None) -> tuple[str, str]:
    """Return the published value and the difference in percent of it."""
    if found is None:
        return "", ""
    published = f"{found.published / METRICS[found.metric].scale:g}"
    share = found.difference_percent
    return published, "" if share is None else f"{share:+.0f} %"


# -- many cells -------------------------------------------------------------------------------
def _of_sweep(found: Transports | Subscriptions) -> Result:
    sentences = [*_claims_count(found.claims), *_headlines_count(found.headlines)]
    if isinstance(found, Subscriptions):
        sentences = [*_lost(found.cells), *sentences]
    else:
        sentences = [*_all_delivered(found.cells), *sentences]
    differing = [h for h in found.headlines if h.beyond_tolerance and h.ours is not None]
    explained = {h.why: h for h in reversed(differing) if h.why}
    for headline in reversed(explained.values()):
        at = show({n: v for n, v in headline.at.items() if n != "protocol"})
        sentences += _reasons([headline], f" at {at}" if at else "")
    tables = []
    if found.claims:
        tables.append(_claims_table(found.claims))
    if any(h.ours is not None for h in found.headlines):
        tables.append(_headlines_table(found.headlines))
    peers = isinstance(found, Transports) and found.has_peers
    if not tables or peers:
        shown = metrics_of(found.points, peers=peers)
        tables = [*points_tables(found.points, shown), *tables]
    return Result(tuple(sentences), tuple(tables))


def _all_delivered(cells: Sequence[CellMetrics]) -> list[str]:
    whole = sum(c.identical.value == c.cell.m for c in cells)
    if not cells:
        return []
    if whole == len(cells):
        return [
            f"In all {counted(len(cells), 'cell')} every "
            "receiver has exactly the products that were sent."
        ]
    return [
        f"In {whole} of {counted(len(cells), 'cell')} every "
        "receiver has exactly the products that were sent."
    ]


def _claims_count(claims: Sequence[ClaimResult]) -> list[str]:
    if not claims:
        return []
    counts = Counter(c.verdict for c in claims)
    parts = [f"{counts[v]} {v}" for v in (HELD, NOT_HELD, NOT_DECIDABLE) if counts[v]]
    return [f"Claims: {', '.join(parts)}."]


def _headlines_count(headlines: Sequence[Headline]) -> list[str]:
    measured = [h for h in headlines if h.ours is not None]
    if not measured:
        return []
    differing = sum(h.beyond_tolerance for h in measured)
    if not differing:
        return [f"Published values: all {len(measured)} agree within their tolerance."]
    return [
        f"Published values: {differing} of {len(measured)} differ by more than their tolerance."
    ]


def _claims_table(claims: Sequence[ClaimResult]) -> BriefTable:
    worst_first = sorted(claims, key=lambda c: ORDER.index(c.verdict))
    return BriefTable(
        header=("Claim", "verdict"),
        rows=tuple((c.claim.text, c.verdict) for c in worst_first),
        left=frozenset({0, 1}),
    )


def _headlines_table(headlines: Sequence[Headline]) -> BriefTable:
    rows = []
    measured = [h for h in headlines if h.ours is not None]
    fixed = {
        name for h in measured for name in h.at
        if len({g.at.get(name) for g in measured}) == 1
    }  # fmt: skip
    for found in sorted(measured, key=lambda h: not h.beyond_tolerance):
        assert found.ours is not None
        metric = METRICS[found.metric]
        where = show({n: v for n, v in found.at.items() if n not in {"protocol", *fixed}})
        ours = f"{found.ours.mean / metric.scale:.{metric.digits}f}"
        label = f"{found.protocol.upper()} {labelled(found.metric)}{where and ', '}{where}"
        rows.append((label, ours, *_paper(found)))
    return BriefTable(
        header=("Metric", "ours", "paper", "diff."), rows=tuple(rows), optional=("diff.",)
    )


# -- subscribers that join and leave ----------------------------------------------------------
def _of_join_leave(cell: JoinLeaveMetrics) -> Result:
    rows = tuple(
        (labelled(name), number(name, cell.values[name]))
        for name in JOIN_LEAVE_ROWS
        if name in cell.values and cell.values[name].value is not None
    )
    kills = sum(k.how == "killed" for s in cell.subscriptions for k in s.sessions)
    sessions = sum(len(s.sessions) for s in cell.subscriptions)
    about = (
        f"{counted(cell.cell.m, 'subscriber')} had "
        f"{counted(sessions, 'session')} with {counted(len(cell.feeds), 'feed')};"
        f" {counted(kills, 'session')} ended by kill -9."
    )
    table = BriefTable(header=("Metric", "value"), rows=rows)
    return Result((about, *_lost([cell])), (table,))


def _lost(cells: Sequence[JoinLeaveMetrics]) -> list[str]:
    """Say whether anything was lost, the question that such a run answers."""
    sentences = []
    lost = [c.values["lost_products"] for c in cells]
    total = sum(v.value for v in lost if v.value is not None)
    unknown = [v.reason for v in lost if v.value is None]
    if total:
        sentences.append(f"LOST: {counted(round(total), 'product')} that a subscriber should have.")
    elif not unknown:
        sentences.append("No subscriber lost a product that was sent while it was subscribed.")
    if unknown:
        sentences.append(f"Losses are unknown in {counted(len(unknown), 'cell')}: {unknown[0]}.")
    breaks = any(len(s.sessions) > 1 for c in cells for s in c.subscriptions)
    missing = sum(c.values["not_recovered_products"].value or 0 for c in cells)
    if missing:
        sentences.append(
            f"{counted(round(missing), 'product')} of a break did not arrive afterwards."
        )
    elif breaks and not unknown:
        sentences.append("Every product of a subscriber's break arrived after it came back.")
    return sentences
