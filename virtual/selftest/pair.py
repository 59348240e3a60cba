# SPDX-License-Identifier: Apache-2.0
"""Two hosts, the network namespaces `a` and `b`, and a veth pair or a switch between them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.places import program
from common.shell import NetworkError, check
from topologies.emulate.openvswitch import OpenVSwitch
from virtual.selftest import parse

UDP: Final = program("selftest-udp")
ADDRESS: Final = {"a": "10.9.0.1", "b": "10.9.0.2"}
MAC: Final = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
NOBODY: Final = "10.9.0.77"  # frames for it reach b, which drops them, as it is not a router
PORT: Final = 5001
WAIT_S: Final = 20.0
IDLE_MS: Final = 2000  # after so long without a datagram, no more will come
# No unsolicited frames: they would use up a shaper's tokens.
QUIET: Final = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")


@dataclass(frozen=True)
class Host:
    name: str

    @property
    def interface(self) -> str:
        """Return the name of its interface."""
        return f"{self.name}0"

    @property
    def other(self) -> str:
        """Return the namespace at the other end."""
        return "b" if self.name == "a" else "a"

    def argv(self, *argv: str) -> list[str]:
        """Return the command that runs `argv` in it."""
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, *argv: str, timeout_s: float = 120) -> str:
        """Run a command in it; return its output. Raises NetworkError."""
        return check(self.argv(*argv), timeout_s=timeout_s)

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program in it; its output is a pipe of text."""
        return subprocess.Popen(
            self.argv(*argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def sysctl(self, *settings: str) -> None:
        """Apply settings; those that this kernel lacks are left out."""
        self.run("sysctl", "-qe", *(part for s in settings for part in ("-w", s)))

    def address(self, interface: str, address: str) -> None:
        """Give `interface` an address; the neighbours are entered, so that none is asked for."""
        self.run("ip", "link", "set", interface, "up")
        self.run("ip", "address", "add", f"{address}/24", "dev", interface)
        network = address.rsplit(".", 1)[0]
        for neighbour in (f"{network}.{ADDRESS[self.other].rsplit('.', 1)[1]}", f"{network}.77"):
            self.run(
                "ip", "neighbour", "replace", neighbour, "lladdr", MAC[self.other],
                "nud", "permanent", "dev", interface,
            )  # fmt: skip


@dataclass(frozen=True)
class Pair:
    a: Host
    b: Host

    def send(
        self, count: int, payload_bytes: int, interval_s: float, *, to: str = ADDRESS["b"]
    ) -> None:
        """Send UDP from a; return when everything is queued. Raises NetworkError."""
        interval_ns = round(interval_s * 1e9)
        words = (to, PORT, count, payload_bytes, interval_ns)
        self.a.run(str(UDP), "send", *(str(word) for word in words))

    def datagrams(self, count: int, payload_bytes: int, interval_s: float) -> list[parse.Arrival]:
        """Send UDP from a to b; return the datagrams in order of arrival. Raises NetworkError."""
        receiver = self.b.popen(str(UDP), "receive", str(PORT), str(IDLE_MS))
        with receiver:
            try:
                ready(receiver, receiver.stdout, "ready")
                self.send(count, payload_bytes, interval_s)
                out, err = receiver.communicate()
            finally:
                receiver.kill()
        if receiver.returncode != 0:
            raise NetworkError(f"selftest-udp receive: {err.strip()}")
        return parse.arrivals(out)

    @contextmanager
    def captured(self, found: list[parse.Segment]) -> Iterator[None]:
        """Append the TCP segments that b's interface carries to `found`."""
        tcpdump = self.b.popen(
            "tcpdump",
            "-i",
            self.b.interface,
            "-tt",
            "--nano",
            "-n",
            "-S",
            "--immediate-mode",
            "tcp",
        )
        with tcpdump:
            try:
                ready(tcpdump, tcpdump.stderr, "listening on")
                yield
                time.sleep(0.1)
                tcpdump.send_signal(signal.SIGINT)
                out, _ = tcpdump.communicate(timeout=WAIT_S)
            finally:
                tcpdump.kill()
        found.extend(parse.segments(out))


def ready(process: subprocess.Popen[str], stream: object, text: str) -> None:
    """Wait until the process says `text`. Raises NetworkError with its output if it never does."""
    assert hasattr(stream, "readline")
    said = ""
    while line := stream.readline():
        if text in line:
            return
        said += line
    raise NetworkError(f"{process.args!r} did not start: {said.strip()[-300:]}")


def _hosts() -> Pair:
    pair = Pair(Host("a"), Host("b"))
    for host in (pair.a, pair.b):
        check(["ip", "netns", "add", host.name])
        host.sysctl(*QUIET)
        host.run("ip", "link", "set", "lo", "up")
    return pair


def _remove(*links: str) -> None:
    for name in ("a", "b"):
        with contextlib.suppress(NetworkError):
            check(["ip", "netns", "del", name])
    for link in links:
        with contextlib.suppress(NetworkError):
            check(["ip", "link", "del", link])


@contextmanager
def cable() -> Iterator[Pair]:
    """Join a and b by a veth pair: a0 in a, b0 in b."""
    try:
        pair = _hosts()
        check([
            "ip", "link", "add", "a0", "address", MAC["a"], "netns", "a", "type", "veth",
            "peer", "name", "b0", "address", MAC["b"], "netns", "b",
        ])  # fmt: skip
        for host in (pair.a, pair.b):
            host.address(host.interface, ADDRESS[host.name])
        yield pair
    finally:
        _remove()


@contextmanager
def switch(directory: Path) -> Iterator[Pair]:
    """Connect a and b to ports 1 and 2 of br0, an Open vSwitch in the kernel, as yet without
    flows."""
    daemons = OpenVSwitch(directory)
    try:
        pair = _hosts()
        for host in (pair.a, pair.b):
            check([
                "ip", "link", "add", f"port-{host.name}", "type", "veth",
                "peer", "name", host.interface, "address", MAC[host.name], "netns", host.name,
            ])  # fmt: skip
            check(["sysctl", "-qe", "-w", f"net.ipv6.conf.port-{host.name}.disable_ipv6=1"])
            check(["ip", "link", "set", f"port-{host.name}", "up"])
            host.address(host.interface, ADDRESS[host.name])
        daemons.start()
        check([
            "ovs-vsctl", "--timeout=20", "add-br", "br0", "--", "set", "bridge", "br0",
            "datapath_type=system", "fail_mode=secure", "protocols=OpenFlow13",
            "--", "add-port", "br0", "port-a",
            "--", "set", "interface", "port-a", "ofport_request=1",
            "--", "add-port", "br0", "port-b",
            "--", "set", "interface", "port-b", "ofport_request=2",
        ])  # fmt: skip
        yield pair
    finally:
        with contextlib.suppress(NetworkError):
            check(["ovs-vsctl", "--timeout=5", "del-br", "br0"])
        daemons.stop()
        _remove("port-a", "port-b")


def openflow(command: str, text: str) -> None:
    """Run `ovs-ofctl COMMAND br0 TEXT`. Raises NetworkError."""
    check(["ovs-ofctl", "-O", "OpenFlow13", command, "br0", text])
