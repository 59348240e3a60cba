# SPDX-License-Identifier: Apache-2.0
"""Decide whether the points of a sweep support a paper's qualitative claims.

A claim is held or not held only if 95 % intervals decide it. Otherwise it is not decidable; the
result gives the reason, what would decide it, and why this run does not. Every claim says which
difference its intervals could have seen. Ordered values are compared by ratios, repeat by repeat,
since metrics are above 0. If one is 0, they are compared by differences, which are not normally
distributed, so that the sign test also decides. A claim about several lines or pairs of points is
held if it holds for all of them, and not held if it fails for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from parsers.base import intervals
from parsers.base.factors import FACTORS, Scalar, show
from parsers.base.intervals import Estimate
from parsers.base.metric_units import METRICS
from parsers.measure import ordered, undecided
from parsers.measure.saving import Saving, saving
from parsers.measure.sweep import (
    APART,
    EVERYTHING,
    Line,
    Point,
    counterpart,
    lines,
    metric_of,
    select,
    shown,
    varying,
)
from parsers.measure.undecided import HELD, NOT_DECIDABLE, NOT_HELD, Decider, Verdict
from parsers.read.cell_files import NO_CPU
from parsers.read.published import OVER_A_FACTOR, Claim

LEAST_R2 = 0.98
FLAT_AT_MOST = 0.1  # change over the range, relative to the mean
EQUAL_AT_MOST = 0.1  # difference, relative to the counterpart
NO_CELL = "no cell was run under these conditions"
NO_MORE = "no more repeats were requested: --until-decided adds them"  # for this run


@dataclass(frozen=True)
class Part:
    """The claim for one line or pair of points."""

    label: str
    verdict: Verdict
    numbers: str
    reason: str
    sees: str = ""  # the difference that its intervals could have seen, if any
    decider: Decider | None = None  # what would decide it, if nothing does yet
    at: tuple[Mapping[str, Scalar], ...] = ()  # levels of the cells that it covers


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    verdict: Verdict
    numbers: str  # figures with units, in one line
    reasons: tuple[str, ...] = ()  # for the verdict
    parts: tuple[Part, ...] = ()
    decides: str = ""  # what would decide it, and why this run does not, if it is undecided

    @property
    def reason(self) -> str:
        """Return the reasons for the verdict in one line."""
        return "; ".join(self.reasons)

    @property
    def is_decided(self) -> bool:
        """Return whether the claim is held or not held."""
        return self.verdict != NOT_DECIDABLE

    @property
    def open(self) -> tuple[Part, ...]:
        """Return the parts that more repeats would decide, if the claim is undecided."""
        if self.is_decided:
            return ()
        return tuple(p for p in self.parts if p.decider is not None and p.decider.by_repeats)


def judge(
    claims: Sequence[Claim], points: Sequence[Point], no_more: str = NO_MORE
) -> tuple[ClaimResult, ...]:
    """Judge every claim by a run's points. `no_more`: why the run has no more repeats."""
    return tuple(_explained(_judge(claim, points), no_more) for claim in claims)


def _explained(found: ClaimResult, no_more: str) -> ClaimResult:
    """Add to an undecided claim what would decide it."""
    if found.is_decided:
        return found
    deciders = [p.decider for p in found.parts if p.decider is not None]
    decider = undecided.most(deciders) if deciders else _without_value(found.reason)
    why = f"; this run: {no_more}" if decider.by_repeats else ""
    return replace(found, decides=f"{decider.text}{why}")


def _without_value(reason: str) -> Decider:
    """Return what would give a metric a value that this run could not give."""
    if NO_CELL in reason:
        return Decider("a run that has such cells would")
    if NO_CPU in reason:
        return Decider("a native run on a quiet machine would: guests have no processor to measure")
    if "is invalid" in reason:
        return Decider("a run that can be trusted would: on a quiet machine, or in virtual time")
    return Decider("a run that measures it would")


