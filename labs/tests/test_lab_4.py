# SPDX-License-Identifier: Apache-2.0
"""Lab 4 as a student would do it, with tshark; the checks read the same capture without it."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from experiments.design.trace_input import prepare
from experiments.tests.built import IN_GUESTS
from labs import fmtp_capture as fmtp
from labs.checking import Status
from labs.spec import Lab
from labs.tests.measuring import (
    Wrong,
    assert_all,
    assert_graded,
    assert_none_passes,
    begin,
    copied,
    judged,
    measure,
    right_answers,
    write_answers,
    wrong_answers,
)
from labs.workdir import Work

pytestmark = [
    *IN_GUESTS,
    pytest.mark.skipif(
        shutil.which("tshark") is None, reason="SKIPPED: no tshark here (make test-setup)"
    ),
]
SOLUTION = Path(__file__).resolve().parents[1] / "solutions/4-nacks/solution.py"
PREDICTED = "products_without_repair_percent"


def foretold(lab: Lab, student: str) -> float:
    """Compute the prediction by the formula, before anything is measured."""
    own = lab.parameters(student)
    assert isinstance(own["seed"], int) and isinstance(own["more_loss_percent"], int)
    trace = prepare("model", 6, own["seed"])
    sizes = [int(line.split()[0]) for line in trace.text.splitlines()]
    p = own["more_loss_percent"] / 100
    return 100 * statistics.fmean((1 - p) ** (-(-size // 1448)) for size in sizes)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work, dict[str, float]]:
    """Solve the lab; both runs at once, as two guests."""
    lab, work = begin(4, tmp_path_factory.mktemp("lab4") / "w")
    assert_none_passes(lab, work)
    assert judged(lab, work, "capture") == (Status.NOTHING, "missing")
    write_answers(work, {PREDICTED: round(foretold(lab, work.student), 1)}, "prediction.yaml")
    assert judged(lab, work, "prediction") == (Status.FAILED, "run")
    measure(work, "nacks.yaml", "--capture", "tor-umass:newy")
    said = subprocess.run(
        [sys.executable, str(SOLUTION), str(work.directory)],
        capture_output=True, text=True, check=True, timeout=600,
    ).stdout  # fmt: skip
    answers: dict[str, float] = YAML(typ="safe").load(said)
    write_answers(work, answers)
    assert_all(lab, work, Status.PASSED)
    return lab, work, answers


@pytest.fixture
def copy(
    solved: tuple[Lab, Work, dict[str, float]], tmp_path: Path
) -> tuple[Lab, Work, dict[str, float]]:
    """Return a copy of the solved work directory, to spoil."""
    lab, work, answers = solved
    return lab, copied(work, tmp_path / "w"), answers


def address_of(lab: Lab, student: str) -> str:
    host = lab.parameters(student)["receiver"]
    return {"wsu1": "10.10.1.2", "sl1": "10.10.1.3", "uh1": "10.10.1.4", "osf1": "10.10.1.5"}[
        str(host)
    ]


def test_typical_wrong_answers(copy: tuple[Lab, Work, dict[str, float]]) -> None:
    """Each is a typical mistake, which its hint names."""
    lab, work, right = copy
    loss = lab.parameters(work.student)["loss_percent"]
    capture = next(
        p
        for p in work.directory.glob("runs/nacks/*Z/cells/*/captures/*.pcapng")
        if p.parents[1].name.endswith(f"-p{loss}")
    )
    seen = fmtp.messages(capture)
    me = address_of(lab, work.student)
    mine = [m for m in seen if m.source == me and m.kind == fmtp.RETX_REQ]
    every = [m for m in seen if m.kind == fmtp.RETX_REQ]
    datagrams = sum(m.kind in fmtp.BY_UDP for m in seen)
    to_me = sum(m.length for m in seen if m.kind == fmtp.RETX_DATA and m.destination == me)
    blocks_of_all = sum(-(-m.length // 1448) for m in every)
    bop_requests = sum(m.kind == fmtp.BOP_REQ for m in seen)
    cases: list[tuple[str, dict[str, float], str]] = [
        ("stream", {"blocks": datagrams}, "frames"),
        ("stream", {"products": right["products"] + 1}, "other"),
        ("lost", {"datagrams_lost": right["datagrams_lost"] + 1000}, "other"),
        ("asked", {"blocks_asked_for": len(mine)}, "requests"),
        ("asked", {"blocks_asked_for": blocks_of_all}, "all"),
        ("asked", {"blocks_asked_for": right["datagrams_lost"]}, "lost"),
        ("asked", {"blocks_asked_for": 1}, "other"),
        ("first", {"first_offset": right["first_offset"] + 1448}, "block"),
        ("first", {"asked_after_ms": right["asked_after_ms"] / 2}, "asked"),
        ("first", {"answered_after_ms": right["answered_after_ms"] + 20}, "answered"),
        ("beginnings", {"bop_requests": bop_requests}, "all"),
        ("beginnings", {"bop_requests": 999}, "other"),
        ("overhead", {"retransmitted_bytes": to_me}, "mine"),
        ("overhead", {"overhead_percent": right["overhead_percent"] / 100}, "percent"),
        ("overhead", {"retransmitted_bytes": 3 * right["retransmitted_bytes"]}, "other"),
        ("repaired", {PREDICTED: right[PREDICTED] / 100}, "unit"),
        ("repaired", {PREDICTED: right[PREDICTED] + 30}, "other"),
    ]
    for check, wrong, hint in cases:
        write_answers(work, {**right, **wrong})
        assert (check, *judged(lab, work, check)) == (check, Status.FAILED, hint), wrong


def test_wrong_predictions(copy: tuple[Lab, Work, dict[str, float]]) -> None:
    lab, work, _ = copy
    path = work.directory / "prediction.yaml"
    begun = path.stat().st_mtime
    own = lab.parameters(work.student)
    p = int(str(own["more_loss_percent"])) / 100
    assert isinstance(own["seed"], int)
    lines = prepare("model", 6, own["seed"]).text.splitlines()
    mean_blocks = statistics.fmean(-(-int(line.split()[0]) // 1448) for line in lines)
    for wrong, hint in ((100 * (1 - p), "packets"), (100 * (1 - p) ** mean_blocks, "mean")):
        write_answers(work, {PREDICTED: wrong}, "prediction.yaml")
        os.utime(path, (begun, begun))
        assert judged(lab, work, "prediction") == (Status.FAILED, hint)
    os.utime(path, (begun + 3600, begun + 3600))
    assert judged(lab, work, "prediction") == (Status.FAILED, "after")


def test_somebody_elses_run(copy: tuple[Lab, Work, dict[str, float]]) -> None:
    """Use the files of another student's run: that seed, and mostly another loss and receiver."""
    lab, work, _ = copy
    other = next(
        name
        for name in ("bob", "carol", "dave", "erin", "frank")
        if lab.parameters(name)["loss_percent"] == lab.parameters(work.student)["loss_percent"]
    )
    theirs = Work(work.directory, work.lab, other, work.identity, work.made)
    assert judged(lab, theirs, "capture") == (Status.FAILED, "not-yours")


@pytest.mark.parametrize("wrong", wrong_answers(4), ids=lambda wrong: wrong.name)
def test_the_wrong_answers(copy: tuple[Lab, Work, dict[str, float]], wrong: Wrong) -> None:
    lab, work, _ = copy
    write_answers(work, wrong.values(right_answers(work)))
    assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)


def test_graded_again(copy: tuple[Lab, Work, dict[str, float]], tmp_path: Path) -> None:
    lab, work, _ = copy
    assert_graded(lab, work, tmp_path / "class")
