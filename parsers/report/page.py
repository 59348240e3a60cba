# SPDX-License-Identifier: Apache-2.0
"""Write a report as one self-contained HTML page, with styles and with figures as embedded SVG."""

from __future__ import annotations

import base64
import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from common.contracts import INVALID
from parsers.report.brief import keep_units
from parsers.report.document import Report, Section

BAD_CELLS = frozenset({"NO", "FAIL", "UNINJECTED", INVALID, "not held", "failed"})
GOOD_CELLS = frozenset({"held"})
CONTENTS_FROM = 4  # with at least this many sections, a page lists them at the top

_environment = Environment(
    loader=PackageLoader("parsers"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


_environment.filters["ref"] = id
_environment.filters["keep_units"] = keep_units


def render_html(report: Report) -> str:
    """Return one page. It does not depend on time or place: the same report gives the same
    bytes."""
    images = {
        plot.name: "data:image/svg+xml;base64," + base64.b64encode(plot.svg).decode("ascii")
        for plot in report.plots
    }
    return _environment.get_template("report.html.j2").render(
        report=report,
        images=images,
        anchors=_anchors(report),
        contents=len(report.sections) >= CONTENTS_FROM,
        bad_cells=BAD_CELLS,
        good_cells=GOOD_CELLS,
    )


def _anchors(report: Report) -> dict[int, str]:
    """Return id(section) -> a fragment that is unique in the page."""
    found: dict[int, str] = {}
    taken: set[str] = set()

    def visit(section: Section) -> None:
        base = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "section"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        found[id(section)] = name
        for part in section.parts:
            visit(part)

    for section in report.sections:
        visit(section)
    return found