def _judge(claim: Claim, points: Sequence[Point]) -> ClaimResult:
    """Judge one claim; in runs too short for a file-set, by the throughput of the whole run."""
    metric = metric_of(points, claim.metric)
    if metric == claim.metric:
        return _by_its_metric(claim, points)
    found = _by_its_metric(claim.model_copy(update={"metric": metric}), points)
    label, asked = METRICS[metric].label.lower(), METRICS[claim.metric].label.lower()
    why = (*found.reasons, f"by {label}, since there is no {asked}")
    numbers = f"{found.numbers}; by {label}" if found.numbers else ""
    return replace(found, claim=claim, numbers=numbers, reasons=why)


def _by_its_metric(claim: Claim, points: Sequence[Point]) -> ClaimResult:
    if claim.kind == "saving":
        parts, without = _savings(claim, points)
    elif claim.kind in OVER_A_FACTOR:
        parts, without = _over(claim, points)
    else:
        parts, without = _pairs(claim, points)
    if not parts:
        return ClaimResult(claim, NOT_DECIDABLE, "", (without or _nothing(claim, points),))
    verdicts = {part.verdict for part in parts}
    verdict: Verdict = next((v for v in (NOT_HELD, NOT_DECIDABLE) if v in verdicts), HELD)
    several = len(parts) > 1
    numbers = "; ".join(f"{p.label}: {p.numbers}" if several else p.numbers for p in parts)
    reasons = [
        f"{p.label}: {p.reason}" if several else p.reason
        for p in parts
        if p.verdict == verdict and (p.reason and not (several and verdict == HELD))
    ]
    if several and verdict == HELD:
        reasons = [f"all {len(parts)} hold"]
    why = (*reasons, *filter(None, (without,)))
    return ClaimResult(claim, verdict, numbers, why, tuple(parts))


def _nothing(claim: Claim, points: Sequence[Point]) -> str:
    """Return why there is nothing to judge."""
    there = select(points, claim.where, (claim.over,))
    if not there:
        return NO_CELL
    if excluded := [name for p in there for name in p.excluded]:
        return f"the verdict of {', '.join(excluded)} is invalid"
    reasons = [p.reasons[claim.metric] for p in there if claim.metric in p.reasons]
    return reasons[0] if reasons else "no value"


# -- over a factor ----------------------------------------------------------------------------
Lined = Callable[[Claim, Line], Part]


def _over(claim: Claim, points: Sequence[Point]) -> tuple[list[Part], str]:
    assert claim.over is not None
    found = lines(points, x=claim.over, metric=claim.metric, where=claim.where)
    if claim.against is not None or claim.against_metric is not None:
        found = tuple(r for line in found if (r := _ratios(claim, line, points)) is not None)
    judges: dict[str, Lined] = {
        "linear": _linear,
        "flat": _flat,
        "increases": _monotonic,
        "decreases": _monotonic,
    }
    return [
        replace(judges[claim.kind](claim, line), at=_levels(claim, line.points)) for line in found
    ], ""


def _levels(claim: Claim, points: Sequence[Point]) -> tuple[Mapping[str, Scalar], ...]:
    """Return the levels of the cells of some points, and of the cells they are compared with."""
    cells = [{n: v for n, v in p.factors.items() if n not in APART} for p in points]
    instead = claim.against.single() if claim.against is not None else {}
    others = [{**c, **{n: v for n, v in instead.items() if n not in APART}} for c in cells]
    return tuple(cells + [other for other in others if other not in cells])


def _ratios(claim: Claim, line: Line, points: Sequence[Point]) -> Line | None:
    """Return the line of the ratios to the counterparts; None without any."""
    found = [
        (x, ratio, point)
        for x, y, point in zip(line.x, line.y, line.points, strict=True)
        if (other := _other(claim, point, points)) is not None
        and (ratio := intervals.ratio(y, other)) is not None
    ]
    if not found:
        return None
    x, y, of = zip(*found, strict=True)
    return Line(line.label, line.factors, x, y, of)


def _numbers(line: Line) -> list[float]:
    return [float(x) for x in line.x]


