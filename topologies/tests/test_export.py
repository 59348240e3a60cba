# SPDX-License-Identifier: Apache-2.0
"""A network in the formats of other programs: the graph is the network's, the static entries carry
frames as the path service would, and Mininet's script runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from common.command_line import run
from common.places import TOPOLOGIES
from topologies import cli
from topologies.export import FORMATS
from topologies.export.graphml import NAMESPACE
from topologies.export.mininet_script import mininet_script
from topologies.export.tree_flows import all_flows
from topologies.model.load import bundled, find, load
from topologies.model.network import Network
from topologies.model.static_flows import (
    GROUP_BIT,
    Action,
    FlowEntry,
    Output,
    PopTag,
    PushTag,
    SetTag,
    ToGroup,
    ToInPort,
)
from topologies.tests.own_openvswitch import beside_open_vswitch

MULTICAST = "01:00:5e:0a:01:01"


class Walk:
    """Follows a frame through the entries: to which hosts' NICs, and how many copies each gets."""

    def __init__(self, network: Network) -> None:
        self.switches = {entries.switch: entries for entries in all_flows(network)}
        self.ends: dict[tuple[str, int], tuple[str, int, str]] = {}
        self.port_of: dict[str, tuple[str, int]] = {}
        for link in network.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                self.ends[near.node, near.number] = (far.node, far.number, far.interface)
                self.port_of[far.interface] = (near.node, near.number)
        self.got: Counter[str] = Counter()

    def send(self, nic: str, destination: str) -> Counter[str]:
        """Send one untagged frame from a host."""
        self.got = Counter()
        self._enter(*self.port_of[nic], None, destination)
        return self.got

    def _enter(self, node: str, port: int, vlan: int | None, destination: str) -> None:
        entry = self._best(self.switches[node].flows, port, vlan, destination)
        self._act(node, port, vlan, destination, entry.actions)

    def _best(
        self, flows: tuple[FlowEntry, ...], port: int, vlan: int | None, destination: str
    ) -> FlowEntry:
        def fits(entry: FlowEntry) -> bool:
            m = entry.match
            if m is None:
                return True
            group = m.destination == GROUP_BIT and destination == MULTICAST
            to = m.destination in (None, destination) or group
            return (m.in_port, m.vlan) == (port, vlan) and to

        return max((e for e in flows if fits(e)), key=lambda e: e.priority)

    def _act(
        self, node: str, port: int, vlan: int | None, to: str, actions: tuple[Action, ...]
    ) -> None:
        for action in actions:
            match action:
                case PushTag() | SetTag():
                    vlan = action.vlan
                case PopTag():
                    vlan = None
                case ToInPort():
                    self._leave(node, port, vlan, to)
                case Output():
                    assert action.port != port, "a switch sends no frame back by `output`"
                    self._leave(node, action.port, vlan, to)
                case ToGroup():
                    (group,) = [
                        g for g in self.switches[node].groups if g.group_id == action.group_id
                    ]
                    for bucket in group.buckets:
                        self._act(node, port, vlan, to, bucket)

    def _leave(self, node: str, port: int, vlan: int | None, to: str) -> None:
        peer, peer_port, interface = self.ends[node, port]
        if peer in self.switches:
            self._enter(peer, peer_port, vlan, to)
        else:
            assert vlan is None, f"{interface} gets a tagged frame"
            self.got[interface] += 1


@pytest.mark.parametrize("name", bundled())
def test_static_entries_carry_every_frame_once(name: str) -> None:
    network = load(find(name))
    walk = Walk(network)
    nics = [host.nic1 for host in network.hosts]
    for source in nics:
        others = {nic.interface for nic in nics if nic is not source}
        assert walk.send(source.interface, MULTICAST) == dict.fromkeys(others, 1)
        for target in nics:
            if target is not source:
                assert walk.send(source.interface, target.mac) == {target.interface: 1}


