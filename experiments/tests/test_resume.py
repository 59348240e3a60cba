# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cells.job import Job
from experiments.cells.run_directory import RunDirectory, partial_runs, write_json
from experiments.runs import digests, resume
from experiments.runs.preparation import RunError
from experiments.runs.resume import take_over
from experiments.runs.sweep import resumed
from experiments.tests.played import Stage, good, judged_as
from experiments.tests.played import run as play

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def finish_cell(run: RunDirectory, name: str, digest: str) -> None:
    out = run.partial_cell(name)
    write_json(out / "cell.json", {"digest": digest})
    (out / "log").write_text("line\n")
    digests.write_cell(out)
    run.complete_cell(name)


def test_resume_takes_complete_cells_with_the_same_digest(tmp_path: Path) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    finish_cell(old, "a", "1")
    finish_cell(old, "b", "1")
    old.partial_cell("c")
    assert old.abandon()
    run = RunDirectory(tmp_path, "x", NOW + datetime.timedelta(seconds=9))
    assert take_over(run, tmp_path, "x", {"a": "1", "b": "2", "c": "1"}) == ["a"]
    assert run.complete_cells() == ["a"]
    assert list(partial_runs(tmp_path, "x")) == [old.path]  # b still exists
    assert run.abandon()
    again = RunDirectory(tmp_path, "x", NOW + datetime.timedelta(seconds=20))
    assert take_over(again, tmp_path, "x", {"a": "1", "b": "1"}) == ["a", "b"]
    assert list(partial_runs(tmp_path, "x")) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": 5}'])
def test_a_damaged_cell_is_not_resumed(tmp_path: Path, text: str) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    out = old.partial_cell("a")
    (out / "cell.json").write_text(text)
    digests.write_cell(out)
    old.complete_cell("a")
    old.abandon()
    run = RunDirectory(tmp_path, "x", NOW)
    assert take_over(run, tmp_path, "x", {"a": "5"}) == []


@pytest.mark.parametrize("what", ["changed", "missing", "without digests"])
def test_a_cell_that_is_not_as_it_was_written_is_not_resumed(tmp_path: Path, what: str) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    finish_cell(old, "a", "1")
    old.abandon()
    cell = old.path / "cells/a"
    if what == "changed":
        (cell / "log").write_text("lone\n")
    else:
        (cell / ("log" if what == "missing" else digests.NAME)).unlink()
    run = RunDirectory(tmp_path, "x", NOW)
    assert take_over(run, tmp_path, "x", {"a": "1"}) == []


def test_a_run_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    other = RunDirectory(tmp_path, "x", NOW)
    finish_cell(other, "a", "1")
    run = RunDirectory(tmp_path, "x", NOW)
    assert take_over(run, tmp_path, "x", {"a": "1"}) == []
    assert other.complete_cells() == ["a"]


def test_a_second_resume_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    finish_cell(old, "a", "1")
    finish_cell(old, "b", "1")
    old.abandon()
    first, second = RunDirectory(tmp_path, "x", NOW), RunDirectory(tmp_path, "x", NOW)
    sound = resume.is_sound

    def meanwhile(cell: Path) -> bool:
        with pytest.raises(RunError, match=r"^--resume: found another --resume of x, .*; valid: "):
            take_over(second, tmp_path, "x", {"a": "1", "b": "1"})
        return sound(cell)

    monkeypatch.setattr(resume, "is_sound", meanwhile)
    assert take_over(first, tmp_path, "x", {"a": "1", "b": "1"}) == ["a", "b"]
    assert second.complete_cells() == []
    assert take_over(second, tmp_path, "x", {"a": "1"}) == []


def test_first_attempts_that_were_set_aside_come_along(tmp_path: Path) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    for cell in ("a", "b", "other"):
        finish_cell(old, cell, "1")
        old.set_aside(cell)
    finish_cell(old, "a", "1")
    old.abandon()
    run = RunDirectory(tmp_path, "x", NOW)
    assert take_over(run, tmp_path, "x", {"a": "1", "b": "1", "other": "2"}) == ["a"]
    assert sorted(p.name for p in (run.path / "set-aside").iterdir()) == ["a.1", "b.1"]
    assert [p.name for p in (old.path / "set-aside").iterdir()] == ["other.1"]


def test_the_number_of_runs_of_a_resumed_cell(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    finish_cell(run, "a", "1")
    write_json(run.cells / "a/verdict.json", {"verdict": "faithful", "checks": []})
    assert resumed(run, "a").runs == 1
    write_json(run.cells / "a/run.json", {"attempt": 2})
    assert resumed(run, "a").runs == 2


def test_an_attempt_that_was_set_aside_before_an_interruption_is_counted(
    tmp_path: Path, stage: Stage
) -> None:
    """The first cell is complete at its second attempt, the other one was to run once more."""
    attempts = judged_as("invalid", "faithful", "invalid")

    def interrupted_at_the_fourth(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if len(stage.played) == 4:
            raise KeyboardInterrupt
        return attempts(job, out)

    stage.play = interrupted_at_the_fourth
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path)
    stage.played, stage.play = [], good
    result = play(tmp_path, resume=True)
    assert stage.played == ["ldm6-m2-r20-p1"]
    assert [(c.resumed, c.runs) for c in result.cells] == [(True, 2), (False, 2)]
    assert sorted(p.name for p in (result.path / "set-aside").iterdir()) == [
        "ldm6-m2-r20-p1.1",
        "ldm7-m2-r20-p1.1",
    ]
