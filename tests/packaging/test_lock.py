# SPDX-License-Identifier: Apache-2.0
"""pyproject.toml lists the dependencies; the locks fit that list and have hashes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from common.places import ROOT

LOCKS = {"requirements.lock": ("labs",), "requirements-develop.lock": ("labs", "test", "develop")}


def plain(name: str) -> str:
    """Return a package's name in the form that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(extras: tuple[str, ...]) -> dict[str, str]:
    """Return the packages in pyproject.toml, with their ranges."""
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
    """The environment is empty. Mininet comes from the distribution."""
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


def licences() -> ModuleType:
    """Return the tool as a module."""
    loader = SourceFileLoader("licences", str(ROOT / "tools/licences"))
    spec = spec_from_loader("licences", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("licence", "good"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("(MIT OR GPL-3.0-only)", True),
        ("BSD-3-Clause AND 0BSD AND MIT", True),
        ("LGPL-3+ OR GPL-2+", True),
        ("Mozilla Public License 2.0 (MPL 2.0)", True),
        ("", False),
        ("UNKNOWN", False),
        ("Other/Proprietary License", False),
        ("GPL-3.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("MIT AND GPL-2.0-only", False),
        ("GNU General Public License v3 (GPLv3), MIT License", False),
        ("SSPL-1.0 OR LicenseRef-Commercial", False),
    ],
)
def test_unknown_and_incompatible_licences_are_refused(licence: str, good: bool) -> None:
    assert (licences().objection(licence) is None) is good


@pytest.mark.parametrize("stated", ["", "License-Expression: AGPL-3.0-only", "License: UNKNOWN"])
def test_package_with_a_bad_licence_fails_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    folder = tmp_path / "evil_lib-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: evil-lib\nVersion: 1.0\n{stated}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows, wrong = licences().python_rows("evil-lib==1.0 \\\n    --hash=sha256:0\n")
    assert len(rows) == 1 and len(wrong) == 1 and wrong[0].startswith("evil-lib: ")
    assert licences().python_rows("absent-lib==1.0 \\\n")[1] == ["absent-lib: not installed"]


@pytest.mark.slow
def test_licences_of_everything_installed_go_with_ours() -> None:
    """The page agrees with the packages of this environment."""
    tool = licences()
    for lock in tool.LOCKS:
        _, wrong = tool.python_rows(lock.read_text(), tool.NOT_FOR_EVERY_SYSTEM)
        assert wrong == []


def test_page_names_every_debian_package_with_its_version() -> None:
    tool = licences()
    page = tool.PAGE.read_text()
    libraries, others = tool.debian_packages()
    assert {"libssl3", "libcurl4", "libisal2", "libipsec-mb1"} <= set(libraries) and "gcc" in others
    for name in (*libraries, *others):
        row = re.search(rf"^\| {re.escape(name)} \| ([^|]+) \| (.+) \|$", page, re.M)
        assert row, f"{name}: run `make licences`"
        if name in libraries:
            assert tool.objection(row[2]) is None, row[0]
        assert row[2] != "not stated"


def test_page_of_licences_has_every_pin() -> None:
    page = (ROOT / "docs/reference/licences.md").read_text()
    for name, number in pinned(ROOT / "ansible/requirements.lock").items():
        row = rf"^\| {re.escape(name)} \| {re.escape(number)} \| .+ \|$"
        elsewhere = name in ("colorama", "legacy-cgi")  # for other systems or later Pythons
        assert elsewhere or re.search(row, page, re.M), f"{name} {number}: run `make licences`"
    assert "not stated" not in page
