# SPDX-License-Identifier: Apache-2.0
"""The runner around a cell process that is only played: no network, no root."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import runner
from experiments.cell_process import CellProblem
from experiments.job import Job
from experiments.plan import CellSpec
from experiments.progress import PlainReporter
from experiments.rundir import partial_runs, write_json
from experiments.spec import ExperimentSpec, find, load_as, override

Play = Callable[[Job, Path], Iterator[dict[str, Any]]]


def spec(tmp_path: Path) -> ExperimentSpec:
    trace = tmp_path / "trace.txt"
    trace.write_text("100 20150615000000.009\n200 20150615000001.008\n")
    return override(load_as(ExperimentSpec, find("lossy")), {"trace": str(trace), "receivers": 2})


def good(job: Job, out: Path) -> Iterator[dict[str, Any]]:
    yield {"event": "phase", "text": "replaying"}
    yield {
        **{"event": "progress", "elapsed_s": 1.0, "inserted": 1, "products": 2, "delivered": 0},
        "draining": False,
    }
    write_json(out / "cell.json", {"digest": job.digest})
    checks = [{"name": "products identical", "status": "pass"}]
    write_json(out / "verdict.json", {"verdict": "faithful", "checks": checks})
    yield {"event": "done", "verdict": "faithful", "identical": True}


class Played:
    """A cell's process that is only a function, one event per poll."""

    times = None

    def __init__(self, stage: Stage, job: Job, out: Path) -> None:
        self._stage, self._events = stage, stage.play(job, out)
        self._done = False
        self.code: int | None = None
        (out / "logs/cell.stderr").write_text("Traceback\nthe reason\n")

    def poll(self) -> list[dict[str, Any]]:
        for event in self._events:
            self._done = self._done or event["event"] == "done"
            return [event]
        self.code = 0 if self._done else 1
        return []

    def stop(self) -> None:
        self._stage.running.discard(self)
        self._stage.stopped += 1


class Stage:
    """A clock that plays each cell by a function; counts what was stopped."""

    name = "played"

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.play: Play = good
        self.played: list[str] = []
        self.stopped = 0
        self.running: set[Played] = set()
        self.most_at_once = 0

    def start(self, job: Job, out: Path) -> Played:
        assert job.trace.exists()
        assert job.network.exists()
        self.job = job
        self.played.append(job.cell.cell)
        played = Played(self, job, out)
        self.running.add(played)
        self.most_at_once = max(self.most_at_once, len(self.running))
        return played

    def estimate_s(self, _cell: CellSpec, trace_bytes: int) -> float:
        assert trace_bytes == 300
        return 10.0

    def describe(self) -> dict[str, Any]:
        return {"clock": self.name}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(runner, "NativeClock", lambda: stage)
    monkeypatch.setattr(runner, "TICK_S", 0.001)
    monkeypatch.setattr(runner, "report", lambda _path, **_options: 0)
    return stage


def run(tmp_path: Path, **options: Any) -> runner.RunResult:
    given = spec(tmp_path)
    runs = tmp_path / "runs"
    return runner.run_experiment(given, runner.plan(given), PlainReporter(), runs=runs, **options)


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
        "manifest.json",
        "trace-2053.txt",
    ]
    manifest = json.loads((result.path / "manifest.json").read_text())
    assert manifest["experiment"] == "lossy"
    assert manifest["clock"] == "played"
    assert manifest["seeds"] == [2053]
    assert manifest["command"] == ["experiments", "run", "lossy"]
    assert manifest["paper"][0]["value"] == 88.7
    assert manifest["git"]["commit"]
    assert manifest["machine"]["cores"] >= 1
    lines = capsys.readouterr().out.splitlines()
    assert any("ldm7-m2-r20-p1 (1/2): replaying" in line for line in lines)
    assert "ldm6-m2-r20-p1: all products identical; verdict: faithful" in lines


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


