# SPDX-License-Identifier: Apache-2.0
"""Hosts' names in a shell: its /etc/hosts has the names that Mininet's prompt has (`prompt`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.files import write_text
from topologies.model.network import Network

LOCAL: Final = "127.0.0.1\tlocalhost\n"


def hosts_text(network: Network) -> str:
    """Return a hosts(5) file: `<host>` is the address on the routed network (NIC2), `<host>.path`
    the address on the path service (NIC1)."""
    lines = [
        f"{host.nic2.ip}\t{host.name}\n{host.path_nic().ip}\t{host.name}.path\n"
        for host in network.hosts
    ]
    if (monitor := network.monitor) is not None:
        lines.append(f"{monitor.nic2.ip}\t{monitor.name}\n")
    return LOCAL + "".join(lines)


def with_names(argv: Sequence[str], network: Network, directory: Path) -> list[str]:
    """Return a command that runs `argv` with the names of `network`, which no other process sees.
    It needs root. If the mount is refused, it runs without the names."""
    file = directory / "hosts"
    write_text(file, hosts_text(network))
    script = 'mount --bind "$0" /etc/hosts 2>/dev/null; exec "$@"'
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, str(file), *argv]
