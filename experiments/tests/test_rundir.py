# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from experiments.rundir import (
    RunDirectory,
    latest_run,
    partial_runs,
    take_over,
    write_json,
)

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def finish_cell(run: RunDirectory, name: str, digest: str) -> None:
    write_json(run.partial_cell(name) / "cell.json", {"digest": digest})
    run.complete_cell(name)


def test_complete_or_absent(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    assert run.path.name == ".20260102T030405Z.partial"
    finish_cell(run, "a", "1")
    write_json(run.path / "manifest.json", {})
    assert latest_run(tmp_path) is None
    path = run.complete()
    assert path == tmp_path / "x/20260102T030405Z"
    assert (tmp_path / "x/latest").resolve() == path.resolve()
    assert latest_run(tmp_path) == latest_run(tmp_path, "x") == path
    assert latest_run(tmp_path, "y") is None


def test_runs_of_the_same_second_do_not_collide(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path, "x", NOW), RunDirectory(tmp_path, "x", NOW)
    assert first.path != second.path
    first.complete()
    assert RunDirectory(tmp_path, "x", NOW).path.parent == tmp_path / "x"
    assert second.complete().name == "20260102T030405Z-2"
    assert (tmp_path / "x/latest").readlink() == Path("20260102T030405Z-2")


def test_abandon_removes_a_run_without_complete_cells(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    run.partial_cell("a")
    run.work.mkdir()
    assert not run.abandon()
    assert not run.path.exists()


def test_resume_takes_complete_cells_with_the_same_digest(tmp_path: Path) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    finish_cell(old, "a", "1")
    finish_cell(old, "b", "1")
    old.partial_cell("c")
    assert old.abandon()
    run = RunDirectory(tmp_path, "x", NOW + datetime.timedelta(seconds=9))
    assert take_over(run, tmp_path, "x", {"a": "1", "b": "2", "c": "1"}) == ["a"]
    assert run.complete_cells() == ["a"]
    assert partial_runs(tmp_path, "x") == [run.path, old.path]  # b is still there
    again = RunDirectory(tmp_path, "x", NOW + datetime.timedelta(seconds=20))
    assert take_over(again, tmp_path, "x", {"a": "1", "b": "1"}) == ["a", "b"]
    assert partial_runs(tmp_path, "x") == [again.path]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": 5}'])
def test_a_damaged_cell_is_not_resumed(tmp_path: Path, text: str) -> None:
    old = RunDirectory(tmp_path, "x", NOW)
    (old.partial_cell("a") / "cell.json").write_text(text)
    old.complete_cell("a")
    run = RunDirectory(tmp_path, "x", NOW)
    assert take_over(run, tmp_path, "x", {"a": "5"}) == []
