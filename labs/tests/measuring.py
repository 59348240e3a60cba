# SPDX-License-Identifier: Apache-2.0
"""What the tests of the measuring labs share: a student's work directory, measurements and answers,
how checks judge them, and what grading does."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import string
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

from common.places import ROOT
from experiments.tests.built import IN_GUESTS
from labs import grade
from labs.checking import CheckResult, Status, run_checks
from labs.results import write_result
from labs.runs import CellOfRun, cells, newest
from labs.spec import ROOM, Lab, as_words, find_lab
from labs.workdir import STATE, Work, open_work

STUDENT = "alice"

# Each lab's test runs the whole emulated network in guests, two of them at once: labs 5, 6, 8 and 9
# take about eight minutes of two cores, which is more than `make test` can spare.
ASKED_FOR = "DOWNPOUR_TEST_LABS"
IN_GUESTS_IF_ASKED: Final = [
    pytest.mark.skipif(
        not os.environ.get(ASKED_FOR),
        reason="this lab's guests were NOT run: `make test-labs` does (all labs: 20 minutes)",
    ),
    *IN_GUESTS,
]


def begin(number: int, directory: Path, student: str = STUDENT) -> tuple[Lab, Work]:
    """Make the lab's start state."""
    lab = find_lab(number)
    return lab, open_work(lab, directory, student)[0]


def copied(work: Work, place: Path) -> Work:
    """Copy the work directory, to spoil the copy."""
    shutil.copytree(work.directory, place, symlinks=True)
    return Work(place, work.lab, work.student, work.identity, work.made)


def cell(work: Work, experiment: str, **factors: object) -> CellOfRun:
    """Return the newest cell with these levels; there must be one."""
    found = newest(cells(work.directory, experiment), factors)
    assert found is not None, factors
    return found


def labs_verb(*words: str) -> str:
    """Return what `downpour lab ...` prints on both streams; it must end with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "downpour", "lab", *words],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def measure(work: Work, file: str, *options: str) -> str:
    return labs_verb("measure", str(work.lab), file, "--dir", str(work.directory), *options)


def write_answers(work: Work, values: Mapping[str, object], name: str = "answers.yaml") -> None:
    """Write values after the keys of the file in the start state; a key that the file lacks is a
    mistake of the test."""
    path = work.directory / name
    yaml = YAML()
    document = yaml.load(path.read_text())
    for key, value in values.items():
        assert key in document, f"{name} has no {key}"
        document[key] = value
    with path.open("w") as file:
        yaml.dump(document, file)


@dataclass(frozen=True)
class Wrong:
    """A typical wrong answer, `labs/solutions/N-name/wrong-*.yaml`: values that may be computed
    from the right ones, and the check and hint that must notice them."""

    name: str
    check: str
    hint: str
    answers: Mapping[str, object]

    def values(self, right: Mapping[str, object]) -> dict[str, object]:
        numbers = {"__builtins__": {}, **right}
        return {k: eval(str(v), numbers) for k, v in self.answers.items()}


def wrong_answers(number: int) -> list[Wrong]:
    folder = ROOM / "solutions" / find_lab(number).folder.name
    found = []
    for path in sorted(folder.glob("wrong-*.yaml")):
        raw = YAML(typ="safe").load(path.read_text())
        found.append(Wrong(path.stem, **raw["fails"], answers=raw["answers"]))
    assert len(found) >= 2
    return found


def right_answers(work: Work) -> dict[str, object]:
    answers: dict[str, object] = YAML(typ="safe").load(
        (work.directory / "answers.yaml").read_text()
    )
    return answers


def results(lab: Lab, work: Work) -> dict[str, CheckResult]:
    return {r.name: r for r in run_checks(lab, work.directory, work.student)}


def hint_key(lab: Lab, student: str, result: CheckResult) -> str:
    """Return which of the check's hints was given, "" for none."""
    (spec,) = [c for c in lab.spec.checks if c.name == result.name]
    words = {n.upper(): v for n, v in as_words(lab.parameters(student)).items()}
    for key, text in spec.hints.items():
        if " ".join(string.Template(text).safe_substitute(words).split()) == result.hint:
            return key
    return ""


def judged(lab: Lab, work: Work, name: str) -> tuple[Status, str]:
    """Return one check's status and hint."""
    (result,) = run_checks(lab, work.directory, work.student, only=name)
    return result.status, hint_key(lab, work.student, result)


def assert_all(lab: Lab, work: Work, status: Status) -> None:
    others = [r for r in results(lab, work).values() if r.status is not status]
    assert {r.name: (r.status, r.expected, r.found, r.hint) for r in others} == {}


def assert_none_passes(lab: Lab, work: Work) -> None:
    passed = [n for n, r in results(lab, work).items() if r.status is Status.PASSED]
    assert passed == []


# -- grading ----------------------------------------------------------------------------------


def claim_everything(lab: Lab, work: Work) -> None:
    """Write what a student can always write: a result file with all points and a digest that
    fits."""
    everything = [
        CheckResult(c.name, c.title, c.points, Status.PASSED, "t", "e", "f", "")
        for c in lab.spec.checks
    ]
    write_result(lab, work, everything, "none", None)


def graded_again(
    folder: Path, key: bytes | None = None, receipts: Path | None = None
) -> dict[str, dict[str, str]]:
    """Return the rows of `grade --rerun`, by file."""
    screen = io.StringIO()
    grade.grade(folder, None, key, screen, grade.Again(receipts))
    return {row["file"]: row for row in csv.DictReader(io.StringIO(screen.getvalue()))}


def assert_graded(lab: Lab, solved: Work, folder: Path) -> None:
    """Check that the solved work directory gets all points when its checks run again; and that a
    student who hands in the same files under another name, or claims all points with those files
    changed, does not."""
    handed_in = {}
    for name in ("genuine", "stolen", "edited"):
        place = folder / name
        shutil.copytree(solved.directory, place, symlinks=True)
        student = "zoe" if name == "stolen" else solved.student
        state = place / STATE
        state.write_text(json.dumps({**json.loads(state.read_text()), "student": student}))
        handed_in[name] = Work(place, lab.number, student, solved.identity, solved.made)
    edited = next((folder / "edited/runs").rglob("counters-end.json"))
    edited.write_text(edited.read_text() + " ")
    genuine = handed_in.pop("genuine")
    found = run_checks(lab, genuine.directory, genuine.student)
    write_result(lab, genuine, found, "none", None)
    for work in handed_in.values():
        claim_everything(lab, work)
    rows = graded_again(folder)
    points = str(lab.points)
    row = rows[f"genuine/result-{lab.number}.json"]
    assert (row["score"], row["rerun"]) == (points, points), row["remarks"]
    for name in handed_in:
        row = rows[f"{name}/result-{lab.number}.json"]
        assert row["score"] == points
        assert int(row["rerun"]) < lab.points, row
        assert f"checked again: {row['rerun']} of {points}, not {points}" in row["remarks"]
