#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print an inventory for `downpour remote` from a slice of FABRIC. Not run: it needs an account.

    pip install fabrictestbed-extensions
    python fabric.py SLICE NETWORK umass=node1 wsu1=node2 > hosts.ini

The machine that runs Downpour is one more node of the slice, in the same layer 2 network (with an
MTU of 1550 bytes or more). SLICE: its name; NETWORK: the network's name; HOST=NODE: which node has
which host of the topology.
"""

from __future__ import annotations

import sys


def inventory(slice_name: str, network: str, hosts: dict[str, str]) -> str:
    """Return the inventory's text. `hosts`: host of the topology -> node."""
    from fabrictestbed_extensions.fablib.fablib import FablibManager

    fablib = FablibManager()
    found = fablib.get_slice(name=slice_name)
    bastion = f"{fablib.get_bastion_username()}@{fablib.get_bastion_host()}"
    lines = []
    for host, name in hosts.items():
        node = found.get_node(name=name)
        tunnel = node.get_interface(network_name=network).get_ip_addr()
        lines.append(
            f"{host} ansible_host={node.get_management_ip()} ansible_user={node.get_username()} "
            f"downpour_tunnel={tunnel}"
        )
    lines += [
        "[all:vars]",
        f"ansible_ssh_private_key_file={fablib.get_default_slice_private_key_file()}",
        f"ansible_ssh_common_args=-J {bastion}",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(inventory(sys.argv[1], sys.argv[2], dict(w.split("=") for w in sys.argv[3:])), end="")
