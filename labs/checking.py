# SPDX-License-Identifier: Apache-2.0
"""What a check gets and returns, and how all checks of a lab run.

A check is a function `NAME(context: Context) -> Outcome`, which may instead raise `Ends`. It looks
at behaviour (what arrives, at which rate, what counters say) or at answers and files in the
student's work directory, and never at the text of commands.
"""

from __future__ import annotations

import importlib.util
import string
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK
from common.terminal import DEFAULT_COLUMNS
from labs.answers import AnswerError, NoAnswer, read_answers
from labs.spec import CheckSpec, Lab, Value, as_words

if TYPE_CHECKING:
    from labs.live import LiveNetwork

EXIT_NOTHING = 2  # nothing to check yet
# Shown as expected where an answer is wrong: it does not give the right one away.
NOT_TOLD: Final = "what your own files say (not shown here)"


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOTHING = "nothing"  # nothing to check: no answer given, no run made


@dataclass(frozen=True)
class Outcome:
    """What a check function returns. `hint`: a key of the check's `hints` in lab.yaml, or ""."""

    status: Status
    tried: str
    expected: str
    found: str
    hint: str = ""


def passed(tried: str, expected: str, found: str) -> Outcome:
    """Return the outcome of a check that passed."""
    return Outcome(Status.PASSED, tried, expected, found)


def failed(tried: str, expected: str, found: str, hint: str) -> Outcome:
    """Return the outcome of a check that failed, with a hint."""
    return Outcome(Status.FAILED, tried, expected, found, hint)


def nothing(tried: str, expected: str, found: str, hint: str = "") -> Outcome:
    """Return the outcome that there is nothing to check yet."""
    return Outcome(Status.NOTHING, tried, expected, found, hint)


class Ends(Exception):
    """Raised in a check, or in code that several checks share: the check then ends with this
    outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.found)
        self.outcome = outcome


def _quiet(_text: str) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """What a check may look at. `work`: the student's work directory; `arguments`: of the check in
    lab.yaml; `network`: the live network (None in measuring labs); `progress`: reports progress,
    for checks that take longer."""

    lab: Lab
    work: Path
    student: str
    parameters: Mapping[str, Value]
    arguments: Mapping[str, Any]
    network: LiveNetwork | None = None
    progress: Callable[[str], None] = _quiet

    @property
    def live(self) -> LiveNetwork:
        """Return the running network; only network labs have one."""
        assert self.network is not None, "a measuring lab has no network"
        return self.network

    def integer(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        value = self.parameters[name]
        assert isinstance(value, int), name
        return value

    def word(self, name: str) -> str:
        """Return a parameter as text; several are separated by blanks."""
        value = self.parameters[name]
        return " ".join(value) if isinstance(value, list) else str(value)

    def words(self, name: str) -> list[str]:
        """Return a parameter as a list of words."""
        value = self.parameters[name]
        return list(value) if isinstance(value, list) else [str(value)]

    def shown(self, text: str) -> str:
        """Return the text, with each $NAME (a parameter in capitals) replaced by the student's
        value."""
        words = {n.upper(): word for n, word in as_words(self.parameters).items()}
        return string.Template(text).safe_substitute(words)

    def answer(self, name: str) -> Any:
        """Return what the student wrote for `name` in answers.yaml. Raises NoAnswer if it is empty,
        AnswerError if the file cannot be read or has no such key."""
        answers = read_answers(self.work / "answers.yaml")
        if name not in answers.values:
            raise AnswerError(f"{answers.file}: found no '{name}'; valid: a line '{name}: ...'")
        value = answers.values[name]
        if value is None or value == "":
            raise NoAnswer(f"{answers.where(name)}: '{name}' is empty")
        return value

    def number(self, name: str) -> float:
        """Return a number that the student wrote. Raises NoAnswer, AnswerError."""
        value = self.answer(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            answers = read_answers(self.work / "answers.yaml")
            raise AnswerError(f"{answers.where(name)}: found '{value}'; valid: a number")
        return float(value)


CheckFunction = Callable[[Context], Outcome]


@dataclass(frozen=True)
class CheckResult:
    """An outcome with what lab.yaml says about its check. Here `hint` is the text."""

    name: str
    title: str
    points: int  # that passing the check gives
    status: Status
    tried: str
    expected: str
    found: str
    hint: str

    @property
    def score(self) -> int:
        """Return the points that the student gets."""
        return self.points if self.status is Status.PASSED else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as result-N.json has it."""
        return {**asdict(self), "status": str(self.status), "score": self.score}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> CheckResult:
        """Return the result that `to_dict` wrote. Raises KeyError, TypeError, ValueError."""
        words = {n: str(raw[n]) for n in ("name", "title", "tried", "expected", "found", "hint")}
        return cls(points=int(raw["points"]), status=Status(raw["status"]), **words)


