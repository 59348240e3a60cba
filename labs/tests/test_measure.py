# SPDX-License-Identifier: Apache-2.0
"""`labs measure` and `labs case`: their arguments, a user's mistakes, and how runs are used; no run
is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.runs import digests
from experiments.runs.options import RunChoices
from labs import measure, runs
from labs.cli import main
from labs.hidden_faults import delay_commands
from labs.spec import find_lab
from labs.workdir import open_work
from topologies.model.load import find, load


def cell(work: Path, stamp: str, m: int, verdict: str = "faithful", seed: int = 7) -> Path:
    """Write what a run leaves, as far as labs look at it before the logs."""
    place = work / "runs/scaling" / stamp / f"cells/ldm7-m{m}"
    place.mkdir(parents=True)
    described = {"seed": seed, "factors": {"receivers": m, "protocol": "ldm7"}}
    for name, value in (
        ("cell.json", described),
        ("verdict.json", {"verdict": verdict}),
        ("run.json", {"started": 5.0}),
    ):
        (place / name).write_text(json.dumps(value))
    digests.write_cell(place)
    return place


def test_a_run_has_the_students_seed_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = find_lab(5)
    open_work(lab, tmp_path / "w", "ann")
    monkeypatch.chdir(tmp_path)
    options = RunChoices(only=["receivers=2"])
    measure.prepare(5, tmp_path / "w", "scaling.yaml", options)
    assert options.runs == tmp_path / "w/runs" and options.only == ["receivers=2"]
    assert options.seed == lab.parameters("ann")["seed"]
    assert Path.cwd() == tmp_path / "w"
    own = RunChoices(seed=9)
    measure.prepare(5, tmp_path / "w", "scaling.yaml", own)
    assert own.seed == 9


@pytest.mark.parametrize("verb", ["measure", "case"])
def test_a_lab_that_was_not_started(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["a"] if verb == "case" else []
    assert main([verb, "8", "truth.yaml", *more, "--dir", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert f"found no work directory of lab 8 at {tmp_path}/none; valid: start the lab" in said
    assert "Traceback" not in said


def test_another_labs_directory_and_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_work(find_lab(5), tmp_path / "w", "ann")
    assert main(["measure", "6", "sweep.yaml", "--dir", str(tmp_path / "w")]) == 2
    assert "is the work directory of lab 5; valid: one of 6" in capsys.readouterr().err
    assert main(["measure", "5", "sclaing.yaml", "--dir", str(tmp_path / "w")]) == 2
    assert "found no file sclaing.yaml" in (said := capsys.readouterr().err)
    assert "scaling.yaml" in said.split("valid:")[1]
    assert main(["case", "5", "scaling.yaml", "a", "--dir", str(tmp_path / "w")]) == 2
    assert "found lab 5; valid: one with a parameter case_seed" in capsys.readouterr().err


def test_cells_are_found_the_newest_first_and_vetted(tmp_path: Path) -> None:
    old, new = cell(tmp_path, "20260101T000000Z", 2), cell(tmp_path, "20260102T000000Z", 2)
    cell(tmp_path, "20260102T000000Z", 8, verdict="invalid")
    (tmp_path / "runs/scaling/latest").symlink_to("20260102T000000Z")
    cell(tmp_path, ".20260103T000000Z.partial", 2)  # still being made
    found = runs.cells(tmp_path, "scaling")
    assert [c.path for c in found] == [new, new.with_name("ldm7-m8"), old]
    two = runs.newest(found, {"receivers": 2})
    assert two is not None and two.path == new
    assert runs.newest(found, {"receivers": 3}) is None
    assert runs.wrong_with(two, seed=7) == []
    (problem,) = runs.wrong_with(two, seed=8)
    assert problem == "scaling/20260102T000000Z/cells/ldm7-m2: seed is 7, not 8"
    (new / "notes.txt").write_text("a student's notes do no harm")
    assert runs.wrong_with(two, seed=7) == []
    (new / "run.json").write_text(json.dumps({"started": 6.0}) + " ")
    assert "changed: run.json" in runs.wrong_with(two)[0]
    assert "its verdict is invalid" in runs.wrong_with(found[1])[0]
    (old / "verdict.json").write_text("{")
    with pytest.raises(runs.RunProblem, match="not as a run leaves it"):
        runs.cells(tmp_path, "scaling")


def test_a_longer_link_is_longer_in_both_directions() -> None:
    network = load(find("geni5"), {"receivers": 4})
    commands = [" ".join(c) for c in delay_commands(network, "uh1", 15)]
    assert len(commands) == 2
    assert all("delay 40.0ms" in c and "limit" in c for c in commands)  # 25 + 15
    assert len({c.split(" dev ")[1].split()[0] for c in commands}) == 2
