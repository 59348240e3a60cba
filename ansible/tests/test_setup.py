# SPDX-License-Identifier: Apache-2.0
"""What `ansible/setup` tells a user without root when packages are missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ANSIBLE = Path(__file__).resolve().parents[1]
REAL = ("bash", "cat", "cut", "dirname", "env", "find", "sed", "sha256sum", "sort", "xargs")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout without .venv, and `bin`, which is the whole PATH (no sudo, user 1000)."""
    shutil.copytree(ANSIBLE, tmp_path / "ansible", ignore=shutil.ignore_patterns("tests"))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in REAL:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    play(tmp_path, "id", "echo 1000")
    play(tmp_path, "apt-get", "exit 0")
    return tmp_path


def play(checkout: Path, name: str, script: str) -> None:
    tool = checkout / "bin" / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def setup(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "bin" / "bash", checkout / "ansible" / "setup"],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_missing_packages_are_named(checkout: Path) -> None:
    """They are in either role's list; a removed package whose configuration is left also counts as
    missing."""
    play(
        checkout,
        "dpkg-query",
        'case "$*" in *mininet) exit 1 ;; *flex) printf "config-files " ;; '
        '*) printf "installed " ;; esac',
    )
    result = setup(checkout)
    assert result.returncode == 2
    assert result.stderr.strip() == (
        "ansible/setup: found user id 1000 and no sudo; valid: root, or ask for: "
        "apt install mininet flex"
    )


def test_machine_without_apt_is_told_what_is_valid(checkout: Path) -> None:
    (checkout / "bin" / "apt-get").unlink()
    result = setup(checkout)
    assert result.returncode == 2
    assert "found no apt-get; valid: Debian 12 or later, Ubuntu 22.04 or later" in result.stderr


def python3(checkout: Path, *goals: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "bin" / "bash", checkout / "ansible" / "python3", *goals],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


def link(checkout: Path, *names: str) -> None:
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (checkout / "bin" / name).symlink_to(found)


def test_a_machine_without_python_gets_it(checkout: Path) -> None:
    link(checkout, "mktemp", "rm", "tail")
    play(checkout, "id", "echo 0")
    play(checkout, "apt-get", 'echo "$*" >>"$HOME/asked"')
    done = python3(checkout, "experiment-lossy")
    assert (done.returncode, done.stderr) == (0, "")
    assert "install python3" in (checkout / "asked").read_text()


@pytest.mark.parametrize("goal", ["help", "doctor"])
def test_help_and_doctor_install_no_python(checkout: Path, goal: str) -> None:
    play(checkout, "id", "echo 0")
    play(checkout, "apt-get", 'echo "$*" >>"$HOME/asked"')
    done = python3(checkout, goal)
    assert done.returncode == 2
    assert done.stderr.strip() == "make: found no python3; valid: apt install python3"
    assert not (checkout / "asked").exists()


def test_without_root_and_sudo_python_is_asked_for(checkout: Path) -> None:
    done = python3(checkout, "experiment-lossy")
    assert done.returncode == 2
    assert done.stderr.strip() == "make: found no python3; valid: apt install python3"
