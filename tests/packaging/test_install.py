# SPDX-License-Identifier: Apache-2.0
"""`make install` installs a working Downpour, and `make uninstall` leaves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from common.places import ROOT
from common.version import version

TOOL = ROOT / "tools/install"


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOL), *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), 'found ""; valid: install, uninstall, python'),
        (("install", "--prefx", "/x"), 'found "--prefx"; valid: --prefix DIR'),
        (("install", "--prefix", "opt"), 'found --prefix "opt"; valid: an absolute path'),
        (("install", "--prefix"), "--prefix needs a directory"),
        (("uninstall", "--prefix", "/nowhere"), "found no /nowhere/lib/downpour/installed-files"),
    ],
)
def test_bad_words(words: tuple[str, ...], said: str) -> None:
    done = call(*words)
    assert done.returncode == 2 and said in done.stderr and "\n" not in done.stderr.strip()


@pytest.mark.install
def test_installed_runs_and_leaves_nothing(tmp_path: Path) -> None:
    """Another's file below the prefix stays, with its directory; existing directories keep their
    modes."""
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    there = [prefix / "bin", prefix, *prefix.parents]
    prefix.chmod(0o1777)
    (prefix / "bin").chmod(0o2775)
    modes = [path.stat().st_mode for path in there]
    (prefix / "bin/other").write_text("")
    done = call("install", "--prefix", str(prefix))
    assert done.returncode == 0, done.stderr[-2000:]
    assert [path.stat().st_mode for path in there] == modes
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for program in ("downpour", "ldmd", "ldmctl"):
        argv = [str(prefix / "bin" / program), "--version"]
        said = subprocess.run(argv, cwd=elsewhere, capture_output=True, text=True, check=True)
        assert version() in said.stdout
    python = str(prefix / "lib/downpour/bin/python")
    code = "from common.places import program; print(program('hostlag'), program('wire-relay'))"
    argv = [python, "-P", "-c", code]
    found = subprocess.run(argv, cwd=elsewhere, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [
        str(prefix / "libexec/downpour/hostlag"),
        str(prefix / "bin/wire-relay"),
    ]
    unit = (prefix / "lib/systemd/system/downpour-ldmd.service").read_text()
    assert f"ExecStart={prefix}/bin/ldmd " in unit
    done = call("uninstall", "--prefix", str(prefix))
    assert done.returncode == 0, done.stderr[-2000:]
    left = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*"))
    assert left == ["bin", "bin/other"]
