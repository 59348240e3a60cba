# SPDX-License-Identifier: Apache-2.0
"""Write a report as Markdown (with GitHub's tables), where figures are links to the SVG files
beside it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from parsers.report.document import Report, Section, Table

# Entities instead of backslashes: some viewers do not know escapes and would interpret HTML.
_SPECIAL = str.maketrans(
    {**{c: f"\\{c}" for c in "\\`*_[]#|"}, "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)


def render_markdown(report: Report, *, figures: str = "") -> str:
    """Return the Markdown. `figures` precedes the names of the figures' files ("" or "directory/").
    Sections that report.txt leaves out are also left out here: index.html has them."""
    lines = [f"# {plain(report.title)}", "", plain(report.subtitle), ""]
    if report.warning:
        lines += [f"**{plain(report.warning)}**", ""]
    for sentence in report.result:
        lines += [plain(sentence), ""]
    lines += [f"**{plain(report.banner.headline)}**", ""]
    lines += [f"- {plain(line)}" for line in report.banner.lines]
    for section in report.sections:
        lines += ["", *_section(section, 2, figures)]
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip() + "\n"


def plain(text: str) -> str:
    """Return `text` in a form that Markdown shows unchanged."""
    return " ".join(text.split()).translate(_SPECIAL)


def _section(section: Section, level: int, figures: str) -> Iterator[str]:
    if not section.in_text:
        return
    yield f"{'#' * min(level, 6)} {plain(section.title)}"
    yield ""
    for table in section.tables:
        yield from _table(table)
        yield ""
    for sentence in section.sentences:
        yield f"- {plain(sentence)}"
    if section.commands:
        yield from ("", *_code(section.commands))
    for plot in section.plots:
        yield from (
            "",
            f"![{plain(plot.alt)}]({figures}{quote(plot.name)}.svg)",
            "",
            plain(plot.alt),
        )
    for part in section.parts:
        yield ""
        yield from _section(part, level + 1, figures)


def _code(commands: Sequence[str]) -> Iterator[str]:
    """Yield a block in which nothing is markup. A manifest may contain any command, even one that
    would end the block."""
    text = "\n".join(commands)
    if any(c in text for c in "<>&`\r"):
        yield f"<pre><code>{html.escape(text, quote=False)}</code></pre>"
    else:
        yield from ("```", *commands, "```")


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"**{plain(table.title)}**", "")
    yield f"| {' | '.join(plain(name.strip()) for name in table.header)} |"
    rule = (":---" if name in table.left else "---:" for name in table.header)
    yield f"| {' | '.join(rule)} |"
    for row in table.rows:
        yield f"| {' | '.join(plain(cell) for cell in row)} |"
