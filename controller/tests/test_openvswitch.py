# SPDX-License-Identifier: Apache-2.0
"""The controller process and a real Open vSwitch (userspace datapath), in a namespace of its own.

The core of sample.py: one bridge per switch, patch ports as core links, veths as access ports
whose other ends are packet sockets of the test.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.client import PathService, PathServiceError
from controller.core import core_of
from controller.entries import LLDP_METER, Flow, Kind, kind_of
from controller.forwarding import base_entries
from controller.paths import Path as MultipointPath
from controller.plan import entries_of
from controller.tests import process
from controller.tests.planning import grown
from controller.tests.sample import (
    LEAF_2,
    LEAF_3,
    LEAF_4,
    MAC_1,
    MAC_2,
    MAC_3A,
    MAC_4,
    ROOT,
    network,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace"),
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]

COOKIE = "cookie=0x444f574e"  # "DOWN", then the kind and the path's number
ETH_P_ALL = 3
PACKET_AUXDATA = 8
TP_STATUS_VLAN_VALID = 1 << 4
MULTICAST = "01:00:5e:01:01:01"
BROADCAST = "ff:ff:ff:ff:ff:ff"
PLAIN_TYPE = 0x88B5  # IEEE 802 local experimental: no other frame on the wire has it
ARP = 0x0806
ACCESS = {"s1": 1, "s2": 9, "s3": 9, "s4": 9}
CORE = core_of(network(), "core")
RATE = 20_000_000
EVERYONE: list[tuple[str, int | None]] = [("s2", 102), ("s3", 103), ("s4", 104)]


def run(*argv: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return done.stdout


def sockets_in(namespace: str, interfaces: list[str]) -> dict[str, socket.socket]:
    """Packet sockets belong to the namespace of the thread that makes them."""
    result: dict[str, socket.socket] = {}
    errors: list[BaseException] = []

    def make() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
            if libc.setns(fd, 0x40000000) != 0:  # CLONE_NEWNET
                raise OSError(ctypes.get_errno(), "setns")
            os.close(fd)
            for interface in interfaces:
                packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
                packet.setsockopt(263, PACKET_AUXDATA, 1)  # SOL_PACKET
                packet.bind((interface, ETH_P_ALL))
                result[interface] = packet
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result


@dataclass(frozen=True)
class Seen:
    dst: str
    src: str
    vlan: int | None
    payload: bytes


def _mac(raw: bytes) -> str:
    return ":".join(f"{octet:02x}" for octet in raw)


def _raw(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def receive(packet: socket.socket) -> Seen | None:
    """One frame; None if there is none or it is not the test's. The kernel may have moved the
    tag out of the frame."""
    try:
        data, control, _, address = packet.recvmsg(2048, 256, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    if address[2] == 4:  # PACKET_OUTGOING
        return Seen("", "", None, b"")
    dst, src, body = _mac(data[:6]), _mac(data[6:12]), data[12:]
    vlan = None
    for level, kind, value in control:
        if (level, kind) == (263, PACKET_AUXDATA):
            status, _, _, _, _, tci, _ = struct.unpack("=IIIHHHH", value[:20])
            if status & TP_STATUS_VLAN_VALID:
                vlan = tci & 0xFFF
    if body[:2] == b"\x81\x00":
        vlan, body = int.from_bytes(body[2:4], "big") & 0xFFF, body[4:]
    return Seen(dst, src, vlan, body[2:])


class Bench:
    """Namespace, database, switch daemon, bridges; `start_controller` as often as wanted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace = f"ctltest-{os.getpid()}"
        self.port = 16653
        self.env = {
            **os.environ,
            "OVS_RUNDIR": str(directory),
            "OVS_LOGDIR": str(directory),
            "OVS_DBDIR": str(directory),
        }
        self.inside = ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.controller: subprocess.Popen[str] | None = None
        self.sockets: dict[str, socket.socket] = {}
        self.counter = 0
        (directory / "network.json").write_text(network().to_json())

    def open(self) -> None:
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for switch, port in ACCESS.items():
            near, far = f"{switch}-p{port}", f"x-{switch}"
            run("ip", "-n", self.namespace, "link", "add", near, "type", "veth", "peer", far)
            for interface in (near, far):
                run("ip", "-n", self.namespace, "link", "set", interface, "up")
        database = self.directory / "conf.db"
        remote = f"unix:{self.directory}/db.sock"
        run("ovsdb-tool", "create", str(database), "/usr/share/openvswitch/vswitch.ovsschema")
        for argv in (
            ["ovsdb-server", str(database), f"--remote=p{remote}"],
            ["ovs-vswitchd", remote],
        ):
            name = argv[0]
            argv += [f"--pidfile={self.directory}/{name}.pid", "-vconsole:off"]
            argv += [f"--log-file={self.directory}/{name}.log"]
            self.daemons.append(subprocess.Popen([*self.inside, *argv], env=self.env))
            process.wait_until(name, (self.directory / f"{name}.pid").exists)
        self.vsctl("init")
        arguments: list[str] = []
        for switch, dpid in CORE.dpids.items():
            arguments += ["--", "add-br", switch]
            arguments += ["--", "set", "bridge", switch, "datapath_type=netdev"]
            arguments += ["fail_mode=secure", "protocols=OpenFlow13"]
            arguments += [f"other_config:datapath-id={dpid:016x}"]
            arguments += ["--", "set-controller", switch, f"tcp:127.0.0.1:{self.port}"]
            near = f"{switch}-p{ACCESS[switch]}"
            arguments += ["--", "add-port", switch, near]
            arguments += ["--", "set", "interface", near, f"ofport_request={ACCESS[switch]}"]
        for hop in CORE.hops:
            name, peer = f"{hop.source}-p{hop.source_port}", f"{hop.target}-p{hop.target_port}"
            arguments += ["--", "add-port", hop.source, name]
            arguments += ["--", "set", "interface", name, "type=patch", f"options:peer={peer}"]
            arguments += [f"ofport_request={hop.source_port}"]
        self.vsctl(*arguments[1:])
        self.sockets = sockets_in(self.namespace, [f"x-{switch}" for switch in ACCESS])

    def close(self) -> None:
        for packet in self.sockets.values():
            packet.close()
        if self.controller is not None:
            process.end(self.controller)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(timeout=10)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    def vsctl(self, *arguments: str) -> str:
        remote = f"--db=unix:{self.directory}/db.sock"
        return run("ovs-vsctl", "--timeout=20", remote, *arguments, env=self.env)

    def dump(self, what: str, switch: str) -> list[str]:
        management = f"unix:{self.directory}/{switch}.mgmt"
        text = run("ovs-ofctl", "-O", "OpenFlow13", f"dump-{what}", management, env=self.env)
        return text.splitlines()

    def flows(self, switch: str) -> list[str]:
        """Ours, but for those that hand link probes to the controller."""
        lines = (line for line in self.dump("flows", switch) if COOKIE in line)
        return [line for line in lines if "dl_type=0x88cc" not in line]

    def groups(self, switch: str) -> list[str]:
        return [line.strip() for line in self.dump("groups", switch) if "group_id=" in line]

    def meters(self, switch: str) -> list[str]:
        """Header and band of each meter but the one for link probes."""
        lines = [line.strip() for line in self.dump("meters", switch)[1:] if line.strip()]
        pairs = zip(lines[::2], lines[1::2], strict=True)
        return [" ".join(pair) for pair in pairs if f"meter={LLDP_METER} " not in pair[0]]

    def start_controller(self) -> None:
        self.controller = process.start(
            [
                *("--network", str(self.directory / "network.json"), "--domain", "core"),
                *("--of-listen", f"127.0.0.1:{self.port}"),
                *("--rest-socket", str(self.directory / "rest.sock")),
                *("--log", str(self.directory / "controller.log")),
            ],
            prefix=self.inside,
        )
        with self.client() as client:
            process.wait_until("all switches ready", lambda: self._ready(client), 30)

    def _ready(self, client: PathService) -> bool:
        assert self.controller is not None
        assert self.controller.poll() is None, self.controller.communicate()
        try:
            return all(client.health()["switches"].values())
        except PathServiceError:
            return False

    def stop_controller(self, number: signal.Signals) -> None:
        assert self.controller is not None
        self.controller.send_signal(number)
        self.controller.communicate(timeout=10)
        self.controller = None

    def client(self) -> PathService:
        return PathService(self.directory / "rest.sock")

    def deliver(
        self, switch: str, dst: str, src: str, vlan: int, eth_type: int = PLAIN_TYPE
    ) -> list[tuple[str, int | None]]:
        """Sends one tagged frame into an access port: (switch, VLAN id) of every copy that comes
        out of one until 0.3 s after the last, sorted."""
        self.counter += 1
        marker = f"downpour {self.counter:08d}".encode().ljust(60, b".")
        tag = struct.pack("!HHH", 0x8100, vlan, eth_type)
        self.sockets[f"x-{switch}"].send(_raw(dst) + _raw(src) + tag + marker)
        result: list[tuple[str, int | None]] = []
        quiet_until = time.monotonic() + 0.3
        while time.monotonic() < quiet_until:
            for name, packet in self.sockets.items():
                while (seen := receive(packet)) is not None:
                    if seen.payload.startswith(marker):
                        assert (seen.dst, seen.src) == (dst, src)
                        result.append((name.removeprefix("x-"), seen.vlan))
                        quiet_until = time.monotonic() + 0.3
            time.sleep(0.005)
        return sorted(result)

    def expect(
        self,
        expected: list[tuple[str, int | None]],
        switch: str,
        dst: str,
        src: str,
        vlan: int,
        eth_type: int = PLAIN_TYPE,
    ) -> None:
        """`deliver`, again for up to 3 s: a barrier covers Open vSwitch's tables, while cached
        data path flows follow them some (up to 500) milliseconds later."""
        deadline = time.monotonic() + 3
        while (got := self.deliver(switch, dst, src, vlan, eth_type)) != expected:
            assert time.monotonic() < deadline, f"{got} instead of {expected}"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    # Not tmp_path: the management sockets' names must fit into 108 characters.
    with tempfile.TemporaryDirectory(prefix="ctltest-") as directory:
        bench = Bench(Path(directory))
        try:
            bench.open()
            bench.start_controller()
            yield bench
        finally:
            bench.close()


