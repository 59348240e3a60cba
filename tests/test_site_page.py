# SPDX-License-Identifier: Apache-2.0
"""The walk-through of docs/guide/site.md works as written, in its own network namespace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

from common.places import BUILD
from tests.prose import ROOT

PAGE: Final = ROOT / "docs/guide/site.md"
PROGRAMS: Final = ("ldm7", "ldm7/ldmd", "ldm7/site/ctl", "ldm7/site/pqact")
NOBODY: Final = 65534


def walkthrough() -> str:
    """Return the commands below the page's heading about the loopback."""
    _, _, text = PAGE.read_text().partition("## Try it on the loopback\n")
    found = re.search(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.root
@pytest.mark.skipif(not (BUILD / "ldm7/ldmd/ldmd").exists(), reason="the C programs are not built")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a network namespace")
def test_the_loopback_walkthrough() -> None:
    """The user who runs the commands may not read the directories of pytest's user."""
    with tempfile.TemporaryDirectory(prefix="downpour-walkthrough-") as top:
        Path(top).chmod(0o755)
        done = walk(Path(top))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nHello\n" in done.stdout, done.stdout
    assert "ldmd has ended" in done.stdout


def walk(top: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's commands below `top`."""
    programs = top / "bin"
    programs.mkdir()
    for name in ("ldmctl", "ldmd", "ldmping", "pqact", "pqcreate", "pqinsert", "pqcheck"):
        (built,) = (BUILD / place / name for place in PROGRAMS if (BUILD / place / name).is_file())
        Path(shutil.copy(built, programs)).chmod(0o755)
    home = top / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups bash -e -c"
    isolated = f'ip link set lo up && exec {user} "$1"'
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", isolated, "sh", walkthrough()],
        env={"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_commands_follow_the_prefix() -> None:
    """By name alone, systemd finds units and accounts only below /usr and /usr/local."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert [line.split()[0] for line in lines if "/usr/local" in line] == ["p=/usr/local"]
    made = (ROOT / "ldm7/site/ctl/meson.build").read_text()
    for name, command in (("systemd/system", "systemctl enable"), ("sysusers.d", "sysusers")):
        assert f"get_option('prefix') / 'lib/{name}'" in made
        asked = [line for line in lines if command in line]
        assert asked and all(f" $p/lib/{name}/" in line for line in asked), asked
