# SPDX-License-Identifier: Apache-2.0
"""Bad usage and input: one clear error and an exit code, and nothing is left behind."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT
from experiments import cli
from experiments.cells.run_directory import RunDirectory
from experiments.design import trace_model
from experiments.design.spec import find
from experiments.runs.runner import CellResult, RunResult
from parsers.report.brief import Brief


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cli, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


def fails(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(arguments) == code
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("fcast-k --trace /nosuch", "--trace: found '/nosuch'; valid: without it: every cell"),
        ("fcast-k --queue-bytes 1GB", "--queue-bytes: found '1000000000'; valid: without it"),
        ("lossy --runs /etc/passwd", "--runs: found /etc/passwd, which is no directory; valid: a"),
        ("lossy --runs /etc/passwd/x", "--runs: found /etc/passwd, which is no directory"),
        ("lossy --duration 1e9", "--duration: found '1e9'; valid: above 0 to"),
        ("lossy --snap-bytes -1", "--snap-bytes: found '-1'; valid: a size above 0"),
        ("PIPE.yaml", "PIPE.yaml:1: found no regular file (a FIFO, a device or a socket); valid"),
    ],
)
def test_a_plan_refuses_what_a_run_would_not_use(
    arguments: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("PIPE.yaml")
    assert expected in fails(["run", *arguments.split(), "--dry-run"], 2, capsys)


def test_captures_may_keep_whole_frames(capsys: pytest.CaptureFixture[str]) -> None:
    """0 is what `run --help` says, and an experiment with LDM may have another queue."""
    words = ["--snap-bytes", "0", "--queue-bytes", "3GB", "--only", "repeat=1", "--dry-run"]
    assert cli.main(["run", "regression", *words]) == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "losy"], ", or the path of a .yaml file (did you mean 'lossy'?)"),
        (["run", "none.yaml"], "none.yaml:1: found no readable file"),
        (["run", "lossy", "--receivers", "0"], "--receivers: found '0'; valid: 1 to 999"),
        (["run", "lossy", "--receivers", "65"], "found receivers=65; valid: 1 to 64"),
        (["run", "join-leave", "--receivers", "4"], "valid: without it"),
        (["run", "lossy", "--duration", "0"], "--duration: found '0'; valid: above 0"),
        (["run", "lossy", "--duration", "nan"], "--duration: found 'nan'; valid: above 0"),
        (["run", "lossy", "--trace", "/none"], "/none:1: found no readable file"),
        (["run", "lossy", "--queue-bytes", "5gb"], "found '5gb'; valid: a size above 0"),
        (["run", "lossy", "--duration", "1e-9"], "--duration: found '1e-9'; valid: above 0"),
        (["run", "lossy", "--duration", "1e-300"], "--duration: found '1e-300'; valid: above 0"),
        (["run", "join-leave", "--duration", "1e-9"], "--duration: found '1e-9'; valid: above"),
        (["run", "lossy", "--limit-s", "-1"], "--limit-s: found '-1'; valid: seconds, above 0"),
        (["run", "lossy", "--limit-s", "inf"], "--limit-s: found 'inf'; valid: seconds, above 0"),
        (["run", "lossy", "--stall-s", "nan"], "--stall-s: found 'nan'; valid: seconds, above 0"),
        (["run", "lossy", "--stall-s", "-5"], "--stall-s: found '-5'; valid: seconds, above 0"),
        (["run", "lossy", "--stall-s", "0"], "--stall-s: found '0'; valid: seconds, above 0"),
        (["run", "lossy", "--jobs", "²"], "--jobs: found '²'; valid: a whole number from 1 on"),
        (["run", "lossy", "--parts", "x"], "found 'x'; valid: a whole number from 1 on, or auto"),
        (["run", "lossy", "--receivers", "²"], "--receivers: found '²'; valid: a whole number"),
        (["run", "lossy", "--receivers", "٨"], "--receivers: found '٨'; valid: a whole number"),
        (["run", "lossy", "--receivers", "1_0"], "--receivers: found '1_0'; valid: a whole"),
        (["run", "lossy", "--seed", "9" * 5000], "--seed: found '9999"),
        (["run", "lossy", "--repeats", "٣"], "--repeats: found '٣'; valid: a whole number"),
        (["run", "lossy", "--repeats", "9" * 5000], "--repeats: found '9999"),
        (["run", "lossy", "--duration", "٦٠"], "--duration: found '٦٠'; valid: a number"),
        (["run", "lossy", "--queue-bytes", "²"], "--queue-bytes: found '²'; valid: a size"),
        (["run", "lossy", "--queue-bytes", "٩٩٩٩٩٩٩"], "--queue-bytes: found '٩"),
        (["run", "lossy", "--queue-bytes", "9" * 5000], "--queue-bytes: found '9999"),
        (["run", "lossy", "--only", "receivers=²"], "found '²' in 'receivers=²'; valid: receivers"),
        (["run", "lossy", "--only", "receivers=٨"], "found '٨' in 'receivers=٨'; valid: receivers"),
        (["run", "lossy", "--trace", "/dev/zero"], "/dev/zero:1: found no regular file"),
        (["run", "lossy", "--queue-bytes", "1MB", "--dry-run"], "found a sender queue of 1000000"),
        (["report", "/nonexistent"], "found no run in /nonexistent; valid: a run directory"),
        (["report", "/nonexistent", "/other"], "/nonexistent"),
        (["verify", "/nonexistent"], "/nonexistent"),
        (["repeat", "/nonexistent"], "/nonexistent"),
        (["run"], "NAME"),
        (["fly"], "downpour: found command 'fly'; valid: run, remote, experiments, report"),
    ],
)  # fmt: skip
def test_bad_usage(
    arguments: list[str], expected: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = fails(arguments, 2, capsys)
    assert expected in text
    assert text.count("\n") == 1
    assert len(text) < 1000
    assert not runs.exists()


def test_a_broken_trace_line(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t"
    trace.write_text("1 20150615000000.000\nbroken\n")
    text = fails(["run", "lossy", "--trace", str(trace)], 2, capsys)
    assert text.startswith(f"{trace}:2: found 'broken'")
    assert not runs.exists()


def test_rate_0_in_a_file(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(find("lossy").read_text().replace("20Mbps]", "0]"))
    line = 1 + path.read_text()[: path.read_text().index("rate_bps")].count("\n")
    text = fails(["run", str(path)], 2, capsys)
    assert text.startswith(f"{path}:{line}: found 0 in factors.rate_bps; valid: a rate above 0")
    assert not runs.exists()


def test_not_enough_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (f"2000000000 20150615000000.{ms:03}\n" for ms in range(1000))
    (tmp_path / "t").write_text("".join(lines))
    text = fails(["run", "lossy", "--dry-run", "--trace", str(tmp_path / "t")], 2, capsys)
    assert "GB free" in text
    # 5 GB + 8 x (1.5 x 2 TB + 64 MB) + 256 MB
    assert "valid: 24005.77 GB" in text
    assert "QUEUE_BYTES=" in text


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="drops root's user id to test the refusal")
def test_without_root() -> None:
    argv = ["setpriv", "--reuid=65534", sys.executable, "-m", "downpour", "run", "lossy"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        argv, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60
    )
    assert done.returncode == 2
    assert "found user id 65534; valid: root, or virtual time: add --clock" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_list_and_plan(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiments"]) == 0
    plan = ["run", "lossy", "--dry-run", "--queue-bytes", "100MB", "--runs", str(runs)]
    assert cli.main(plan) == 0
    text = capsys.readouterr().out
    assert not runs.exists()
    assert "  2 cells (1 of each kind, seed 2053) of 60 s, in random order; native clock" in text
    assert "  protocol: ldm7, ldm6" in text
    # 2 x (5 + 0.5 x 9 + 60 + 8) s
    assert "about 2:35 min (estimated by formula: no earlier run of such cells" in text
    assert "lossless     LDM7 and LDM6" in text
    # 100 MB + 8 x (1.5 x 89.7 MB + 64 MB) + 256 MB
    assert "584 products, 89.7 MB" in text
    assert "1.94 GB of disk" in text


@pytest.mark.parametrize("name", ["lossy", pytest.param("join-leave", marks=pytest.mark.slow)])
def test_a_plan_of_a_thousand_repeats_is_shown_at_once(
    name: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    generate = trace_model.generate_hour

    def counted(seed: int) -> list[trace_model.Arrival]:
        made.append(seed)
        return generate(seed)

    monkeypatch.setattr(trace_model, "generate_hour", counted)
    arguments = ["run", name, "--dry-run", "--repeats", "1000", "--queue-bytes", "1GB"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert "1000 of each kind" in text
    assert "more cells of other seeds, estimated from these" in text
    assert len(made) <= 20
    assert not runs.exists()


def test_report_without_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "found no run" in fails(["report"], 2, capsys)
    assert "valid: a run directory" in fails(["report", str(tmp_path)], 2, capsys)


def test_a_run_that_is_named_from_another_directory(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    asked = f"{runs.name}/losses/1"
    text = fails(["report", asked], 2, capsys)
    assert f"found no run in {tmp_path}/own/{asked}; valid: a run directory, {runs}/EXP" in text
    (runs / "losses/1/cells").mkdir(parents=True)
    text = fails(["report", asked], 2, capsys)
    assert f"found no run in {tmp_path}/own/{asked}; valid: {runs}/losses/1" in text


def test_clean_removes_leftovers_only(runs: Path) -> None:
    for name in (".20260101T000000Z.partial/cells", "20260101T000000Z/cells"):
        (runs / "lossy" / name).mkdir(parents=True)
    making = RunDirectory(runs, "lossy", datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC))
    assert cli.main(["clean"]) == 0
    assert {p.name for p in (runs / "lossy").glob("[!.]*")} == {"20260101T000000Z"}
    assert cli.main(["clean", "--all"]) == 0
    assert making.path.is_dir()  # its process still exists
    assert (runs / "lossy/20260101T000000Z").is_dir()
    making.abandon()
    assert cli.main(["clean", "--all"]) == 0
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("receivers=9", "--only: found '9' in 'receivers=9'; valid: receivers=8"),
        ("rate=20", "--only: found 'rate='; valid: protocol, receivers, rate_bps, loss, repeat"),
        ("ldm[", "found 'ldm[' (unterminated character set"),
        ("tcp", "--only: found 'tcp', which no cell matches"),
    ],
)
def test_only_what_is_there(only: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in fails(["run", "lossy", "--only", only], 2, capsys)


def test_a_failed_cell_decides_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = CellResult("a", "faithful", True)
    problems = {"a": ["once"], "b": ["tc: no", "tc: never"]}
    assert cli._judge(RunResult(tmp_path, (good,), True, problems)) == 1
    text = capsys.readouterr().err
    assert "*** b: FAILED: tc: never" in text
    assert "failed/b" in text
    assert "*** a" not in text


def judged(tmp_path: Path, *, verdict: str, identical: bool = True) -> int:
    """Return the exit code of a run that ended like this."""
    write = {"verdict": verdict, "checks": [{"name": "n", "status": "fail", "text": "why"}]}
    (tmp_path / "cells/a").mkdir(parents=True)
    (tmp_path / "cells/a/verdict.json").write_text(json.dumps(write))
    return cli._judge(
        RunResult(tmp_path, (CellResult("a", verdict, identical),), report_ok=True, problems={})
    )


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path / "1", verdict="faithful") == 0
    assert judged(tmp_path / "2", verdict="degraded") == 0
    assert judged(tmp_path / "3", verdict="invalid") == 3
    assert "verdict INVALID" in capsys.readouterr().err
    assert judged(tmp_path / "4", verdict="faithful", identical=False) == 1
    assert judged(tmp_path / "5", verdict="invalid", identical=False) == 1


def test_a_run_ends_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the result and the page's path, relative to here; without a report, the
    directory."""
    run = tmp_path / "runs/lossy/1"
    (run / "report").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    cli._conclude(run)
    assert capsys.readouterr().out == "Results: runs/lossy/1\n"
    brief = Brief(title="Downpour: run lossy/1", verdict="faithful", result=("All arrived.",))
    (run / "report/brief.json").write_text(brief.model_dump_json(), encoding="utf-8")
    cli._conclude(run)
    assert capsys.readouterr().out.splitlines() == [
        "Downpour: run lossy/1: FAITHFUL",
        "",
        "All arrived.",
        "",
        "The whole report: downpour report --full runs/lossy/1",
        "Report: runs/lossy/1/report/index.html",
    ]
