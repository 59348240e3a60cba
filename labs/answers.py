# SPDX-License-Identifier: Apache-2.0
"""The student's answers.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.model.document import TopologyErrors, read_document


class NoAnswer(Exception):
    """The question is not answered yet."""


class AnswerError(Exception):
    """An answer cannot be read; the text says where and what would be valid."""


@dataclass(frozen=True)
class Answers:
    file: str
    values: dict[str, Any]
    lines: dict[str, int]

    def where(self, name: str) -> str:
        """Return `file:line` of an answer, or the file where it is missing."""
        return f"{self.file}:{self.lines[name]}" if name in self.lines else self.file


def read_answers(path: Path) -> Answers:
    """Read the answers. Raises NoAnswer if there is no file, AnswerError if it is not a list of
    answers."""
    if not path.exists():
        raise NoAnswer(f"{path}: there is no such file (make lab-reset restores it)")
    try:
        document = read_document(path, "lines 'name: value'")
    except TopologyErrors as error:
        raise AnswerError(str(error)) from None
    if document.errors:
        raise AnswerError(str(document.errors[0]))
    if not isinstance(document.data, dict):
        raise AnswerError(f"{path}:1: found no lines 'name: value'; valid: as in the start state")
    lines = {str(p[0]): line for p, line in document.lines.items() if len(p) == 1}
    return Answers(str(path), document.data, lines)
