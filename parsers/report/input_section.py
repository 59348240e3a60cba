# SPDX-License-Identifier: Apache-2.0
"""The report's section about its input: what was missing, malformed or warned about. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from common.counting import counted
from parsers.measure.join_leave import JoinLeaveMetrics
from parsers.measure.summary import CellMetrics
from parsers.read.ldm_log import Notice
from parsers.report.document import Section
from parsers.report.wording import LISTED


def input_section(
    cells: Sequence[CellMetrics] | Sequence[JoinLeaveMetrics], complaints: Sequence[str]
) -> Section:
    """Return the section. `complaints`: problems outside the cells."""
    sentences = [f"{c}." for c in complaints]
    for cell in cells:
        name = cell.cell.cell
        sentences += [f"{name}: {item} is missing." for item in cell.missing]
        sentences += [f"{name}: {problem}" for problem in cell.problems[:LISTED]]
        if more := len(cell.problems[LISTED:]):
            sentences.append(f"{name}: {counted(more, 'more line')} not understood.")
    sentences += said_once({cell.cell.cell: _notices(cell) for cell in cells})
    if not sentences:
        sentences.append(
            "All files exist, every log line was understood, and none is an unexplained warning."
        )
    return Section("Input: what was missing, malformed or warned about", tuple(sentences))


def _notices(cell: CellMetrics | JoinLeaveMetrics) -> Sequence[Notice]:
    if isinstance(cell, CellMetrics):
        return cell.notices
    return [notice for notices in cell.notices.values() for notice in notices]


def said_once(notices: Mapping[str, Sequence[Notice]]) -> list[str]:
    """Return a sentence for each text of the cells' notices, those of several cells first."""
    found: dict[str, Counter[str]] = {}
    for cell, of_cell in notices.items():
        for notice in of_cell:
            text = f"{notice.prog} {notice.level}: {notice.message[:200]}"
            found.setdefault(text, Counter())[cell] += 1
    shared = sorted((i for i in found.items() if len(i[1]) > 1), key=lambda i: -len(i[1]))
    sentences = [
        f"{len(cells)} of {len(notices)} cells, {cells.total()} times: {text}"
        for text, cells in shared[:LISTED]
    ]
    if more := len(shared[LISTED:]):
        sentences.append(f"{counted(more, 'more kind')} of warnings in several cells.")
    for cell in notices:
        own = [(text, cells[cell]) for text, cells in found.items() if list(cells) == [cell]]
        own.sort(key=lambda item: -item[1])
        sentences += [f"{cell}: {f'{n} x ' if n > 1 else ''}{text}" for text, n in own[:LISTED]]
        if more := len(own[LISTED:]):
            sentences.append(f"{cell}: {counted(more, 'more kind')} of warnings in the logs.")
    return sentences
