# SPDX-License-Identifier: Apache-2.0
"""Print the end of a run: the result, the main table, doubts, and where the page is. Pure.

`Brief` is the beginning of a report. It is stored as report/brief.json, so that another program can
print it for the width and characters of its own terminal. This module draws nothing, so importing
it is cheap.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from common.contracts import FAITHFUL
from common.terminal import columns, is_ascii_only, to_ascii

BRIEF_FILE: Final = "brief.json"  # in a run's report/
LINES: Final = 40  # at most, altogether
RESULT_LINES: Final = 18
DOUBT_LINES: Final = 2  # for each doubt
TABLE_ROWS: Final = 16
LEAST_TABLE: Final = 4  # lines: a header, a rule, a row, and the number of further rows
GAP: Final = 2  # between two columns of a table
_UNIT: Final = re.compile(r"(\d) (%|[kMG]?bit/s|[kMG]?B\b|[munµ]?s\b)")
LEAST_LABEL: Final = 10  # width of a table's first column


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BriefTable(_Part):
    """Rows of text, with the first column aligned left. `optional`: the columns that a narrow
    terminal omits, in this order."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ()
    left: frozenset[int] = frozenset({0})


class Brief(_Part):
    """`verdict`: faithful, degraded, invalid or unknown. `doubts`: the verdict's warnings and
    failures, the worst first, and other problems with the figures. `warning`: what comes before
    everything else; "": nothing."""

    title: str
    verdict: str
    result: tuple[str, ...]
    headline: str = ""  # what the verdict means
    tables: tuple[BriefTable, ...] = ()
    doubts: tuple[str, ...] = ()
    warning: str = ""


