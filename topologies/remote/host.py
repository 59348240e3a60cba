# SPDX-License-Identifier: Apache-2.0
"""A host of the network here whose namespace and programs are on another machine.

A path here names the file's counterpart there: below the build directory, the program of the other
machine's checkout; elsewhere, a file in the agent's own directory. `put` copies a file there,
`mirror` keeps a file here as it grows there.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.places import BUILD, ROOT
from common.shell import NetworkError, check, in_node
from topologies.emulate.build import (
    host_script,
    nic1_interface,
    node_problems,
    parse_node_readback,
)
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Host as NetworkHost
from topologies.model.network import Network
from topologies.remote import checkout
from topologies.remote.connection import Connection
from topologies.remote.inventory import RemoteHost
from topologies.remote.process import RemoteProcess, descriptor
from topologies.remote.tunnels import MTU, NEEDED_MTU, PORT, Circuit, Tunnel, Way

COPY_S: Final = 0.2  # between copies of what programs have written
CLOCK_LOOKS: Final = 20
# The columns of `chronyc -c tracking`; offsets and dispersions in seconds.
CHRONY: Final = (
    *("reference_id", "reference", "stratum", "reference_time", "system_offset_s"),
    *("last_offset_s", "rms_offset_s", "frequency_ppm", "residual_ppm", "skew_ppm"),
    *("root_delay_s", "root_dispersion_s", "update_interval_s", "leap"),
)
PING_TIMEOUT_S: Final = 5
# VXLAN network identifiers: other networks of this machine may have some.
_numbers = itertools.count(secrets.randbelow(1 << 23) + (1 << 16))
AWAIT_SOCKET: Final = 'i=0; until [ -S "$0" ] || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done'


@dataclass
class _Copy:
    """A file that grows there, and the descriptor here that gets what is new."""

    there: str
    fd: int
    offset: int = 0


@dataclass(frozen=True)
class ClockOffset:
    """A machine's time of day less this one's. The true offset is within `error_ms`: half of the
    shortest round trip of a question about it."""

    offset_ms: float
    error_ms: float


@dataclass(frozen=True)
class Link:
    """An interface of a machine. `mtu`: in bytes."""

    name: str
    mtu: int


@dataclass(frozen=True)
class Route:
    """How a machine reaches another."""

    source: str
    link: Link


def link_of(run: Callable[[Sequence[str]], str], name: str) -> Link:
    """Return an interface of the machine where `run` runs tools. Raises NetworkError."""
    (link,) = json.loads(run(["ip", "-j", "link", "show", "dev", name]))
    return Link(name, int(link["mtu"]))


def route_to(run: Callable[[Sequence[str]], str], address: str) -> Route:
    """Return the route to an address, of the machine where `run` runs tools. Raises
    NetworkError."""
    (route,) = json.loads(run(["ip", "-j", "route", "get", address]))
    return Route(str(route["prefsrc"]), link_of(run, str(route["dev"])))


class Host:
    """A host on another machine."""

    def __init__(self, host: RemoteHost, connection: Connection) -> None:
        """Ask the agent what its machine is. Raises NetworkError."""
        self.name, self.host, self._connection = host.name, host, connection
        self.facts: dict[str, Any] = connection.call("hello")
        self.scratch = str(self.facts["scratch"])
        self._programs = f"{self.facts['root']}/build"
        self._places: dict[str, str] = {str(BUILD): self._programs}
        self._copies: list[_Copy] = []
        self._copying = threading.Lock()
        self._stop = threading.Event()
        self.tunnels: list[Way] = []
        self._outputs = 0
        self._forward: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._copy_on, daemon=True)

    # -- places -------------------------------------------------------------------------------
    def share(self, *directories: Path) -> None:
        """Give directories here counterparts there. Raises NetworkError."""
        for directory in directories:
            self._places[str(directory)] = f"{self.scratch}{directory}"
            self._connection.call("write", path=f"{self.scratch}{directory}/", data="")

    def built_in(self, build: Path) -> None:
        """Say where the programs are here. Raises NetworkError if the machine has others."""
        there = self.facts.get("checkout", {})
        if other := checkout.difference(checkout.describe(ROOT, build), there):
            raise NetworkError(
                f"{self.name} ({self.host.address}): found {other} in {self.facts['root']}; valid: "
                "the same as here (--install copies and builds them)"
            )
        self._places[str(build)] = self._programs

    def there(self, text: str) -> str:
        """Return a text with the names of files there."""
        for here in sorted(self._places, key=len, reverse=True):
            if here in text and not text.startswith(self.scratch):
                return text.replace(here, self._places[here])
        return text

    def put(self, path: Path, *, text: bool = True) -> None:
        """Copy a file there; names of files in a text become those there. Raises NetworkError."""
        data = path.read_bytes()
        if text:
            lines = data.decode().splitlines(keepends=True)
            data = "".join(self.there(line) for line in lines).encode()
        encoded = base64.b64encode(data).decode()
        self._connection.call("write", path=self.there(str(path)), data=encoded)

    def mirror(self, path: Path) -> None:
        """Copy what a file there gets, from now on, to its counterpart here."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._connection.call("write", path=str(Path(self.there(str(path))).parent) + "/", data="")
        with self._copying:
            self._copies.append(_Copy(self.there(str(path)), fd))

    # -- copies -------------------------------------------------------------------------------
    def _copy_on(self) -> None:
        while not self._stop.wait(COPY_S):
            with contextlib.suppress(NetworkError):
                self.copy()

    def copy(self) -> None:
        """Copy all that programs have written by now. Raises NetworkError."""
        with self._copying:
            while self._copies:
                asked = {copy.there: copy.offset for copy in self._copies}
                found = self._connection.call("read", files=asked)
                for copy in self._copies:
                    if copy.there in found:
                        data = base64.b64decode(found[copy.there])
                        os.write(copy.fd, data)
                        copy.offset += len(data)
                if not found:
                    return

    def contents(self, path: str) -> bytes:
        """Return the whole of a file there. Raises NetworkError."""
        whole = b""
        while found := self._connection.call("read", files={path: len(whole)}):
            whole += base64.b64decode(found[path])
        return whole

    # -- programs -----------------------------------------------------------------------------
    def call(self, name: str, **given: object) -> Any:
        """Return what the agent's function returns. Raises NetworkError."""
        return self._connection.call(name, **given)

    def run(
        self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Raises NetworkError if it hangs, or is missing."""
        words = [self.there(word) for word in argv]
        code, out, err = self.call("run", argv=words, stdin=stdin, timeout_s=timeout_s)
        return subprocess.CompletedProcess(words, code, out, err)

    def output(self, argv: Sequence[str], stdin: str = "") -> str:
        """Return what a program prints. Raises NetworkError if it fails."""
        done = self.run(argv, stdin=stdin)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise NetworkError(f"{self.name}: {' '.join(argv)[:200]}: {said}")
        return done.stdout

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdout: object = None,
        stderr: object = None,
        env: Mapping[str, str] | None = None,
    ) -> RemoteProcess:
        """Start a program; what it writes is copied to `stdout` and `stderr` here (PIPE:
        `communicate` returns it). Raises NetworkError."""
        self._outputs += 1
        out = err = None
        collected = f"{self.scratch}/output-{self._outputs}" if stdout == subprocess.PIPE else ""
        if collected:
            out = collected
        elif (fd := descriptor(stdout)) is not None:
            out = self._copied(fd, "out")
        if stderr == subprocess.STDOUT or (stderr is stdout and stderr is not None):
            err = out
        elif (fd := descriptor(stderr)) is not None:
            err = self._copied(fd, "err")
        words = [self.there(word) for word in argv]
        variables = {name: self.there(value) for name, value in (env or {}).items()}
        pid = self.call("start", argv=words, env=variables, out=out, err=err)
        return RemoteProcess(self, pid, argv, collected)

    def _copied(self, fd: int, kind: str) -> str:
        path = f"{self.scratch}/output-{self._outputs}.{kind}"
        with self._copying:
            self._copies.append(_Copy(path, fd))
        return path

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a program that has ended, after copying all that it wrote."""
        code = self.call("codes").get(str(pid))
        if code is not None:
            self.copy()
        return None if code is None else int(code)

    def send(self, pid: int, number: int) -> None:
        """Send a signal to a program. Raises NetworkError."""
        self.call("signal", pid=pid, number=int(number))

    # -- the machine --------------------------------------------------------------------------
    def make_nic(self, tunnel: Way) -> None:
        """Make the host's end of a tunnel. Raises NetworkError."""
        commands = tunnel.make_there()
        self.call("tunnel", commands=commands, link=tunnel.link, nic=tunnel.nic)

    def _ways(self, host: NetworkHost) -> list[Way]:
        """Return how the frames of the host's NICs get here. Raises NetworkError."""
        nics = (host.nic1, host.nic2)
        if self.host.circuit:
            for interface in self.host.hub_circuit:
                self._check_mtu(link_of(self._run_here, interface), "this machine", MTU)
            for interface in self.host.circuit:
                self._check_mtu(link_of(self._run_there, interface), self.host.address, MTU)
            pairs = zip(nics, self.host.hub_circuit, self.host.circuit, strict=True)
            return [Circuit(n.interface, n.mac, next(_numbers), *both) for n, *both in pairs]
        route = route_to(self._run_here, self.host.tunnel)
        here = self.host.hub or route.source
        back = route_to(self._run_there, here)
        self._check_mtu(back.link, self.host.address, NEEDED_MTU)
        self._check_mtu(route.link, "this machine", NEEDED_MTU)
        ends = (here, self.host.tunnel)
        return [Tunnel(nic.interface, nic.mac, next(_numbers), *ends) for nic in nics]

    def _check_mtu(self, link: Link, machine: str, needed: int) -> None:
        if link.mtu < needed:
            raise NetworkError(
                f"{self.name}: found MTU {link.mtu} of {link.name} on {machine}; valid: "
                f"{needed} or more, for a whole frame in a tunnel"
            )

    def _run_here(self, argv: Sequence[str]) -> str:
        return self._connection.check_at_home(argv)

    def _run_there(self, argv: Sequence[str]) -> str:
        return str(self.call("at_home", argv=list(argv)))

    def join(self, network: Network, facts: KernelFacts, pid: int) -> None:
        """Join the host to its place, the namespace of `pid`: make its NICs there and configure
        them, as `build` does here. Raises NetworkError."""
        host = network.host(self.name)
        if network.lane_count > 1:
            raise NetworkError(f"{self.name}: found {network.lane_count} lanes; valid: one")
        for way in self._ways(host):
            for command in way.make_here(pid):
                self._connection.check_at_home(command)
            check(in_node(pid, ["sh", "-s"]), stdin=way.join())
            self.make_nic(way)
            self.tunnels.append(way)
        found = parse_node_readback(self.output(["sh", "-s"], host_script(network, host, facts)))
        path = nic1_interface(network, host, facts)
        expected = {host.nic1.interface: ""}
        expected |= {path: f"{host.nic1.ip}/{host.nic1.prefix_len}"}
        expected |= {host.nic2.interface: f"{host.nic2.ip}/{host.nic2.prefix_len}"}
        if problems := node_problems(self.name, found, expected):
            raise NetworkError("; ".join(problems[:5]))
        self._ping(network.publisher.nic2.ip)
        self._thread.start()  # not before: only a process with one thread can enter a run

    def _ping(self, address: str) -> None:
        argv = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", str(PING_TIMEOUT_S), address]
        if self.run(argv).returncode != 0:
            need = f"UDP port {PORT} open between {self.host.tunnel} and this machine"
            if self.host.circuit:
                pairs = zip(self.host.circuit, self.host.hub_circuit, strict=True)
                need = f"a VLAN that joins {' and '.join(map(' there to '.join, pairs))} here"
            raise NetworkError(f"{self.name}: no answer from {address}; valid: {need}")

    def forward(self, socket: Path) -> None:
        """Let programs there reach a socket here, at its counterpart. Raises NetworkError."""
        self._forward = self._connection.forward(self.there(str(socket)), socket)
        self.run(["sh", "-c", AWAIT_SOCKET, str(socket)])
        if self._forward.poll() is not None:
            raise NetworkError(f"{self.name}: {self._connection.complaint()}")

    def clock(self, looks: int = CLOCK_LOOKS) -> ClockOffset:
        """Measure the machine's clock against this one's. Raises NetworkError."""
        found = []
        for _ in range(looks):
            before = time.time_ns()
            there = self.call("now")
            after = time.time_ns()
            found.append((after - before, there - (before + after) / 2))
        round_trip_ns, offset_ns = min(found)
        return ClockOffset(offset_ns / 1e6, round_trip_ns / 2e6)

    def chrony(self) -> dict[str, str]:
        """Return what chrony there says of its clock; {} without chrony."""
        with contextlib.suppress(NetworkError):
            done = self.run(["chronyc", "-c", "tracking"])
            if done.returncode == 0:
                return dict(zip(CHRONY, done.stdout.strip().split(","), strict=False))
        return {}

    @property
    def alive(self) -> bool:
        """Return whether the connections to the machine stand."""
        return self._connection.alive and (self._forward is None or self._forward.poll() is None)

    def close(self) -> None:
        """Copy what is left, end everything there, and remove it. Idempotent."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(NetworkError):
            self.copy()
        for way in self.tunnels:
            for end, run in ((way.here, self._run_here), (way.there, self._run_there)):
                for command in way.unmake(end):
                    with contextlib.suppress(NetworkError):
                        run(command)
        for copy in self._copies:
            os.close(copy.fd)
        if self._forward is not None:
            self._forward.terminate()
            self._forward.wait()
        self._connection.close()