def _range(claim: Claim, line: Line) -> str:
    assert claim.over is not None
    factor = FACTORS[claim.over]
    ends = [f"{x / factor.scale:g}" for x in (min(_numbers(line)), max(_numbers(line)))]
    unit = f" {factor.shown_unit}" if factor.shown_unit else ""
    runs = sorted({max(1, len(e.repeats)) for e in line.y})
    repeats = "one run each" if runs == [1] else f"{' to '.join(map(str, runs))} repeats"
    return f"{factor.symbol} = {ends[0]} to {ends[1]}{unit}, {len(line.x)} points, {repeats}"


def _too_few(claim: Claim, line: Line, needed: int) -> Part:
    values = ", ".join(_shown(claim, e) for e in line.y)
    reason = f"{len(line.x)} of at least {needed} points"
    assert claim.over is not None
    decider = Decider(f"{needed} levels of {FACTORS[claim.over].label} would; this run has fewer")
    return Part(line.label, NOT_DECIDABLE, values, reason, "", decider)


def _shown(claim: Claim, estimate: Estimate) -> str:
    if claim.against is None and claim.against_metric is None:
        return shown(claim.metric, estimate)
    if not estimate.has_interval:
        return f"{estimate.mean:.3g} (one run)"
    return f"{estimate.mean:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def _linear(claim: Claim, line: Line) -> Part:
    if len(set(line.x)) < 3:
        return _too_few(claim, line, 3)
    assert claim.over is not None
    fit = intervals.regression(_numbers(line), intervals.comparable(line.y))
    factor, metric = FACTORS[claim.over], METRICS[claim.metric]
    per = 1 / metric.scale * factor.scale
    unit = f"{metric.shown_unit or '1'} per {factor.shown_unit or factor.symbol}"
    numbers = (
        f"slope {fit.slope.mean * per:.4g} [{fit.slope.low * per:.4g}, {fit.slope.high * per:.4g}]"
        f" {unit}, intercept {metric.show(fit.intercept)}, R² {fit.r2:.4f}; {_range(claim, line)}"
    )
    least = LEAST_R2 if claim.at_least is None else claim.at_least
    sees = undecided.sees_value(fit.slope, 1 / per, unit)
    if fit.slope.low <= 0 <= fit.slope.high:
        decider = undecided.repeats(fit.slope, fit.slope.mean)
        reason = "the slope's interval includes 0"
        return Part(line.label, NOT_DECIDABLE, numbers, reason, sees, decider)
    if fit.slope.high < 0:
        return Part(line.label, NOT_HELD, numbers, "it falls", sees)
    if fit.r2 < least:
        reason = f"R² is below {least:g}: it rises differently"
        return Part(line.label, NOT_HELD, numbers, reason, sees)
    reason = f"R² is at least {least:g} ({fit.slope.method})"
    return Part(line.label, HELD, numbers, reason, sees)


def _flat(claim: Claim, line: Line) -> Part:
    line = replace(line, y=tuple(intervals.comparable(line.y)))
    limit = FLAT_AT_MOST if claim.at_most is None else claim.at_most
    means = [e.mean for e in line.y]
    mean = sum(means) / len(means)
    if len(set(line.x)) < 2 or mean == 0:
        return _too_few(claim, line, 2)
    top, bottom = (f(line.y, key=lambda e: e.mean) for f in (max, min))
    span = intervals.difference(top, bottom)
    share = abs(span.mean / mean)
    found = _change(line, span, mean)
    sees = undecided.sees_share(found, 1.0)
    decider = undecided.repeats(found, limit - max(abs(found.mean), share))
    if not found.has_interval:
        numbers = f"change {100 * share:.1f} %; {_range(claim, line)}"
        reason = "two points of one run each"
        return Part(line.label, NOT_DECIDABLE, numbers, reason, sees, decider)
    change, low, high = found.mean, found.low, found.high
    numbers = (
        f"change over the range {100 * change:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] %,"
        f" largest less smallest {100 * share:.1f} % of the mean,"
        f" {METRICS[claim.metric].show(mean)}; {_range(claim, line)}"
    )
    text = f"{100 * limit:g} %"
    if low > limit or high < -limit:
        return Part(line.label, NOT_HELD, numbers, f"it changes by more than {text}", sees)
    if _extremes_differ(top, bottom, len(line.y), limit * abs(mean)):
        reason = f"two points differ by more than {text}"
        return Part(line.label, NOT_HELD, numbers, reason, sees)
    if -limit <= low and high <= limit and share <= limit:
        return Part(line.label, HELD, numbers, f"within {text}", sees)
    reason = f"the intervals reach beyond {text}"
    return Part(line.label, NOT_DECIDABLE, numbers, reason, sees, decider)


