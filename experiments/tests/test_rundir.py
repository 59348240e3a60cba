# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from experiments.cells.run_directory import (
    RunDirectory,
    latest_run,
    partial_runs,
    remove_results,
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
    assert list(partial_runs(tmp_path, "x")) == []
    finish_cell(run, "a", "1")
    assert run.abandon()
    assert list(partial_runs(tmp_path, "x")) == [run.path]
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


def test_a_run_is_locked_before_it_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clean` and --resume look at any time: they must never find a new run that is not locked."""
    found: list[Path] = []
    make = Path.mkdir

    def made(self: Path, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        if (tmp_path / "x").is_dir():
            found.extend(partial_runs(tmp_path, "x"))

    monkeypatch.setattr(Path, "mkdir", made)
    RunDirectory(tmp_path, "x", NOW)
    assert found == []


def test_a_name_that_another_run_takes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RunDirectory(tmp_path, "x", NOW)
    first.path.rename(tmp_path / "hidden")  # as before the other's directory was made
    second = RunDirectory(tmp_path, "x", NOW)
    assert second.stamp == "20260102T030405Z-2"
    monkeypatch.setattr(Path, "exists", lambda _: False)  # it was made after the look
    assert RunDirectory(tmp_path, "x", NOW).stamp == "20260102T030405Z-3"


def test_a_partial_run_is_locked_while_it_is_used(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    finish_cell(run, "a", "1")
    run.abandon()
    for path in partial_runs(tmp_path, "x"):
        assert path == run.path
        assert list(partial_runs(tmp_path, "x")) == []
    assert list(partial_runs(tmp_path, "x")) == [run.path]


def test_what_was_set_aside_is_kept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "x", NOW)
    finish_cell(run, "a", "1")
    run.set_aside("a")
    assert not run.abandon()
    assert (run.path / "set-aside/a.1/cell.json").exists()


def test_all_results_are_removed_unless_a_run_is_being_made(tmp_path: Path) -> None:
    RunDirectory(tmp_path, "x", NOW).complete()
    (tmp_path / "x/.20250101T000000Z.lock").touch()  # its process was killed
    making = RunDirectory(tmp_path, "x", NOW)
    assert not remove_results(tmp_path / "x")
    making.abandon()
    assert remove_results(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "none/x.json", tmp_path / "there"):
        with pytest.raises(OSError, match=r"Errno") as caught:
            write_json(target, {})
        assert caught.value.filename == str(target)
        assert ".tmp" not in str(caught.value) and "None" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
