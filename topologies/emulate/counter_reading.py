# SPDX-License-Identifier: Apache-2.0
"""Reads all counters of a running network: interfaces, queues, loss, switches, relay."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.shell import in_node
from topologies.emulate import packet_sockets, switch_reading
from topologies.emulate.elsewhere import NOBODY, Elsewhere, ask_all
from topologies.emulate.processes import Relay
from topologies.model.network import Network
from topologies.watch import counters
from topologies.watch.switch_counters import SwitchCounters

Counters = dict[str, Any]  # section -> its records by name (docs/reference/contracts.md)


def read_counters(
    network: Network,
    pids: Mapping[str, int],
    relay: Relay | None,
    datapath_pid: int | None,
    elsewhere: Mapping[str, Elsewhere] = NOBODY,
) -> Counters:
    """Return all counters now. `datapath_pid`: of Open vSwitch if it forwards in userspace. The
    caller is in the run's namespace. The interfaces of hosts `elsewhere` are the ends of their
    links here. Raises NetworkError."""
    result: Counters = {"time": time.time()}
    if relay is not None:
        relay.ask_report()
    switch_of = switch_of_interface(network)
    spaces = {**pids, "": os.getpid()}
    hosts = [h.name for h in network.hosts]
    result["interfaces"] = _interfaces(spaces, switch_of)
    snmp = {h: (in_node(pids[h], ["cat", "/proc/self/net/snmp"]), "") for h in elsewhere}
    there = ask_all(snmp, pids, elsewhere)
    result["udp"] = {
        h: counters.udp(there[h] if h in there else _read(f"/proc/{pids[h]}/net/snmp"))
        for h in hosts
    }
    text = ask_all(_questions(network, spaces), pids, elsewhere)
    result["qdiscs"] = _qdiscs(spaces, text, switch_of)
    asked = _classes_asked(spaces, text)
    result["classes"] = _classes(ask_all(asked, pids, elsewhere))
    result["iptables"] = {h: counters.iptables(text[f"iptables {h}"]) for h in firewalls(network)}
    found = {s.name: switch_reading.counters(s.name) for s in network.switches}
    result["meters"] = {f"{s}/{n}": r for s, one in found.items() for n, r in one.meters.items()}
    result["groups"] = {f"{s}/{n}": r for s, one in found.items() for n, r in one.groups.items()}
    result["openvswitch"] = _switch_ports(network, found)
    lost = _socket_drops(switch_of, datapath_pid)
    for port, record in result["openvswitch"].items():
        record["socket_drops"] = lost.get(port, 0)
    result["relay"] = relay.report() if relay is not None else {}
    return result


def firewalls(network: Network) -> list[str]:
    """Return the nodes to which experiments add firewall rules: hosts, and the monitor if any."""
    monitor = [] if network.monitor is None else [network.monitor.name]
    return [*(h.name for h in network.hosts), *monitor]


def switch_of_interface(network: Network) -> dict[str, str]:
    """Return the switch by the interface of each of its ports."""
    switches = {s.name for s in network.switches}
    return {
        port.interface: port.node
        for link in network.links
        for port in (link.a, link.b)
        if port.node in switches
    }


def _questions(network: Network, spaces: Mapping[str, int]) -> dict[str, tuple[Sequence[str], str]]:
    commands: dict[str, tuple[Sequence[str], str]] = {}
    for node, pid in spaces.items():
        tc = ["tc", "-j", "-s", "qdisc", "show"]
        commands[f"qdisc {node}"] = (in_node(pid, tc) if node else tc, "")
    for host in firewalls(network):
        commands[f"iptables {host}"] = (in_node(spaces[host], ["iptables-save", "-c"]), "")
    return commands


def _interfaces(
    spaces: Mapping[str, int], switch_of: Mapping[str, str]
) -> dict[str, counters.Record]:
    found: dict[str, counters.Record] = {}
    for node, pid in spaces.items():
        for name, record in counters.interfaces(_read(f"/proc/{pid}/net/dev")).items():
            owner = node or switch_of.get(name, "")
            if owner and name != "lo":
                found[f"{owner}/{name}"] = record
    return found


def _qdiscs(
    spaces: Mapping[str, int], text: Mapping[str, str], switch_of: Mapping[str, str]
) -> dict[str, counters.Record]:
    found: dict[str, counters.Record] = {}
    for node in spaces:
        for key, record in counters.qdiscs(text[f"qdisc {node}"]).items():
            owner = node or switch_of.get(key.partition("/")[0], "")
            if owner:
                found[f"{owner}/{key}"] = record
    return found


def _classes_asked(
    spaces: Mapping[str, int], text: Mapping[str, str]
) -> dict[str, tuple[Sequence[str], str]]:
    commands: dict[str, tuple[Sequence[str], str]] = {}
    for node, pid in spaces.items():
        for interface in counters.classful_interfaces(text[f"qdisc {node}"]) if node else ():
            argv = in_node(pid, ["tc", "-s", "class", "show", "dev", interface])
            commands[f"{node}/{interface}"] = (argv, "")
    return commands


def _classes(text: Mapping[str, str]) -> dict[str, counters.Record]:
    found: dict[str, counters.Record] = {}
    for key, shown in text.items():
        node, _, interface = key.partition("/")
        for name, record in counters.classes(shown, interface).items():
            found[f"{node}/{name}"] = record
    return found


def _switch_ports(
    network: Network, found: Mapping[str, SwitchCounters]
) -> dict[str, counters.Record]:
    ports = {
        (port.node, port.number): port.interface
        for link in network.links
        for port in (link.a, link.b)
    }
    return {
        f"{switch.name}/{ports[switch.name, number]}": record
        for switch in network.switches
        for number, record in found[switch.name].ports.items()
        if (switch.name, number) in ports
    }


def _socket_drops(switch_of: Mapping[str, str], datapath_pid: int | None) -> dict[str, int]:
    """Return by switch port the frames lost before the userspace datapath read them."""
    if datapath_pid is None:
        return {}
    lost = packet_sockets.drops(datapath_pid)
    return {
        f"{switch}/{interface}": lost[interface]
        for interface, switch in switch_of.items()
        if interface in lost
    }


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
