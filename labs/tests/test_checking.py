# SPDX-License-Identifier: Apache-2.0
"""Running checks: outcomes, hints, answers, exit codes, the text for students."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.checking import CheckProblem, CheckResult, Status, as_text, exit_code, run_checks
from labs.spec import Lab, load_lab

LAB = """\
lab: 9
title: A title
minutes: 90
aim: An aim
kind: measuring
parameters:
  seed: { text: a seed, integer: [7, 7] }
checks:
  - name: sum
    title: The sum
    points: 60
    function: checks.total
    arguments: { of: 5 }
    hints: { small: "More than that, with seed $SEED." }
  - { name: word, title: The word, points: 40, function: checks.word, hints: { other: No } }
"""
CHECKS = """\
from labs.checking import Context, Outcome, failed, passed

def total(context: Context) -> Outcome:
    want = context.integer("seed") + context.arguments["of"]
    got = context.number("sum")
    if got == want:
        return passed("added", str(want), str(got))
    return failed("added", str(want), str(got), "small")

def word(context: Context) -> Outcome:
    if context.answer("word") == "yes":
        return passed("read", "yes", "yes")
    return failed("read", "yes", "no", "missing-hint")
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    folder = tmp_path / "9-example"
    folder.mkdir()
    (folder / "lab.yaml").write_text(LAB)
    (folder / "handout.md").write_text("")
    (folder / "checks.py").write_text(CHECKS)
    return load_lab(folder)


def check(
    lab: Lab, tmp_path: Path, answers: str | None, only: str | None = None
) -> list[CheckResult]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    if answers is not None:
        (work / "answers.yaml").write_text(answers)
    return run_checks(lab, work, "ann", only=only)


def test_all_passed(lab: Lab, tmp_path: Path) -> None:
    results = check(lab, tmp_path, "sum: 12\nword: 'yes'\n")
    assert [r.score for r in results] == [60, 40]
    assert exit_code(results) == 0
    assert "score: 100 of 100 points; 2 of 2 checks passed" in as_text(results)


def test_a_failed_one_says_what_was_tried_expected_found_and_a_hint(
    lab: Lab, tmp_path: Path
) -> None:
    results = check(lab, tmp_path, "sum: 11\nword: 'yes'\n")
    assert exit_code(results) == 1
    text = as_text(results)
    for line in ("FAIL  The sum  (0 of 60 points)", "tried:    added", "expected: 12",
                 "found:    11.0", "hint:     More than that, with seed 7."):  # fmt: skip
        assert line in text


def test_the_report_fits_the_terminal() -> None:
    """Words stay whole, and lines of a tool's output stay lines."""
    hint = "Measure again: " + "downpour lab measure 4 nacks.yaml --only loss=1% " * 4
    result = CheckResult("n", "A title", 5, Status.FAILED, "t", "e", "one\ntwo", hint.strip())
    text = as_text([result], 60)
    assert all(len(line) <= 60 for line in text.splitlines()), text
    assert "      found:    one\n                two\n" in text
    assert " ".join(text.split()).count("--only loss=1%") == 4


@pytest.mark.parametrize("answers", [None, "sum:\nword:\n"])
def test_nothing_to_check(lab: Lab, tmp_path: Path, answers: str | None) -> None:
    results = check(lab, tmp_path, answers)
    assert {r.status for r in results} == {Status.NOTHING}
    assert exit_code(results) == 2


def test_one_answer_is_something_to_check(lab: Lab, tmp_path: Path) -> None:
    results = check(lab, tmp_path, "sum: 12\nword:\n")
    assert [str(r.status) for r in results] == ["passed", "nothing"]
    assert exit_code(results) == 1
    assert "answers.yaml:2: 'word' is empty" in results[1].found


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ("sum: twelve\nword: 'yes'\n", "answers.yaml:1: found 'twelve'; valid: a number"),
        ("word: 'yes'\n", "found no 'sum'"),
        ("sum: [\n", "bad YAML syntax"),
        ("- 1\n", "found no lines 'name: value'"),
        ("sum: 1\nsum: 2\n", "key 'sum' again"),
    ],
)
def test_an_answer_that_cannot_be_read_fails_and_says_where(
    lab: Lab, tmp_path: Path, answers: str, says: str
) -> None:
    (result,) = check(lab, tmp_path, answers, only="sum")
    assert result.status is Status.FAILED
    assert says in result.found
    assert result.hint


def test_what_checks_share_may_end_one_with_an_outcome_and_its_hint(
    lab: Lab, tmp_path: Path
) -> None:
    text = CHECKS.replace("return failed(", "raise Ends(failed(").replace('"small")', '"small"))')
    text = text.replace("import Context", "import Context, Ends").replace('-hint")', '-hint"))')
    (lab.folder / "checks.py").write_text(text)
    (result,) = check(lab, tmp_path, "sum: 11\n", only="sum")
    assert (result.status, result.hint) == (Status.FAILED, "More than that, with seed 7.")
    with pytest.raises(CheckProblem, match="has no hint 'missing-hint'"):
        check(lab, tmp_path, "word: 'no'\n", only="word")


def test_a_hint_that_lab_yaml_does_not_have_is_the_labs_fault(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(CheckProblem, match="check 'word' has no hint 'missing-hint'"):
        check(lab, tmp_path, "sum: 1\nword: 'no'\n")


def test_one_check_by_name_and_the_names_there_are(lab: Lab, tmp_path: Path) -> None:
    assert [r.name for r in check(lab, tmp_path, "sum: 12\n", only="sum")] == ["sum"]
    with pytest.raises(CheckProblem, match="found check 'no'; valid: sum, word"):
        check(lab, tmp_path, "sum: 12\n", only="no")


def test_a_function_that_is_not_there(lab: Lab, tmp_path: Path) -> None:
    (lab.folder / "checks.py").write_text("total = 5\n")
    with pytest.raises(CheckProblem, match="found function 'checks.total'; valid: a function of"):
        check(lab, tmp_path, "sum: 12\n")


def test_results_survive_json(lab: Lab, tmp_path: Path) -> None:
    for result in check(lab, tmp_path, "sum: 11\nword:\n"):
        assert CheckResult.from_dict(result.to_dict()) == result
