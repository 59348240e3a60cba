# SPDX-License-Identifier: Apache-2.0
"""The words that pages, comments and messages avoid (tools/docs/words.txt)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.prose import ROOT, repository_files
from tools.docs.count import count
from tools.docs.words import findings, main

THIS: Final = Path(__file__).resolve()


def test_no_page_has_a_word_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("extension", ["py", "c", "h", "yaml", "yml", "sh", "1", "3", "5", "8"])
def test_no_source_has_a_word_of_the_list(extension: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {finding}"
        for path in repository_files(extension)
        if path != THIS
        for number, finding in findings(path.read_text(errors="replace"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("It can not wait for ever.", ["cannot", "forever"]),
        ("A student finds his error.", ["their, or its for a program"]),
        ("It takes some 40 ms.", ["about"]),
        ("`he` and the theory of `for ever`", []),
        ("It can not only read but write.", []),
        ("Each has a clock of its own, and it sees it, too.", ["its own …, their own …", "also"]),
        ("It sees the frames of its own feed, too large or not.", []),
        ("The next one goes on with it.", ["continue(s) with"]),
        ("A key that both have to have", ["must have"]),
        ("It is up already. It is already up.", ["is already …"]),
        ("Tell whether a line is one; it can tell whether.", ["Return whether"]),
        ("x: valid are 1 and 2; valid is not always safe", ["a semicolon and valid:"]),
        (
            "After a look-up, what is there is made again.",
            ["lookup", "recreated, repeated", "what exists, existing …"],
        ),
        ("A namespace of the test's own, not instead of the test's own.", ["its own …, the …'s"]),
        (
            "The FMTP connection stands; in the mean, not in the mean hour.",
            ["on average", "is up, is connected"],
        ),
    ],
)
def test_findings(line: str, remedy: list[str]) -> None:
    found = list(findings(f"first\n{line}"))
    assert [text.split("; valid: ")[1] for _, text in found] == remedy
    assert all(number == 2 for number, _ in found)


def test_a_phrase_that_wraps_is_found() -> None:
    comment = "/* It can\n * not wait for\n * ever, nor the peer, too */\n"
    assert list(findings(comment)) == [
        (1, 'found "can not"; valid: cannot'),
        (2, 'found "for ever"; valid: forever'),
        (3, 'found ", too"; valid: also'),
    ]


def test_what_counts_as_a_word() -> None:
    page = "# A title\n| 12.5 | `so fast` |\n<!-- no -->\n```sh\nmake\n```\n```\nplain text\n```\n"
    assert count(page) == 5
