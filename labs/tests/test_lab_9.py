# SPDX-License-Identifier: Apache-2.0
"""Lab 9 as a student would do it: the formula, the measurements, a choice of k, the period that
hurts a fixed order; and typical wrong answers.

For wrong choices measured cells are used under another k or period: the checks do not depend on
where their logs come from."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.runs import digests
from labs.checking import Status
from labs.runs import CellOfRun, cells
from labs.spec import Lab
from labs.tests.measuring import (
    IN_GUESTS_IF_ASKED,
    Wrong,
    assert_all,
    assert_graded,
    assert_none_passes,
    begin,
    cell,
    judged,
    measure,
    right_answers,
    write_answers,
    wrong_answers,
)
from labs.workdir import Work

pytestmark = IN_GUESTS_IF_ASKED
SOLUTION = Path(__file__).resolve().parents[1] / "solutions/9-carousels"
LINE = re.compile(r"^toi=.* received=(\d+) lost=(\d+) useful=(\d+)", re.MULTILINE)
FORETOLD = (8, 32, 128)


def by_solution(lab: Lab, work: Work) -> dict[int, float]:
    """Return what the solution's formula.py prints, by k."""
    own = lab.parameters(work.student)
    done = subprocess.run(
        [sys.executable, SOLUTION / "formula.py", str(own["file_bytes"]), str(own["loss_percent"])],
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    lines = re.findall(r"k = +(\d+): ([\d.]+)", done.stdout)
    return {int(k): float(value) for k, value in lines}


def passed(of: CellOfRun, size_bytes: int) -> dict[str, tuple[float, float, float]]:
    """Return for each receiver, from its log, the files that passed, that came, and that were
    needed."""
    symbols = math.ceil(size_bytes / 1024)
    found = {}
    for log in (of.path / "logs").glob("*.fcast-recv.log"):
        match = LINE.search(log.read_text())
        assert match is not None, log
        came, lost, useful = map(int, match.groups())
        found[log.name.split(".")[0]] = (came + lost) / symbols, came / symbols, useful / symbols
    assert len(found) == of.described["m"]
    return found


def edit(work: Work, name: str, old: str, new: str) -> None:
    path = work.directory / name
    text, count = re.subn(old, new, path.read_text())
    assert count == 1
    path.write_text(text)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    """Solve the lab step by step; each step changes the result of its check."""
    lab, work = begin(9, tmp_path_factory.mktemp("lab9") / "w")
    own = lab.parameters(work.student)
    size_bytes, periodic_bytes = own["file_bytes"], own["periodic_bytes"]
    assert isinstance(size_bytes, int) and isinstance(periodic_bytes, int)
    assert_none_passes(lab, work)
    formula = by_solution(lab, work)
    foretold = {f"listening_time_k_{k}": formula[k] for k in FORETOLD}
    write_answers(work, foretold, "prediction.yaml")
    assert judged(lab, work, "formula")[0] is Status.PASSED
    assert judged(lab, work, "before") == (Status.NOTHING, "missing")
    assert judged(lab, work, "runs") == (Status.NOTHING, "missing")
    measure(work, "carousel.yaml", "--only", "k=8,32,128")
    assert judged(lab, work, "before")[0] is Status.PASSED
    assert judged(lab, work, "runs") == (Status.FAILED, "missing")
    measure(work, "carousel.yaml", "--only", "k=200")
    mean = statistics.fmean(
        t for t, _, _ in passed(cell(work, "carousel", k=200), size_bytes).values()
    )
    at_32 = passed(cell(work, "carousel", k=32), size_bytes)
    groups = math.ceil(math.ceil(periodic_bytes / 1024) / 32)
    write_answers(
        work,
        {
            "listening_time_k_32": round(at_32[str(own["receiver"])][0], 3),
            "k_200_over_formula_percent": round(100 * (mean / formula[200] - 1), 1),
            "chosen_k": 64,
            "periodic_groups": groups,
            "periodic_loss": groups,
        },
    )
    assert judged(lab, work, "choice") == (Status.NOTHING, "missing")
    assert judged(lab, work, "periodic") == (Status.NOTHING, "missing")
    edit(work, "chosen.yaml", r"k: \[200, 100\]", "k: [64, 32]")
    measure(work, "chosen.yaml")
    edit(work, "periodic.yaml", r"loss_period: \[50\]", f"loss_period: [{groups}]")
    measure(work, "periodic.yaml")
    assert_all(lab, work, Status.PASSED)
    return lab, work


def stands_in(source: CellOfRun, run: Path, **factors: object) -> None:
    """Copy a measured cell to its own run, as one with other levels."""
    name = "-".join(map(str, (*factors.values(), source.described["repeat"])))
    target = run / f"2099-{name}/cells" / source.path.name
    shutil.copytree(source.path, target)
    described = json.loads((target / "cell.json").read_text())
    described["factors"] |= factors
    (target / "cell.json").write_text(json.dumps(described))
    digests.write_cell(target)


@pytest.mark.parametrize(
    ("k", "source", "check", "hint"),
    [
        (16, 8, "choice", "small"),
        (200, 200, "choice", "large"),
        (128, 128, "thrift", "wasteful"),
    ],
)
def test_a_wrong_choice(copy: tuple[Lab, Work], k: int, source: int, check: str, hint: str) -> None:
    lab, work = copy
    stands_in(cell(work, "carousel", k=source), work.directory / "runs/chosen", k=k)
    write_answers(work, {"chosen_k": k})
    assert judged(lab, work, check) == (Status.FAILED, hint)
    if check == "choice":
        assert judged(lab, work, "thrift") == (Status.NOTHING, "choice")


def test_changed_conditions(copy: tuple[Lab, Work]) -> None:
    """In chosen.yaml the code was exchanged: the run shows it."""
    lab, work = copy
    path = cell(work, "chosen", k=64).path
    described = json.loads((path / "cell.json").read_text())
    described["parameters"]["fec"] = "ldpc-triangle"
    (path / "cell.json").write_text(json.dumps(described))
    digests.write_cell(path)
    assert judged(lab, work, "choice") == (Status.FAILED, "not-yours")
    assert judged(lab, work, "thrift") == (Status.NOTHING, "choice")


@pytest.mark.parametrize(
    ("period", "hint"), [("groups + 1", "beside"), ("2 * groups", "multiple"), ("32", "k"),
                         ("50", "harmless"), ("9", "often")],
)  # fmt: skip
def test_a_harmless_period(copy: tuple[Lab, Work], period: str, hint: str) -> None:
    lab, work = copy
    count = right_answers(work)["periodic_groups"]
    number = eval(period, {"groups": count})
    measured = [c for c in cells(work.directory, "periodic") if c.factors["order"] == "shuffle"]
    assert len(measured) == 2
    for of in measured:
        for order in ("sequential", "shuffle"):
            stands_in(of, work.directory / "runs/periodic", order=order, loss_period=number)
    write_answers(work, {"periodic_loss": number})
    assert judged(lab, work, "periodic") == (Status.FAILED, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [("alone", "ideal"), ("32 * right", "symbols"), ("1.4", "other")],
)
def test_a_wrong_formula(copy: tuple[Lab, Work], value: str, hint: str) -> None:
    lab, work = copy
    p = int(str(lab.parameters(work.student)["loss_percent"])) / 100
    whole = [
        sum(math.comb(32 + x, i) * p**i * (1 - p) ** (32 + x - i) for i in range(x + 1))
        for x in range(200)
    ]
    steps = [b - a for a, b in itertools.pairwise([0, *whole])]
    alone = sum(step * (32 + x) / 32 for x, step in enumerate(steps))
    answer = eval(value, {"alone": alone, "right": by_solution(lab, work)[32]})
    write_answers(work, {"listening_time_k_32": answer}, "prediction.yaml")
    assert judged(lab, work, "formula") == (Status.FAILED, hint)


def test_a_prediction_that_is_late(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    path = work.directory / "prediction.yaml"
    late = path.stat().st_mtime + 3600
    os.utime(path, (late, late))
    assert judged(lab, work, "before") == (Status.FAILED, "after")


def test_a_wrong_reading(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    own = lab.parameters(work.student)
    found = passed(cell(work, "carousel", k=32), int(str(own["file_bytes"])))
    _, came, useful = found[str(own["receiver"])]
    mean = statistics.fmean(t for t, _, _ in found.values())
    for value, hint in ((came, "received"), (useful, "useful"), (mean, "mean"), (9, "log")):
        write_answers(work, {"listening_time_k_32": round(value, 4)})
        assert judged(lab, work, "reading") == (Status.FAILED, hint)


def test_a_wrong_percentage(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    right = float(str(right_answers(work)["k_200_over_formula_percent"]))
    for value, hint in ((100 * right / (100 + right), "base"), (2 * right, "wrap")):
        write_answers(work, {"k_200_over_formula_percent": round(value, 2)})
        assert judged(lab, work, "reading") == (Status.FAILED, hint)


def test_groups_that_are_none(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    for value, hint in ((32, "k"), (5, "other")):
        write_answers(work, {"periodic_groups": value})
        assert judged(lab, work, "groups") == (Status.FAILED, hint)


def test_somebody_elses_runs(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    theirs = Work(work.directory, work.lab, "bob", work.identity, work.made)
    for check in ("runs", "choice", "periodic"):
        assert judged(lab, theirs, check) == (Status.FAILED, "not-yours")


@pytest.mark.parametrize("wrong", wrong_answers(9), ids=lambda wrong: wrong.name)
def test_the_wrong_answers(copy: tuple[Lab, Work], wrong: Wrong) -> None:
    lab, work = copy
    write_answers(work, wrong.values(right_answers(work)))
    assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)


def test_graded_again(copy: tuple[Lab, Work], tmp_path: Path) -> None:
    lab, work = copy
    assert_graded(lab, work, tmp_path / "class")
