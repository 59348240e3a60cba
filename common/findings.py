# SPDX-License-Identifier: Apache-2.0
"""Findings about the machine, and how they are printed. Uses only Python's standard library."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

OK: Final = "ok"
INSTEAD: Final = "instead"  # something else does the job
ADVICE: Final = "advice"  # it works, but less well
MISSING: Final = "missing"  # it does not work without this
ROOT_ONLY: Final = "root"  # it needs root, and the caller is not root

WIDTH: Final = 80
_LEVEL_WIDTH: Final = 8


@dataclass(frozen=True)
class Finding:
    """One line of a report; `level` is one of the constants above."""

    level: str
    subject: str
    text: str


@dataclass(frozen=True)
class Section:
    """Findings under a heading."""

    title: str
    findings: tuple[Finding, ...]


def render(sections: Sequence[Section], width: int = WIDTH) -> str:
    """Return the sections as text, with no line wider than `width` if words allow that."""
    subjects = [f.subject for section in sections for f in section.findings]
    column = _LEVEL_WIDTH + max(map(len, subjects), default=0) + 2
    return "\n".join(
        section.title + "\n" + "".join(_lines(f, column, width) for f in section.findings)
        for section in sections
    )


def _lines(finding: Finding, column: int, width: int) -> str:
    head = f"{finding.level:<{_LEVEL_WIDTH}}{finding.subject}"
    first, *others = _wrapped(finding.text, width - column) or [""]
    if max(map(len, (first, *others))) > width - column:  # a long path: below, from the left
        first, others = "", _wrapped(finding.text, width - _LEVEL_WIDTH)
        column = _LEVEL_WIDTH
    lines = [f"{head:<{column}}{first}".rstrip(), *(" " * column + line for line in others)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def write(text: str, stream: TextIO) -> None:
    """Write `text`; a character that the stream's encoding lacks becomes "?"."""
    encoding = stream.encoding or "ascii"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()
