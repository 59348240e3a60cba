# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from pathlib import Path

from experiments.cells.run_directory import (
    RunDirectory,
    latest_run,
    partial_runs,
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
    assert latest_run(tmp_path) is None
    path = run.complete()
    assert path == tmp_path / "x/20260102T030405Z"
    assert (tmp_path / "x/latest").resolve() == path.resolve()
    assert latest_run(tmp_path) == latest_run(tmp_path, "x") == path
    assert latest_run(tmp_path, "y") is None


def test_runs_of_the_same_second_do_not_collide(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path, "x", NOW), RunDirectory(tmp_path, "x", NOW)
    assert first.path != second.path
    finish_cell(second, "a", "1")
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


def test_a_run_that_is_being_made_is_not_partial(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    assert partial_runs(tmp_path, "x") == []
    finish_cell(run, "a", "1")
    assert run.abandon()
    assert partial_runs(tmp_path, "x") == [run.path]
    assert [p.name for p in (tmp_path / "x").iterdir()] == [run.path.name]  # no lock is left


def test_what_failed_is_numbered(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    for number in (1, 2):
        (run.partial_cell("a") / "log").write_text(str(number))
        run.keep_failed("a")
    assert (run.path / "failed/a/attempt-2/log").read_text() == "2"
    assert not run.abandon()
    assert run.path.exists()


def test_what_was_set_aside_last_is_taken_back(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    for digest in ("1", "2"):
        finish_cell(run, "a", digest)
        run.set_aside("a")
    assert '"2"' in (run.take_back("a") / "cell.json").read_text()
    assert run.complete_cells() == ["a"]
