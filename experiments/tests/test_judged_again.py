# SPDX-License-Identifier: Apache-2.0
"""`verify` judges each cell again from its files, so a verdict that was changed is found even if
its digests fit it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.cells.job import Job
from experiments.cells.run_directory import write_json
from experiments.design.shaping import Setting
from experiments.runs import digests
from experiments.runs.options import VerifyOptions
from experiments.runs.verify import main
from experiments.tests.played import Stage
from experiments.tests.stored import StoredRun, changed, stored_run, write_files

NAME = "ldm7-m2-r20-p1"


@pytest.fixture
def run(tmp_path: Path, stage: Stage) -> Path:
    return stored_run(tmp_path, stage)


def cell_of(run: Path) -> Path:
    return run / "cells" / NAME


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Write all digests again, as somebody would who hides a change; then verify."""
    for cell in (*(run / "cells").iterdir(), *(run / "set-aside").glob("*")):
        digests.write_cell(cell)
    digests.write_run(run)
    capsys.readouterr()
    code = main(VerifyOptions(run=run, quiet=True))
    return code, capsys.readouterr().out


def drops(cell: Path) -> None:
    """Let an interface drop half of what the sender sent."""
    file = cell / "counters-end.json"
    counters = json.loads(file.read_text())
    counters["interfaces"]["wsu1/eth0"] = {"rx_dropped": 5000}
    write_json(file, counters)


