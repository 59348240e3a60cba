# SPDX-License-Identifier: Apache-2.0
"""The GitHub workflows fit GitHub's schema, pin their actions to commits, and call targets that
exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
MUST_CALL = {
    "ci.yml": {"check", "regression", "test", "test-all"},
    "release.yml": {"setup", "virtual-kernel", "regression", "release"},
}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in YAML(typ="safe").load(path)["jobs"].values():
        yield from job["steps"]


def targets() -> set[str]:
    text = "".join((ROOT / name).read_text() for name in ("Makefile", "tools/package.mk"))
    names = re.findall(r"^([a-z][a-z -]*):", text, re.MULTILINE)
    return {target for line in names for target in line.split()}


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = ["check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=60
    )


def test_which_there_are() -> None:
    assert [p.name for p in WORKFLOWS] == list(MUST_CALL)


@pytest.mark.slow
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_valid_by_githubs_schema(path: Path, tmp_path: Path) -> None:
    done = check(path)
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(path.read_text().replace("runs-on:", "run-on:"))
    assert check(broken).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_pull_requests_code_finds_no_token(path: Path) -> None:
    """By default actions/checkout leaves the token in the checkout's .git/config."""
    checkouts = [s for s in steps(path) if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    for step in checkouts:
        assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_what_it_runs_exists(path: Path) -> None:
    called = [
        target
        for step in steps(path)
        for line in re.findall(r"^make (.*)$", step.get("run", ""), re.MULTILINE)
        for target in line.split()
        if "=" not in target
    ]
    assert MUST_CALL[path.name] <= set(called) <= targets()