def _extremes_differ(top: Estimate, bottom: Estimate, points: int, limit: float) -> bool:
    """Return whether the largest and the smallest of so many values differ by more than the limit.
    They were chosen among all pairs, so their interval is wider, by Bonferroni's rule."""
    pairs = points * (points - 1) // 2
    with intervals.at_confidence(1 - (1 - intervals.confidence()) / pairs):
        span = intervals.difference(top, bottom)
    return span.has_interval and span.low > limit


def _change(line: Line, span: Estimate, mean: float) -> Estimate:
    """Return the change over a line's range, as a share of its mean."""
    if len(set(line.x)) < 3:
        return _scaled(span, 1 / abs(mean))
    if span.mean == 0:  # equal everywhere: the regression has no residuals
        return Estimate(0.0, 0.0, 0.0, len(line.x), "the same everywhere")
    x = _numbers(line)
    return _scaled(intervals.regression(x, line.y).slope, (max(x) - min(x)) / abs(mean))


def _scaled(found: Estimate, scale: float) -> Estimate:
    """Return the estimate in another unit."""
    return replace(
        found,
        mean=found.mean * scale,
        low=found.low * scale,
        high=found.high * scale,
        values=tuple(v * scale for v in found.values),
    )


def _monotonic(claim: Claim, line: Line) -> Part:
    if len(line.x) < 2:
        return _too_few(claim, line, 2)
    values = " → ".join(_shown(claim, e) for e in line.y)
    found = ordered.judge(claim, line.y)
    return Part(
        line.label,
        found.verdict,
        f"{values}; {_range(claim, line)}",
        found.reason,
        found.sees,
        found.decider,
    )


# -- point against point ----------------------------------------------------------------------
def _other(claim: Claim, point: Point, points: Sequence[Point]) -> Estimate | None:
    """Return the value that the point is compared with."""
    instead: dict[str, Scalar] = claim.against.single() if claim.against is not None else {}
    other = counterpart(point, points, instead) if instead else point
    if other is None or (other is point and claim.against_metric is None):
        return None
    return other.estimates.get(claim.against_metric or claim.metric)


def _pairs(claim: Claim, points: Sequence[Point]) -> tuple[list[Part], str]:
    chosen = [p for p in select(points, claim.where) if claim.metric in p.estimates]
    names = varying(chosen)
    parts = []
    lonely = []
    for point in chosen:
        label = show({n: point.factors[n] for n in names if n in point.factors}) or point.label
        other = _other(claim, point, points)
        if other is None:
            lonely.append(label)
            continue
        found = _compared(claim, label, point.estimates[claim.metric], other)
        parts.append(replace(found, at=_levels(claim, [point])))
    without = f"nothing to compare with at {', '.join(lonely)}" if lonely else ""
    return parts, without


def _savings(claim: Claim, points: Sequence[Point]) -> tuple[list[Part], str]:
    """Compare each point at `where` with the line of all levels of `over`."""
    assert claim.over is not None and claim.against is not None
    instead = claim.against.single()
    parts = []
    lonely = []
    for point in select(points, claim.where, (claim.over,)):
        if claim.metric not in point.estimates:
            continue
        others = [
            other
            for p in select(points, EVERYTHING, point.factors)
            if (other := counterpart(point, points, {**instead, claim.over: p.factors[claim.over]}))
            and claim.metric in other.estimates
        ]
        line = {float(p.factors[claim.over]): p.estimates[claim.metric] for p in others}
        levels = sorted(line)
        found = saving(
            float(point.factors[claim.over]),
            point.estimates[claim.metric],
            levels,
            [line[x] for x in levels],
        ) if levels else None  # fmt: skip
        if found is None:
            lonely.append(point.label)
        else:
            at = _levels(claim.model_copy(update={"against": None}), [point, *others])
            parts.append(replace(_saved(claim, point, levels, found), at=at))
    without = f"nothing to compare with at {', '.join(lonely)}" if lonely else ""
    return parts, without


