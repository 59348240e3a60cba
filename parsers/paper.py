# SPDX-License-Identifier: Apache-2.0
"""The papers' published values beside ours.

The values come from the experiment file's `paper:` block (in manifest.json): a list of {metric,
protocol, value, unit, source, conditions, text}. A row without value states a relation in `text`.
`conditions` is a sentence in which `m = 8`, `m = 8 and 16`, `m = 4 to 24`, `p = 1 %` and
`r = 20 Mbit/s` are understood: a row is compared only with cells that meet them. `whole hour` keeps
no cell out, but a comparison with a shorter run says what input either had; the published input is
the row of the metric `input_rate`. A `source` that begins with "derived" is not a published figure
but computed from some, and is told apart in the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsers.units import METRICS, Metric, Value, canonical, to_si

TOLERANCE = 0.10  # relative difference from which a sentence points it out

_M = re.compile(r"\bm\s*=\s*(\d+)(?:\s*(to|and|,)\s*(\d+))?")
_P = re.compile(r"\bp\s*=\s*(\d+(?:\.\d+)?)\s*%")
_HOUR = re.compile(r"\bwhole hour\b", re.IGNORECASE)
_HOUR_S = 3600.0
_R = re.compile(r"\br\s*=\s*(\d+(?:\.\d+)?)\s*([kMG]?bit/s|[kMG]?bps)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Condition:
    """What a sentence demands. Empty and None demand nothing."""

    m_least: int | None = None
    m_most: int | None = None
    m_set: frozenset[int] = frozenset()
    loss: float | None = None
    r_bps: float | None = None
    duration_s: float | None = None  # not demanded, see above

    def holds(self, m: int, r_bps: float, loss: float) -> bool:
        if self.m_least is not None and m < self.m_least:
            return False
        if self.m_most is not None and m > self.m_most:
            return False
        if self.m_set and m not in self.m_set:
            return False
        if self.loss is not None and abs(self.loss - loss) > 1e-9:
            return False
        return self.r_bps is None or abs(self.r_bps - r_bps) <= 1e-6 * self.r_bps


def parse_condition(sentence: str) -> Condition:
    """Reads m, p, r and "whole hour"; everything else in the sentence is for the reader only."""
    least = most = None
    allowed: frozenset[int] = frozenset()
    if match := _M.search(sentence):
        one = int(match[1])
        other = int(match[3]) if match[3] else one
        if match[2] == "to":
            least, most = one, other
        else:
            allowed = frozenset({one, other})
    loss = float(match[1]) / 100 if (match := _P.search(sentence)) else None
    r_bps = (
        to_si(float(match[1]), match[2], METRICS["throughput"])
        if (match := _R.search(sentence))
        else None
    )
    duration_s = _HOUR_S if _HOUR.search(sentence) else None
    return Condition(least, most, allowed, loss, r_bps, duration_s)


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A published value in the metric's SI unit, or a statement (`value` None, `text`)."""

    metric: str  # a name of `METRICS`
    protocol: str  # ldm7, ldm6 or both
    value: float | None
    source: str
    conditions: str
    condition: Condition
    text: str
    tolerance: float

    @property
    def derived(self) -> bool:
        return self.source.lower().startswith("derived")


def parse_paper(block: Any) -> tuple[tuple[PaperRow, ...], tuple[str, ...]]:
    """(rows, complaints). A row that cannot be used is a complaint that quotes it; never raises."""
    if block is None:
        return (), ()
    if not isinstance(block, list):
        return (), (f"paper: expected a list, found {type(block).__name__}",)
    rows: list[PaperRow] = []
    complaints: list[str] = []
    for number, raw in enumerate(block, start=1):
        try:
            rows.append(_row(raw))
        except (ValueError, TypeError, KeyError) as error:
            detail = f"no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            complaints.append(f"paper row {number}: {detail}")
    return tuple(rows), tuple(complaints)