def checks_of(cell: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((cell / "verdict.json").read_text())["checks"]
    return found


def test_an_untouched_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = verified(run, capsys)
    assert code == 0, text
    count = len(checks_of(cell_of(run)))
    assert f", {count} checks: ok" in text
    assert "not judged" not in text
    assert text.splitlines()[-1].startswith("Verified: 1 cell, ")


def test_evidence_that_gives_another_verdict(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drops(cell_of(run))
    code, text = verified(run, capsys)
    assert code == 1
    assert "  verdict.json has faithful, the files give invalid (uninjected drops)\n" in text
    assert '  uninjected drops.status: verdict.json has "pass", the files give "fail"\n' in text
    assert text.splitlines()[-1].endswith(f"problems: {NAME}")


def test_a_run_of_another_version(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its checks may have been others; where nothing differs, that is no matter."""
    changed(cell_of(run) / "run.json", git={"commit": "0123456789abcdef", "dirty": False})
    assert verified(run, capsys)[0] == 0
    drops(cell_of(run))
    code, text = verified(run, capsys)
    assert code == 1
    assert "  judged by commit 0123456789ab, again by " in text


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("status", "warn", 'drained.status: verdict.json has "warn", the files give "pass"'),
        ("text", "well", 'drained.text: verdict.json has "well", the files give "all receivers'),
        ("found", None, 'drained.found: verdict.json has null, the files give "all"'),
    ],
)
def test_a_check_that_was_changed(
    run: Path, capsys: pytest.CaptureFixture[str], key: str, value: str, problem: str
) -> None:
    checks = checks_of(cell_of(run))
    next(c for c in checks if c["name"] == "drained")[key] = value
    changed(cell_of(run) / "verdict.json", checks=checks)
    code, text = verified(run, capsys)
    assert code == 1
    assert f"  {problem}" in text


def test_a_verdict_that_its_own_checks_do_not_give(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(cell_of(run) / "verdict.json", verdict="degraded")
    code, text = verified(run, capsys)
    assert code == 1
    assert "  verdict.json has degraded, the files give faithful\n" in text


def test_a_check_that_is_gone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = cell_of(run) / "verdict.json"
    changed(file, checks=[c for c in checks_of(cell_of(run)) if c["name"] != "drained"])
    code, text = verified(run, capsys)
    assert code == 1
    assert '  drained.status: the files give "pass", verdict.json has none\n' in text


@pytest.mark.parametrize("text", [None, "{", "[]", '{"checks": 1}', '{"checks": [1]}'])
def test_a_verdict_that_nobody_can_read(
    run: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    file = cell_of(run) / "verdict.json"
    file.unlink() if text is None else file.write_text(text)
    code, out = verified(run, capsys)
    assert code == 1
    assert "  verdict.json: " in out
    assert "; valid: the cell's verdict, faithful\n" in out


def test_rounding_is_no_difference(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = checks_of(cell_of(run))
    delay = next(c for c in checks if c["name"] == "delays during the replay")
    injected = next(c for c in checks if c["name"] == "injected loss")
    for check in (delay, injected):
        if isinstance(check["found"], float):
            check["found"] *= 1 + 1e-12
    assert isinstance(injected["found"], float)
    changed(cell_of(run) / "verdict.json", checks=checks)
    assert verified(run, capsys)[0] == 0
    injected["found"] *= 1 + 1e-8
    changed(cell_of(run) / "verdict.json", checks=checks)
    code, text = verified(run, capsys)
    assert code == 1
    assert "  injected loss.found: verdict.json has 0.01" in text


# -- runs of older versions ---------------------------------------------------------------------
def older(run: Path) -> None:
    """Make the run one of a version that could not judge again."""
    changed(cell_of(run) / "cell.json", asked=None, tcp_others=None)
    changed(cell_of(run) / "run.json", format=None)
    changed(run / "manifest.json", format=None)


def test_an_older_run_stays_verifiable(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older(run)
    code, text = verified(run, capsys)
    assert code == 0
    assert (
        "  verdict not judged again: cell.json has no 'asked' (made by an older version)\n" in text
    )
    assert text.splitlines()[-1].endswith("; 1 verdict not judged again")


@pytest.mark.parametrize("key", ["asked", "tcp_others"])
def test_a_key_that_was_removed(run: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    changed(cell_of(run) / "cell.json", **{key: None})
    code, text = verified(run, capsys)
    assert code == 1
    assert (
        f"  verdict not judged again: cell.json has no '{key}', which it must have by run.json"
        " (format 2)\n" in text
    )


def test_a_key_that_was_removed_with_the_format(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest still says it, except of a cell that it took over from an older run."""
    manifest = json.loads((run / "manifest.json").read_text())
    older(run)
    write_json(run / "manifest.json", manifest)
    code, text = verified(run, capsys)
    assert code == 1
    assert "cell.json has no 'asked', which it must have by manifest.json (format 2)\n" in text
    changed(run / "manifest.json", cells_resumed=[NAME])
    code, text = verified(run, capsys)
    assert code == 0, text
    assert text.splitlines()[-1].endswith("; 1 verdict not judged again")


# -- what was asked -----------------------------------------------------------------------------
def test_a_specification_that_was_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss that was asked for decides how much may be lost."""
    asked = json.loads((cell_of(run) / "cell.json").read_text())["asked"]
    changed(cell_of(run) / "cell.json", asked={**asked, "loss": 0.5})
    code, text = verified(run, capsys)
    assert code == 1
    assert "  asked.loss: manifest.json has 0.01, cell.json has 0.5\n" in text


def test_a_specification_that_this_version_does_not_know(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = json.loads((cell_of(run) / "cell.json").read_text())["asked"]
    changed(cell_of(run) / "cell.json", asked={k: v for k, v in asked.items() if k != "repair"})
    code, text = verified(run, capsys)
    assert code == 1
    assert "  the files give no verdict: " in text
    assert "'repair'" in text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("queues.json", "{}"),
        ("links.json", ""),
        ("flights.json", '{"flights": [{}]}'),
        ("host-lag.json", '{"umass": {}}'),
        ("network.json", "[]"),
        ("cell.json", '{"asked": []}'),
    ],
)
def test_files_that_give_no_verdict(
    run: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    (cell_of(run) / file).write_text(text)
    code, out = verified(run, capsys)
    assert code == 1
    assert "the files give no verdict: " in out or "verdict not judged again: " in out
    assert "Traceback" not in out


def test_a_cell_that_was_set_aside(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aside = run / "set-aside" / f"{NAME}.1"
    shutil.copytree(cell_of(run), aside)
    code, text = verified(run, capsys)
    assert code == 0, text
    drops(aside)
    code, text = verified(run, capsys)
    assert code == 1
    assert (
        f"  set-aside/{NAME}.1: verdict.json has faithful, the files give invalid"
        " (uninjected drops)\n" in text
    )


# -- the cell itself ----------------------------------------------------------------------------
def test_a_setting_that_was_found_late_is_in_the_files(tmp_path: Path, stage: Stage) -> None:
    """Such as how long a receiver was stopped, which is known once the replay is over."""

    def play(job: Job, out: Path) -> Any:
        stored = StoredRun(job, out)
        write_files(out, stored)
        stored.settings.append(Setting("wsu1 stop, s", 5.0, 4.0, 0.1))
        verdict, identical = stored.finish()
        yield {"event": "done", "verdict": verdict, "identical": identical}

    run = stored_run(tmp_path, stage, play)
    settings = json.loads((cell_of(run) / "shaping.json").read_text())["settings"]
    assert [s["name"] for s in settings] == ["qdisc", "wsu1 stop, s"]
    assert "experiment's settings" in [
        c["name"] for c in checks_of(cell_of(run)) if c["status"] == "fail"
    ]
