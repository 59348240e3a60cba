# SPDX-License-Identifier: Apache-2.0
"""A report as Markdown (GitHub's tables), figures as links to the SVG files beside it."""

from __future__ import annotations

from collections.abc import Iterator

from parsers.report.document import Report, Section, Table

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>#|"})


def render_markdown(report: Report, *, figures: str = "") -> str:
    """`figures` is put before the names of the figures' files ("" or "directory/"). Sections that
    report.txt leaves out are left out here, too: index.html has them."""
    lines = [f"# {plain(report.title)}", "", plain(report.subtitle), ""]
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
    """`text` so that Markdown shows it as it is."""
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
        yield from ("", "```", *section.commands, "```")
    for plot in section.plots:
        yield from ("", f"![{plain(plot.alt)}]({figures}{plot.name}.svg)", "", plain(plot.alt))
    for part in section.parts:
        yield ""
        yield from _section(part, level + 1, figures)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"**{plain(table.title)}**", "")
    yield f"| {' | '.join(plain(name.strip()) for name in table.header)} |"
    rule = (":---" if name in table.left else "---:" for name in table.header)
    yield f"| {' | '.join(rule)} |"
    for row in table.rows:
        yield f"| {' | '.join(plain(cell) for cell in row)} |"
