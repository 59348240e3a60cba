# SPDX-License-Identifier: Apache-2.0
"""Spelling, shell scripts, and the hooks that run before a commit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.prose import ROOT

HOOKS = ROOT / ".pre-commit-config.yaml"


def shell_scripts() -> list[Path]:
    """Return git's files whose first line names a shell, without the labs' own shell."""
    command = ["git", "-C", str(ROOT), "grep", "-lIE", "^#!.*[/ ](ba|da)?sh( |$)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        pytest.skip(f"no git checkout: {done.stderr.strip()}")
    names = [name for name in done.stdout.split() if not name.startswith("labs/")]
    return [p for p in map(ROOT.joinpath, names) if p.read_text().startswith("#!")]


@pytest.mark.skipif(not shutil.which("codespell"), reason="codespell is not installed")
def test_spelling() -> None:
    done = subprocess.run(["codespell"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shell_scripts() -> None:
    scripts = shell_scripts()
    assert len(scripts) > 5
    done = subprocess.run(
        ["shellcheck", "-f", "gcc", *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_no_shell_script_writes_to_a_name_in_tmp_that_others_know() -> None:
    """Another user may have put a link there. (Nobody else uses a test's own root.)"""
    found = [
        f"{script.relative_to(ROOT)}: {line.strip()}"
        for script in shell_scripts()
        if not script.is_relative_to(ROOT / "tests")
        for line in script.read_text().splitlines()
        if re.search(r"(>|\btee |\b-o )\s*[\"']?/(var/)?tmp/[\w.-]+", line)
    ]
    assert not found, "\n".join(found)


def test_hooks_are_of_this_checkout() -> None:
    repositories = YAML(typ="safe").load(HOOKS)["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        assert hook["language"] == "system", hook["id"]
        module = re.search(r"-m (\S+)", hook["entry"])
        if module:
            assert (ROOT / f"{module[1].replace('.', '/')}.py").exists(), hook["id"]
