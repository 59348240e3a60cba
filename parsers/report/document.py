# SPDX-License-Identifier: Apache-2.0
"""A report as data (sections of tables, sentences, figures), and as text.

`parsers.report.page` turns it into HTML, `parsers.report.markdown` into Markdown.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table as RichTable

from common.contracts import FAITHFUL
from common.terminal import to_ascii
from parsers.report.brief import Brief, BriefTable
from parsers.report.drawing import Plot

WIDTH: Final = 80  # of report.txt
LEAST_TEXT: Final = 12  # minimum width of a column of text
CHANGED: Final = "Changed files"  # the title of a report's warning
GAP: Final = 3  # between columns, as rich draws them


@dataclass(frozen=True)
class Table:
    """Cells are plain text. Columns whose name is in `left` are aligned left, others right.

    The first column, if it is aligned left, names its row."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]
    narrow: int | None = None  # in text, the width of left columns other than the last


@dataclass(frozen=True)
class Section:
    """`commands`: lines for a shell. `parts`: subsections. `collapsed`: the page hides the contents
    until the reader unfolds them. `in_text` False: report.txt leaves the section out."""

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    commands: tuple[str, ...] = ()
    parts: tuple[Section, ...] = ()
    collapsed: bool = False
    in_text: bool = True

    def walk(self) -> Iterator[Section]:
        """Yield this section and all its subsections."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Banner:
    """The top of the report. `verdict`: faithful, degraded, invalid or unknown."""

    verdict: str
    headline: str
    lines: tuple[str, ...]
    title: str = "Fidelity"


@dataclass(frozen=True)
class Report:
    """`result`: the findings, in a few sentences. `main_tables`: the tables that are printed.
    `warning`: what comes before everything else; "": nothing."""

    title: str
    subtitle: str
    banner: Banner
    sections: tuple[Section, ...]
    result: tuple[str, ...] = ()
    main_tables: tuple[BriefTable, ...] = ()
    warning: str = ""

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Return all figures, in the order in which they are shown."""
        return tuple(p for s in self.sections for part in s.walk() for p in part.plots)


def brief_of(report: Report) -> Brief:
    """Return the part that is printed. For a report without a result, use the banner's lines."""
    title, banner = f"Downpour: {report.subtitle}", report.banner
    if not report.result:
        lines = (banner.headline, *banner.lines)
        return Brief(
            title=title,
            verdict=banner.verdict,
            result=lines,
            tables=report.main_tables,
            warning=report.warning,
        )
    return Brief(
        title=title,
        verdict=banner.verdict,
        headline=banner.headline,
        result=report.result,
        tables=report.main_tables,
        doubts=banner.lines,
        warning=report.warning,
    )


def render_text(report: Report, width: int = WIDTH, *, ascii_only: bool = False) -> str:
    """Return the whole report in at most `width` columns, without control sequences.

    Names of files and shell commands are never broken, so only they may be longer.
    """
    if ascii_only:
        report = _ascii(report)
    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, force_terminal=False, highlight=False, emoji=False
    )
    console.print(f"{escape(report.title)}    {escape(report.subtitle)}")
    if report.warning:
        text = escape(report.warning)
        console.print(Panel(text, title=CHANGED, box=box.DOUBLE, title_align="left"))
    for sentence in report.result:
        console.print(escape(_bullet(sentence, width)))
    console.print(
        Panel(
            escape("\n".join((report.banner.headline, *report.banner.lines))),
            title=escape(report.banner.title),
            box=box.DOUBLE if report.banner.verdict != FAITHFUL else box.ROUNDED,
            title_align="left",
        )
    )
    for section in report.sections:
        _print_section(console, section)
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return to_ascii(text) if ascii_only else text