@pytest.fixture
def path(bench: Bench) -> Iterator[PathService]:
    """A path with three leaves; deleted at the end."""
    with bench.client() as client:
        client.create_path("NGRID", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("NGRID", leaf)
        yield client
        for shown in client.paths():
            client.delete_path(shown["name"])


def test_the_framework_is_the_one_that_was_asked_for(bench: Bench) -> None:
    expected = os.environ.get("DOWNPOUR_EXPECT_FRAMEWORK", "")
    assert f"with {expected}" in (bench.directory / "controller.log").read_text()


def test_switches_hold_what_was_planned(bench: Bench, path: PathService) -> None:
    shown = path.get("NGRID")
    assert shown["state"] == "up"
    number = shown["meter"]["id"]
    planned = grown(CORE, MultipointPath("NGRID", number, ROOT, RATE), LEAF_2, LEAF_3, LEAF_4)
    base = base_entries(CORE)
    for switch, entries in entries_of(CORE, planned).items():
        flows = [e for e in (*entries, *base[switch]) if isinstance(e, Flow)]
        probes = [flow for flow in flows if kind_of(flow.cookie) is Kind.LLDP]
        assert len(bench.flows(switch)) == len(flows) - len(probes)
        assert len(bench.groups(switch)) == 1
    # Written by hand: 4396 = 0x1000|300, 4406 = 0x1000|310, 4426 = |330, 4198 = |102.
    (group,) = bench.groups("s1")
    assert f"group_id={number},type=all,bucket=" in group
    assert re.findall(r"set_field:(\d+)->vlan_vid", group) == ["4396"]
    (group,) = bench.groups("s2")
    assert re.findall(r"set_field:(\d+)->vlan_vid", group) == ["4406", "4426", "4198"]
    (meter,) = bench.meters("s1")
    assert meter.startswith(f"meter={number} kbps burst stats")
    assert meter.endswith("type=drop rate=20000 burst_size=1000")
    for switch in ("s2", "s3", "s4"):
        assert bench.meters(switch) == []
    ingress = [line for line in bench.flows("s1") if f"meter:{number}" in line]
    assert len(ingress) == 5  # multicast, and the four hosts' addresses
    assert all("dl_vlan=101" in line and f"dl_src={MAC_1}" in line for line in ingress)


@pytest.mark.usefixtures("path")
def test_frames_arrive_translated(bench: Bench) -> None:
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    bench.expect(EVERYONE, "s1", BROADCAST, MAC_1, 101, ARP)
    bench.expect([("s3", 103)], "s1", MAC_3A, MAC_1, 101)
    bench.expect([("s2", 102)], "s1", MAC_2, MAC_1, 101)
    bench.expect([("s1", 101)], "s4", MAC_1, MAC_4, 104)
    bench.expect([("s1", 101)], "s3", BROADCAST, MAC_3A, 103, ARP)


@pytest.mark.usefixtures("path")
def test_other_frames_do_not_pass(bench: Bench) -> None:
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    assert bench.deliver("s1", MULTICAST, MAC_1, 999) == []
    assert bench.deliver("s1", MULTICAST, MAC_2, 101) == []
    assert bench.deliver("s1", MULTICAST, MAC_1, 300) == []
    assert bench.deliver("s2", MULTICAST, MAC_2, 102) == []
    assert bench.deliver("s2", MAC_4, MAC_2, 102) == []
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)


