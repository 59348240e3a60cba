# SPDX-License-Identifier: Apache-2.0
"""Lab 10 as a student would do it: the layers that fit, the measurements, a limit that takes the
requested share; and typical wrong answers.

For other limits a measured cell is used instead: the checks do not depend on where its logs come
from."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from experiments.runs import digests
from labs.checking import Status
from labs.runs import CellOfRun
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

# By hand: the base and m layers send 3 ((4/3)^(m + 1) - 1) packets/s, of 1,518 bytes on the line.
BY_LINE = {  # kbit/s: (layers that fit, packets beyond the line in 3 s with one more)
    1000: (10, 3 * (91.697 - 82.345)),
    1100: (10, 3 * (91.697 - 90.580)),
    1200: (11, 3 * (123.262 - 98.814)),
    1400: (11, 3 * (123.262 - 115.283)),
}
HALVED_S = 24.09
MEAN = 0.77  # of the limit: it falls to three quarters before the next join; and the start


def of_log(cell: CellOfRun) -> dict[str, str]:
    """Return the last line of the receiver's log."""
    (log,) = (cell.path / "logs").glob("*.m2c-recv.log")
    last = [line for line in log.read_text().splitlines() if "result=" in line][-1]
    return dict(re.findall(r"([a-z_]+)=(\S+)", last))


def limit_of(lab: Lab, work: Work) -> int:
    own = lab.parameters(work.student)
    return round(10 * int(str(own["line_kbps"])) * int(str(own["share_percent"])) / MEAN)


def test_predictions(tmp_path: Path) -> None:
    """Without a run: every line's layers, and mistakes that the values reveal."""
    lab, work = begin(10, tmp_path / "w")
    assert_none_passes(lab, work)
    line = int(str(lab.parameters(work.student)["line_kbps"]))
    layers, excess = BY_LINE[line]
    right = {"layers_that_fit": layers, "excess_packets": excess, "halved_after_s": HALVED_S}
    write_answers(work, right, "prediction.yaml")
    for name in ("fits", "excess", "halved"):
        assert judged(lab, work, name)[0] is Status.PASSED
    assert judged(lab, work, "before") == (Status.NOTHING, "missing")
    assert judged(lab, work, "runs") == (Status.NOTHING, "missing")
    all_s = 3 * (3 * ((4 / 3) ** (layers + 2) - 1))
    for name, key, value, hint in (
        ("fits", "layers_that_fit", layers + 1, "above"),
        ("fits", "layers_that_fit", layers - 1, "below"),
        ("excess", "excess_packets", excess / 3, "second"),
        ("excess", "excess_packets", 3 * (4 / 3) ** (layers + 1), "layer"),
        ("excess", "excess_packets", all_s, "all"),
        ("excess", "excess_packets", 5000, "other"),
        ("halved", "halved_after_s", 2.409, "slots"),
        ("halved", "halved_after_s", 20, "linear"),
        ("halved", "halved_after_s", 60, "other"),
    ):
        write_answers(work, right | {key: value}, "prediction.yaml")
        assert judged(lab, work, name) == (Status.FAILED, hint), (key, value)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    """Solve the lab step by step; each step changes the result of its check."""
    lab, work = begin(10, tmp_path_factory.mktemp("lab10") / "w")
    layers, excess = BY_LINE[int(str(lab.parameters(work.student)["line_kbps"]))]
    foretold = {"layers_that_fit": layers, "excess_packets": excess, "halved_after_s": HALVED_S}
    write_answers(work, foretold, "prediction.yaml")
    measure(work, "layers.yaml", "--only", "cc=static")
    assert judged(lab, work, "runs") == (Status.FAILED, "missing")
    assert judged(lab, work, "before") == (Status.NOTHING, "missing")
    measure(work, "layers.yaml", "--only", "cc=m2c")
    assert judged(lab, work, "before")[0] is Status.PASSED
    late = cell(work, "layers", cc="static", leave_latency_ms=3000)
    once = cell(work, "layers", cc="static", leave_latency_ms=0)
    factor = late.metrics()["rival_rate"] / once.metrics()["rival_rate"]
    limit_bps = limit_of(lab, work)
    write_answers(
        work,
        {
            "tcp_rate_factor": round(factor, 3),
            "static_leaves": int(of_log(late)["leaves"]),
            "chosen_max_rate_bps": limit_bps,
        },
    )
    assert judged(lab, work, "share") == (Status.NOTHING, "missing")
    path = work.directory / "chosen.yaml"
    text, count = re.subn(r"\[500kbps\]", f"[{limit_bps}]", path.read_text())
    assert count == 1
    path.write_text(text)
    measure(work, "chosen.yaml")
    assert_all(lab, work, Status.PASSED)
    return lab, work


