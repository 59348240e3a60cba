# SPDX-License-Identifier: Apache-2.0
"""The OpenFlow framework can be chosen; a wrong choice gives one message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import frameworks
from tests.frameworks import CannotInstall, Framework, environment, install


def test_unknown_choice_is_one_clear_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import controller.switches.compat"],
        cwd=frameworks.ROOT,
        env={**os.environ, "DOWNPOUR_FRAMEWORK": "pox"},
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == (
        "ImportError: DOWNPOUR_FRAMEWORK='pox': valid: os-ken, os-ken-eventlet, ryu, c65of"
    )


def test_a_broken_openssl_package_of_the_distribution_does_no_harm(tmp_path: Path) -> None:
    """Debian's python3-openssl fails like this on import, beside a newer `cryptography`."""
    broken = tmp_path / "OpenSSL"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise AttributeError('no GEN_EMAIL')\n")
    done = subprocess.run(
        [sys.executable, "-c", "from controller.switches import compat; assert compat.IS_GREEN"],
        cwd=frameworks.ROOT,
        env={
            **os.environ,
            "DOWNPOUR_FRAMEWORK": "os-ken-eventlet",
            "PYTHONPATH": f"{tmp_path}:{frameworks.ROOT}",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_package_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "WHERE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(CannotInstall, match="no-such-framework==1: ERROR: No matching"):
        install(Framework("none", "ryu", "", ("no-such-framework==1",)))
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(
        frameworks, "FRAMEWORKS", (Framework("none", "ryu", "", ("no-such-framework==1",)),)
    )
    assert frameworks.main(["none"]) == frameworks.EXIT_NO_PACKAGE


def test_what_was_fetched_comes_before_the_environments_own(tmp_path: Path) -> None:
    found = environment(Framework("x", "os-ken", "os_ken 3.1.1"), tmp_path)
    assert found["PYTHONPATH"].split(":") == [str(tmp_path), str(frameworks.ROOT)]
    assert found["DOWNPOUR_FRAMEWORK"] == "os-ken"
