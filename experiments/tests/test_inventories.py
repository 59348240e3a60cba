# SPDX-License-Identifier: Apache-2.0
"""The example that reads a CloudLab manifest (GENI RSpec 3) yields an inventory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT

MANIFEST = """<rspec xmlns="http://www.geni.net/resources/rspec/3" type="manifest">
<node client_id="node1">
<interface client_id="node1:if1"><ip address="10.10.1.1" netmask="255.255.255.0"/></interface>
<services><login hostname="c220g1-0.example.net" port="22" username="me"/></services>
</node>
</rspec>
"""
SCRIPT = ROOT / "ansible/inventories/cloudlab.py"


def test_a_manifest_becomes_an_inventory(tmp_path: Path) -> None:
    path = tmp_path / "manifest.xml"
    path.write_text(MANIFEST)
    argv = [sys.executable, "-B", str(SCRIPT), str(path), "umass=node1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "umass ansible_host=c220g1-0.example.net ansible_port=22 ansible_user=me "
        "downpour_tunnel=10.10.1.1\n"
    )


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (MANIFEST, ["umass=node2"], "found node 'node2'; valid: node1"),
        (MANIFEST, ["umass"], "valid: manifest.xml HOST=NODE ..."),
        (MANIFEST, [], "valid: manifest.xml HOST=NODE ..."),
        ("<rspec", ["umass=node1"], "found no XML"),
        (None, ["umass=node1"], "No such file"),
    ],
)
def test_what_is_wrong_is_a_line(
    tmp_path: Path, text: str | None, words: list[str], said: str
) -> None:
    path = tmp_path / "manifest.xml"
    if text is not None:
        path.write_text(text)
    argv = [sys.executable, "-B", str(SCRIPT), str(path), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
