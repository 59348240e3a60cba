# SPDX-License-Identifier: Apache-2.0
"""The runner around a cell process that is only a function: no network, no root."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import looking
from common.places import ROOT, TOPOLOGIES
from experiments.cells.job import Job
from experiments.cells.run_directory import (
    RunDirectory,
    latest_run,
    partial_runs,
    write_json,
)
from experiments.design.spec import (
    ExperimentSpec,
    find,
    load_as,
)
from experiments.design.spec_options import override
from experiments.runs import (
    digests,
    runner,
)
from experiments.runs.progress import PlainReporter
from experiments.runs.resume import is_sound
from experiments.runs.until_decided import Until
from experiments.tests.played import (
    WAYS,
    Play,
    Played,
    Prepared,
    Stage,
    cannot_start,
    good,
    judged_as,
    prepared,
    run,
    says_error,
    sometimes,
    spec,
)
from experiments.tests.test_until_decided import CLAIM
from parsers.measure.claims import ClaimResult, Part
from parsers.measure.undecided import Decider
from virtual.turns import Turns


def test_a_complete_run(tmp_path: Path, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path, command=["experiments", "run", "lossy"])
    assert stage.played == ["ldm7-m2-r20-p1", "ldm6-m2-r20-p1"]
    assert stage.running == set()
    assert stage.most_at_once == 1
    assert result.identical
    assert result.invalid == ()
    assert result.path.parent == tmp_path / "runs/lossy"
    assert (tmp_path / "runs/lossy/latest").resolve() == result.path
    assert sorted(p.name for p in result.path.iterdir()) == [
        "cells",
        "digests.json",
        "manifest.json",
        "trace.txt",
    ]
    manifest = json.loads((result.path / "manifest.json").read_text())
    assert manifest["experiment"] == "lossy"
    assert manifest["clock"] == "played"
    assert manifest["seeds"] == [2053]
    assert manifest["command"] == ["experiments", "run", "lossy"]
    assert manifest["spec"]["paper"][0]["value"] == 88.7
    assert manifest["level"] is None
    assert manifest["cells_in_order"] == stage.played
    assert manifest["failed"] == {}
    assert set(manifest["cell_seconds"]) == set(stage.played)
    text = (result.path / "trace.txt").read_bytes()
    assert manifest["traces"]["2053"] == {
        **{"source": "trace.txt", "products": 2, "bytes": 300, "file": "trace.txt"},
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    (result.path / "cells/ldm7-m2-r20-p1/verdict.json").write_text("{}")
    assert not is_sound(result.path / "cells/ldm7-m2-r20-p1")
    assert is_sound(result.path / "cells/ldm6-m2-r20-p1")
    assert manifest["git"]["commit"]
    assert manifest["machine"]["cores"] >= 1
    lines = capsys.readouterr().out.splitlines()
    assert any("ldm7-m2-r20-p1 (1/2): replaying" in line for line in lines)
    assert "ldm6-m2-r20-p1: all products identical; verdict: faithful" in lines


def test_a_run_keeps_a_topology_of_its_own(tmp_path: Path, stage: Stage) -> None:
    own = tmp_path / "own.yaml"
    own.write_text((TOPOLOGIES / "geni5.yaml").read_text())
    given = spec(tmp_path).model_copy(update={"topology": str(own)})
    chosen = runner.RunOptions(runs=tmp_path / "runs")
    result = runner.run_experiment(given, runner.plan(given), PlainReporter(), chosen)
    assert stage.running == set()
    copy = result.path / runner.TOPOLOGY_COPY
    text = own.read_text()
    assert copy.read_text() == text
    # When it is repeated after the file is gone, a run uses the copy and keeps its own.
    planned = runner.plan(given)
    own.unlink()
    chosen = runner.RunOptions(runs=tmp_path / "runs", topology=copy)
    again = runner.run_experiment(given, planned, PlainReporter(), chosen)
    assert (again.path / runner.TOPOLOGY_COPY).read_text() == text


def test_cells_wait_for_their_turn_on_a_shared_machine(
    tmp_path: Path,
    stage: Stage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two cells could run at once, but the machine has one place, which another user takes
    first."""
    stage.jobs, stage.machine = 2, tmp_path / "turns"
    (stage.machine / "tickets").mkdir(parents=True)
    (stage.machine / "places").mkdir()
    (stage.machine / "places/0").touch()
    other = Turns(stage.machine).take()
    assert other is not None
    looks = iter(range(10))

    def look(_seconds: float) -> float:
        if next(looks, None) == 5:
            assert stage.played == []
            other.end()
        return 0.001

    monkeypatch.setattr(looking, "every_s", look)
    result = run(tmp_path)
    assert len(result.cells) == 2 and stage.most_at_once == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "waiting" in line]
    assert told == ["waiting for a place: 1 guests run on this machine, 0 come first"]
    assert [*(stage.machine / "tickets").iterdir()] == []


