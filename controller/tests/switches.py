# SPDX-License-Identifier: Apache-2.0
"""Real Open vSwitch in its own namespace, for tests of controllers: bridges, patch ports as links,
veths as access ports whose other ends are packet sockets of the test.

DOWNPOUR_TEST_DATAPATH=system selects the kernel's datapath instead of the userspace one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.tests import process
from topologies.emulate import packet_sockets

DATAPATH = os.environ.get("DOWNPOUR_TEST_DATAPATH", "netdev")
ETH_P_ALL = 3
PACKET_AUXDATA = 8
TP_STATUS_VLAN_VALID = 1 << 4
# How long cached datapath flows may lag behind the tables: 0.5 s, and seconds on a busy machine.
FOLLOW_S = 20.0
PLAIN_TYPE = 0x88B5  # IEEE 802 local experimental: no other frame on the wire has it


def run(*argv: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return done.stdout


def sockets_in(namespace: str, interfaces: list[str]) -> dict[str, socket.socket]:
    """Return packet sockets; they belong to the namespace of the thread that makes them."""
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
    """Return one frame, or None if there is none or it is not the test's. The kernel may have moved
    the tag out of the frame."""
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


@dataclass(frozen=True)
class Bridge:
    """A switch: its datapath id, its access port, and its controllers' targets."""

    name: str
    dpid: int
    access_port: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class PatchPort:
    """Half of a link between two bridges."""

    bridge: str
    name: str
    number: int
    peer: str  # name of the other half

    @property
    def commands(self) -> list[str]:
        """Return the commands for ovs-vsctl."""
        return [
            *("add-port", self.bridge, self.name, "--", "set", "interface", self.name),
            *("type=patch", f"options:peer={self.peer}", f"ofport_request={self.number}"),
        ]


class Switches:
    """Namespace, database, switch daemon, bridges, and a packet socket at each access port."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.namespace = f"{name}-{os.getpid()}"
        self.inside = ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]
        variables = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")
        self.env = {**os.environ, **dict.fromkeys(variables, str(directory))}
        self.sockets: dict[str, socket.socket] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._markers = 0

    def open_switches(
        self,
        bridges: Iterable[Bridge],
        links: Iterable[PatchPort],
        *,
        tls: Path | None = None,
        controller: Mapping[str, str] | None = None,
    ) -> None:
        """`tls`: where the switches' key and certificate are; `controller`: further columns of
        the controllers' records, by name."""
        bridges = tuple(bridges)
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for bridge in bridges:
            near, far = f"{bridge.name}-p{bridge.access_port}", f"x-{bridge.name}"
            run("ip", "-n", self.namespace, "link", "add", near, "type", "veth", "peer", far)
            for interface in (near, far):
                run("ip", "-n", self.namespace, "link", "set", interface, "up")
        self._start_daemons()
        if tls is not None:
            names = ("switch-key.pem", "switch-cert.pem", "ca.pem")
            self.vsctl("set-ssl", *(str(tls / name) for name in names))
        columns = [f"{name}={value}" for name, value in (controller or {}).items()]
        arguments: list[str] = []
        for bridge in bridges:
            near = f"{bridge.name}-p{bridge.access_port}"
            arguments += ["--", "add-br", bridge.name]
            arguments += ["--", "set", "bridge", bridge.name, f"datapath_type={DATAPATH}"]
            arguments += ["fail_mode=secure", "protocols=OpenFlow13"]
            arguments += [f"other_config:datapath-id={bridge.dpid:016x}"]
            made = []
            for number, target in enumerate(bridge.targets):
                made.append(f"@c{number}-{bridge.name}")
                arguments += ["--", f"--id={made[-1]}", "create", "Controller"]
                arguments += [f'target="{target}"', *columns]
            arguments += ["--", "set", "bridge", bridge.name, f"controller=[{','.join(made)}]"]
            arguments += ["--", "add-port", bridge.name, near]
            arguments += ["--", "set", "interface", near, f"ofport_request={bridge.access_port}"]
        for link in links:
            arguments += ["--", *link.commands]
        self.vsctl(*arguments[1:])
        if DATAPATH == "netdev":  # a starved daemon would lose what comes within half a second
            assert packet_sockets.enlarge(self._daemons[-1].pid)
        self.sockets = sockets_in(self.namespace, [f"x-{bridge.name}" for bridge in bridges])

    def _start_daemons(self) -> None:
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
            self._daemons.append(subprocess.Popen([*self.inside, *argv], env=self.env))
            process.wait_until(name, (self.directory / f"{name}.pid").exists)
        self.vsctl("init")

    def close_switches(self) -> None:
        for packet in self.sockets.values():
            packet.close()
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(timeout=10)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    def vsctl(self, *arguments: str) -> str:
        # ovsdb-server writes its pidfile before it makes its socket.
        remote = ("--retry", f"--db=unix:{self.directory}/db.sock")
        return run("ovs-vsctl", "--timeout=20", *remote, *arguments, env=self.env)

    def ofctl(self, command: str, switch: str, *arguments: str) -> str:
        management = f"unix:{self.directory}/{switch}.mgmt"
        return run("ovs-ofctl", "-O", "OpenFlow13", command, management, *arguments, env=self.env)

    def dump(self, what: str, switch: str) -> list[str]:
        return self.ofctl(f"dump-{what}", switch).splitlines()

    def deliver(
        self, switch: str, dst: str, src: str, vlan: int, eth_type: int = PLAIN_TYPE
    ) -> list[tuple[str, int | None]]:
        """Send one tagged frame into an access port; return (switch, VLAN id) of every copy that
        comes out of one until 0.3 s after the last copy, sorted."""
        self._markers += 1
        marker = f"downpour {self._markers:08d}".encode().ljust(60, b".")
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
        """Try `deliver` again for some seconds: a barrier covers Open vSwitch's tables, while
        cached datapath flows follow them up to 500 ms later."""
        deadline = time.monotonic() + FOLLOW_S
        while (got := self.deliver(switch, dst, src, vlan, eth_type)) != expected:
            assert time.monotonic() < deadline, f"{got} instead of {expected}"