def _row(raw: Any) -> PaperRow:
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected a mapping, found {raw!r}")
    name = canonical(str(raw["metric"]))
    if name is None:
        raise ValueError(f"unknown metric {raw['metric']!r}; valid: {', '.join(METRICS)}")
    protocol = str(raw["protocol"]).lower()
    if protocol not in ("ldm7", "ldm6", "both"):
        raise ValueError(f"protocol {raw['protocol']!r}; valid: ldm7, ldm6, both")
    value = raw.get("value")
    text = str(raw.get("text") or "")
    if value is None and not text:
        raise ValueError("neither value nor text")
    if value is not None:
        value = to_si(float(value), str(raw.get("unit", "")), METRICS[name])
    conditions = str(raw.get("conditions") or "")
    return PaperRow(
        metric=name,
        protocol=protocol,
        value=value,
        source=str(raw.get("source") or "source not given"),
        conditions=conditions,
        condition=parse_condition(conditions),
        text=text,
        tolerance=float(raw.get("tolerance", TOLERANCE)),
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside one published value. `sentence` is empty within the tolerance."""

    metric: str
    protocol: str
    ours: float | None
    paper: float
    difference: float | None  # ours - paper, SI unit (percentage points for shares)
    difference_percent: float | None  # of the published value
    beyond_tolerance: bool
    source: str
    conditions: str
    sentence: str
    context: str = ""  # how the inputs differ, where ours was shorter than the published run
    derived: bool = False  # `paper` is computed from published figures


def compare(row: PaperRow, protocol: str, ours: Value, context: str = "") -> Comparison:
    """`row` must have a value."""
    if row.value is None:
        raise ValueError("the row has no value to compare with")
    metric = METRICS[row.metric]
    label = f"{protocol.upper()} {metric.label}"
    if ours.value is None:
        sentence = f"{label}: not measured here ({ours.reason}); paper {metric.show(row.value)}."
        return Comparison(
            row.metric,
            protocol,
            None,
            row.value,
            None,
            None,
            False,
            row.source,
            row.conditions,
            sentence,
            context,
            row.derived,
        )
    difference = ours.value - row.value
    percent = 100.0 * difference / row.value if row.value else None
    limit = row.tolerance * abs(row.value)
    beyond = abs(difference) > limit
    return Comparison(
        row.metric,
        protocol,
        ours.value,
        row.value,
        difference,
        percent,
        beyond,
        row.source,
        row.conditions,
        _sentence(label, metric, ours.value, row, percent, context) if beyond else "",
        context,
        row.derived,
    )


def _sentence(
    label: str, metric: Metric, ours: float, row: PaperRow, percent: float | None, context: str
) -> str:
    assert row.value is not None
    more = "above" if ours > row.value else "below"
    by = f"{abs(percent):.1f} % {more}" if percent is not None else more
    where = f" ({row.conditions})" if row.conditions else ""
    return (
        f"{label}: ours {metric.show(ours)} is {by} the paper's {metric.show(row.value)}"
        f" of {row.source}{where}; tolerance {100 * row.tolerance:.0f} %."
        + (f" Note: {context}." if context else "")
    )


def _context(
    row: PaperRow,
    rows: tuple[PaperRow, ...],
    protocol: str,
    ours: Mapping[str, Value],
    duration_s: float | None,
) -> str:
    """How our input differs from the published one, if ours ran shorter than the row says."""
    published_s = row.condition.duration_s
    metric = METRICS["input_rate"]
    if published_s is None or duration_s is None or duration_s >= published_s:
        return ""
    if row.metric == metric.name:  # says it itself
        return ""
    rate = ours.get(metric.name)
    has = metric.show(rate.value) if rate is not None and rate.value is not None else "unknown"
    text = f"ours, {duration_s:g} s, had an input rate of {has}"
    hour = next(
        (
            r.value
            for r in rows
            if r.metric == metric.name
            and r.protocol in (protocol, "both")
            and r.condition.duration_s == published_s
        ),
        None,
    )
    return text if hour is None else f"{text} against the hour's {metric.show(hour)}"


@dataclass(frozen=True, slots=True)
class Comparisons:
    """All rows of a `paper:` block against one pair of conditions."""

    compared: tuple[Comparison, ...]
    statements: tuple[PaperRow, ...]  # applicable rows without a number
    elsewhere: tuple[PaperRow, ...]  # rows published under other conditions

    def of(self, metric: str, protocol: str) -> Comparison | None:
        return next(
            (c for c in self.compared if c.metric == metric and c.protocol == protocol), None
        )


def compare_all(
    rows: tuple[PaperRow, ...],
    ours: Mapping[str, Mapping[str, Value]],
    m: int,
    r_bps: float,
    loss: float,
    duration_s: float | None = None,
) -> Comparisons:
    """`ours`: protocol -> metric -> value, measured with m receivers, base rate r and loss p."""
    compared: list[Comparison] = []
    statements: list[PaperRow] = []
    elsewhere: list[PaperRow] = []
    for row in rows:
        if not row.condition.holds(m, r_bps, loss):
            elsewhere.append(row)
        elif row.value is None:
            statements.append(row)
        else:
            protocols = ("ldm7", "ldm6") if row.protocol == "both" else (row.protocol,)
            compared.extend(
                compare(
                    row,
                    protocol,
                    ours[protocol][row.metric],
                    _context(row, rows, protocol, ours[protocol], duration_s),
                )
                for protocol in protocols
                if protocol in ours and row.metric in ours[protocol]
            )
    return Comparisons(tuple(compared), tuple(statements), tuple(elsewhere))
