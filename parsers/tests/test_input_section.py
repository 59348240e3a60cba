# SPDX-License-Identifier: Apache-2.0
"""The warnings in the section about a run's input."""

from __future__ import annotations

from parsers.read.ldm_log import Notice
from parsers.report.input_section import said_once


def warning(text: str, level: str = "WARN") -> Notice:
    return Notice(0, "ldmd", 1, level, text)


def test_a_warning_of_several_cells_is_said_once() -> None:
    walls, late = warning("Sandbox: off"), warning("late")
    assert said_once({"a": [walls] * 3, "b": [walls, late, walls], "c": [walls] * 3}) == [
        "3 of 3 cells, 8 times: ldmd WARN: Sandbox: off",
        "b: ldmd WARN: late",
    ]


def test_a_cells_own_warnings_are_counted_the_most_frequent_first() -> None:
    one, two = warning("one"), warning("two", "ERROR")
    assert said_once({"a": [one, two, two], "b": []}) == [
        "a: 2 x ldmd ERROR: two",
        "a: ldmd WARN: one",
    ]


def test_at_most_twelve_are_listed() -> None:
    own = said_once({"a": [warning(f"w{n}") for n in range(13)]})
    assert len(own) == 13 and own[-1] == "a: 1 more kind of warnings in the logs."
    both = [warning(f"w{n}") for n in range(14)]
    shared = said_once({"a": both, "b": both})
    assert len(shared) == 13 and shared[-1] == "2 more kinds of warnings in several cells."
