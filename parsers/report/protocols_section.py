# SPDX-License-Identifier: Apache-2.0
"""Tell readers how protocols that send files repair, where their settings come from, and what they
cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from parsers.measure.summary import CellMetrics
from parsers.read.cell_files import ProtocolAbout
from parsers.report.document import Section, Table


def protocols_section(cells: Sequence[CellMetrics]) -> list[Section]:
    """Return the section; none if no cell has such a protocol."""
    about: dict[str, ProtocolAbout] = {}
    for cell in cells:
        if cell.about is not None:
            about.setdefault(cell.about.name, cell.about)
    if not about:
        return []
    rows = tuple((one.title, one.repairs) for one in about.values())
    table = Table("", ("Protocol", "Repairs by"), rows, frozenset({"Protocol", "Repairs by"}))
    sentences = [f"{one.title}: {limit}" for one in about.values() for limit in one.limits]
    sentences += [
        f"{one.title}, settings from {one.settings}" for one in about.values() if one.settings
    ]
    counted = [
        f"{cell.cell.cell} counted: {_counts(cell.about)}."
        for cell in cells
        if cell.about is not None and cell.about.counts
    ]
    parts = (Section("Counters of the programs", tuple(counted), collapsed=True),)
    return [
        Section(
            "What these protocols cannot do",
            tuple(sentences),
            (table,),
            parts=parts if counted else (),
        )
    ]


def _counts(about: ProtocolAbout) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in about.counts.items())
