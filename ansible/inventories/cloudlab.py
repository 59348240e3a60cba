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
    node. Raises ValueError for text that is no manifest, or a node that it lacks."""
    try:
        found = ElementTree.fromstring(manifest).iterfind("{*}node")
    except ElementTree.ParseError as error:
        raise ValueError(f"found no XML ({error}); valid: a manifest") from None
    nodes = {node.get("client_id", ""): node for node in found}
    lines = []
    for host, name in hosts.items():
        if name not in nodes:
            raise ValueError(f"found node '{name}'; valid: {', '.join(nodes) or 'none'}")
        login = nodes[name].find("{*}services/{*}login")
        address = nodes[name].find("{*}interface/{*}ip")
        if login is None or address is None:
            raise ValueError(f"node {name}: found no login or no address; valid: a node in a LAN")
        lines.append(
            f"{host} ansible_host={login.get('hostname')} ansible_port={login.get('port')} "
            f"ansible_user={login.get('username')} downpour_tunnel={address.get('address')}"
        )
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> str:
    """Return the inventory that a command line asks for. Exits with a message if it is wrong."""
    path, *pairs = words or [""]
    if not pairs or not all(len(pair.split("=")) == 2 for pair in pairs):
        sys.exit(f"cloudlab.py: found '{' '.join(words)}'; valid: manifest.xml HOST=NODE ...")
    try:
        hosts = dict(pair.split("=") for pair in pairs)
        return inventory(Path(path).read_text(encoding="utf-8"), hosts)
    except (OSError, ValueError) as error:
        sys.exit(f"cloudlab.py: {path}: {error}")


if __name__ == "__main__":
    print(main(sys.argv[1:]), end="")
