# SPDX-License-Identifier: Apache-2.0
"""Handouts as HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labs import handouts
from labs.spec import Lab
from labs.tests.bundled import LABS
from labs.workdir import LabError
from tools import front_door


@pytest.mark.slow
def test_one_page_for_each_lab_that_needs_nothing_else(tmp_path: Path) -> None:
    written = handouts.write_all(tmp_path / "html")
    assert [p.name for p in written] == [f"lab-{lab.number}.html" for lab in LABS]
    for path, lab in zip(written, LABS, strict=True):
        text = path.read_text()
        assert f"<h1>Lab {lab.number}: " in text
        for section in handouts.SECTIONS:
            assert f"<h2>{section}</h2>" in text
        assert text.count("<h2>") >= 4 and "<ol>" in text
        assert not re.search(r'(src|href)="(?!https?://|#|lab-\d+\.html")', text), "another file"
        links = {int(number) for number in re.findall(r'href="lab-(\d+)\.html"', text)}
        near = {lab.number - 1, lab.number + 1} & {lab.number for lab in LABS}
        assert near <= links <= {lab.number for lab in LABS}
        assert not re.search(r"<(script|link|img)", text)
        assert "notes" not in path.name


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: str(lab.number))
def test_before_you_start_and_next_steps(lab: Lab) -> None:
    """What a student needs, learns and can read; the previous and the next lab."""
    text = lab.handout.read_text()
    before = text.partition("## Before you start\n")[2].partition("\n## ")[0]
    needs, _, rest = before.partition("After this lab you can:\n")
    learns, _, reading = rest.partition("Reading, before or after:\n")
    assert needs.startswith("You need:\n")
    for part in (needs, learns, reading):
        assert len(re.findall(r"^- \S", part, re.MULTILINE)) >= 2, part
    for line in re.findall(r"^- .*", reading, re.MULTILINE):
        assert re.search(r"\]\(|`\(\d\)", line), f"neither a link nor a manual page: {line}"
    steps = text.partition("## Steps\n")[2]
    assert sum(int(minutes) for minutes in re.findall(r"\((\d+) min", steps)) == lab.spec.minutes
    assert f"\nAbout {lab.spec.minutes} minutes.\n" in text
    last = text.partition("## Next steps\n")[2]
    ways = dict(re.findall(r"^(Back|Next): \[lab (\d+), ", last, re.MULTILINE))
    numbers = [one.number for one in LABS]
    wanted = {"Back": lab.number - 1, "Next": lab.number + 1}
    assert ways == {word: str(number) for word, number in wanted.items() if number in numbers}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: str(lab.number))
def test_its_make_commands_are_accepted(lab: Lab) -> None:
    """Each `make` line of a handout, with the student's name as in the start state."""
    text = lab.handout.read_text()
    lines = re.findall(r"\bmake (lab[\w-]*(?: [A-Z]+=\w+)*)", text)
    assert f"lab N={lab.number} STUDENT=yourname" in lines
    for line in lines:
        goal, *given = line.split()
        variables = dict(word.split("=") for word in given)
        assert variables["N"] == str(lab.number), line
        front_door.check(sorted(variables), [goal], variables)


@pytest.mark.slow
def test_solutions_only_when_asked_for(tmp_path: Path) -> None:
    names = {p.name for p in handouts.write_all(tmp_path, solutions=True)}
    assert {f"notes-{lab.number}.html" for lab in LABS} <= names


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"file: File exists; valid: a directory that you may"):
        handouts.write_all(tmp_path / "file")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_markup() -> None:
    text = handouts.page(
        "A & B", "# T\n\n<script>x</script>\n\n|a|b|\n|-|-|\n|1|2|\n\n```\n<x>\n```\n"
    )
    assert "<title>A &amp; B</title>" in text
    assert "<script>x" not in text and "&lt;script&gt;" in text
    assert "<td>1</td>" in text
    assert "<code>&lt;x&gt;" in text


def test_a_page_names_the_files_of_the_checkout() -> None:
    """The page stands alone, so it cannot link to them."""
    text = handouts.page("T", "[a/b.md](../../a/b.md), [KEY](../../a/c.md#d), [RFC](https://x)")
    assert "<code>a/b.md</code>, KEY (<code>a/c.md</code>), " in text
    assert re.findall(r'href="([^"]*)"', text) == ["https://x"]
