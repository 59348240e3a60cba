# SPDX-License-Identifier: Apache-2.0
"""Lab 5 as a student would do it: six measurements, the solution, and typical wrong answers.

The runs with 4 and 24 receivers are made from those with 2 and 8: the checks do not depend on where
the counters come from, and real runs take a minute."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.runs import digests
from labs.checking import Status
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
SOLUTION = Path(__file__).resolve().parents[1] / "solutions/5-scaling"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    return begin(5, tmp_path_factory.mktemp("lab5") / "w")


@pytest.fixture(scope="module")
def solved(started: tuple[Lab, Work]) -> tuple[Lab, Work]:
    """Solve the lab step by step; each step changes the result of its check."""
    lab, work = started
    assert_none_passes(lab, work)
    assert judged(lab, work, "runs") == (Status.NOTHING, "missing")
    measure(work, "scaling.yaml", "--only", "receivers=2,8")
    assert judged(lab, work, "runs") == (Status.FAILED, "missing")
    derived(work, 2, 4, "-2", started=0)
    assert judged(lab, work, "runs")[0] is Status.PASSED
    shutil.copy(SOLUTION / "bandwidth.py", work.directory)
    for program in ("bandwidth.py", "plot.py"):
        subprocess.run([sys.executable, str(work.directory / program)], check=True, timeout=300)
    table = values(work)
    line = statistics.linear_regression([2, 4, 8], [table["ldm6", m] for m in (2, 4, 8)])
    write_answers(
        work,
        {
            "ldm6_mbit_per_s_per_receiver": round(line.slope, 2),
            "ldm7_growth_percent": round(100 * (table["ldm7", 8] / table["ldm7", 2] - 1), 2),
            "ldm6_receivers_at_1_gbit_per_s": math.floor((1000 - line.intercept) / line.slope),
        },
    )
    foretold = {"ldm6": line.intercept + 24 * line.slope, "ldm7": table["ldm7", 8]}
    write_answers(
        work,
        {f"{p}_24_receivers_mbit_per_s": round(v, 1) for p, v in foretold.items()},
        "prediction.yaml",
    )
    assert judged(lab, work, "prediction") == (Status.FAILED, "run")
    written = (work.directory / "prediction.yaml").stat().st_mtime
    derived(work, 8, 24, "-3", started=written + 5)
    assert_all(lab, work, Status.PASSED)
    return lab, work


def values(work: Work) -> dict[tuple[str, int], float]:
    with (work.directory / "bandwidth.csv").open() as file:
        return {
            (r["protocol"], int(r["receivers"])): float(r["mbit_per_s"])
            for r in csv.DictReader(file)
        }


def derived(work: Work, source: int, m: int, stamp: str, started: float) -> None:
    """Make a run with m receivers from that with `source`: LDM6's sender has sent in proportion, by
    its counters and by sar."""
    (run,) = (work.directory / "runs/scaling").glob("[0-9]*Z")
    for protocol in ("ldm6", "ldm7"):
        cell = run.with_name(run.name + stamp) / f"cells/{protocol}-m{m}-r20-p0"
        shutil.copytree(run / f"cells/{protocol}-m{source}-r20-p0", cell)
        factor = m / source if protocol == "ldm6" else 1
        described = json.loads((cell / "cell.json").read_text())
        described["m"] = described["factors"]["receivers"] = m
        (cell / "cell.json").write_text(json.dumps(described))
        nic = described["nic1"]
        end = json.loads((cell / "counters-end.json").read_text())
        start = json.loads((cell / "counters-start.json").read_text())
        before = start["interfaces"][f"umass/{nic}"]["tx_bytes"]
        sent = end["interfaces"][f"umass/{nic}"]["tx_bytes"] - before
        end["interfaces"][f"umass/{nic}"]["tx_bytes"] = before + round(factor * sent)
        (cell / "counters-end.json").write_text(json.dumps(end))
        log = cell / "logs/sar.log"
        lines = [line.split() for line in log.read_text().splitlines()]
        for words in lines:
            if len(words) > 5 and words[1] == nic:
                words[5] = f"{factor * float(words[5]):.2f}"
        log.write_text("\n".join(" ".join(words) for words in lines) + "\n")
        ran = json.loads((cell / "run.json").read_text())
        (cell / "run.json").write_text(json.dumps({**ran, "started": started}))
        digests.write_cell(cell)


def rewritten(work: Work, factor: float, only: str = "") -> None:
    """Write bandwidth.csv with values times `factor` (of one protocol)."""
    table = values(work)
    with (work.directory / "bandwidth.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["protocol", "receivers", "mbit_per_s"])
        for (protocol, m), value in table.items():
            rows.writerow([protocol, m, value * factor if only in protocol else value])


@pytest.mark.parametrize(
    ("factor", "only", "hint"),
    [
        (2, "", "twice"),
        (1000 / 1024, "", "kilo"),
        (1 / 8, "", "bits"),
        (10 / 12, "", "time"),
        (0.9, "ldm7", "other"),
    ],
)
def test_a_wrong_table(copy: tuple[Lab, Work], factor: float, only: str, hint: str) -> None:
    lab, work = copy
    rewritten(work, factor, only)
    assert judged(lab, work, "table") == (Status.FAILED, hint)
    assert judged(lab, work, "plot") == (Status.FAILED, "old")  # drawn from the previous table


def test_a_table_that_cannot_be_read(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    (work.directory / "bandwidth.csv").write_text("protocol,receivers,mbit_per_s\nldm6,two,3\n")
    assert judged(lab, work, "table") == (Status.FAILED, "columns")


@pytest.mark.parametrize(
    ("check", "answer", "value", "hint"),
    [
        ("slope", "ldm6_mbit_per_s_per_receiver", 1, "other"),
        ("flat", "ldm7_growth_percent", 1.0 + 3, "other"),
        ("limit", "ldm6_receivers_at_1_gbit_per_s", 10, "other"),
    ],
)
def test_a_wrong_answer(
    copy: tuple[Lab, Work], check: str, answer: str, value: float, hint: str
) -> None:
    lab, work = copy
    write_answers(work, {answer: value})
    assert judged(lab, work, check) == (Status.FAILED, hint)


def test_a_prediction_that_is_wrong_or_late(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    path = work.directory / "prediction.yaml"
    begun = path.stat().st_mtime
    right = path.read_text()
    for protocol, wrong in (("ldm6", 480), ("ldm7", 60)):
        write_answers(work, {f"{protocol}_24_receivers_mbit_per_s": wrong}, "prediction.yaml")
        os.utime(path, (begun, begun))
        assert judged(lab, work, "prediction") == (Status.FAILED, protocol)
        path.write_text(right)
    os.utime(path, (begun + 60, begun + 60))
    assert judged(lab, work, "prediction") == (Status.FAILED, "after")


def test_a_run_that_was_changed_or_is_of_another_seed(copy: tuple[Lab, Work]) -> None:
    lab, work = copy
    (counters,) = (work.directory / "runs/scaling").glob("*Z-2/cells/ldm6-m4-*/counters-end.json")
    text = counters.read_text()
    counters.write_text(text + " ")
    assert judged(lab, work, "runs") == (Status.FAILED, "not-yours")
    counters.write_text(text)
    assert judged(lab, work, "runs")[0] is Status.PASSED
    other = Work(work.directory, work.lab, "bob", work.identity, work.made)
    assert judged(lab, other, "runs") == (Status.FAILED, "not-yours")


@pytest.mark.parametrize("wrong", wrong_answers(5), ids=lambda wrong: wrong.name)
def test_the_wrong_answers(copy: tuple[Lab, Work], wrong: Wrong) -> None:
    lab, work = copy
    write_answers(work, wrong.values(right_answers(work)))
    assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)


def test_graded_again(copy: tuple[Lab, Work], tmp_path: Path) -> None:
    lab, work = copy
    assert_graded(lab, work, tmp_path / "class")
