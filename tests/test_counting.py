# SPDX-License-Identifier: Apache-2.0
"""A number and its noun agree in messages."""

from __future__ import annotations

import pytest

from common.counting import counted


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "cell", None, "0 cells"),
        (1, "cell", None, "1 cell"),
        (2, "cell", None, "2 cells"),
        (1, "leaf", "leaves", "1 leaf"),
        (3, "leaf", "leaves", "3 leaves"),
    ],
)
def test_a_number_and_its_noun_agree(number: int, noun: str, plural: str | None, text: str) -> None:
    assert counted(number, noun, plural) == text