def _ascii(report: Report) -> Report:
    """Replace characters before the layout, since some become several."""
    banner = replace(
        report.banner,
        headline=to_ascii(report.banner.headline),
        lines=tuple(map(to_ascii, report.banner.lines)),
    )
    return replace(
        report,
        title=to_ascii(report.title),
        subtitle=to_ascii(report.subtitle),
        banner=banner,
        sections=tuple(map(_ascii_section, report.sections)),
        result=tuple(map(to_ascii, report.result)),
        warning=to_ascii(report.warning),
    )


def _ascii_section(section: Section) -> Section:
    tables = tuple(
        replace(
            table,
            title=to_ascii(table.title),
            header=tuple(map(to_ascii, table.header)),
            rows=tuple(tuple(map(to_ascii, row)) for row in table.rows),
            left=frozenset(map(to_ascii, table.left)),
        )
        for table in section.tables
    )
    return replace(
        section,
        title=to_ascii(section.title),
        sentences=tuple(map(to_ascii, section.sentences)),
        tables=tables,
        commands=tuple(map(to_ascii, section.commands)),
        plots=tuple(replace(plot, title=to_ascii(plot.title)) for plot in section.plots),
        parts=tuple(map(_ascii_section, section.parts)),
    )


def _print_section(console: Console, section: Section, level: int = 0) -> None:
    if not section.in_text:
        return
    console.print()
    if level:
        console.print(escape(section.title))
    else:
        console.rule(escape(section.title), align="left", characters="─")
    for table in section.tables:
        for part in _side_by_side(table, console.width):
            console.print(_rich_table(part))
    for sentence in section.sentences:
        console.print(escape(_bullet(sentence, console.width)))
    for command in section.commands:
        console.print(f"    {escape(command)}", soft_wrap=True)
    for plot in section.plots:
        text = f"{plot.title}: {plot.name}.png, .svg, .pdf"
        console.print(escape(_bullet(text, console.width)))
    for inner in section.parts:
        _print_section(console, inner, level + 1)


def _bullet(sentence: str, width: int) -> str:
    return textwrap.fill(sentence, width, initial_indent="- ", subsequent_indent="  ")


def _side_by_side(table: Table, width: int) -> Iterator[Table]:
    """Yield the table, split if its columns do not fit: each part begins with the columns that name
    a row."""
    columns = list(zip(table.header, *table.rows, strict=True))
    needed = [_needed(table, column) for column in columns]
    names = list(range(_names(table)))
    while len(names) > 1 and sum(needed[n] + GAP for n in names) > width // 2:
        names.pop()
    begin = sum(needed[n] + GAP for n in names)
    chosen: list[int] = []
    total, title = begin, table.title
    for number in range(len(names), len(columns)):
        if chosen and total + needed[number] + 1 > width:
            yield _columns(table, [*names, *chosen], title)
            chosen, total, title = [], begin, ""
        chosen.append(number)
        total += needed[number] + GAP
    yield _columns(table, [*names, *chosen], title)


def _names(table: Table) -> int:
    """Return how many of the first columns identify a row; 1 if even all of them do not."""
    for count in range(1, len(table.header)):
        if len({row[:count] for row in table.rows}) == len(table.rows):
            return count
    return 1


def _needed(table: Table, column: Sequence[str]) -> int:
    """Return the minimum width of a column of the table: numbers are never broken."""
    longest = max(map(len, column))
    return min(longest, LEAST_TEXT) if column[0] in table.left else longest


def _columns(table: Table, numbers: Sequence[int], title: str) -> Table:
    return replace(
        table,
        title=title,
        header=tuple(table.header[n] for n in numbers),
        rows=tuple(tuple(row[n] for n in numbers) for row in table.rows),
    )


def _rich_table(table: Table) -> RichTable:
    rich = RichTable(
        title=escape(table.title) or None,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        header_style="",
    )
    for name in table.header:
        left = name in table.left
        narrow = table.narrow if left and name != table.header[-1] else None
        rich.add_column(
            escape(name), justify="left" if left else "right", overflow="fold", max_width=narrow
        )
    for row in table.rows:
        rich.add_row(*(escape(cell) for cell in row))
    return rich