@pytest.mark.parametrize("name", bundled())
def test_every_format_has_the_whole_network(name: str) -> None:
    network = load(find(name))
    hosts = {host.name for host in network.hosts}
    nodes = hosts | {s.name for s in network.switches} | {r.name for r in network.routers}
    nodes |= {network.monitor.name} if network.monitor is not None else set()
    graph = ElementTree.fromstring(FORMATS["graphml"](network))
    spaces = {"g": NAMESPACE}
    assert {n.get("id") for n in graph.iterfind(".//g:node", spaces)} == nodes
    edges = Counter((e.get("source"), e.get("target")) for e in graph.iterfind(".//g:edge", spaces))
    both = Counter(p for k in network.links for p in
                   ((k.a.node, k.b.node), (k.b.node, k.a.node)))  # fmt: skip
    assert edges == both
    lab = YAML(typ="safe").load(FORMATS["containerlab"](network))
    assert set(lab["topology"]["nodes"]) == nodes
    ends = [end.split(":") for link in lab["topology"]["links"] for end in link["endpoints"]]
    assert {node for node, _ in ends} == nodes
    assert len({interface for _, interface in ends}) == len(ends) == 2 * len(network.links)
    assert all(len(interface) <= 15 for _, interface in ends)
    compile(FORMATS["mininet"](network), name, "exec")


def test_impairments_are_told_in_each_programs_words() -> None:
    """geni5.yaml: tor-osf:salt has 1 Gbit/s, 45 ms and 12 MB each way."""
    network = load(find("geni5"))
    names: dict[str, Any] = {"__name__": "script"}
    text = mininet_script(network)
    values = text[text.index("NAME = ") : text.index("KERNEL_SWITCH")]
    exec(compile(values, "script", "exec"), names)
    (link,) = [k for k in names["LINKS"] if {k[0][0], k[1][0]} == {"tor-osf", "salt"}]
    assert link[0][4] == link[1][4] == {"bw": 1000, "delay": "45ms", "max_queue_size": 8000}
    graph = ElementTree.fromstring(FORMATS["graphml"](network))
    edge = next(
        e for e in graph.iter() if (e.get("source"), e.get("target")) == ("tor-osf", "salt")
    )
    found = {data.get("key"): data.text for data in edge}
    assert found["delay_ms"] == "45.0" and found["rate_bps"] == "1000000000"
    script = FORMATS["containerlab-script"](network)
    assert "delay 45ms rate 1000000000bit" in script


@pytest.mark.parametrize("name", bundled())
def test_containerlabs_script_is_a_script(name: str) -> None:
    script = FORMATS["containerlab-script"](load(find(name)))
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    wrong = subprocess.run(["sh", "-s", "first"], input=script, text=True, capture_output=True)
    assert (wrong.returncode, wrong.stderr) == (2, "found 'first'; valid: before, after, remove\n")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.topology, ["export", "geni5", "--to", "graphml"]) == 0
    assert capsys.readouterr().out == FORMATS["graphml"](load(find("geni5")))
    assert run(cli.topology, ["export", "geni5", "--to", "mininett"]) == 2
    said = capsys.readouterr().err
    assert "found --to 'mininett'; valid: json, dot" in said and "mininet" in said
    assert tuple(FORMATS) == cli.EXPORT_FORMATS


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ["geni5", "twocores"])
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes namespaces")
def test_mininets_script_runs(name: str) -> None:
    """In its own namespaces, with Mininet alone: it needs nothing but the file."""
    pytest.importorskip("mininet.topo", reason="Mininet is not installed: NOT tried")
    if shutil.which("mnexec") is None:
        pytest.skip("Mininet's mnexec is not installed: the script was NOT run")
    network = load(find(name), {"receivers": 3} if name == "geni5" else {})

    def commands(work: Path) -> str:
        (work / "network.py").write_text(mininet_script(network))
        return f"{sys.executable} {work}/network.py --ping"

    done = beside_open_vswitch(commands)
    said = done.stdout + done.stderr
    answers = [line for line in done.stdout.splitlines() if "rtt min/avg" in line]
    assert (done.returncode, len(answers)) == (0, len(network.subscribers)), said[-3000:]


def test_the_script_needs_nothing_of_downpour() -> None:
    text = mininet_script(load(find("geni5")))
    assert "topologies" not in text and str(TOPOLOGIES.parent) not in text
