# SPDX-License-Identifier: Apache-2.0
"""A real Open vSwitch in a namespace of its own, controllers for it, and frames counted through it.

The core of sample.py: one bridge per switch, patch ports as core links, veths as access ports
whose other ends are packet sockets of the test. DOWNPOUR_TEST_DATAPATH=system takes the kernel's
datapath instead of the userspace one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from controller.client import PathService, PathServiceError
from controller.core import core_of
from controller.entries import LLDP_METER
from controller.tests import process
from controller.tests.sample import MAC_1, network

Test = TypeVar("Test", bound=Callable[..., None])
NEEDS_OPEN_VSWITCH = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace"),
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]


def needs_open_vswitch(test: Test) -> Test:
    """Marks one test as NEEDS_OPEN_VSWITCH does a module's."""
    for mark in NEEDS_OPEN_VSWITCH:
        test = mark(test)
    return test


DATAPATH = os.environ.get("DOWNPOUR_TEST_DATAPATH", "netdev")

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
                packet.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
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


def raw_mac(mac: str) -> bytes:
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
    """Namespace, database, switch daemon, bridges; controllers as often as wanted. All of them
    share a store; number 1 is there only if `controllers` is 2 (and `options` make it a standby).
    """

    def __init__(
        self, directory: Path, *, controllers: int = 1, tls: Path | None = None,
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.directory = directory
        self.namespace = f"ctltest-{os.getpid()}"
        self.ports = [16653 + number for number in range(controllers)]
        self.tls = tls
        self.options = options
        self.env = {
            **os.environ,
            "OVS_RUNDIR": str(directory),
            "OVS_LOGDIR": str(directory),
            "OVS_DBDIR": str(directory),
        }
        self.inside = ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.running: dict[int, subprocess.Popen[str]] = {}
        self.sockets: dict[str, socket.socket] = {}
        self.counter = 0
        (directory / "network.json").write_text(network().to_json())

    @property
    def targets(self) -> list[str]:
        """What the switches' controllers are, for ovs-vsctl set-controller."""
        scheme = "tcp" if self.tls is None else "ssl"
        return [f"{scheme}:127.0.0.1:{port}" for port in self.ports]

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
        if self.tls is not None:
            names = ("switch-key.pem", "switch-cert.pem", "ca.pem")
            self.vsctl("set-ssl", *(str(self.tls / name) for name in names))
        arguments: list[str] = []
        for switch, dpid in CORE.dpids.items():
            arguments += ["--", "add-br", switch]
            arguments += ["--", "set", "bridge", switch, f"datapath_type={DATAPATH}"]
            arguments += ["fail_mode=secure", "protocols=OpenFlow13"]
            arguments += [f"other_config:datapath-id={dpid:016x}"]
            arguments += ["--", "set-controller", switch, *self.targets]
            near = f"{switch}-p{ACCESS[switch]}"
            arguments += ["--", "add-port", switch, near]
            arguments += ["--", "set", "interface", near, f"ofport_request={ACCESS[switch]}"]
        for hop in CORE.hops:
            arguments += [
                "--",
                *self.patch_port(hop.source, hop.source_port, hop.target, hop.target_port),
            ]
        self.vsctl(*arguments[1:])
        self.sockets = sockets_in(self.namespace, [f"x-{switch}" for switch in ACCESS])

    def patch_port(self, switch: str, port: int, peer: str, peer_port: int) -> list[str]:
        """For vsctl: half of a core link."""
        name, options = f"{switch}-p{port}", f"options:peer={peer}-p{peer_port}"
        return [
            *("add-port", switch, name, "--", "set", "interface", name, "type=patch", options),
            f"ofport_request={port}",
        ]

    def close(self) -> None:
        for packet in self.sockets.values():
            packet.close()
        for controller in self.running.values():
            process.end(controller)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(timeout=10)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    def vsctl(self, *arguments: str) -> str:
        remote = f"--db=unix:{self.directory}/db.sock"
        return run("ovs-vsctl", "--timeout=20", remote, *arguments, env=self.env)

    def dump(self, what: str, switch: str) -> list[str]:
        return self.ofctl(f"dump-{what}", switch).splitlines()

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

    def start_controller(self, number: int = 0) -> None:
        """Returns when it has all switches in order, or stands by."""
        tls: list[str] = []
        if self.tls is not None:
            tls += ["--of-tls-key", str(self.tls / "controller-key.pem")]
            tls += ["--of-tls-cert", str(self.tls / "controller-cert.pem")]
            tls += ["--of-tls-ca", str(self.tls / "ca.pem")]
        controller = self.running[number] = process.start(
            [
                *("--network", str(self.directory / "network.json"), "--domain", "core"),
                *("--of-listen", f"127.0.0.1:{self.ports[number]}"),
                *("--rest-socket", str(self.rest_socket(number))),
                *("--store", str(self.directory / "store.db")),
                *("--log", str(self.log(number))),
                *tls,
                *self.options,
            ],
            prefix=self.inside,
        )
        with self.client(number) as client:
            process.wait_until("all switches ready", lambda: self._ready(controller, client), 60)

    def _ready(self, controller: subprocess.Popen[str], client: PathService) -> bool:
        assert controller.poll() is None, controller.communicate()
        try:
            health = client.health()
        except PathServiceError:
            return False
        return health["role"] == "standby" or all(health["switches"].values())

    def rest_socket(self, number: int = 0) -> Path:
        return self.directory / f"rest{number}.sock"

    def log(self, number: int = 0) -> Path:
        return self.directory / f"controller{number}.log"

    def stop_controller(self, how: signal.Signals, number: int = 0) -> None:
        controller = self.running.pop(number)
        controller.send_signal(how)
        controller.communicate(timeout=30)

    def client(self, number: int = 0) -> PathService:
        return PathService(self.rest_socket(number))

    def ofctl(self, command: str, switch: str, *arguments: str) -> str:
        management = f"unix:{self.directory}/{switch}.mgmt"
        return run("ovs-ofctl", "-O", "OpenFlow13", command, management, *arguments, env=self.env)

    def deliver(
        self, switch: str, dst: str, src: str, vlan: int, eth_type: int = PLAIN_TYPE
    ) -> list[tuple[str, int | None]]:
        """Sends one tagged frame into an access port: (switch, VLAN id) of every copy that comes
        out of one until 0.3 s after the last, sorted."""
        self.counter += 1
        marker = f"downpour {self.counter:08d}".encode().ljust(60, b".")
        tag = struct.pack("!HHH", 0x8100, vlan, eth_type)
        self.sockets[f"x-{switch}"].send(raw_mac(dst) + raw_mac(src) + tag + marker)
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


@dataclass
class Heard:
    """Of one leaf: how often each number came, and when the last did."""

    counts: Counter[int] = field(default_factory=Counter)
    last_s: float = 0.0
    longest_gap_s: float = 0.0


class Stream:
    """Numbered multicast frames into s1, as a context: afterwards it is known what each leaf
    lost and got twice."""

    def __init__(self, bench: Bench, rate_per_s: int = 500) -> None:
        self._bench = bench
        self._period_s = 1 / rate_per_s
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send)
        self._receiver = threading.Thread(target=self._receive)
        self._finished = threading.Event()
        self.sent = 0
        self.heard = {switch: Heard() for switch in ACCESS if switch != "s1"}

    def __enter__(self) -> Stream:
        self._receiver.start()
        self._sender.start()
        process.wait_until("frames of the stream", lambda: self.sent > 50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._sender.join()
        time.sleep(0.5)  # what is on its way
        self._finished.set()
        self._receiver.join()

    def lost(self, switch: str) -> int:
        return self.sent - len(self.heard[switch].counts)

    def doubled(self, switch: str) -> int:
        return sum(count > 1 for count in self.heard[switch].counts.values())

    def _send(self) -> None:
        packet = self._bench.sockets["x-s1"]
        head = raw_mac(MULTICAST) + raw_mac(MAC_1) + struct.pack("!HHH", 0x8100, 101, PLAIN_TYPE)
        due_s = time.monotonic()
        while not self._stopping.is_set():
            packet.send(head + b"stream" + self.sent.to_bytes(4, "big") + bytes(60))
            self.sent += 1
            due_s += self._period_s
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _receive(self) -> None:
        while not self._finished.is_set():
            for switch, heard in self.heard.items():
                packet = self._bench.sockets[f"x-{switch}"]
                while (seen := receive(packet)) is not None:
                    if seen.payload.startswith(b"stream"):
                        now_s = time.monotonic()
                        heard.counts[int.from_bytes(seen.payload[6:10], "big")] += 1
                        if heard.last_s:
                            heard.longest_gap_s = max(heard.longest_gap_s, now_s - heard.last_s)
                        heard.last_s = now_s
            time.sleep(0.001)


@contextlib.contextmanager
def open_bench(
    *, controllers: int = 1, tls: Path | None = None, options: tuple[str, ...] = ()
) -> Iterator[Bench]:
    """A bench whose controllers run."""
    # Not tmp_path: the management sockets' names must fit into 108 characters.
    with tempfile.TemporaryDirectory(prefix="ctltest-") as directory:
        bench = Bench(Path(directory), controllers=controllers, tls=tls, options=options)
        try:
            bench.open()
            for number in range(controllers):
                bench.start_controller(number)
            yield bench
        finally:
            bench.close()