def test_leaf_leaves_and_joins(bench: Bench, path: PathService) -> None:
    at_s3 = sorted(
        re.sub(r"duration=\S+ |n_\w+=\d+, |idle_age=\d+, ", "", f) for f in bench.flows("s3")
    )
    path.remove_leaf("NGRID", LEAF_4)
    assert len(bench.flows("s4")) == 2  # table miss, wrong VLAN at port 9
    assert bench.groups("s4") == []
    bench.expect([("s2", 102), ("s3", 103)], "s1", MULTICAST, MAC_1, 101)
    path.add_leaf("NGRID", LEAF_4)
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
    after = sorted(
        re.sub(r"duration=\S+ |n_\w+=\d+, |idle_age=\d+, ", "", f) for f in bench.flows("s3")
    )
    assert after == at_s3


def test_delete_leaves_nothing(bench: Bench, path: PathService) -> None:
    path.delete_path("NGRID")
    for switch in CORE.dpids:
        wrong_vlan, miss = bench.flows(switch)
        assert "priority=0" in miss and "actions=drop" in miss
        assert bench.groups(switch) == []
        assert bench.meters(switch) == []
    bench.expect([], "s1", MULTICAST, MAC_1, 101)


def test_meter_holds_the_rate(bench: Bench) -> None:
    """1 Mbit/s with a bucket of 200 kbit: of 200 frames of 1000 bytes in one burst (1.6 Mbit)
    about 25 pass at once; what else passes is the rate times the duration of the burst."""
    with bench.client() as client:
        client.create_path("slow", ROOT, 1_000_000)
        client.add_leaf("slow", LEAF_2)
        bench.expect([("s2", 102)], "s1", MULTICAST, MAC_1, 101)
        tag = struct.pack("!HHH", 0x8100, 101, PLAIN_TYPE)
        frame = (_raw(MULTICAST) + _raw(MAC_1) + tag + b"meter".ljust(1000, b"."))[:1000]
        started = time.monotonic()
        for _ in range(200):
            bench.sockets["x-s1"].send(frame)
        count = 0
        quiet_until = time.monotonic() + 0.5
        while time.monotonic() < quiet_until:
            seen = receive(bench.sockets["x-s2"])
            if seen is not None and seen.payload.startswith(b"meter"):
                count += 1
            elif seen is None:
                time.sleep(0.005)
        elapsed_s = time.monotonic() - started
        client.delete_path("slow")
    assert 15 <= count <= 25 + 1_000_000 * elapsed_s / 8000 + 5


