# SPDX-License-Identifier: Apache-2.0
"""Lab 6 as a student would do it: the sweep, a choice of timers made from it, and typical wrong
ones.

For the solution, the checks do their own measurements. For wrong choices they use cells of the
sweep with other timers, which make no difference there (f_snd 5000 or 100)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.runs import digests
from labs.checking import Status
from labs.runs import cells, newest
from labs.spec import Lab
from labs.tests.measuring import (
    IN_GUESTS_IF_ASKED,
    Wrong,
    assert_all,
    assert_graded,
    assert_none_passes,
    begin,
    judged,
    measure,
    right_answers,
    write_answers,
    wrong_answers,
)
from labs.workdir import Work

pytestmark = IN_GUESTS_IF_ASKED
LADDER = (3.0, 6.0, 12.0, 24.0)
Timers = tuple[float, float]
FFDR, P99 = "ffdr_percent_f_snd_3_f_rcv_2", "latency_p99_ms_f_snd_5000_f_rcv_20"
FACTOR = "bandwidth_factor_f_rcv_half"


def choose(work: Work, timers: Timers) -> None:
    path = work.directory / "chosen.yaml"
    text = re.sub(r"f_snd: [\d.]+", f"f_snd: {timers[0]:g}", path.read_text())
    path.write_text(re.sub(r"f_rcv: [\d.]+", f"f_rcv: {timers[1]:g}", text))


def swept(work: Work) -> dict[Timers, dict[str, float]]:
    found = cells(work.directory, "sweep")
    return {(c.factors["f_snd"], c.factors["f_rcv"]): c.metrics() for c in found}


def solution(work: Work) -> Timers:
    """Return the least f_snd of the ladder that delivers; half of it is the step before (or not
    above f_rcv)."""
    values = swept(work)
    return next((f, 2.0) for f in LADDER if values[f, 2.0]["ffdr"] >= 99.5)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    lab, work = begin(6, tmp_path_factory.mktemp("lab6") / "w")
    assert_none_passes(lab, work)
    assert judged(lab, work, "sweep") == (Status.NOTHING, "missing")
    assert judged(lab, work, "conditions") == (Status.NOTHING, "start")
    measure(work, "sweep.yaml", "--only", "f_snd=3,6,12,5000")
    assert judged(lab, work, "sweep") == (Status.FAILED, "missing")
    stands_in(work, (12, 2), (24, 2), place="runs/sweep")
    values = swept(work)
    name = "nic_bandwidth"
    write_answers(
        work,
        {
            FFDR: round(values[3, 2]["ffdr"], 2),
            P99: round(1000 * values[5000, 20]["latency_p99"], 1),
            FACTOR: round(values[5000, 0.5][name] / values[5000, 20][name], 2),
            # 16,025 bytes take 32 ms five times, less than 90; 479,327 bytes 958.65.
            "tau_snd_smallest_ms": 90,
            "tau_snd_largest_ms": 958.7,
        },
    )
    timers = solution(work)
    choose(work, timers)
    # The values to compare with are already in the sweep; the check measures the choice itself.
    stands_in(work, (5000, 20), (5000, 20))
    if timers[0] / 2 > timers[1]:
        half = (timers[0] / 2, timers[1])
        stands_in(work, half, half)
    assert_all(lab, work, Status.PASSED)
    return lab, work


def stands_in(
    work: Work, source: Timers, *others: Timers, place: str = ".check/runs/chosen"
) -> None:
    """Use a cell of the sweep as what the check would measure for other timers."""
    cell = newest(cells(work.directory, "sweep"), {"f_snd": source[0], "f_rcv": source[1]})
    assert cell is not None
    for f_snd, f_rcv in others:
        run = work.directory / f"{place}/2099{f_snd:g}-{f_rcv:g}"
        copied = run / "cells" / cell.path.name
        shutil.copytree(cell.path, copied)
        described = json.loads((copied / "cell.json").read_text())
        described["factors"] |= {"f_snd": f_snd, "f_rcv": f_rcv}
        (copied / "cell.json").write_text(json.dumps(described))
        digests.write_cell(copied)


@pytest.mark.parametrize(
    ("source", "timers", "check", "hint"),
    [
        ((5000, 2), (100, 2), "thrift", "wasteful"),
        ((5000, 20), (100, 20), "latency", "late"),
        ((5000, 0.5), (100, 0.5), "latency", "premature"),
    ],
)
def test_a_wrong_choice(
    copy: tuple[Lab, Work], source: Timers, timers: Timers, check: str, hint: str
) -> None:
    lab, work = copy
    stands_in(work, source, timers, (timers[0] / 2, timers[1]))
    choose(work, timers)
    assert judged(lab, work, "conditions")[0] is Status.PASSED
    assert judged(lab, work, check) == (Status.FAILED, hint)


def test_a_choice_that_forgets_too_early(copy: tuple[Lab, Work]) -> None:
    """Use the least f_snd of the ladder if it does not deliver (otherwise five files are made to be
    lost by removing their log lines)."""
    lab, work = copy
    stands_in(work, (3, 2), (2.5, 2))
    (log,) = work.directory.glob(".check/runs/chosen/20992.5-2/cells/*/logs/wsu1.ldmd.log")
    lines = log.read_text().splitlines(keepends=True)
    received = [n for n, line in enumerate(lines) if "Received:" in line][:5]
    log.write_text("".join(line for n, line in enumerate(lines) if n not in received))
    digests.write_cell(log.parents[1])
    choose(work, (2.5, 2))
    assert judged(lab, work, "ffdr") == (Status.FAILED, "short")
    assert judged(lab, work, "thrift") == (Status.FAILED, "short")


def test_changed_conditions(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    path = work.directory / "chosen.yaml"
    text = path.read_text()
    for old, new, hint in (
        ("receivers: [4]", "receivers: [2]", "changed"),
        ("duration_s: 100", "duration_s: 5", "changed"),
        ("f_rcv: 2", "f_rcv: two", "file"),
        ("topology: geni5", "topolgy: geni5", "file"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        assert judged(lab, work, "conditions") == (Status.FAILED, hint), new
        assert judged(lab, work, "ffdr")[0] is Status.NOTHING


@pytest.mark.parametrize(
    ("check", "answer", "value", "hint"),
    [
        ("tau", "tau_snd_largest_ms", 0.95865, "unit"),
        ("tau", "tau_snd_largest_ms", 500, "other"),
        ("reading", P99, 0.5, "other"),
        ("reading", FFDR, 42, "other"),
    ],
)
def test_a_wrong_answer(
    copy: tuple[Lab, Work], check: str, answer: str, value: float, hint: str
) -> None:
    lab, work = copy
    write_answers(work, {answer: value})
    assert judged(lab, work, check) == (Status.FAILED, hint)


def test_answers_of_another_cell_or_unit(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    values = swept(work)
    write_answers(work, {P99: round(1000 * values[5000, 2]["latency_p99"], 1)})
    assert judged(lab, work, "reading") == (Status.FAILED, "column")
    write_answers(work, {P99: values[5000, 20]["latency_p99"]})
    assert judged(lab, work, "reading") == (Status.FAILED, "unit")


def test_somebody_elses_sweep(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    theirs = Work(work.directory, work.lab, "bob", work.identity, work.made)
    assert judged(lab, theirs, "sweep") == (Status.FAILED, "not-yours")


@pytest.mark.parametrize("wrong", wrong_answers(6), ids=lambda wrong: wrong.name)
def test_the_wrong_answers(copy: tuple[Lab, Work], wrong: Wrong) -> None:
    lab, work = copy
    write_answers(work, wrong.values(right_answers(work)))
    assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)


def test_graded_again(copy: tuple[Lab, Work], tmp_path: Path) -> None:
    lab, work = copy
    assert_graded(lab, work, tmp_path / "class")
