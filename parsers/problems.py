# SPDX-License-Identifier: Apache-2.0
"""What a parser could not understand, and where: reported beside the records, never raised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_QUOTED_CHARACTERS = 160


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One line that gave no record. `line` counts from 1; 0 means the file as a whole."""

    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}" + (f": {self.text!r}" if self.text else "")


def problem(file: str, line: int, text: str, reason: str) -> Problem:
    """A `Problem` with a quotation of bounded length (a damaged log may have huge lines)."""
    if len(text) > _QUOTED_CHARACTERS:
        text = text[:_QUOTED_CHARACTERS] + "..."
    return Problem(file, line, text, reason)


def numbered_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """(number from 1, line without its newline, complete?) for each line.

    Only the last line can be incomplete: a program was killed, or is still writing. Only "\\n"
    separates lines, so that a stray control character in a name cannot split a record.
    """
    pieces = text.split("\n")
    for number, piece in enumerate(pieces[:-1], start=1):
        yield number, piece.rstrip("\r"), True
    if pieces[-1]:
        yield len(pieces), pieces[-1], False
