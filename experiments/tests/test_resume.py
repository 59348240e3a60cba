# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from experiments.cells.run_directory import RunDirectory, partial_runs, write_json
from experiments.runs import digests
from experiments.runs.resume import take_over

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
    assert partial_runs(tmp_path, "x") == [old.path]  # b still exists
    assert run.abandon()
    again = RunDirectory(tmp_path, "x", NOW + datetime.timedelta(seconds=20))
    assert take_over(again, tmp_path, "x", {"a": "1", "b": "1"}) == ["a", "b"]
    assert partial_runs(tmp_path, "x") == []


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
