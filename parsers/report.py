# SPDX-License-Identifier: Apache-2.0
"""A report as data (sections of tables, sentences, figures), as text and as one HTML page."""

from __future__ import annotations

import base64
import io
import textwrap
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table as RichTable

from parsers.plots import Plot

WIDTH = 100


@dataclass(frozen=True)
class Table:
    """Cells are plain text. Columns whose name is in `left` are aligned left, others right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]
    narrow: int | None = None  # in text, the width of left columns other than the last


@dataclass(frozen=True)
class Section:
    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


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
            box=box.DOUBLE if report.banner.verdict != "faithful" else box.ROUNDED,
            title_align="left",
        )
    )
    for section in report.sections:
        console.print()
        console.rule(escape(section.title), align="left", characters="─")
        for table in section.tables:
            console.print(_rich_table(table))
        for sentence in section.sentences:
            console.print(escape(_bullet(sentence)))
        for plot in section.plots:
            console.print(f"- {escape(plot.title)}: {plot.name}.png, {plot.name}.svg")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


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


_environment = Environment(
    loader=PackageLoader("parsers"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_html(report: Report) -> str:
    """One page that needs nothing else: styles inside, figures as embedded SVG."""
    images = {
        plot.name: "data:image/svg+xml;base64," + base64.b64encode(plot.svg).decode("ascii")
        for section in report.sections
        for plot in section.plots
    }
    return _environment.get_template("report.html.j2").render(report=report, images=images)
