# SPDX-License-Identifier: Apache-2.0
"""prediction.yaml: what a student wrote down before measuring. The file's time shows whether it
was before; a student who wants to can set it."""

from __future__ import annotations

from pathlib import Path

from labs.answers import AnswerError, NoAnswer, read_answers

NAME = "prediction.yaml"


def predicted(work: Path, name: str) -> float:
    """The number behind `name`. Raises NoAnswer if there is none, AnswerError."""
    answers = read_answers(work / NAME)
    if name not in answers.values:
        raise AnswerError(f"{answers.file}: found no '{name}'; valid: a line '{name}: ...'")
    value = answers.values[name]
    if value is None or value == "":
        raise NoAnswer(f"{answers.where(name)}: '{name}' is empty")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AnswerError(f"{answers.where(name)}: found '{value}'; valid: a number")
    return float(value)


def late_s(work: Path, begun: float) -> float:
    """By how many seconds the file was written after `begun` (epoch), 0 if before."""
    return max(0.0, (work / NAME).stat().st_mtime - begun)