def _saved(claim: Claim, point: Point, levels: Sequence[float], found: Saving) -> Part:
    assert claim.over is not None and claim.at_least is not None
    factor = FACTORS[claim.over]
    bound = f"{found.bound} " if found.bound else ""
    above = {"at least": "above ", "at most": "at most "}.get(found.bound, "")
    needed = f"{above}{found.needed / factor.scale:.4g} {factor.shown_unit}".rstrip()
    ends = f"{levels[0] / factor.scale:g} to {levels[-1] / factor.scale:g} {factor.shown_unit}"
    numbers = (
        f"{shown(claim.metric, point.estimates[claim.metric])}, for which the others need {needed}"
        f" (measured {ends}): saving {bound}{_interval(found.share, 0.01, '%')}"
    )
    if found.bound == "at most" or (found.bound and not found.share.low >= claim.at_least):
        reason = "what was measured does not reach far enough"
        if found.bound == "at most" and found.share.high < claim.at_least:
            return Part(point.label, NOT_HELD, numbers, reason)
        where = "below" if found.bound == "at most" else "above"
        decider = Decider(f"levels {where} {ends} would; this experiment has none")
        return Part(point.label, NOT_DECIDABLE, numbers, reason, "", decider)
    text = f"at least {100 * claim.at_least:g} %"
    part = _within(point.label, numbers, found.share, (claim.at_least, None), text)
    return replace(part, sees=undecided.sees_share(found.share, 1.0))


def _compared(claim: Claim, label: str, ours: Estimate, other: Estimate) -> Part:
    if len(intervals.common(ours, other)) > 1:
        ours, other = intervals.comparable([ours, other])  # as the difference and the ratio do
    both = f"{shown(claim.metric, ours)} against "
    both += shown(claim.against_metric or claim.metric, other)
    if claim.kind == "ratio":
        return _ratio_within(claim, label, both, intervals.ratio(ours, other))
    if claim.kind == "above":
        return _above(claim, label, both, ours, other)
    found = intervals.difference(ours, other)
    limit = EQUAL_AT_MOST if claim.at_most is None else claim.at_most
    if other.mean == 0:
        if found.low == found.high == 0:
            return _within(label, both, found, (0.0, 0.0), "equal")
        reason = "no relative difference to 0"
        decider = Decider("a claim about an absolute difference would")
        return Part(label, NOT_DECIDABLE, both, reason, "", decider)
    relative = abs(other.mean) / 100
    numbers = f"{both}: difference {_interval(found, relative, '%')}"
    bound = limit * abs(other.mean)
    part = _within(label, numbers, found, (-bound, bound), f"within ±{100 * limit:g} %")
    return replace(part, sees=undecided.sees_share(found, other.mean))


def _ratio_within(claim: Claim, label: str, both: str, quotient: Estimate | None) -> Part:
    """Judge whether the ratio is within its bounds, by logarithms."""
    if quotient is None:
        decider = Decider("a run in which both values are above 0 would")
        reason = "no ratio: a value is not above 0"
        return Part(label, NOT_DECIDABLE, both, reason, "", decider)
    bounds = (claim.at_least, claim.at_most)
    text = " and ".join(
        f"{word} {bound:g}"
        for word, bound in zip(("at least", "at most"), bounds, strict=True)
        if bound is not None
    )
    numbers = f"{both}: ratio {_interval(quotient, 1, '')}"
    low, high = (None if b is None else math.log(b) if b > 0 else -math.inf for b in bounds)
    part = _within(label, numbers, undecided.logarithm(quotient), (low, high), text)
    return replace(part, sees=undecided.sees_ratio([quotient]))


