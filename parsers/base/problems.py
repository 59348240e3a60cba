# SPDX-License-Identifier: Apache-2.0
"""What a parser could not understand, and where. Parsers return problems beside the records; they
never raise them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_QUOTED_CHARACTERS = 160
CUT_OFF = "the last line is cut off (no newline)"
CUT_OFF_DOCUMENT = "the document is cut off"

# A whole text, or its lines with their newlines: a file opened with newline="\n", so that a log
# need not be in memory.
Lines = str | Iterable[str]


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One line that gave no record. `line` counts from 1; 0 means the file as a whole."""

    file: str
    line: int
    text: str
    reason: str

    @property
    def is_cut_off(self) -> bool:
        """Return whether the text was cut off, as a program was killed or still writes: no line is
        wrong."""
        return self.reason in (CUT_OFF, CUT_OFF_DOCUMENT)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}" + (f": {self.text!r}" if self.text else "")


def problem(file: str, line: int, text: str, reason: str) -> Problem:
    """Return a `Problem` with a short quotation (a damaged log may have huge lines)."""
    if len(text) > _QUOTED_CHARACTERS:
        text = text[:_QUOTED_CHARACTERS] + "..."
    return Problem(file, line, text, reason)


def numbered_lines(text: Lines) -> Iterator[tuple[int, str, bool]]:
    """Yield (number from 1, line without its newline, whether it is complete) for each line.

    Only the last line can be incomplete: a program was killed, or is still writing. Only "\\n"
    separates lines, so that a stray control character in a name cannot split a record.
    """
    lines = io.StringIO(text, newline="\n") if isinstance(text, str) else text
    for number, line in enumerate(lines, start=1):
        if line.endswith("\n"):
            yield number, line[:-1].rstrip("\r"), True
        elif line:
            yield number, line, False


def cut_off(file: str, line: int, text: str) -> Problem:
    """Return the problem of a last line without its newline."""
    return problem(file, line, text, CUT_OFF)


def complete_lines(text: Lines, file: str, problems: list[Problem]) -> Iterator[tuple[int, str]]:
    """Yield `numbered_lines` without a truncated last one, which is added to `problems`."""
    for number, line, complete in numbered_lines(text):
        if complete:
            yield number, line
        else:
            problems.append(cut_off(file, number, line))


def cut_off_document(text: str, file: str) -> Problem:
    """Return the problem of a document that ends too early, with its last line."""
    lines = text.rstrip().split("\n")
    return problem(file, len(lines), lines[-1].strip(), CUT_OFF_DOCUMENT)
