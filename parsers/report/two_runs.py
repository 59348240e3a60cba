# SPDX-License-Identifier: Apache-2.0
"""Show points of several runs side by side, with the difference of two runs, and how the runs'
settings differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from parsers.base.factors import show
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS
from parsers.measure.agreement import (
    DECISIVE,
    Agreement,
    Compared,
    agreement,
    leaves,
    matching,
    whole,
)
from parsers.measure.sweep import Point, varying
from parsers.read.published import Published
from parsers.report.brief import BriefTable
from parsers.report.document import Section, Table
from parsers.report.sweep_sections import asked, interval_text
from parsers.report.wording import labelled

# Parts of manifest.json that say how a run was made. The rest is its outcome or its time.
MADE_BY = (
    *("level", "git", "kernel", "virtual_kernel", "python", "programs", "environment"),
    *("sysctls", "machine", "spec"),
)
NOT_SHOWN = ("spec.paper", "spec.claims", "spec.figures", "spec.levels", "machine.load_before")
LISTED = 60


def differences_section(manifests: Mapping[str, Mapping[str, object]]) -> Section | None:
    """Return how the manifests (letter -> manifest.json) differ."""
    told = {
        letter: {
            place: value
            for name in MADE_BY
            for place, value in leaves(manifest.get(name), name)
            if not place.startswith(NOT_SHOWN)
        }
        for letter, manifest in manifests.items()
    }
    places = list(dict.fromkeys(place for found in told.values() for place in found))
    rows = [
        (place, *(_text(found.get(place, "")) for found in told.values()))
        for place in places
        if len({_text(found.get(place, "")) for found in told.values()}) > 1
    ]
    if not rows:
        return None
    header = ("What", *told)
    more = (f"{len(rows) - LISTED} more are not shown.",) if len(rows) > LISTED else ()
    table = Table("", header, tuple(rows[:LISTED]), frozenset(header), 34)
    return Section("What differs in versions and settings", more, (table,))


def _text(value: object) -> str:
    return "" if value is None else str(value)


PAIRED: Final = (
    "over repeats of the same number, which have the same seed, where both runs have them"
)
UNPAIRED: Final = "of the means over the repeats, whose seeds differ between the runs"


def points_section(
    points: Mapping[str, Sequence[Point]], published: Published, *, same_seeds: bool
) -> Section | None:
    """Return the points that more than one run has. `points`: by the runs' letters. `same_seeds`:
    their repeats of the same number have the same seed."""
    plain = {letter: whole(found) for letter, found in points.items()}
    names = list(
        dict.fromkeys([*asked(published, [p for f in plain.values() for p in f]), *DECISIVE])
    )
    metrics = [n for n in METRICS if n in names]
    if len(plain) == 2:
        (a, then), (b, now) = plain.items()
        found = agreement(then, now, same_seeds=same_seeds)
        short, at = _short_labels([*then, *now])
        tables = tuple(_pair_tables(found, metrics, a, b, short, at))
        sentences = [
            f"{b} - {a}: {PAIRED if same_seeds else UNPAIRED}; 95 % confidence intervals; one run"
            " of a point has none. 0 in bar: the interval of the difference includes 0.",
            f"{agreement_text(found, a, b)}.",
        ]
    else:
        tables = tuple(_many_tables(plain, metrics))
        sentences = ["95 % confidence intervals over the repeats; one run has none."]
    return Section("Points side by side", tuple(sentences), tables) if tables else None


def agreement_text(found: Agreement, a: str, b: str) -> str:
    """Return the finding in one sentence."""
    verdicts = {"agree": "agree within their error bars", "differ": "differ"}
    verdict = verdicts.get(found.verdict, "cannot be compared within error bars")
    reason = found.reason.replace("(then)", f"({a})").replace("(now)", f"({b})")
    return f"{a} and {b} {verdict}: {reason}"


def differing_table(found: Agreement, points: Mapping[str, Sequence[Point]]) -> BriefTable:
    """Return the decisive metrics at each point of two runs, the largest differences first."""
    a, b = points
    short, _ = _short_labels([p for of_run in points.values() for p in whole(of_run)])
    rows = []
    for one in sorted((c for c in found.compared if c.metric in DECISIVE), key=_rank):
        metric = METRICS[one.metric]
        then, now = (f"{e.mean / metric.scale:.{metric.digits}f}" for e in (one.then, one.now))
        change = one.difference.mean / abs(one.then.mean) if one.then.mean else None
        share = "" if change is None else f"{100 * change:+.1f} %"
        within = {True: "yes", False: "no", None: ""}[one.covers]
        rows.append(
            (f"{labelled(one.metric)}: {short.get(one.label, one.label)}", then, now, share, within)
        )
    header = ("Metric", a, b, "diff.", "in bar")
    return BriefTable(header=header, rows=tuple(rows), optional=("in bar", "diff."))


def _rank(one: Compared) -> tuple[bool, float]:
    return one.covers is not False, -abs(one.difference.mean / (one.then.mean or 1.0))


def _short_labels(points: Sequence[Point]) -> tuple[dict[str, str], str]:
    """Return label of a point -> what distinguishes it from the others, and what all have in
    common."""
    names = varying(points)
    common = {n: v for n, v in points[0].factors.items() if n not in names} if points else {}
    told = {p.label: show({n: v for n, v in p.factors.items() if n in names}) for p in points}
    return {label: text or label for label, text in told.items()}, show(common)


def _pair_tables(
    found: Agreement,
    metrics: Sequence[str],
    a: str,
    b: str,
    short: Mapping[str, str],
    at: str,
) -> Iterator[Table]:
    for name in metrics:
        metric = METRICS[name]
        rows = []
        for c in (c for c in found.compared if c.metric == name):
            change = interval_text(metric, c.difference)
            share = 100 * c.difference.mean / abs(c.then.mean) if c.then.mean else None
            rows.append(
                (
                    short.get(c.label, c.label),
                    interval_text(metric, c.then),
                    interval_text(metric, c.now),
                    change if change.startswith("-") else f"+{change}",
                    "" if share is None else f"{share:+.1f} %",
                    "" if c.covers is None else "yes" if c.covers else "NO",
                )
            )
        if rows:
            unit = f", {metric.shown_unit}" if metric.shown_unit else ""
            header = ("At", a, b, f"{b} - {a}", f"of {a}", "0 in bar")
            title = f"{metric.label}{unit}" + (f"; {at}" if at and len(rows) > 1 else "")
            yield Table(title, header, tuple(rows), frozenset({"At"}))


def _many_tables(points: Mapping[str, Sequence[Point]], metrics: Sequence[str]) -> Iterator[Table]:
    every: list[Point] = []
    for found in points.values():
        every += [p for p in found if matching(p, every) is None]
    for name in metrics:
        metric = METRICS[name]
        rows = []
        for point in every:
            of_runs = [matching(point, found) for found in points.values()]
            values: list[Estimate | None] = [p.estimates.get(name) if p else None for p in of_runs]
            if any(v is not None for v in values):
                shown = ("n/a" if v is None else interval_text(metric, v) for v in values)
                rows.append((point.label, *shown))
        if rows:
            unit = f", {metric.shown_unit}" if metric.shown_unit else ""
            yield Table(f"{metric.label}{unit}", ("At", *points), tuple(rows), frozenset({"At"}))


def marked(points: Mapping[str, Sequence[Point]]) -> list[Point]:
    """Return all points together. The factor `run` names their run, so that figures have a line for
    each run."""
    return [
        replace(point, factors={**point.factors, "run": letter})
        for letter, found in points.items()
        for point in found
    ]
