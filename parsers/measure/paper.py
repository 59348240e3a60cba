# SPDX-License-Identifier: Apache-2.0
"""Compare the papers' published values with this run's.

A row of the `paper:` block is compared only with the points that have the levels of its `at`. The
criterion is whether the published value lies within this run's error bar. A sentence points out
values that differ by more than the row's tolerance. If the run was shorter than the published one,
the sentence also says what input it had. The published input is the row of metric `input_rate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parsers.base.factors import Scalar
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS
from parsers.measure.sweep import Point, select, shown
from parsers.read.published import PaperValue

NOT_RUN = "no cell was run under these conditions"


@dataclass(frozen=True)
class Headline:
    """This run's value beside a published value, in the metric's SI unit (percentage points for
    shares)."""

    paper: PaperValue
    protocol: str
    at: Mapping[str, Scalar]  # the levels of the run's point, or of the row if there is none
    published: float
    ours: Estimate | None
    reason: str  # why the run has no value
    context: str = ""  # how the inputs differ, if the run was shorter than the published one

    @property
    def metric(self) -> str:
        """Return the name of the metric."""
        return self.paper.metric

    @property
    def source(self) -> str:
        """Return where the value was published."""
        return self.paper.source

    @property
    def conditions(self) -> str:
        """Return the published run's conditions in words."""
        return self.paper.conditions

    @property
    def derived(self) -> bool:
        """Return whether the published value was computed from published figures."""
        return self.paper.derived

    @property
    def difference(self) -> float | None:
        """Return the run's value minus the published value."""
        return None if self.ours is None else self.ours.mean - self.published

    @property
    def difference_percent(self) -> float | None:
        """Return the difference relative to the published value."""
        if self.difference is None or self.published == 0:
            return None
        return 100.0 * self.difference / self.published

    @property
    def within(self) -> bool | None:
        """Return whether the published value lies within the run's error bar; None without one."""
        if self.ours is None or not self.ours.has_interval:
            return None
        return self.ours.covers(self.published)

    @property
    def beyond_tolerance(self) -> bool:
        """Return whether the run's value differs by more than the row's tolerance."""
        limit = self.paper.tolerance * abs(self.published)
        return self.difference is not None and abs(self.difference) > limit

    @property
    def why(self) -> str:
        """Return the known reason for the difference, as a clause; empty if there is none."""
        if self.difference is None or not self.beyond_tolerance:
            return ""
        return (self.paper.why.above if self.difference > 0 else self.paper.why.below) or ""

    @property
    def sentence(self) -> str:
        """Return the sentence that points the value out; empty within the tolerance."""
        metric = METRICS[self.metric]
        label = f"{self.protocol.upper()} {metric.label}"
        published = metric.show(self.published)
        if self.ours is None:
            return f"{label}: not measured here ({self.reason}); paper {published}."
        if not self.beyond_tolerance:
            return ""
        more = "above" if self.ours.mean > self.published else "below"
        percent = self.difference_percent
        by = f"{abs(percent):.1f} % {more}" if percent is not None else more
        where = f" ({self.conditions})" if self.conditions else ""
        source = f", {self.source}" if self.derived else f" of {self.source}"
        bars = {True: "; within our error bar", False: "; outside our error bar", None: ""}
        bar, tolerance = bars[self.within], f"{100 * self.paper.tolerance:.0f} %"
        return (
            f"{label}: ours {shown(self.metric, self.ours)} is {by} the paper's {published}"
            f"{source}{where}; tolerance {tolerance}{bar}."
            + (f" The reason: {self.why}." if self.why else "")
            + (f" Note: {self.context}." if self.context else "")
        )


def headlines(rows: Sequence[PaperValue], points: Sequence[Point]) -> tuple[Headline, ...]:
    """Return each row that has a value beside each point that it covers. A row without such a point
    stands alone."""
    made: list[Headline] = []
    for row in rows:
        if row.value is None:
            continue
        for protocol in row.protocols:
            found = _matching(row, protocol, points)
            made += [_headline(row, rows, protocol, point) for point in found]
            if not found:
                made.append(_without(row, protocol))
    return tuple(made)


def _matching(row: PaperValue, protocol: str, points: Iterable[Point]) -> list[Point]:
    return [p for p in select(points, row.where) if p.conditions.get("protocol") == protocol]


def _without(row: PaperValue, protocol: str) -> Headline:
    assert row.value_si is not None
    at: dict[str, Scalar] = {"protocol": protocol, **row.where.single()}
    return Headline(row, protocol, at, row.value_si, None, NOT_RUN)


def _headline(row: PaperValue, rows: Sequence[PaperValue], protocol: str, point: Point) -> Headline:
    assert row.value_si is not None
    ours = point.estimates.get(row.metric)
    reason = ""
    if ours is None:
        reason = point.reasons.get(row.metric, "not measured")
        if not point.cells and point.excluded:
            reason = f"the verdict of {', '.join(point.excluded)} is invalid"
    context = _context(row, rows, protocol, point)
    return Headline(row, protocol, point.factors, row.value_si, ours, reason, context)


def _context(row: PaperValue, rows: Sequence[PaperValue], protocol: str, point: Point) -> str:
    """Return how the run's input differs from the published one, if the run was shorter than the
    published run."""
    duration_s = point.conditions.get("duration_s")
    metric = METRICS["input_rate"]
    if row.published_s is None or not isinstance(duration_s, (int, float)):
        return ""
    if duration_s >= row.published_s or row.metric == metric.name:  # the row itself says it
        return ""
    rate = point.estimates.get(metric.name)
    if rate is None:  # points at single subscribers have no such value
        return f"ours: {duration_s:g} s of the published {row.published_s:g} s"
    text = f"ours, {duration_s:g} s, had an input rate of {metric.show(rate.mean)}"
    published = next(
        (
            r.value_si
            for r in rows
            if r.metric == metric.name
            and protocol in r.protocols
            and r.published_s == row.published_s
            and r.value_si is not None
        ),
        None,
    )
    if published is None:
        return text
    whole = "the hour's" if row.published_s == 3600 else f"the published {row.published_s:g} s'"
    return f"{text} against {whole} {metric.show(published)}"


@dataclass(frozen=True)
class Comparisons:
    """Compare all rows of a `paper:` block with the points of one group of cells."""

    compared: tuple[Headline, ...]
    statements: tuple[PaperValue, ...]  # applicable rows without a number
    elsewhere: tuple[PaperValue, ...]  # rows published under other conditions

    def of(self, metric: str, protocol: str) -> Headline | None:
        """Return the published value of the whole cell, not of one of its subscribers."""
        return next(
            (
                c
                for c in self.compared
                if c.metric == metric and c.protocol == protocol and "subscriber" not in c.at
            ),
            None,
        )


def compare_all(rows: Sequence[PaperValue], points: Sequence[Point]) -> Comparisons:
    """Compare all rows with `points`, which are of one group, of one protocol or of both."""
    compared: list[Headline] = []
    statements: list[PaperValue] = []
    elsewhere: list[PaperValue] = []
    protocols = {p.conditions.get("protocol") for p in points}
    for row in rows:
        if not select(points, row.where):
            elsewhere.append(row)
        elif row.value is None:
            statements.append(row)
        else:
            compared += [
                _headline(row, rows, protocol, point)
                for protocol in row.protocols
                if protocol in protocols
                for point in _matching(row, protocol, points)
            ]
    return Comparisons(tuple(compared), tuple(statements), tuple(elsewhere))