def test_when_one_of_two_cells_fails_the_other_is_stopped(tmp_path: Path, stage: Stage) -> None:
    def endless_ldm7(job: Job, _out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == "ldm6":
            yield {"event": "error", "text": "umass: tc: no"}
            return
        while True:
            yield {"event": "phase", "text": "endless"}

    stage.jobs, stage.play = 2, endless_ldm7
    with pytest.raises(runner.RunError, match="ldm6-m2-r20-p1: umass: tc: no"):
        run(tmp_path)
    assert stage.running == set()


def test_a_cell_that_cannot_be_started_or_stalls_is_reported(tmp_path: Path, stage: Stage) -> None:
    def stalls(_job: Job, _out: Path) -> Iterator[dict[str, Any]]:
        yield {"event": "phase", "text": "replaying"}
        raise CellProblem("no virtual time passed for 120 s")

    stage.play = stalls
    with pytest.raises(runner.RunError, match="ldm7-m2-r20-p1: no virtual time passed for 120 s"):
        run(tmp_path)
    assert stage.running == set()


def judged_as(*verdicts: str) -> Play:
    """Plays cells that end with these verdicts, one after the other."""
    left = list(verdicts)

    def play(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        verdict = left.pop(0)
        write_json(out / "cell.json", {"digest": job.digest})
        write_json(out / "verdict.json", {"verdict": verdict, "checks": []})
        yield {"event": "done", "verdict": verdict, "identical": True}

    return play


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


def test_a_failing_cell_ends_the_run_and_the_rest_can_be_resumed(
    tmp_path: Path, stage: Stage
) -> None:
    def fails_for_ldm6(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == "ldm7":
            yield from good(job, out)
        else:
            yield {"event": "error", "text": "umass: tc: no"}

    stage.play = fails_for_ldm6
    with pytest.raises(runner.RunError, match="ldm6-m2-r20-p1: umass: tc: no") as caught:
        run(tmp_path)
    assert stage.running == set()
    logs = Path(str(caught.value).rpartition(" ")[2])
    assert (logs / "logs/cell.stderr").exists()
    (partial,) = partial_runs(tmp_path / "runs", "lossy")
    assert [p.name for p in (partial / "cells").iterdir()] == ["ldm7-m2-r20-p1"]
    assert not (tmp_path / "runs/lossy/latest").exists()

    stage.play, stage.played = good, []
    result = run(tmp_path, resume=True)
    assert stage.played == ["ldm6-m2-r20-p1"]
    assert {c.cell: c.resumed for c in result.cells} == {
        "ldm7-m2-r20-p1": True,
        "ldm6-m2-r20-p1": False,
    }
    assert partial_runs(tmp_path / "runs", "lossy") == []


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


def test_an_interrupted_first_cell_leaves_nothing(tmp_path: Path, stage: Stage) -> None:
    def interrupted(_job: Job, _out: Path) -> Iterator[dict[str, Any]]:
        raise KeyboardInterrupt
        yield {}

    stage.play = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert stage.stopped > 0
    assert stage.running == set()
    assert list((tmp_path / "runs/lossy").iterdir()) == []


def test_a_process_that_dies_silently_is_reported_with_its_last_lines(
    tmp_path: Path, stage: Stage
) -> None:
    stage.play = lambda _job, _out: iter(())
    with pytest.raises(runner.RunError, match="ended with 1: Traceback\nthe reason"):
        run(tmp_path)


def test_the_job_survives_its_file(tmp_path: Path, stage: Stage) -> None:
    run(tmp_path)
    assert Job.from_json(stage.job.to_json()) == stage.job


def test_not_enough_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1_000_000_000))
    # ... which is all that /dev/shm has, too.
    # 5 GB + 2 x (1.5 x 300 B + 64 MB) + 256 MB
    with pytest.raises(runner.RunError, match=r"found 1\.00 GB free .*; valid: 5\.38 GB"):
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
    with pytest.raises(runner.RunError, match="ldm7/pqinsert.*valid: build them with `make build`"):
        runner.check_machine(runner.plan(spec(tmp_path)), tmp_path, build=tmp_path)


def test_a_real_cell_process_reports_a_broken_job_and_leaves(tmp_path: Path) -> None:
    """The process protocol end to end, without a network: a job file that is not there."""
    argv = [sys.executable, "-m", "experiments", "cell", str(tmp_path / "none"), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=runner.ROOT, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_the_queues_can_be_kept(tmp_path: Path, stage: Stage) -> None:
    assert not (run(tmp_path).path / "work").exists()
    assert (run(tmp_path, keep_work=True).path / "work/ldm7-m2-r20-p1").is_dir()
    assert stage.job.keep_work