def test_cells_run_at_once_and_results_keep_the_order_of_the_plan(
    tmp_path: Path, stage: Stage
) -> None:
    def slow_ldm7(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == "ldm7":
            for _ in range(50):
                yield {"event": "phase", "text": "slow"}
        yield from good(job, out)

    stage.jobs, stage.play = 2, slow_ldm7
    result = run(tmp_path)
    assert stage.most_at_once == 2
    assert [c.cell for c in result.cells] == ["ldm7-m2-r20-p1", "ldm6-m2-r20-p1"]


def test_the_order_of_cells_is_random_but_the_seeds(tmp_path: Path, stage: Stage) -> None:
    """12 cells: the chance that a shuffle does not change their order is 1 in 479 million."""
    given = spec(tmp_path).model_copy(update={"repeats": 6})
    names = [p.cell.cell for p in runner.plan(given)]
    played = []
    for _ in range(2):
        stage.played = []
        result = runner.run_experiment(
            given, runner.plan(given), PlainReporter(), runner.RunOptions(runs=tmp_path / "runs")
        )
        played.append(stage.played)
        assert [c.cell for c in result.cells] == names
        manifest = json.loads((result.path / "manifest.json").read_text())
        assert (manifest["order"], manifest["cells_in_order"]) == ("random", stage.played)
    assert played[0] == played[1]
    assert played[0] != names
    assert sorted(played[0]) == sorted(names)


def test_some_of_the_cells(tmp_path: Path, stage: Stage) -> None:
    given = spec(tmp_path)
    planned = runner.plan(given, only=["protocol=ldm6"])
    options = runner.RunOptions(runs=tmp_path / "runs")
    result = runner.run_experiment(given, planned, PlainReporter(), options)
    assert stage.played == [c.cell for c in result.cells] == ["ldm6-m2-r20-p1"]


# -- failures ---------------------------------------------------------------------------------
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("way", "problem"), WAYS)
def test_a_failed_cell_is_run_once_more(
    tmp_path: Path, stage: Stage, way: Play, problem: str, jobs: int
) -> None:
    stage.jobs, stage.play = jobs, sometimes(way, "ldm7", 1)
    result = run(tmp_path)
    assert sorted(stage.played) == ["ldm6-m2-r20-p1", "ldm7-m2-r20-p1", "ldm7-m2-r20-p1"]
    assert {c.cell: c.runs for c in result.cells} == {"ldm7-m2-r20-p1": 2, "ldm6-m2-r20-p1": 1}
    assert result.failed == ()
    assert result.problems == {"ldm7-m2-r20-p1": [problem]}
    kept = result.path / "failed/ldm7-m2-r20-p1/attempt-1"
    assert (kept / "problem.txt").read_text() == problem + "\n"
    assert (kept / "logs/cell.stderr").exists() == (way is not cannot_start)
    assert (kept / "captures/core.pcapng").exists() == (way is says_error)
    ran = json.loads((result.path / "cells/ldm7-m2-r20-p1/run.json").read_text())
    assert ran["attempt"] == 2
    assert [phase["text"] for phase in ran["phases"]] == ["replaying"]
    assert 0 <= ran["phases"][0]["real_s"] <= ran["real_s"]


