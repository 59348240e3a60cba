# SPDX-License-Identifier: Apache-2.0
"""Markdown has one sentence per line, and short cells in the tables that everybody reads."""

from __future__ import annotations

import re

import pytest

from tests.prose import ROOT, prose_lines
from tools.docs.sentences import main, pages, reflow

MAX_CELL_WORDS = 12
FRONT_PAGES = ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/results/README.md")


def test_one_sentence_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(pages()) > 60
    code = main(["--check"])
    assert code == 0, f"`python -m tools.docs.sentences` mends it\n{capsys.readouterr().out}"


def test_reflow() -> None:
    page = """# A title. Not split

One sentence, wrapped
by hand. Another one (e.g. this; `a. B` stays). See Fig. 3 by J. Doe.
**1. A step** (5 min). Do it.
| a cell. With two | b |
- an item. It goes
  on. *Why?* So.

```
code. Is. Left
```
"""
    assert (
        reflow(page)
        == """# A title. Not split

One sentence, wrapped by hand.
Another one (e.g. this; `a. B` stays).
See Fig. 3 by J. Doe.
**1. A step** (5 min).
Do it.
| a cell. With two | b |
- an item.
  It goes on.
  *Why?*
  So.

```
code. Is. Left
```
"""
    )
    assert reflow(reflow(page)) == reflow(page)


@pytest.mark.parametrize("name", FRONT_PAGES)
def test_cells_are_short(name: str) -> None:
    long = [
        f"{name}:{number}: found {len(cell.split())} words; valid: {MAX_CELL_WORDS} at most: {cell}"
        for number, line in prose_lines(ROOT / name)
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line)
        if len(cell.split()) > MAX_CELL_WORDS
    ]
    assert not long, "\n".join(long)
