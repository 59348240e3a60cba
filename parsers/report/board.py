# SPDX-License-Identifier: Apache-2.0
"""Show a run as one interactive page: report/dashboard.html, which needs no other file or network.

`parsers/board` has the page's script and style. `monitor` serves the same page for a running
experiment.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from parsers.base.factors import FACTORS
from parsers.base.metric_units import Value
from parsers.measure.evaluate import Subscriptions, Transports
from parsers.measure.summary import CellMetrics
from parsers.measure.sweep import Point
from parsers.measure.sweep_json import claim_json, headline_json, point_json
from parsers.measure.verdicts import verdict_of
from parsers.read.cell_files import Check
from parsers.report.board_page import ENVIRONMENT, cell_json, metrics_json, script, style
from parsers.report.brief import Brief

BOARD_FILE: Final = "dashboard.html"  # in a run's report/
MOST_BLOBS: Final = 3_000_000  # bytes of deliveries in a page
POLICY: Final = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
SHOWN: Final = (
    "throughput",
    "throughput_fmtp",
    "nic_bandwidth",
    "latency_p50",
    "latency_p99",
    "ffdr",
    "mplr",
    "cpu",
    "lost_products",
    "leaf_setup_p50",
    "join_ready_p50",
)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _in_script(document: object) -> str:
    """Return JSON in a form that cannot end a script element."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def render_board(board: Mapping[str, object], blobs: Mapping[str, bytes]) -> str:
    """Return the page of a finished run. `blobs`: deliveries.bin by cell."""
    code, sheet = script(), style()
    return ENVIRONMENT.get_template("page.html.j2").render(
        live=False,
        policy=POLICY.format(script=_digest(code), style=_digest(sheet)),
        style=sheet,
        script=code,
        board=_in_script(board),
        blobs=[(name, base64.b64encode(data).decode()) for name, data in blobs.items()],
    )


# -- what the page shows ---------------------------------------------------------------------------
def board_of(
    found: Transports | Subscriptions, brief: Brief, run: str, run_dir: Path
) -> tuple[dict[str, object], dict[str, bytes]]:
    """Return what the page shows of a finished run, and the deliveries of as many cells as fit into
    the page. Reads the networks and counters of the cells. Raises OSError, BadFile."""
    blobs: dict[str, bytes] = {}
    cells = []
    for one in found.cells:
        data = one.delivered if isinstance(one, CellMetrics) else b""
        why = "" if data else "Subscribers of this cell come and go: see the printed report."
        if data and sum(map(len, blobs.values())) + len(data) > MOST_BLOBS:
            why = (
                f"This file has room for {MOST_BLOBS // 1_000_000} MB of deliveries; "
                "`downpour monitor serve RUN` shows those of this cell too."
            )
        elif data:
            blobs[one.cell.cell] = data
        folder = run_dir / "cells" / one.cell.cell
        cells.append(
            cell_json(folder, one.cell.cell, blob=not why, why=why)
            | {
                "verdict": verdict_of(one),
                "values": _values(one.values),
                "checks": _checks(one.verdict.checks if one.verdict is not None else ()),
                "rtt_ms": dict(getattr(one.cell, "rtt_ms", {})),
                "events": _events(one) if isinstance(one, CellMetrics) else [],
            }
        )
    document = {
        "run": run,
        "clock": found.document["clock"],
        "verdict": brief.verdict,
        "headline": brief.headline,
        "doubts": [*filter(None, [brief.warning]), *brief.doubts],
        "result": list(brief.result),
        "metrics": metrics_json(),
        "shown_metrics": list(SHOWN),
        "beside": [headline_json(h) for h in found.headlines],
        "claims": [claim_json(c) | {"reasons": list(c.reasons)} for c in found.claims],
        "points": [point_json(p) | {"shown": _levels(p)} for p in found.points],
        "factors": _factors(found.points),
        "cells": cells,
        "commands": _commands(run),
    }
    return document, blobs


def _levels(point: Point) -> dict[str, str]:
    """Return a point's levels in the form in which they are shown."""
    return {k: FACTORS[k].show(v) if k in FACTORS else str(v) for k, v in point.factors.items()}


def _factors(points: Iterable[Point]) -> dict[str, dict[str, object]]:
    """Return label, shown unit and scale of the points' factors."""
    names = {name for point in points for name in point.factors if name in FACTORS}
    return {
        name: {"label": FACTORS[name].label, "unit": FACTORS[name].shown_unit,
               "scale": FACTORS[name].scale}
        for name in sorted(names)
    }  # fmt: skip


def _commands(run: str) -> list[str]:
    return [f"downpour {verb} runs/{run}" for verb in ("repeat", "verify", "report --full")]


def _values(values: Mapping[str, Value]) -> dict[str, tuple[float | None, str]]:
    return {name: (v.value, v.reason or v.note) for name, v in values.items()}


def _checks(checks: Iterable[Check]) -> list[dict[str, str]]:
    return [{"name": c.name, "status": c.status, "text": c.text} for c in checks]


def _events(one: CellMetrics) -> list[dict[str, object]]:
    cell = one.cell
    inserted = round(cell.insertion_ended - cell.insertion_started, 3)
    return [{"at_s": inserted, "text": "last insertion"}]
