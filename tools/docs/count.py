# SPDX-License-Identifier: Apache-2.0
"""Count words that people wrote: `python -m tools.docs.words --count` prints them per page and in
all.

A word has a letter, so figures in tables do not count. Code in backticks is one word. Not counted:
pages and tables that programs write, the changelog, and code blocks in a language (commands,
files). Plain and `text` blocks do count.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.prose import ROOT
from tools.docs.sentences import CODE

MOST_WORDS: Final = 22_000
GENERATED: Final = frozenset(
    {
        ROOT / "CHANGELOG.md",
        ROOT / "docs/develop/decisions/README.md",
        ROOT / "docs/reference/licences.md",
    }
    | {*(ROOT / "docs/results").glob("*/report.md")}
)
COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
BLOCK: Final = re.compile(r"^(```+|~~~+)(\w*)[^\n]*\n.*?^\1 *$", re.DOTALL | re.MULTILINE)
MADE: Final = re.compile(r"<!-- made: .*?<!-- end -->", re.DOTALL)
WORD: Final = re.compile(r"\S*[^\W\d_]\S*")


def counted_pages() -> tuple[Path, ...]:
    """Return the front pages and those of docs/ that people write, sorted."""
    found = {*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md"), *ROOT.glob("docs/**/*.md")}
    return tuple(sorted(found - GENERATED))


def count(text: str) -> int:
    """Return how many words of a page people wrote."""
    prose = BLOCK.sub(
        lambda block: block[0] if block[2] in ("", "text") else "",
        COMMENT.sub("", MADE.sub("", text)),
    )
    return len(WORD.findall(CODE.sub("code", prose)))


def table() -> list[tuple[int, str]]:
    """Return (words, page) of each counted page, most words first."""
    return sorted(
        ((count(page.read_text()), str(page.relative_to(ROOT))) for page in counted_pages()),
        reverse=True,
    )
