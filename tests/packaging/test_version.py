# SPDX-License-Identifier: Apache-2.0
"""The version comes from the tag, and all programs have the same."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from common.places import ROOT
from common.version import version

TOOL = ROOT / "tools/version"


def told(root: Path, *options: str) -> str:
    argv = [sys.executable, str(TOOL), "--root", str(root), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "tag.gpgSign=false"]
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.mark.slow
def test_tag_gives_the_version(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    assert told(tmp_path) == "0.0.0.dev0"
    git(tmp_path, "tag", "v1.2.3")
    git(tmp_path, "tag", "nightly")
    assert told(tmp_path) == "1.2.3"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    assert told(tmp_path) == "1.2.4.dev0"
    assert told(tmp_path, "--debian") == "1.2.4~dev0"


def test_archive_has_the_file_and_a_copy_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [2.0.9] - 2026-01-01\n")
    assert told(tmp_path) == "2.0.10.dev0"
    (tmp_path / "VERSION").write_text("2.0.9\n")
    assert told(tmp_path) == "2.0.9"


def test_a_repository_around_an_unpacked_archive_does_not_count(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path, "tag", "v9.9.9")
    inner = tmp_path / "downpour"
    inner.mkdir()
    assert told(inner) == "0.0.0.dev0"


def test_python_asks_the_tool() -> None:
    assert version() == told(ROOT)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"] and "version" not in project


@pytest.mark.long
@pytest.mark.slow
def test_c_programs_say_the_same(tmp_path: Path) -> None:
    """A program and a script from a fresh build print it."""
    build = tmp_path / "build"
    try:
        subprocess.run(["meson", "setup", str(build), str(ROOT)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("meson is not installed: the C programs' version was NOT compared")
    subprocess.run(["ninja", "-C", str(build), "ldm7/pqcat"], check=True, capture_output=True)
    for argv in ([build / "ldm7/pqcat"], ["sh", build / "ldm7/site/ctl/ldmctl"]):
        said = subprocess.run([*argv, "--version"], capture_output=True, text=True)
        assert said.stdout.split()[-1] == version(), argv
