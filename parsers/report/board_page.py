# SPDX-License-Identifier: Apache-2.0
"""The interactive page itself, and what it shows of a cell that has not ended. A server that waits
for a run imports this alone: evaluating a finished run takes many more modules."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from parsers.base.jsonfiles import BadFile
from parsers.base.metric_units import METRICS
from parsers.read.counters import Counters, parse_counters
from parsers.report.board_network import network_of

SCRIPTS: Final = ("data.js", "charts.js", "sweep.js", "map.js", "tree.js", "app.js")
STYLE: Final = "style.css"
_FOLDER: Final = Path(__file__).resolve().parent.parent / "board"
ENVIRONMENT: Final = Environment(
    loader=PackageLoader("parsers", "board"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip


def script() -> str:
    """Return the page's script."""
    return "".join((_FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)


def style() -> str:
    """Return the page's style sheet."""
    return (_FOLDER / STYLE).read_text(encoding="utf-8")


def live_page() -> str:
    """Return the page that requests everything from a server."""
    return ENVIRONMENT.get_template("page.html.j2").render(live=True)


def metrics_json() -> dict[str, object]:
    """Return label, unit and source of each metric."""
    return {
        m.name: {"label": m.label, "unit": m.unit or ("s" if m.shown_unit == "ms" else m.unit),
                 "source": m.source}
        for m in METRICS.values()
    }  # fmt: skip


def cell_json(folder: Path, name: str, *, blob: bool, why: str) -> dict[str, object]:
    """Return what the page knows of a cell before it has ended. Raises OSError, BadFile."""
    readings: dict[str, Counters | None] = {}
    for moment in ("start", "end"):
        file = folder / f"counters-{moment}.json"
        there = file.is_file()
        readings[moment] = parse_counters(_text(file), str(file)) if there else None
    network = None
    file = folder / "network.json"
    with suppress(BadFile):  # a page without its picture is better than none
        if file.is_file():
            network = network_of(_text(file), str(file), readings["start"], readings["end"])
    return {
        "name": name,
        "blob": blob,
        "why_no_blob": why,
        "network": network,
        "verdict": "running",
        "values": {},
        "checks": [],
        "rtt_ms": {},
        "events": [],
    }


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