def test_killed_controller_is_replaced_by_an_empty_one(bench: Bench) -> None:
    with bench.client() as client:
        client.create_path("NGRID", ROOT, RATE)
        client.add_leaf("NGRID", LEAF_3)
    bench.stop_controller(signal.SIGKILL)
    bench.expect([("s3", 103)], "s1", MULTICAST, MAC_1, 101)  # without a controller
    bench.start_controller()
    bench.expect([], "s1", MULTICAST, MAC_1, 101)  # paths are kept in memory only
    assert [len(bench.flows(switch)) for switch in CORE.dpids] == [2, 2, 2, 2]
    with bench.client() as client:
        client.create_path("NGRID", ROOT, RATE)
        client.add_leaf("NGRID", LEAF_3)
        bench.expect([("s3", 103)], "s1", MULTICAST, MAC_1, 101)
        client.delete_path("NGRID")


def test_switch_that_lost_everything_is_restored(bench: Bench, path: PathService) -> None:
    bench.vsctl("del-controller", "s2")
    process.wait_until("degraded", lambda: path.get("NGRID")["state"] == "degraded")
    management = f"unix:{bench.directory}/s2.mgmt"
    for what in ("del-flows", "del-groups"):
        run("ovs-ofctl", "-O", "OpenFlow13", what, management, env=bench.env)
    bench.expect([], "s1", MULTICAST, MAC_1, 101)
    bench.vsctl("set-controller", "s2", f"tcp:127.0.0.1:{bench.port}")
    process.wait_until("up", lambda: path.get("NGRID")["state"] == "up")
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)


def test_refused_change_is_reported_and_undone(bench: Bench, path: PathService) -> None:
    """Someone takes the group id the path wants at s4: the switch's own error comes back."""
    path.remove_leaf("NGRID", LEAF_4)
    number = path.get("NGRID")["meter"]["id"]
    management = f"unix:{bench.directory}/s4.mgmt"
    group = f"group_id={number},type=all,bucket=actions=output:1"
    run("ovs-ofctl", "-O", "OpenFlow13", "add-group", management, group, env=bench.env)
    with pytest.raises(PathServiceError, match="OFPGMFC_GROUP_EXISTS") as caught:
        path.add_leaf("NGRID", LEAF_4)
    assert caught.value.status == 502
    shown = path.get("NGRID")
    assert shown["state"] == "up"
    assert len(shown["leaves"]) == 2
    assert len(path.add_leaf("NGRID", LEAF_4)["leaves"]) == 3  # s4 was cleaned
    bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
