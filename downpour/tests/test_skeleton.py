# SPDX-License-Identifier: Apache-2.0
"""What `downpour new` writes is valid without changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.exit_codes import EXIT_FAILED, EXIT_OK
from downpour import cli
from labs import checking
from labs.spec import find_lab
from labs.workdir import open_work


def test_an_experiment_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "experiment", "my-own", "--dir", str(tmp_path)]) == 0
    path = tmp_path / "my-own.yaml"
    assert f"next: downpour run {path}" in capsys.readouterr().out
    assert cli.main(["run", str(path), "--dry-run", "--clock", "virtual"]) == 0
    out = capsys.readouterr().out
    assert "my-own: LDM7, 4 receivers, with and without loss" in out and "2 cells" in out
    assert cli.main(["new", "experiment", "my-own", "--dir", str(tmp_path)]) == 2
    assert "which exists; valid: a new name" in capsys.readouterr().err


def test_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "topology", "mine", "--dir", str(tmp_path)]) == 0
    path = tmp_path / "mine.yaml"
    capsys.readouterr()
    assert cli.main(["topology", "validate", str(path)]) == 0
    assert "valid: " in capsys.readouterr().out
    assert cli.main(["topology", "show", str(path), "--receivers", "3"]) == 0
    assert "3 subscribers" in capsys.readouterr().out
    assert cli.main(["topology", "export", str(path)]) == 0
    assert '"mine"' in capsys.readouterr().out


def test_a_lab_whose_check_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "7-other").mkdir()
    assert cli.main(["new", "lab", "queues", "--dir", str(tmp_path)]) == 0
    assert str(tmp_path / "8-queues") in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["7-other", "8-queues"]
    lab = find_lab(8, tmp_path)
    assert (lab.points, lab.spec.title) == (100, "queues")
    work, _ = open_work(lab, tmp_path / "w", "ann")
    results = checking.run_checks(lab, work.directory, "ann")
    assert checking.exit_code(results) == checking.EXIT_NOTHING
    answers = work.directory / "answers.yaml"
    count = lab.parameters("ann")["count"]
    answers.write_text(answers.read_text().replace("count:\n", f"count: {count}\n"))
    results = checking.run_checks(lab, work.directory, "ann")
    assert checking.exit_code(results) == EXIT_OK
    answers.write_text("count: 99\n")
    results = checking.run_checks(lab, work.directory, "ann")
    assert checking.exit_code(results) == EXIT_FAILED
    assert "parameters.yaml" in results[0].hint
    assert cli.main(["topology", "validate", str(lab.folder / "network.yaml")]) == 0