class CheckProblem(Exception):
    """A lab's check has a mistake (the lab's fault, not the student's)."""


NO_ANSWER_HINT: Final = "Fill in answers.yaml in your work directory."


def load_checks(folder: Path) -> ModuleType:
    """Return the lab's checks.py, read again. Raises CheckProblem if it cannot be loaded."""
    path = folder / "checks.py"
    name = f"labs_checks_{folder.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CheckProblem(f"{path}: found no Python module; valid: functions of checks")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up here
    try:
        spec.loader.exec_module(module)
    except (OSError, SyntaxError, ImportError) as error:
        raise CheckProblem(f"{path}: {error}") from error
    return module


def function_of(lab: Lab, check: CheckSpec, module: ModuleType) -> CheckFunction:
    """Return the function that `check.function` names. Raises CheckProblem if there is none."""
    name = check.function.removeprefix("checks.")
    found = getattr(module, name, None)
    if not callable(found):
        raise CheckProblem(
            f"{lab.folder}/lab.yaml: found function '{check.function}'; "
            f"valid: a function of {lab.folder}/checks.py"
        )
    function: CheckFunction = found
    return function


def run_checks(
    lab: Lab,
    work: Path,
    student: str,
    *,
    network: LiveNetwork | None = None,
    only: str | None = None,
    progress: Callable[[str], None] = _quiet,
) -> list[CheckResult]:
    """Run all checks of the lab (or the one named `only`), in order. Raises CheckProblem."""
    parameters = lab.parameters(student)
    module = load_checks(lab.folder)
    results = []
    for check in lab.spec.checks:
        if only is not None and check.name != only:
            continue
        function = function_of(lab, check, module)
        context = Context(lab, work, student, parameters, check.arguments, network, progress)
        progress(context.shown(check.title))
        results.append(_result(lab, check, function, context))
    if not results:
        valid = ", ".join(c.name for c in lab.spec.checks)
        raise CheckProblem(f"found check '{only}'; valid: {valid}")
    return results


def _result(lab: Lab, check: CheckSpec, function: CheckFunction, context: Context) -> CheckResult:
    hint = ""
    try:
        try:
            outcome = function(context)
        except Ends as end:
            outcome = end.outcome
        if outcome.hint:
            if outcome.hint not in check.hints:
                raise CheckProblem(
                    f"{lab.folder}/lab.yaml: check '{check.name}' has no hint '{outcome.hint}'"
                )
            hint = context.shown(" ".join(check.hints[outcome.hint].split()))
    except NoAnswer as error:
        outcome = nothing("reading answers.yaml", "an answer", str(error))
        hint = NO_ANSWER_HINT
    except AnswerError as error:
        outcome = failed("reading answers.yaml", "an answer that can be read", str(error), "")
        hint = "Answers are lines 'name: value'. Put texts with special characters in quotes."
    return CheckResult(
        check.name, context.shown(check.title), check.points, outcome.status,
        outcome.tried, outcome.expected, outcome.found, hint,
    )  # fmt: skip


def exit_code(results: list[CheckResult]) -> int:
    """Return the exit code: 0 all passed, 1 some failed, 2 nothing to check."""
    if all(r.status is Status.NOTHING for r in results):
        return EXIT_NOTHING
    return EXIT_OK if all(r.status is Status.PASSED for r in results) else EXIT_FAILED


def as_text(results: list[CheckResult], width: int = DEFAULT_COLUMNS) -> str:
    """Return the report for people: what was tried, expected and found, with a hint; then the
    score. Lines wrap at `width`."""
    lines: list[str] = []

    def say(indent: str, text: str) -> None:
        """Add a text after `indent`, with its further lines aligned below it. Commands are not
        broken."""
        below = " " * len(indent)
        for one in text.splitlines() or [""]:
            wrapped = textwrap.wrap(
                one, width, initial_indent=indent, subsequent_indent=below,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            lines.extend(wrapped or [indent.rstrip()])
            indent = below

    for r in results:
        mark = {Status.PASSED: "pass", Status.FAILED: "FAIL", Status.NOTHING: "none"}[r.status]
        say(f"{mark}  ", f"{r.title}  ({r.score} of {counted(r.points, 'point')})")
        say("      tried:    ", r.tried)
        say("      expected: ", r.expected)
        say("      found:    ", r.found)
        if r.hint:
            say("      hint:     ", r.hint)
    score, points = sum(r.score for r in results), sum(r.points for r in results)
    number = sum(r.status is Status.PASSED for r in results)
    lines.append(
        f"score: {score} of {counted(points, 'point')}; "
        f"{number} of {counted(len(results), 'check')} passed"
    )
    return "\n".join(lines) + "\n"