def guests(test: object) -> object:
    for mark in IN_GUESTS_IF_ASKED:
        test = mark(test)
    return test


def stands_in(source: CellOfRun, run: Path, **factors: object) -> Path:
    """Copy a measured cell to its own run, as one with other levels."""
    target = run / f"2099-{'-'.join(map(str, factors.values()))}/cells" / source.path.name
    shutil.copytree(source.path, target)
    described = json.loads((target / "cell.json").read_text())
    described["factors"] |= factors
    (target / "cell.json").write_text(json.dumps(described))
    return target


@guests
def test_tcp_pays_for_static_layers_alone(solved: tuple[Lab, Work]) -> None:
    """This is what the lab demonstrates: with leaves after 3 s TCP gets less beside static layers,
    and no less beside the wave."""
    _, work = solved
    rate = {
        (kind, ms): cell(work, "layers", cc=kind, leave_latency_ms=ms).metrics()["rival_rate"]
        for kind in ("static", "m2c")
        for ms in (0, 3000)
    }
    assert rate["static", 3000] < 0.9 * rate["static", 0], rate
    assert rate["m2c", 3000] == pytest.approx(rate["m2c", 0], rel=0.02), rate


@guests
@pytest.mark.parametrize(("times", "took", "hint"), [
    (MEAN, MEAN, "limit"), (0.5, 0.5, "low"), (2, 1.5, "high"), (MEAN, 1.2, "high"),
])  # fmt: skip
def test_a_wrong_limit(copy: tuple[Lab, Work], times: float, took: float, hint: str) -> None:
    """`limit`: the share itself, as if the rate did not fall."""
    lab, work = copy
    wrong_bps = round(times * limit_of(lab, work))
    place = work.directory / "runs/chosen"
    source = cell(work, "chosen", max_rate_bps=limit_of(lab, work))
    target = stands_in(source, place, max_rate_bps=wrong_bps)
    (log,) = (target / "logs").glob("*.m2c-recv.log")
    rate = float(of_log(source)["tput_kbps"])
    text, count = re.subn(r"tput_kbps=\S+", f"tput_kbps={took * rate:.1f}", log.read_text())
    assert count == 1
    log.write_text(text)
    digests.write_cell(target)
    write_answers(work, {"chosen_max_rate_bps": wrong_bps})
    assert judged(lab, work, "share") == (Status.FAILED, hint)


@guests
def test_changed_conditions(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    path = cell(work, "chosen", max_rate_bps=limit_of(lab, work)).path
    described = json.loads((path / "cell.json").read_text())
    described["parameters"]["background_flows"] = 0
    (path / "cell.json").write_text(json.dumps(described))
    digests.write_cell(path)
    assert judged(lab, work, "share") == (Status.FAILED, "not-yours")


@guests
def test_a_prediction_that_is_late(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    path = work.directory / "prediction.yaml"
    late = path.stat().st_mtime + 3600
    os.utime(path, (late, late))
    assert judged(lab, work, "before") == (Status.FAILED, "after")


@guests
def test_somebody_elses_runs(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    theirs = Work(work.directory, work.lab, "bob", work.identity, work.made)
    assert judged(lab, theirs, "runs") == (Status.FAILED, "not-yours")


@guests
@pytest.mark.parametrize("wrong", wrong_answers(10), ids=lambda wrong: wrong.name)
def test_the_wrong_answers(copy: tuple[Lab, Work], wrong: Wrong) -> None:
    lab, work = copy
    write_answers(work, wrong.values(right_answers(work)))
    assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)


@guests
def test_graded_again(copy: tuple[Lab, Work], tmp_path: Path) -> None:
    lab, work = copy
    assert_graded(lab, work, tmp_path / "class")
