#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print an inventory for `downpour remote` from the manifest of a CloudLab experiment.

    python cloudlab.py manifest.xml umass=node1 wsu1=node2 > hosts.ini

manifest.xml: from the experiment's page ("Manifest"). The machine that runs Downpour is one more
node, in the same LAN (with an MTU of 1550 bytes or more). HOST=NODE: which node has which host of
the topology.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def inventory(manifest: str, hosts: dict[str, str]) -> str:
    """Return the inventory's text from a manifest (GENI RSpec 3). `hosts`: host of the topology ->
    node. Raises KeyError for a node that the manifest lacks."""
    nodes = {
        node.get("client_id", ""): node
        for node in ElementTree.fromstring(manifest).iterfind("{*}node")
    }
    lines = []
    for host, name in hosts.items():
        login = nodes[name].find("{*}services/{*}login")
        address = nodes[name].find("{*}interface/{*}ip")
        if login is None or address is None:
            raise KeyError(f"node {name}: found no login or no address of a LAN")
        lines.append(
            f"{host} ansible_host={login.get('hostname')} ansible_port={login.get('port')} "
            f"ansible_user={login.get('username')} downpour_tunnel={address.get('address')}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pairs = dict(word.split("=") for word in sys.argv[2:])
    print(inventory(Path(sys.argv[1]).read_text(encoding="utf-8"), pairs), end="")
