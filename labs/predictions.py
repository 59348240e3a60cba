# SPDX-License-Identifier: Apache-2.0
"""prediction.yaml: what a student wrote down before measuring. The file's time shows whether it is
older; a student can forge the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from labs.answers import AnswerError, NoAnswer, read_answers
from labs.checking import Context, Outcome, failed, nothing, passed
from labs.runs import CellOfRun, Missing, RunProblem

NAME = "prediction.yaml"


def predicted(work: Path, name: str) -> float:
    """Return the number for `name`. Raises NoAnswer if there is none, AnswerError."""
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
    """Return how many seconds after `begun` (epoch) the file was written; 0 if it is older."""
    return max(0.0, (work / NAME).stat().st_mtime - begun)


def predicted_first(
    context: Context, names: Iterable[str], find: Callable[[], Mapping[Any, CellOfRun]]
) -> Outcome:
    """Check that the predictions `names` exist and are older than the cells that `find` returns;
    `find` may raise Missing or RunProblem. Raises NoAnswer, AnswerError like `predicted`."""
    tried, expected = "the time of prediction.yaml, and of your run", "a prediction, then a run"
    for name in names:
        predicted(context.work, name)
    try:
        found = find()
    except (Missing, RunProblem) as error:
        return nothing(tried, expected, str(error), "missing")
    if late := late_s(context.work, min(cell.started for cell in found.values())):
        text = f"prediction.yaml was written {late:.0f} s after the run began"
        return failed(tried, expected, text, "after")
    return passed(tried, expected, "the prediction is older")
