# SPDX-License-Identifier: Apache-2.0
"""Write runs side by side as JSON (docs/reference/contracts.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parsers.base.metric_units import Value
from parsers.measure.side_by_side import (
    COMPARED,
    Clocks,
    Comparison,
    Repeats,
)
from parsers.measure.verdicts import verdict_of
from parsers.report.side_by_side_report import repeats_text


def _value_json(value: Value) -> dict[str, object]:
    return {"value": value.value, "reason": value.reason}


def _repeats_json(found: Repeats) -> dict[str, object]:
    return {
        "clock": found.clock,
        "columns": [c.name for c in found.columns],
        "identical": found.identical,
        "text": repeats_text(found),
        "metrics": {
            name: {
                "unit": COMPARED[name].unit,
                "values": [_value_json(v) for v in m.values],
                "minimum": m.low,
                "maximum": m.high,
                "spread": m.spread,
                "relative": m.relative,
                "same": m.same,
            }
            for name, m in found.metrics.items()
        },
        "receivers": {
            r.host: {
                "identical": r.identical,
                "products": r.products,
                "order": r.order,
                "way": r.how,
                "retransmissions": r.retrans,
                "retransmissions_differ": r.retrans_differ,
                "times": r.times,
                "time_differs_s": r.time_differs_s,
                "latencies": r.latencies,
                "latency_differs_s": r.latency_differs_s,
                "no_log_in": r.missing,
            }
            for r in found.receivers
        },
        "files": {"same": found.files_same, "different": list(found.files_different)},
    }


def _clocks_json(found: Clocks) -> dict[str, object]:
    return {
        "native": {"columns": [c.name for c in found.native], "verdict": found.native_verdict},
        "virtual": {"columns": [c.name for c in found.virtual], "verdict": found.virtual_verdict},
        "metrics": {
            name: {
                "unit": COMPARED[name].unit,
                "native": _value_json(m.native),
                "virtual": _value_json(m.virtual),
                "difference": m.difference,
                "relative": m.relative,
                "native_minimum": m.native_low,
                "native_maximum": m.native_high,
            }
            for name, m in found.metrics.items()
        },
    }


def to_json(runs: Mapping[str, str], comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return everything that is in the text, with all digits. `runs`: letter -> name."""
    return {
        "runs": dict(runs),
        "comparisons": [
            {
                "conditions": {
                    "topology": found.conditions.topology,
                    **dict(found.conditions.factors),
                    "duration_s": found.conditions.duration_s,
                    "label": found.conditions.label,
                },
                "cells": {
                    c.name: {
                        "run": c.run,
                        "cell": c.cell.cell,
                        "clock": c.cell.clock,
                        "verdict": verdict_of(c.metrics),
                        "virtual": c.metrics.virtual.model_dump() if c.metrics.virtual else None,
                    }
                    for c in found.columns
                },
                "different_inputs": {k: list(v) for k, v in found.different_inputs.items()},
                "repeats": [_repeats_json(r) for r in found.repeats],
                "clocks": _clocks_json(found.clocks) if found.clocks is not None else None,
            }
            for found in comparisons
        ],
    }
