# SPDX-License-Identifier: Apache-2.0
"""Export a `Network` to containerlab (containerlab.dev): its topology file, and a script for what
the file cannot express: bridges, OpenFlow entries, rates, delays and losses.

Written from containerlab's documentation of the kinds `linux` and `ovs-bridge`; not tested with
containerlab.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Container
from typing import Final

from ruamel.yaml import YAML

from topologies.export.tree_flows import all_flows
from topologies.model.network import Host, Impairment, Link, Network, Nic

IMAGE: Final = "debian:12"
KBPS: Final = 1000


def containerlab_file(network: Network) -> str:
    """Return the topology file: a container for each host and router, a bridge for each switch."""
    nodes: dict[str, object] = {s.name: {"kind": "ovs-bridge"} for s in network.switches}
    for host in network.hosts:
        nodes[host.name] = _container([*_configure(host.nic1, host.nic2), *_routes(host)])
    for router in network.routers:
        back = [f"ip route add {h.nic1.ip} via {h.nic2.ip}" for h in network.hosts]
        forward = "sysctl -w net.ipv4.ip_forward=1"
        nodes[router.name] = _container([*_configure(*router.nics), forward, *back])
    if (monitor := network.monitor) is not None:
        default = f"ip route replace default via {monitor.gateway2}"
        nodes[monitor.name] = _container([*_configure(monitor.nic2), default])
    links = [
        {"endpoints": [f"{link.a.node}:{link.a.interface}", f"{link.b.node}:{link.b.interface}"]}
        for link in network.links
    ]
    document = {"name": network.name, "topology": {"nodes": nodes, "links": links}}
    about = f"# {network.name}: {network.description}\n# Not run under containerlab.\n"
    text = io.StringIO()
    YAML().dump(document, text)
    return about + text.getvalue()


def _container(commands: list[str]) -> dict[str, object]:
    return {"kind": "linux", "image": IMAGE, "exec": commands}


def _configure(*nics: Nic) -> list[str]:
    return [
        command
        for nic in nics
        for command in (
            f"ip link set {nic.interface} address {nic.mac} up",
            f"ip addr add {nic.ip}/{nic.prefix_len} dev {nic.interface}",
        )
    ]


def _routes(host: Host) -> list[str]:
    return [
        f"ip route replace default via {host.gateway2}",
        f"ip route add 224.0.0.0/4 dev {host.nic1.interface}",
    ]


def containerlab_script(network: Network) -> str:
    """Return a shell script: `before` creates the bridges, `after` sets entries and impairments,
    `remove` removes the bridges. Raises paths.NoPath."""
    switches = {s.name for s in network.switches}
    before = [
        f"ovs-vsctl --may-exist add-br {s.name} -- set bridge {s.name} fail-mode=secure"
        f" protocols=OpenFlow13 other-config:datapath-id={s.dpid:016x}"
        for s in network.switches
    ]
    after = [command for link in network.links for command in _ports(switches, link)]
    for entry in all_flows(network):
        for command, lines in (
            ("add-groups", entry.group_lines()),
            ("add-flows", entry.flow_lines()),
        ):
            if lines:
                words = f"ovs-ofctl -O OpenFlow13 {command} {entry.switch} - <<'END'"
                after.append(f"{words}\n{lines}END")
    after += [
        command for link in network.links for command in _impair(network.name, switches, link)
    ]
    remove = [f"ovs-vsctl --if-exists del-br {s.name}" for s in network.switches]
    parts = "".join(
        f"{name})\n" + "\n".join(commands) + "\n;;\n"
        for name, commands in (("before", before), ("after", after), ("remove", remove))
    )
    return f"{SCRIPT_HEAD.format(shlex.quote(network.name))}{parts}{SCRIPT_END}"


def _ports(switches: Container[str], link: Link) -> list[str]:
    """Give the ports of switches their OpenFlow numbers."""
    return [
        f"ovs-vsctl set interface {port.interface} ofport_request={port.number}"
        for port in (link.a, link.b)
        if port.node in switches
    ]


def _impair(lab: str, switches: Container[str], link: Link) -> list[str]:
    found = []
    for port, impairment in ((link.a, link.forward), (link.b, link.backward)):
        if impairment.is_plain:
            continue
        if port.node in switches:
            found.append(f"tc qdisc replace dev {port.interface} root netem{_tc(impairment)}")
        else:
            node = f"clab-{lab}-{port.node}"
            words = f"containerlab tools netem set -n {node} -i {port.interface}"
            found.append(words + _netem(impairment))
    return found


def _tc(impairment: Impairment) -> str:
    words = f" delay {impairment.delay_ms:g}ms" if impairment.delay_ms else ""
    words += f" {impairment.jitter_ms:g}ms" if impairment.jitter_ms else ""
    words += f" loss {impairment.loss * 100:g}%" if impairment.loss else ""
    return words + (f" rate {impairment.rate_bps}bit" if impairment.rate_bps else "")


def _netem(impairment: Impairment) -> str:
    words = f" --delay {impairment.delay_ms:g}ms" if impairment.delay_ms else ""
    words += f" --jitter {impairment.jitter_ms:g}ms" if impairment.jitter_ms else ""
    words += f" --loss {impairment.loss * 100:g}" if impairment.loss else ""
    return words + (f" --rate {impairment.rate_bps // KBPS}" if impairment.rate_bps else "")


SCRIPT_HEAD: Final = """#!/bin/sh
# For the lab {0} of containerlab. Not run under it.
#   before   make the bridges; then: containerlab deploy -t FILE
#   after    set port numbers, OpenFlow entries, rates, delays and losses
#   remove   after containerlab destroy
set -eu
case "${{1:-}}" in
"""
SCRIPT_END: Final = """*) echo "found '${1:-}'; valid: before, after, remove" >&2; exit 2 ;;
esac
"""
