# SPDX-License-Identifier: Apache-2.0
"""A report as data (sections of tables, sentences, figures), and as text.

`parsers.report.page` makes HTML of it, `parsers.report.markdown` Markdown.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table as RichTable

from common.contracts import FAITHFUL
from parsers.report.drawing import Plot

WIDTH = 100


@dataclass(frozen=True)
class Table:
    """Cells are plain text. Columns whose name is in `left` are aligned left, others right.

    The first column names its row, if it is aligned left."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]
    narrow: int | None = None  # in text, the width of left columns other than the last


@dataclass(frozen=True)
class Section:
    """`commands` are lines for a shell. `parts` are sections of this section; `collapsed` hides
    its contents in HTML until they are asked for, `in_text` False leaves it out of report.txt."""

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    commands: tuple[str, ...] = ()
    parts: tuple[Section, ...] = ()
    collapsed: bool = False
    in_text: bool = True

    def walk(self) -> Iterator[Section]:
        """This section and all within it."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Banner:
    """On top of everything. `verdict`: faithful, degraded, invalid or unknown."""

    verdict: str
    headline: str
    lines: tuple[str, ...]
    title: str = "Fidelity"


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    banner: Banner
    sections: tuple[Section, ...]

    @property
    def plots(self) -> tuple[Plot, ...]:
        """All figures, in the order in which they are shown."""
        return tuple(p for s in self.sections for part in s.walk() for p in part.plots)


def render_text(report: Report) -> str:
    """At most `WIDTH` columns, no control sequences."""
    out = io.StringIO()
    console = Console(
        file=out, width=WIDTH, color_system=None, force_terminal=False, highlight=False, emoji=False
    )
    console.print(f"{escape(report.title)}    {escape(report.subtitle)}")
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
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print_section(console: Console, section: Section, level: int = 0) -> None:
    if not section.in_text:
        return
    console.print()
    if level:
        console.print(escape(section.title))
    else:
        console.rule(escape(section.title), align="left", characters="─")
    for table in section.tables:
        console.print(_rich_table(table))
    for sentence in section.sentences:
        console.print(escape(_bullet(sentence)))
    for command in section.commands:
        console.print(f"    {escape(command)}", soft_wrap=True)
    for plot in section.plots:
        console.print(escape(_bullet(f"{plot.title}: {plot.name}.png, .svg, .pdf")))
    for part in section.parts:
        _print_section(console, part, level + 1)


def _bullet(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")


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