def render_brief(
    brief: Brief, page: str, *, width: int = 80, ascii_only: bool = False, hint: str = ""
) -> str:
    """Return at most `LINES` lines of at most `width` columns; only `page` may be longer.

    `page`: where the report's page is; this is the last line. `hint`: the command that prints the
    rest.
    """
    if ascii_only:
        brief, page, hint = _ascii(brief), to_ascii(page), to_ascii(hint)
    end = [*_wrapped(hint, width), *_page_lines(page, width)]
    top = [*_wrapped(f"{brief.title}: {brief.verdict.upper()}", width), ""]
    if brief.warning:
        top += [*_wrapped(f"*** {brief.warning}", width), ""]
    top += _whole_sentences(brief.result, width, RESULT_LINES)
    left = LINES - len(top) - len(end) - 1
    doubts = _doubts(brief, width)
    table: list[str] = []
    for one in brief.tables:
        # Tables leave at most a third of the lines, or 4, for doubts.
        room = left - len(table) - min(len(doubts), max(4, left // 3))
        if one.rows and room > LEAST_TABLE:
            table += ["", *_table(one, width, room - 1)]
    doubts = _cut(doubts, left - len(table), "More warnings: see the page.")
    return "\n".join([*top, *table, *doubts, "", *end]) + "\n"


def _ascii(brief: Brief) -> Brief:
    """Replace characters before the layout, since some become several."""
    tables = [
        BriefTable(
            header=tuple(map(to_ascii, table.header)),
            rows=tuple(tuple(map(to_ascii, row)) for row in table.rows),
            optional=tuple(map(to_ascii, table.optional)),
            left=table.left,
        )
        for table in brief.tables
    ]
    return Brief(
        title=to_ascii(brief.title),
        verdict=brief.verdict,
        headline=to_ascii(brief.headline),
        result=tuple(map(to_ascii, brief.result)),
        tables=tuple(tables),
        doubts=tuple(map(to_ascii, brief.doubts)),
        warning=to_ascii(brief.warning),
    )


def shown_brief(brief: Brief, page: str, hint: str = "") -> str:
    """Return `render_brief` for the width and characters of standard output."""
    return render_brief(
        brief, page, width=columns(), ascii_only=is_ascii_only(sys.stdout), hint=hint
    )


def _page_lines(page: str, width: int) -> list[str]:
    line = f"Report: {page}"
    return [line] if len(line) <= width else ["Report:", page]


def keep_units(text: str) -> str:
    """Return `text` with a no-break space between each number and its unit."""
    return _UNIT.sub("\\1\u00a0\\2", text)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return lines of at most `width` columns. A number and its unit stay on one line."""
    bound = keep_units(" ".join(text.split()))
    lines = textwrap.wrap(bound, width, subsequent_indent=indent)
    return [line.replace("\u00a0", " ") for line in lines]


def _whole_sentences(sentences: Sequence[str], width: int, most: int) -> list[str]:
    lines: list[str] = []
    for sentence in sentences:
        wrapped = _wrapped(sentence, width)
        if len(lines) + len(wrapped) > most - 1 and sentence != sentences[-1]:
            return [*lines, *_wrapped("The page says more.", width)]
        lines += wrapped
    return lines if len(lines) <= most else [*lines[: most - 1], "..."]


def _doubts(brief: Brief, width: int) -> list[str]:
    if not brief.doubts and (brief.verdict == FAITHFUL or not brief.headline):
        return []
    lines = ["", *_wrapped(brief.headline, width)]
    for doubt in brief.doubts:
        wrapped = _wrapped(f"- {doubt}", width, "  ")
        if len(wrapped) > DOUBT_LINES:
            wrapped = [*wrapped[:DOUBT_LINES]]
            wrapped[-1] = wrapped[-1][: width - 4].rstrip() + " ..."
        lines += wrapped
    return lines


def _cut(lines: list[str], most: int, instead: str) -> list[str]:
    return lines if len(lines) <= most else [*lines[: max(0, most - 1)], instead]


# -- the table --------------------------------------------------------------------------------
def _table(table: BriefTable, width: int, most: int) -> list[str]:
    """Return the header and as many rows as fit into `most` lines."""
    table = _fitting(table, width)
    widths = _widths(table)
    room = width - sum(widths[1:]) - GAP * (len(widths) - 1)
    widths[0] = min(widths[0], max(LEAST_LABEL, room))
    lines = _row(table.header, widths, table.left)
    lines.append("-" * (sum(widths) + GAP * (len(widths) - 1)))
    for number, row in enumerate(table.rows):
        made = _row(row, widths, table.left)
        rest = len(table.rows) - number
        if number == TABLE_ROWS or len(lines) + len(made) + (1 if rest > 1 else 0) > most:
            return [*lines, f"({rest} more in the page)"]
        lines += made
    return lines


def _widths(table: BriefTable) -> list[int]:
    return [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]


def _fitting(table: BriefTable, width: int) -> BriefTable:
    """Drop optional columns until the table fits, then the last columns."""
    names = list(table.optional)
    while True:
        widths = _widths(table)
        label = min(widths[0], max(LEAST_LABEL, 24))
        if label + sum(widths[1:]) + GAP * (len(widths) - 1) <= width or len(widths) <= 2:
            return table
        gone = names.pop(0) if names else None
        keep = [i for i, name in enumerate(table.header) if i == 0 or name != gone]
        if gone is None:
            keep = keep[:-1]
        table = BriefTable(
            header=tuple(table.header[i] for i in keep),
            rows=tuple(tuple(row[i] for i in keep) for row in table.rows),
            left=frozenset(n for n, i in enumerate(keep) if i in table.left),
        )


def _row(cells: Sequence[str], widths: Sequence[int], left: frozenset[int]) -> list[str]:
    """Return one row. A label that is too long continues on the next line."""
    label = textwrap.wrap(cells[0], widths[0], subsequent_indent="  ") or [""]
    rest = [
        cell.ljust(size) if number in left else cell.rjust(size)
        for number, (cell, size) in enumerate(zip(cells[1:], widths[1:], strict=True), start=1)
    ]
    first = (" " * GAP).join([label[0].ljust(widths[0]), *rest]).rstrip()
    return [first, *label[1:]]
