# SPDX-License-Identifier: Apache-2.0
"""Points, claims and headlines in the form of metrics.json (docs/reference/contracts.md)."""

from __future__ import annotations

from collections.abc import Sequence

from parsers.base.intervals import Estimate
from parsers.measure.claims import ClaimResult
from parsers.measure.paper import Headline
from parsers.measure.sweep import Point


def estimate_json(estimate: Estimate) -> dict[str, object]:
    """Return an estimate as JSON, SI units."""
    return {
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "method": estimate.method,
        "values": list(estimate.values),
        "repeats": list(estimate.repeats),
    }


def point_json(point: Point) -> dict[str, object]:
    """Return a point as JSON."""
    return {
        "factors": dict(point.factors),
        "fixed": dict(point.fixed),
        "estimates": {name: estimate_json(e) for name, e in point.estimates.items()},
        "reasons": dict(point.reasons),
        "cells": list(point.cells),
        "excluded": list(point.excluded),
    }


def claim_json(result: ClaimResult) -> dict[str, object]:
    """Return a judged claim as JSON."""
    return {
        "text": result.claim.text,
        "source": result.claim.source,
        "kind": result.claim.kind,
        "metric": result.claim.metric,
        "verdict": result.verdict,
        "numbers": result.numbers,
        "reason": result.reason,
        "decides": result.decides,
        "parts": [
            {
                "label": p.label,
                "verdict": p.verdict,
                "numbers": p.numbers,
                "reason": p.reason,
                "sees": p.sees,
            }
            for p in result.parts
        ],
    }


def headline_json(headline: Headline) -> dict[str, object]:
    """Return a published value beside the run's value as JSON."""
    return {
        "metric": headline.metric,
        "protocol": headline.protocol,
        "at": dict(headline.at),
        "ours": estimate_json(headline.ours) if headline.ours is not None else None,
        "reason": headline.reason,
        "paper": headline.published,
        "difference": headline.difference,
        "difference_percent": headline.difference_percent,
        "within_error_bar": headline.within,
        "beyond_tolerance": headline.beyond_tolerance,
        "source": headline.source,
        "conditions": headline.conditions,
        "context": headline.context,
        "derived": headline.derived,
        "sentence": headline.sentence,
    }


def sweep_json(
    points: Sequence[Point], claims: Sequence[ClaimResult], headlines: Sequence[Headline]
) -> dict[str, object]:
    """Return the part of metrics.json about points, claims and the papers."""
    return {
        "points": [point_json(p) for p in points],
        "claims": [claim_json(c) for c in claims],
        "headlines": [headline_json(h) for h in headlines],
    }
