# SPDX-License-Identifier: Apache-2.0
"""Dependencies: one list in pyproject.toml, and locks with hashes that fit it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from common.places import ROOT

LOCKS = {"requirements.lock": ("labs",), "requirements-develop.lock": ("labs", "test", "develop")}


def plain(name: str) -> str:
    """Return a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(extras: tuple[str, ...]) -> dict[str, str]:
    """Return the packages that pyproject.toml asks for, with their ranges."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", line) for line in lines if "[" not in line]
    return {plain(match[1]): match[2] for match in found if match}


def pinned(lock: Path) -> dict[str, str]:
    """Return the versions of a lock."""
    return {
        plain(name): number
        for name, number in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock.read_text(), re.M)
    }


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_what_is_asked_for(name: str) -> None:
    lock = ROOT / "ansible" / name
    pins = pinned(lock)
    for package, limits in wanted(LOCKS[name]).items():
        assert package in pins, f"{name}: {package} is missing; valid: run tools/lock"
        for limit in filter(None, limits.split(",")):
            operator, number = re.fullmatch(r"(==|>=|<)(.+)", limit).groups()  # type: ignore[union-attr]
            have, bound = ([int(n) for n in v.split(".")] for v in (pins[package], number))
            size = max(len(have), len(bound))
            have, bound = have + [0] * (size - len(have)), bound + [0] * (size - len(bound))
            good = {"==": have == bound, ">=": have >= bound, "<": have < bound}[operator]
            assert good, f"{name}: {package} {pins[package]}; valid: {limits}"


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_index_is_named(name: str) -> None:
    text = (ROOT / "ansible" / name).read_text()
    assert "index-url" not in text and "://" not in text and "find-links" not in text
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text)[1:]:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_what_runs_has_the_versions_that_are_tested() -> None:
    runs, tests = (pinned(ROOT / "ansible" / name) for name in LOCKS)
    assert runs.items() <= tests.items()


@pytest.mark.install
def test_lock_alone_installs_what_the_rooms_import(tmp_path: Path) -> None:
    """Into an empty environment. Mininet is the distribution's."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv/bin/python"
    argv = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes"]
    argv += ["-r", str(ROOT / "ansible/requirements.lock")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    code = (
        "import fastapi, httpx, matplotlib, networkx, numpy, os_ken.base.app_manager, scipy.stats"
    )
    code += ", jinja2, markdown_it, prometheus_client, pydantic, rich, ruamel.yaml, typer, uvicorn"
    subprocess.run([python, "-c", code], check=True, cwd=ROOT)


def test_page_of_licences_has_every_pin() -> None:
    page = (ROOT / "docs/reference/licences.md").read_text()
    for name, number in pinned(ROOT / "ansible/requirements.lock").items():
        row = rf"^\| {re.escape(name)} \| {re.escape(number)} \| .+ \|$"
        elsewhere = name in ("colorama", "legacy-cgi")  # for other systems or later Pythons
        assert elsewhere or re.search(row, page, re.M), f"{name} {number}: run `make licences`"
    assert "not stated" not in page
