# SPDX-License-Identifier: Apache-2.0
"""Entries of the static domains: their text, what a small interpreter does with frames by them, and
what Open vSwitch itself does (with its dummy datapath: no root, no interfaces)."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.files import tail
from topologies.model.load import find, load
from topologies.model.network import Network
from topologies.model.static_flows import (
    GROUP_BIT,
    Action,
    Match,
    Output,
    PopTag,
    PushTag,
    SwitchEntries,
    ToGroup,
    static_flows,
)
from topologies.tests.test_load import two_segments

BROADCAST = "ff:ff:ff:ff:ff:ff"
MULTICAST = "01:00:5e:0a:01:01"  # of 239.10.1.1, RFC 1112, 6.4
STRANGER = "02:00:00:00:00:99"
Delivery = tuple[int, int | None]  # port, VLAN id of the frame there


@dataclass(frozen=True)
class Frame:
    in_port: int
    vlan: int | None
    destination: str


def is_group(mac: str) -> bool:
    return int(mac[:2], 16) & 1 == 1


def expected(network: Network, switch: str, frame: Frame, edge_tags: bool) -> list[Delivery]:
    """Return what the table in static_flows.py promises, computed from the network alone."""
    port_of = {}
    for link in network.links:
        if link.b.node == switch:
            port_of[link.a.interface] = link.b.number
    for segment in network.segments:
        if segment.edge_switch != switch:
            continue
        at_host = None if edge_tags else segment.vlan
        nics = [network.host(h).path_nic(segment.lane) for h in segment.hosts]
        ports = {port_of[nic.interface]: nic.mac for nic in nics}
        if frame.in_port == segment.edge_port and frame.vlan == segment.vlan:
            return sorted(
                (port, at_host)
                for port, mac in ports.items()
                if is_group(frame.destination) or mac == frame.destination
            )
        if frame.in_port in ports and frame.vlan == at_host:
            others = {p: mac for p, mac in ports.items() if p != frame.in_port}
            uplink = (segment.edge_port, segment.vlan)
            if is_group(frame.destination):
                return sorted([*((p, at_host) for p in others), uplink], key=str)
            direct = [(p, at_host) for p, mac in others.items() if mac == frame.destination]
            return direct or [uplink]
    return []


def frames(network: Network, entries: SwitchEntries) -> Iterator[Frame]:
    """Yield frames for every port, tag and destination that could matter, and some that should
    not."""
    ports = [p.number for k in network.links for p in (k.a, k.b) if p.node == entries.switch]
    vlans = [None, 4000, *(s.vlan for s in network.segments)]
    nics = [nic for h in network.hosts for nic in (h.nic1, *h.lanes)]
    macs = [BROADCAST, MULTICAST, STRANGER, *(nic.mac for nic in nics)]
    for port in ports:
        for vlan in vlans:
            for mac in macs:
                yield Frame(port, vlan, mac)


def interpret(entries: SwitchEntries, frame: Frame) -> list[Delivery]:
    """Apply the first match of highest priority, as an OpenFlow table does."""
    for flow in sorted(entries.flows, key=lambda f: -f.priority):
        if flow.match is None or matches(flow.match, frame):
            return sorted(apply(entries, flow.actions, frame.vlan), key=str)
    raise AssertionError("no table-miss entry")


def matches(match: Match, frame: Frame) -> bool:
    if (match.in_port, match.vlan) != (frame.in_port, frame.vlan):
        return False
    if match.destination == GROUP_BIT:
        return is_group(frame.destination)
    return match.destination in (None, frame.destination)


def apply(
    entries: SwitchEntries, actions: tuple[Action, ...], vlan: int | None
) -> Iterator[Delivery]:
    for action in actions:
        match action:
            case PushTag(vlan=pushed):
                assert vlan is None
                vlan = pushed
            case PopTag():
                assert vlan is not None
                vlan = None
            case Output(port=port):
                yield port, vlan
            case ToGroup(group_id=group_id):
                (group,) = [g for g in entries.groups if g.group_id == group_id]
                for bucket in group.buckets:
                    yield from apply(entries, bucket, vlan)


def networks(tmp_path: Path) -> list[Network]:
    return [
        load(find("geni5"), {"receivers": 1}),
        load(find("geni5"), {"receivers": 13}),
        load(find("drfsm8")),
        load(find("drfsm8"), {"lanes": 3}),
        two_segments(tmp_path),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("edge_tags", [True, False])
def test_frames_go_where_the_table_says(edge_tags: bool, tmp_path: Path) -> None:
    delivered = 0
    for network in networks(tmp_path):
        for entries in static_flows(network, edge_tags=edge_tags):
            for frame in frames(network, entries):
                wanted = sorted(expected(network, entries.switch, frame, edge_tags), key=str)
                assert interpret(entries, frame) == wanted, (entries.switch, frame)
                assert frame.in_port not in [port for port, _ in wanted]
                delivered += len(wanted)
    assert delivered > 100


def test_one_set_of_entries_for_each_static_switch() -> None:
    network = load(find("geni5"), {"receivers": 1})
    entries = static_flows(network, edge_tags=True)
    assert [e.switch for e in entries] == ["tor-umass", "tor-wsu", "tor-sl", "tor-uh", "tor-osf"]
    assert [len(e.groups) for e in entries] == [1, 1, 0, 0, 0]
    assert entries[2].flow_lines() == "table=0,priority=0,actions=drop\n"  # an empty rack


# Port 1 of tor-wsu is its uplink, 2 and 3 are its hosts; segment wsu has VLAN 1202 on the hand-off,
# 4096 + 1202 = 5298. MACs end in node number (9 switches, umass 10, wsu1 11, wsu2 15) and port.
WSU_EDGE_TAGS = """\
table=0,priority=300,in_port=1,dl_vlan=1202,dl_dst=02:64:70:00:0b:01,actions=pop_vlan,output:2
table=0,priority=300,in_port=1,dl_vlan=1202,dl_dst=02:64:70:00:0f:01,actions=pop_vlan,output:3
table=0,priority=200,in_port=1,dl_vlan=1202,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=group:1
table=0,priority=300,in_port=2,dl_vlan=0xffff,dl_dst=02:64:70:00:0f:01,actions=output:3
table=0,priority=200,in_port=2,dl_vlan=0xffff,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,\
actions=output:3,push_vlan:0x8100,set_field:5298->vlan_vid,output:1
table=0,priority=100,in_port=2,dl_vlan=0xffff,\
actions=push_vlan:0x8100,set_field:5298->vlan_vid,output:1
table=0,priority=300,in_port=3,dl_vlan=0xffff,dl_dst=02:64:70:00:0b:01,actions=output:2
table=0,priority=200,in_port=3,dl_vlan=0xffff,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,\
actions=output:2,push_vlan:0x8100,set_field:5298->vlan_vid,output:1
table=0,priority=100,in_port=3,dl_vlan=0xffff,\
actions=push_vlan:0x8100,set_field:5298->vlan_vid,output:1
table=0,priority=0,actions=drop
"""


def test_text_with_edge_tags() -> None:
    network = load(find("geni5"), {"receivers": 8})
    wsu = static_flows(network, edge_tags=True)[1]
    assert wsu.flow_lines() == WSU_EDGE_TAGS
    assert wsu.group_lines() == (
        "group_id=1,type=all,bucket=actions=pop_vlan,output:2,bucket=actions=pop_vlan,output:3\n"
    )


def test_text_without_edge_tags() -> None:
    network = load(find("drfsm8"))
    uva = next(e for e in static_flows(network, edge_tags=False) if e.switch == "sw-maria")
    assert uva.group_lines() == "group_id=1,type=all,bucket=actions=output:2\n"
    mac = network.host("uva").nic1.mac
    assert uva.flow_lines() == (
        f"table=0,priority=300,in_port=1,dl_vlan=303,dl_dst={mac},actions=output:2\n"
        f"table=0,priority=200,in_port=1,dl_vlan=303,dl_dst={GROUP_BIT},actions=group:1\n"
        f"table=0,priority=200,in_port=2,dl_vlan=303,dl_dst={GROUP_BIT},actions=output:1\n"
        "table=0,priority=100,in_port=2,dl_vlan=303,actions=output:1\n"
        "table=0,priority=0,actions=drop\n"
    )


# -- Open vSwitch itself ----------------------------------------------------------------------
TOOLS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")


class DummySwitch:
    """Open vSwitch with its own directory and the dummy datapath."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin",
            "OVS_RUNDIR": str(directory),
            "OVS_DBDIR": str(directory),
            "OVS_LOGDIR": str(directory),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, *argv: str, stdin: str = "") -> str:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}{self.last_words()}"
        return done.stdout

    def last_words(self) -> str:
        """Return whether the daemons run, and the end of the switch's log, for an error text."""
        ended = [p.args for p in self.processes if p.poll() is not None]
        return f"\nended: {ended}\n{tail(self.directory / 'ovs-vswitchd.log', 20)}"

    def start(self, *argv: str) -> None:
        self.processes.append(
            subprocess.Popen(
                argv,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def up(self) -> None:
        database, socket = self.directory / "conf.db", self.directory / "db.sock"
        self.run("ovsdb-tool", "create", str(database), str(SCHEMA))
        self.start("ovsdb-server", str(database), f"--remote=punix:{socket}", "--no-chdir")
        deadline = time.monotonic() + 20
        while not socket.exists():
            assert time.monotonic() < deadline, "ovsdb-server does not start"
            time.sleep(0.02)
        self.vsctl("--no-wait", "init")
        self.start(
            "ovs-vswitchd",
            "--enable-dummy=override",
            "--disable-system",
            "--disable-system-route",
            "--no-chdir",
            "--pidfile",
            "--log-file",
            "-vconsole:off",
            f"unix:{socket}",
        )

    def down(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(timeout=20)

    def vsctl(self, *argv: str) -> str:
        database = f"--db=unix:{self.directory / 'db.sock'}"
        return self.run("ovs-vsctl", "--timeout=20", database, *argv)

    def add_bridge(self, name: str, ports: int) -> None:
        argv = ["add-br", name, "--", "set", "bridge", name, "datapath_type=dummy"]
        argv += ["fail_mode=secure", "protocols=OpenFlow13"]
        for port in range(1, ports + 1):
            argv += ["--", "add-port", name, f"{name}-{port}"]
            argv += ["--", "set", "interface", f"{name}-{port}"]
            argv += ["type=dummy", f"ofport_request={port}"]
        self.vsctl(*argv)

    def ofctl(self, command: str, bridge: str, stdin: str) -> None:
        management = f"unix:{self.directory / bridge}.mgmt"
        self.run("ovs-ofctl", "-O", "OpenFlow13", command, management, "-", stdin=stdin)

    def datapath_ports(self, bridge: str) -> dict[int, int]:
        """Return datapath port number -> OpenFlow port number."""
        shown = self.run("ovs-appctl", "-t", "ovs-vswitchd", "dpif/show")
        pairs = re.findall(rf"{bridge}-\d+ (\d+)/(\d+):", shown)
        return {int(datapath): int(openflow) for openflow, datapath in pairs}

    def trace(self, bridge: str, frame: Frame, ports: dict[int, int]) -> list[Delivery]:
        tag = "" if frame.vlan is None else f",dl_vlan={frame.vlan}"
        flow = f"in_port={frame.in_port}{tag},dl_src=02:00:00:00:00:01,dl_dst={frame.destination}"
        shown = self.run(
            "ovs-appctl", "-t", "ovs-vswitchd", "ofproto/trace", bridge, f"{flow},dl_type=0x0800"
        )
        actions = shown.rsplit("Datapath actions: ", 1)[1].strip()
        vlan, delivered = frame.vlan, []
        for action in re.findall(r"push_vlan\(vid=\d+,pcp=0\)|[a-z_]+(?:\(.*?\))?|\d+", actions):
            if action.isdigit():
                delivered.append((ports[int(action)], vlan))
            elif action.startswith("push_vlan"):
                vlan = int(re.findall(r"\d+", action)[0])
            elif action == "pop_vlan":
                vlan = None
            else:
                assert action == "drop", actions
        return sorted(delivered, key=str)


@pytest.fixture
def dummy_switch(tmp_path: Path) -> Iterator[DummySwitch]:
    search = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search) is None]
    if missing or not SCHEMA.exists():
        pytest.skip(f"Open vSwitch is not installed (missing: {', '.join(missing) or SCHEMA})")
    switch = DummySwitch(tmp_path)
    try:
        switch.up()
        yield switch
    finally:
        switch.down()


@pytest.mark.slow
@pytest.mark.parametrize("edge_tags", [True, False])
def test_open_vswitch_forwards_as_the_table_says(
    edge_tags: bool, dummy_switch: DummySwitch, tmp_path: Path
) -> None:
    network = two_segments(tmp_path)
    west = static_flows(network, edge_tags=edge_tags)[1]
    assert west.switch == "sw-west"
    rack = load(find("geni5"), {"receivers": 12})
    wsu = static_flows(rack, edge_tags=edge_tags)[1]
    for of, entries, ports in ((network, west, 3), (rack, wsu, 4)):
        dummy_switch.add_bridge(entries.switch, ports)
        dummy_switch.ofctl("add-groups", entries.switch, entries.group_lines())
        dummy_switch.ofctl("add-flows", entries.switch, entries.flow_lines())
        datapath_ports = dummy_switch.datapath_ports(entries.switch)
        assert len(datapath_ports) == ports
        mine = {s.vlan for s in of.segments if s.edge_switch == entries.switch}
        macs = {of.host(h).nic1.mac for s in of.segments if s.vlan in mine for h in s.hosts}
        delivered = 0
        for frame in frames(of, entries):
            if frame.vlan not in {None, 4000, *mine}:
                continue
            if frame.destination not in {BROADCAST, MULTICAST, STRANGER, *macs}:
                continue
            wanted = sorted(expected(of, entries.switch, frame, edge_tags), key=str)
            # A switch never sends a frame back to where it came from; none asks for it here.
            assert dummy_switch.trace(entries.switch, frame, datapath_ports) == wanted, frame
            delivered += len(wanted)
        assert delivered > 10


def test_network_json_gives_the_same_entries() -> None:
    """Other processes read network.json, so nothing may depend on this process's objects."""
    network = load(find("geni5"))
    again = Network.from_json(json.dumps(json.loads(network.to_json())))
    assert static_flows(again, edge_tags=True) == static_flows(network, edge_tags=True)
