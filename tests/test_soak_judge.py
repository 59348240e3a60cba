# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.soak` finds growth, and only growth, in made-up samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.design.spec import JoinLeaveSpec, load_as
from tests import soak

HOURS, EACH_S = 10, 300


def use(program: str, anon_kb: float, files: float) -> dict[str, Any]:
    return {"program": program, "anon_kb": anon_kb, "threads": 4, "files": files}


def samples(
    *,
    anon_kb: float = 0,
    visitor_kb: float = 0,
    store_kb: float = 0,
    log_kb: float = 0,
    fds: float = 0,
) -> list[dict[str, Any]]:
    """Return samples of ten hours with this growth per hour."""
    found = []
    for number in range(HOURS * 3600 // EACH_S):
        hours = number * EACH_S / 3600
        processes = {
            "1-1": use("controller", 70_000 + anon_kb * hours, 20),
            "2-1": use("mldm ucar", 2400 + number % 3, 9 + fds * hours),
            f"{100 + number}-9": use(f"down7 umd.{number}", 1900 + visitor_kb * hours, 12),
        }
        files = {
            "/run/downpour/x/controller.sqlite": (400 + store_kb * hours) * 1024,
            "/d/runs/logs/a.log": (10 + log_kb * hours) * 1024,
            "/dev/shm/downpour/x/umd.pq": number * 1e6,
        }
        found.append({"at_s": hours * 3600, "processes": processes, "files": files})
    return found


def growing(**grows: float) -> list[str]:
    return [line.split("  ")[-1] for line in soak.judge(samples(**grows))[1]]


def test_nothing_grows() -> None:
    assert growing() == []
    assert growing(anon_kb=20, visitor_kb=20, store_kb=5, log_kb=5000) == []


@pytest.mark.parametrize(
    ("grows", "said"),
    [
        ({"anon_kb": 200}, "anon_kb: controller (1-1)"),
        ({"visitor_kb": 200}, "anon_kb: down7 (all that come and go)"),
        ({"fds": 2}, "files: mldm ucar (2-1)"),
        ({"store_kb": 40}, "store_kb: /run/downpour/x/controller.sqlite"),
    ],
)
def test_what_grows_is_named(grows: dict[str, float], said: str) -> None:
    assert said in growing(**grows)


def test_the_time_after_the_network_is_left_out() -> None:
    during = samples(anon_kb=200)
    after = [{**during[-1], "at_s": during[-1]["at_s"] + n, "processes": {}} for n in (60, 120)]
    assert soak.judge([*during, *after]) == soak.judge(during)


def test_a_slope_is_by_hour_of_virtual_time() -> None:
    shown, _ = soak.judge(samples(log_kb=5000))
    (line,) = (text for text in shown if "logs_kb" in text)
    assert float(line.split()[0]) == pytest.approx(5000, rel=0.01)


def test_the_experiment_is_valid(tmp_path: Path) -> None:
    soak.prepare(tmp_path, 24.0, 1)
    spec = load_as(JoinLeaveSpec, tmp_path / "soak.yaml")
    assert spec.duration_s == 24 * 3600
    lines = (tmp_path / "soak.trace.txt").read_text().splitlines()
    assert len(lines) == 24 * 180
    assert lines[0] == "20000 20160101000000.000" and lines[-1].split()[1] == "20160101235940.000"


def test_a_sparse_day_has_a_product_a_minute(tmp_path: Path) -> None:
    soak.prepare(tmp_path, 24.0, 1, soak.SPARSE)
    spec = load_as(JoinLeaveSpec, tmp_path / "soak.yaml")
    assert (spec.subscriptions.stay_s, spec.subscriptions.away_s) == (4 * 3600, 3600)
    assert len((tmp_path / "soak.trace.txt").read_text().splitlines()) == 24 * 60


def test_a_run_that_is_complete_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / soak.DONE).write_text("{}")
    soak.one(tmp_path / "run-1", 24, 1, 300)
    assert capsys.readouterr().out == "run-1: complete\n"


def test_half_a_line_of_samples_is_left_out(tmp_path: Path) -> None:
    (tmp_path / soak.SAMPLES).write_text(json.dumps({"at_s": 1}) + "\n" + '{"at_s": 2, "pro')
    assert soak.read(tmp_path) == [{"at_s": 1}]
    assert soak.read(tmp_path / "none") == []


def test_programs_by_name() -> None:
    log = "/x/work/umd.NGRID.ldmd.log"
    assert soak.program_of(["/b/ldmd", "-l", log], "down7") == "down7 umd.NGRID"
    assert (
        soak.program_of(["/v/python", "-m", "controller", "--network"], "python3") == "controller"
    )
    assert soak.program_of(["/v/python", "-m", "experiments", "cell"], "x") == "experiments cell"
    assert soak.program_of(["ovs-vswitchd"], "ovs-vswitchd") == "ovs-vswitchd"
    assert soak.uses()


@pytest.mark.parametrize(("anon_kb", "code"), [(0, 0), (100, 1)])
def test_what_is_there_is_judged_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], anon_kb: float, code: int
) -> None:
    run = tmp_path / "run-1"
    run.mkdir()
    lines = (json.dumps(sample) + "\n" for sample in samples(anon_kb=anon_kb))
    (run / soak.SAMPLES).write_text("".join(lines))
    assert soak.main([str(tmp_path), "--judge", "--runs", "2"]) == code
    told = capsys.readouterr().out
    assert "run-1: 120 samples" in told
    assert "run-2: found 0 samples; valid: 8 or more" in told
    assert ("GROWS" in told) == bool(code)


def test_nothing_to_judge_is_no_success(tmp_path: Path) -> None:
    assert soak.main([str(tmp_path), "--judge"]) == 2
