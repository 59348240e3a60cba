# SPDX-License-Identifier: Apache-2.0
"""Dump a running network's state as the tools show it: every switch's flows, groups and meters,
every node's queueing disciplines, every host's network stack settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from common.shell import in_node
from topologies.model.network import Network

OPENFLOW: Final = {"flows": "dump-flows", "groups": "dump-groups", "meters": "dump-meters"}
SYSCTLS: Final = (
    "net.core.rmem_max",
    "net.core.rmem_default",
    "net.core.wmem_max",
    "net.core.wmem_default",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.udp_mem",
)


def commands(network: Network, pids: Mapping[str, int]) -> dict[str, tuple[Sequence[str], str]]:
    """Return by file name (the command whose output it gets, standard input). `pids`: of the nodes
    that have their own namespace."""
    found: dict[str, tuple[Sequence[str], str]] = {}
    for switch in network.switches:
        for what, command in OPENFLOW.items():
            argv = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", command, switch.name]
            found[f"{switch.name}.{what}.txt"] = (argv, "")
    for node, pid in sorted(pids.items()):
        found[f"{node}.qdiscs.txt"] = (in_node(pid, ["tc", "-d", "qdisc", "show"]), "")
    for host in network.hosts:
        # -e: a kernel may lack some of them
        argv = in_node(pids[host.name], ["sysctl", "-e", *SYSCTLS])
        found[f"{host.name}.sysctls.txt"] = (argv, "")
    return found
