# SPDX-License-Identifier: Apache-2.0
"""Handouts as HTML."""

from __future__ import annotations

import re
from pathlib import Path

from labs import handouts
from labs.spec import all_labs


def test_one_page_for_each_lab_that_needs_nothing_else(tmp_path: Path) -> None:
    written = handouts.write_all(tmp_path / "html")
    labs = all_labs()
    assert [p.name for p in written] == [f"lab-{lab.number}.html" for lab in labs]
    for path, lab in zip(written, labs, strict=True):
        text = path.read_text()
        assert f"<h1>Lab {lab.number}: " in text
        for section in handouts.SECTIONS:
            assert f"<h2>{section}</h2>" in text
        assert text.count("<h2>") >= 4 and "<ol>" in text
        assert not re.search(r'(src|href)="(?!https?://|#)', text), "a reference to another file"
        assert not re.search(r"<(script|link|img)", text)
        assert "notes" not in path.name


def test_solutions_only_when_asked_for(tmp_path: Path) -> None:
    names = {p.name for p in handouts.write_all(tmp_path, solutions=True)}
    assert {f"notes-{lab.number}.html" for lab in all_labs()} <= names


def test_markup() -> None:
    text = handouts.page(
        "A & B", "# T\n\n<script>x</script>\n\n|a|b|\n|-|-|\n|1|2|\n\n```\n<x>\n```\n"
    )
    assert "<title>A &amp; B</title>" in text
    assert "<script>x" not in text and "&lt;script&gt;" in text
    assert "<td>1</td>" in text
    assert "<code>&lt;x&gt;" in text