def _interval(estimate: Estimate, scale: float, unit: str) -> str:
    mean, low, high = (f"{v / scale:.3g}" for v in (estimate.mean, estimate.low, estimate.high))
    text = f"{mean} [{low}, {high}]" if estimate.has_interval else mean
    return f"{text} {unit}".rstrip()


def _above(claim: Claim, label: str, both: str, ours: Estimate, other: Estimate) -> Part:
    """Judge by the ratio or, if a value is not above 0, by the difference; also by Wilcoxon's test
    if there are enough repeats."""
    if claim.compared_by == "sign":
        return _by_sign(label, both, ours, other)
    metric = METRICS[claim.metric]
    difference, ratio = intervals.difference(ours, other), intervals.ratio(ours, other)
    numbers = f"{both}: difference {_interval(difference, metric.scale, metric.shown_unit)}"
    if ratio is not None:
        numbers += f", ratio {_interval(ratio, 1, '')}"
    p = intervals.wilcoxon_p(ours, other)
    if p is not None and difference.n >= intervals.least_ranked():
        numbers += f", Wilcoxon's signed-rank test p = {p:.2g}"
    if ratio is None or claim.compared_by == "difference":
        found, limit = difference, 0
        sees = undecided.sees_value(difference, metric.scale, metric.shown_unit)
    else:
        found, limit = undecided.logarithm(ratio), 1
        sees = undecided.sees_ratio([ratio])
    if not found.has_interval:
        alone = "it would hold" if found.mean > 0 else "it would not hold"
        reason = f"{found.method}; by the values alone {alone}"
        return Part(
            label, NOT_DECIDABLE, numbers, reason, sees, undecided.repeats(found, found.mean)
        )
    if found.low > 0:
        return Part(label, HELD, numbers, f"above {limit} ({found.method})", sees)
    if found.high <= 0:
        return Part(label, NOT_HELD, numbers, f"not above {limit} ({found.method})", sees)
    if ratio is None and claim.compared_by != "difference" and (of := intervals.side(ours, other)):
        reason = f"{'above' if of > 0 else 'below'} 0 by the sign test over the repeats"
        return Part(label, HELD if of > 0 else NOT_HELD, numbers, reason, sees)
    reason = f"the interval includes {limit} ({found.method})"
    return Part(label, NOT_DECIDABLE, numbers, reason, sees, undecided.repeats(found, found.mean))


def _by_sign(label: str, both: str, ours: Estimate, other: Estimate) -> Part:
    """Judge by the sign test over the shared repeats."""
    signs = intervals.signs(ours, other)
    numbers = f"{both}: above in {sum(signs)} of {len(signs)} repeats"
    if tied := len(intervals.common(ours, other)) - len(signs):
        numbers += f", {tied} more tied"
    found = intervals.side(ours, other)
    if found:
        verdict, where = (HELD, "above") if found > 0 else (NOT_HELD, "below")
        return Part(label, verdict, numbers, f"{where} by the sign test")
    decider = undecided.repeats_of_signs(sum(signs), len(signs))
    return Part(label, NOT_DECIDABLE, numbers, "the sign test shows no side", "", decider)


def _within(
    label: str,
    numbers: str,
    found: Estimate,
    bounds: tuple[float | None, float | None],
    text: str,
) -> Part:
    """Judge whether the interval is within the bounds, outside them, or across one."""
    low, high = bounds

    def inside(value: float) -> bool:
        return (low is None or value >= low) and (high is None or value <= high)

    near = min(abs(found.mean - bound) for bound in bounds if bound is not None)
    decider = undecided.repeats(found, near)
    if not found.has_interval:
        alone = "it would hold" if inside(found.mean) else "it would not hold"
        reason = f"{found.method}; by the values alone {alone} ({text})"
        return Part(label, NOT_DECIDABLE, numbers, reason, "", decider)
    if inside(found.low) and inside(found.high):
        return Part(label, HELD, numbers, f"{text} ({found.method})")
    if (low is not None and found.high < low) or (high is not None and found.low > high):
        return Part(label, NOT_HELD, numbers, f"not {text} ({found.method})")
    reason = f"the interval is not all {text} ({found.method})"
    return Part(label, NOT_DECIDABLE, numbers, reason, "", decider)
