# SPDX-License-Identifier: Apache-2.0
"""The example that reads a CloudLab manifest (GENI RSpec 3) yields an inventory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