def test_a_problem_names_files_where_they_stay(tmp_path: Path, stage: Stage) -> None:
    def says_where(_job: Job, out: Path) -> Iterator[dict[str, Any]]:
        (out / "ldmd.log").write_text("why")
        yield {"event": "error", "text": f"see {out / 'ldmd.log'}"}

    stage.play = sometimes(says_where, "ldm7", 2)
    result = run(tmp_path)
    for problem in result.problems["ldm7-m2-r20-p1"]:
        assert Path(problem.removeprefix("see ")).read_text() == "why"


@pytest.mark.parametrize(("way", "problem"), WAYS)
def test_a_cell_that_fails_twice_is_reported_and_the_sweep_goes_on(
    tmp_path: Path, stage: Stage, way: Play, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reported: list[Path] = []

    def take_down(path: Path) -> int:
        reported.append(path)
        return 0

    stage.report = take_down
    stage.play = sometimes(way, "ldm7", 2)
    result = run(tmp_path)
    assert stage.played == ["ldm7-m2-r20-p1"] * 2 + ["ldm6-m2-r20-p1"]
    assert [c.cell for c in result.cells] == ["ldm6-m2-r20-p1"]
    assert result.failed == ("ldm7-m2-r20-p1",)
    assert len(reported) == 1  # the report is still written
    assert (tmp_path / "runs/lossy/latest").resolve() == result.path
    folder = result.path / "failed/ldm7-m2-r20-p1"
    assert sorted(p.name for p in folder.iterdir()) == ["attempt-1", "attempt-2"]
    manifest = json.loads((result.path / "manifest.json").read_text())
    where = "failed/ldm7-m2-r20-p1"
    assert manifest["failed"] == {"ldm7-m2-r20-p1": {"reason": problem, "artefacts": where}}
    assert manifest["problems"] == {"ldm7-m2-r20-p1": [problem, problem]}
    assert not (result.path / "cells/ldm7-m2-r20-p1").exists()
    out = capsys.readouterr().out
    assert f"ldm7-m2-r20-p1: FAILED: {problem}" in out
    assert "1 FAILED]" in out or "(2/2)" in out


def test_a_run_without_any_result_is_the_latest_but_none_to_report(
    tmp_path: Path, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(tmp_path)
    stage.play = says_error
    result = run(tmp_path)
    assert result.cells == ()
    assert not result.report_ok
    assert set(result.failed) == {"ldm7-m2-r20-p1", "ldm6-m2-r20-p1"}
    assert (result.path / "failed/ldm6-m2-r20-p1/attempt-2/problem.txt").exists()
    assert (tmp_path / "runs/lossy/latest").resolve() == result.path != before.path
    assert latest_run(tmp_path / "runs") == before.path
    named = re.findall(r"its logs are in (\S+)", capsys.readouterr().out)
    assert len(named) == 2
    assert all(Path(path).is_dir() for path in named)


def test_an_invalid_cell_whose_second_run_fails_is_taken_back(tmp_path: Path, stage: Stage) -> None:
    plays = [judged_as("invalid"), says_error, good]
    stage.play = lambda job, out: plays.pop(0)(job, out)
    result = run(tmp_path)
    assert [(c.cell, c.verdict, c.runs) for c in result.cells] == [
        ("ldm7-m2-r20-p1", "invalid", 2),
        ("ldm6-m2-r20-p1", "faithful", 1),
    ]
    assert result.failed == ()
    assert (result.path / "cells/ldm7-m2-r20-p1/verdict.json").exists()


# -- invalid verdicts -------------------------------------------------------------------------
def test_an_invalid_cell_is_run_once_more_and_the_first_is_kept_aside(
    tmp_path: Path, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.play = judged_as("faithful", "invalid", "degraded")
    result = run(tmp_path)
    assert stage.played == ["ldm7-m2-r20-p1", "ldm6-m2-r20-p1", "ldm6-m2-r20-p1"]
    assert [(c.verdict, c.runs) for c in result.cells] == [("faithful", 1), ("degraded", 2)]
    assert result.invalid == ()
    aside = result.path / "set-aside/ldm6-m2-r20-p1.1/verdict.json"
    assert json.loads(aside.read_text())["verdict"] == "invalid"
    manifest = json.loads((result.path / "manifest.json").read_text())
    assert manifest["runs"] == {"ldm7-m2-r20-p1": 1, "ldm6-m2-r20-p1": 2}
    assert "run once more" in capsys.readouterr().out


def test_a_cell_that_is_invalid_twice_stays_invalid(tmp_path: Path, stage: Stage) -> None:
    stage.play = judged_as("invalid", "invalid", "faithful")
    result = run(tmp_path)
    assert result.invalid == ("ldm7-m2-r20-p1",)
    assert stage.played.count("ldm7-m2-r20-p1") == 2


# -- interruptions ----------------------------------------------------------------------------
class Interruptions:
    """Raises KeyboardInterrupt at the n-th place that is reported to it; counts the places."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def here(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise KeyboardInterrupt

    def around(self, function: Callable[..., Any], *, after: bool = True) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self.here()
            found = function(*arguments, **options)
            if after:
                self.here()
            return found

        return run


def interrupt_everywhere(monkeypatch: pytest.MonkeyPatch, at: int) -> Interruptions:
    """Interrupt before and after everything that changes a run's directory."""
    places = Interruptions(at)
    for name in ("partial_cell", "complete_cell", "keep_failed", "set_aside", "remove_work"):
        monkeypatch.setattr(RunDirectory, name, places.around(getattr(RunDirectory, name)))
    monkeypatch.setattr(runner, "report", places.around(lambda _path, **_options: 0))
    monkeypatch.setattr(runner, "write_json", places.around(write_json))
    for name in ("write_cell", "write_run"):
        monkeypatch.setattr(digests, name, places.around(getattr(digests, name)))
    # After a start, signals are deferred until the cell is known (see below).
    monkeypatch.setattr(Stage, "start", places.around(Stage.start, after=False))
    return places


def trouble() -> Play:
    """ldm7 fails, then is invalid; ldm6 is good."""
    plays = [says_error, judged_as("invalid")]

    def play(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        return plays.pop(0)(job, out) if job.cell.protocol == "ldm7" and plays else good(job, out)

    return play


def places_of_a_whole_run(tmp_path: Path, stage: Stage, what: Prepared) -> int:
    tmp_path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        places = interrupt_everywhere(patch, at=0)
        stage.play = trouble()
        run(tmp_path, what)
    return places.seen


@pytest.mark.slow
def test_an_interruption_anywhere_leaves_no_half_cell(tmp_path: Path, stage: Stage) -> None:
    """A resumed run then uses every complete cell and no other."""
    what = prepared(tmp_path)
    count = places_of_a_whole_run(tmp_path / "whole", stage, what)
    assert count > 20
    for at in range(1, count + 1):
        place = tmp_path / str(at)
        place.mkdir()
        stage.played, stage.play = [], trouble()
        with pytest.MonkeyPatch.context() as patch:
            interrupt_everywhere(patch, at)
            with pytest.raises(KeyboardInterrupt):
                run(place, what)
        assert stage.running == set(), at
        folder = place / "runs/lossy"
        assert not (folder / "latest").exists(), at
        complete: list[str] = []
        for partial in partial_runs(place / "runs", "lossy"):
            names = [p.name for p in (partial / "cells").iterdir()]
            assert not any(name.startswith(".") for name in names), at
            complete += names
        stage.played, stage.play = [], good
        result = run(place, what, resume=True)
        assert sorted([*stage.played, *complete]) == ["ldm6-m2-r20-p1", "ldm7-m2-r20-p1"], at
        assert {c.cell for c in result.cells if c.resumed} == set(complete), at
        assert list(partial_runs(place / "runs", "lossy")) == [], at
        assert [p.name for p in folder.glob(".*")] == [], at


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_right_after_a_start_leaves_no_cell_running(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    start = Stage.start

    def signalled(self: Stage, job: Job, out: Path) -> Played:
        found = start(self, job, out)
        os.kill(os.getpid(), number)
        return found

    monkeypatch.setattr(Stage, "start", signalled)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert stage.stopped == 1
    assert stage.running == set()


def test_a_killed_runner_leaves_what_can_be_resumed(tmp_path: Path, stage: Stage) -> None:
    """After kill -9 nothing is tidied up: a cell is half written, another one is complete."""
    given = spec(tmp_path)
    directory = RunDirectory(tmp_path / "runs", "lossy", datetime.datetime.now(datetime.UTC))
    whole, half = runner.plan(given)
    for item in (whole, half):
        out = directory.partial_cell(item.cell.cell)
        (out / "logs").mkdir()
        job = SimpleNamespace(digest=item.digest("played"))
        list(good(job, out))  # type: ignore[arg-type]
        digests.write_cell(out)
    directory.complete_cell(whole.cell.cell)
    assert list(partial_runs(tmp_path / "runs", "lossy")) == []  # it is still being made
    os.close(directory._lock.fileno())  # what the kernel does when a process is killed
    assert list(partial_runs(tmp_path / "runs", "lossy")) == [directory.path]
    result = run(tmp_path, resume=True)
    assert stage.played == [half.cell.cell]
    assert {c.cell: c.resumed for c in result.cells} == {
        whole.cell.cell: True,
        half.cell.cell: False,
    }
    assert [p.name for p in (tmp_path / "runs/lossy").glob(".*")] == []


def test_what_failed_before_an_interruption_is_kept_by_the_resumed_run(
    tmp_path: Path, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == "ldm6":
            raise KeyboardInterrupt
        return says_error(job, out)

    stage.play = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    stage.play = sometimes(says_error, "ldm7", 1)
    result = run(tmp_path, resume=True)
    folder = result.path / "failed/ldm7-m2-r20-p1"
    assert sorted(p.name for p in folder.iterdir()) == [f"attempt-{n}" for n in (1, 2, 3)]
    assert "resumed: found no complete cell" in capsys.readouterr().out


def test_without_resume_everything_runs_again(tmp_path: Path, stage: Stage) -> None:
    def interrupted(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == "ldm6":
            raise KeyboardInterrupt
        yield from good(job, out)

    stage.play = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert stage.running == set()
    stage.play, stage.played = good, []
    run(tmp_path)
    assert len(stage.played) == 2


def played_until(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[runner.RunResult, dict[str, Any]]:
    """Run two repeats of both protocols, and up to five more of LDM6 until six cells have ended."""
    given = override(spec(tmp_path), {"repeats": 5})
    part = Part("x", "not decidable", "", "", "", Decider("", True), ({"protocol": "ldm6"},))
    is_open = ClaimResult(CLAIM, "not decidable", "", parts=(part,))
    held = ClaimResult(CLAIM, "held", "")
    monkeypatch.setattr(
        runner, "judge_of", lambda _spec, _cells: lambda n: [held if len(n) >= 6 else is_open]
    )
    what = (given, runner.plan(given))
    until = Until(3600.0, 1)
    result = run(tmp_path, what, until=until, **options)
    return result, json.loads((result.path / "manifest.json").read_text())


def test_repeats_are_added_until_claims_are_decided(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, described = played_until(tmp_path, monkeypatch)
    names = [f"ldm{p}-m2-r20-p1-n{n}" for n in (1, 2) for p in (7, 6)]
    assert stage.played == [*names, "ldm6-m2-r20-p1-n3", *(f"ldm6-m2-r20-p1-n{n}" for n in (4, 5))]
    assert [c["cell"] for c in described["cells"]] == [c.cell for c in result.cells]
    assert described["cells_in_order"] == stage.played
    assert described["seeds"] == [2053, 2054, 2055, 2056, 2057]
    assert described["until_decided"] == {
        "budget_s": 3600.0,
        "stopped": "1 of 1 claims are decided",
        "over": False,
        "repeats": 1,
    }


def test_an_early_end_leaves_whole_repeats(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = override(spec(tmp_path), {"repeats": 8, "seed": 4})
    monkeypatch.setattr(runner, "judge_of", lambda _spec, _cells: lambda _names: [])
    run(tmp_path, (given, runner.plan(given)), until=Until(3600.0, 8), order="random")
    assert [name[-1] for name in stage.played] == [n for n in "12345678" for _ in "76"]


def test_a_run_until_decided_is_resumed(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_at_the_sixth(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if len(stage.played) == 6:
            raise KeyboardInterrupt
        yield from good(job, out)

    stage.play = interrupted_at_the_sixth
    with pytest.raises(KeyboardInterrupt):
        played_until(tmp_path, monkeypatch)
    assert stage.played[5] == "ldm6-m2-r20-p1-n4"
    stage.play, first, stage.played = good, stage.played[:5], []
    result, described = played_until(tmp_path, monkeypatch, resume=True)
    assert sorted(described["cells_resumed"]) == sorted(first)
    assert len(result.cells) == 7
    assert stage.played == ["ldm6-m2-r20-p1-n4", "ldm6-m2-r20-p1-n5"]


@pytest.mark.usefixtures("stage")
def test_cells_of_another_state_of_the_code_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "report", Interruptions(1).around(lambda _path, **_options: 0))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    monkeypatch.setattr(runner, "report", lambda _path, **_options: 0)
    code = {"Python files": "0" * 16, "C programs": "1" * 16}
    monkeypatch.setattr("experiments.runs.manifest.code", lambda _build: code)
    result = run(tmp_path, resume=True)
    printed = capsys.readouterr().out
    assert "run by a different version of the code: ldm7-m2-r20-p1, ldm6-m2-r20-p1" in printed
    assert "changed during the run" not in printed
    described = json.loads((result.path / "manifest.json").read_text())
    assert sorted(described["other_code"]) == ["ldm6-m2-r20-p1", "ldm7-m2-r20-p1"]


def test_cells_that_ran_while_the_code_changed_are_named(
    tmp_path: Path,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second cell begins with the old code and ends with new code."""
    code = {"Python files": "0" * 16, "C programs": "1" * 16}

    def edited(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if len(stage.played) == 2:
            code["Python files"] = "2" * 16
        yield from good(job, out)

    monkeypatch.setattr("experiments.runs.manifest.code", lambda _build: dict(code))
    stage.play = edited
    result = run(tmp_path)
    (changed,) = json.loads((result.path / "manifest.json").read_text())["other_code"]
    assert changed == stage.played[1]
    record = json.loads((result.path / "cells" / changed / "run.json").read_text())
    assert record["code"]["Python files"] == "0" * 16
    assert record["code_after"]["Python files"] == "2" * 16
    assert f"*** the code changed during the run; other code ran {changed}" in (
        capsys.readouterr().out
    )


def test_the_job_survives_its_file(tmp_path: Path, stage: Stage) -> None:
    run(tmp_path)
    assert Job.from_json(stage.job.to_json()) == stage.job


def test_not_enough_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 300_000_000))
    # ... which is also all that /dev/shm has.
    # 3 x (1.5 x 300 B + 64 MB) + 256 MB
    with pytest.raises(runner.RunError, match=r"found 0\.30 GB free .*; valid: 0\.45 GB"):
        runner.check_disk(runner.plan(spec(tmp_path)), tmp_path / "not/there/yet")


def test_a_queue_that_cannot_hold_the_largest_product(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("900000000 20150615000000.009\n")
    given = override(
        load_as(ExperimentSpec, find("lossy")),
        {"trace": str(tmp_path / "t"), "queue_bytes": 1_000_000_000},
    )
    with pytest.raises(runner.RunError, match="a sender queue .*valid: at least 1800000000"):
        runner.check_queues(runner.plan(given))
    both = {"q_snd": 2_000_000_000, "q_rcv": 1_000_000_000}
    given = given.model_copy(update={"parameters": given.parameters.model_copy(update=both)})
    with pytest.raises(runner.RunError, match="a receiver queue .*valid: at least 1800000000"):
        runner.check_queues(runner.plan(given))


def test_missing_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    expected = "ldm7/pqinsert.*valid: build them with `make build` in the checkout"
    with pytest.raises(runner.RunError, match=expected):
        runner.check_machine(runner.plan(spec(tmp_path)), tmp_path, build=tmp_path)


@pytest.mark.slow
def test_a_real_cell_process_reports_a_broken_job_and_leaves(tmp_path: Path) -> None:
    """Test the process protocol end to end, without a network: the job file does not exist."""
    argv = [sys.executable, "-m", "experiments", "cell", str(tmp_path / "none"), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_the_queues_can_be_kept(tmp_path: Path, stage: Stage) -> None:
    assert not (run(tmp_path).path / "work").exists()
    assert (run(tmp_path, keep_work=True).path / "work/ldm7-m2-r20-p1").is_dir()
    assert stage.job.keep_work
