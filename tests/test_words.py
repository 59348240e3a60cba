# SPDX-License-Identifier: Apache-2.0
"""The words that the documentation avoids (tools/docs/words.txt)."""

from __future__ import annotations

import pytest

from tools.docs.words import findings, main


def test_no_page_has_a_word_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("It can not wait for ever.", ["cannot", "forever"]),
        ("A student finds his error.", ["their, or its for a program"]),
        ("It takes some 40 ms.", ["about"]),
        ("`he` and the theory of `for ever`", []),
        ("It can not only read but write.", []),
    ],
)
def test_findings(line: str, remedy: list[str]) -> None:
    assert [found.split("; valid: ")[1] for found in findings(line)] == remedy
