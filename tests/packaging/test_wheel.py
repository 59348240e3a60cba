# SPDX-License-Identifier: Apache-2.0
"""The wheel plans, checks and reports in an empty environment without a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from common.places import ROOT
from common.version import version
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

pytestmark = pytest.mark.install
Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of this tree."""
    work = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "tools/source", work / "source"], check=True)
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(work)]
    done = subprocess.run([*argv, str(work / "source")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = work.glob("downpour-*.whl")
    return made


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run `downpour` in an environment with only the wheel and the lock's packages."""
    work = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
    pip = [str(work / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
    lock = str(ROOT / "ansible/requirements.lock")
    for argv in ([*pip, "--require-hashes", "-r", lock], [*pip, "--no-deps", str(wheel)]):
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    environment = {"HOME": str(work), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def call(*words: str | Path) -> str:
        argv = [str(work / "venv/bin/downpour"), *map(str, words)]
        done = subprocess.run(argv, cwd=elsewhere, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    return call


def test_wheel_has_the_data_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for wanted in (
        "experiments/catalogue/lossy.yaml",
        "experiments/catalogue/schema.json",
        "experiments/catalogue/bands/regression.yaml",
        "topologies/geni5.yaml",
        "virtual/guest_init.sh",
        "virtual/kernel/downpour.config",
        "labs/1-vlan-by-hand/checks.py",
        "labs/1-vlan-by-hand/start/answers.yaml",
        "labs/bin/fault",
    ):
        assert wanted in names
    assert any(name.startswith("parsers/templates/") for name in names)
    assert any(name.endswith("wireshark/fmtp.lua") for name in names)
    assert not [name for name in names if "/tests/" in name or "solutions" in name]


def test_every_data_file_of_the_rooms_is_in_the_wheel(wheel: Path) -> None:
    """The wheel has every YAML file, schema and template of the repository."""
    names = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout: the list of files was NOT compared")
    rooms = ("common", "controller", "downpour", "experiments", "labs", "parsers", "topologies")
    kinds = (".yaml", ".yml", ".json", ".j2", ".html", ".css", ".js", ".template", ".csv")
    for name in listed.stdout.splitlines():
        path = Path(name)
        if path.parts[0] in rooms and path.suffix in kinds:
            left_out = {"tests", "solutions"} & set(path.parts)
            assert left_out or name in names, f"{name} is not in the wheel: see package-data"


def test_version_and_lists(run: Run) -> None:
    assert version() in run("--version")
    assert "lossy" in run("experiments")


def test_topology_is_checked(run: Run) -> None:
    assert "geni5" in run("topology", "validate", "geni5")


def test_plan_of_an_experiment(run: Run) -> None:
    assert "ldm7" in run("run", "lossy", "--dry-run", "--clock", "virtual")


def test_report_of_a_run(run: Run, tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path / "run", SyntheticCell("ldm7"), SyntheticCell("ldm6"))
    run("report", made)
    assert (made / "report/index.html").stat().st_size > 10_000
