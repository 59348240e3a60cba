# SPDX-License-Identifier: Apache-2.0
"""A host of the network here whose namespace and programs are on another machine.

A path here names the file's counterpart there: below the build directory, the program of the other
machine's checkout; elsewhere, a file in the agent's own directory. `put` copies a file there,
`mirror` keeps a file here as it grows there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common import checkout
from common.places import BUILD, ROOT
from common.shell import NetworkError, check, in_node
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Host as NetworkHost
from topologies.model.network import Network
from topologies.remote.connection import Connection
from topologies.remote.inventory import RemoteHost
from topologies.remote.there import HostThere
from topologies.remote.tunnels import MTU, NEEDED_MTU, PORT, Circuit, Tunnel, Way

COPY_S: Final = 0.2  # between copies of what programs have written
CLOCK_LOOKS: Final = 20
# The columns of `chronyc -c tracking`; offsets and dispersions in seconds.
CHRONY: Final = (
    *("reference_id", "reference", "stratum", "reference_time", "system_offset_s"),
    *("last_offset_s", "rms_offset_s", "frequency_ppm", "residual_ppm", "skew_ppm"),
    *("root_delay_s", "root_dispersion_s", "update_interval_s", "leap"),
)
# VXLAN network identifiers: other networks of this machine may have some.
_numbers = itertools.count(secrets.randbelow(1 << 23) + (1 << 16))
AWAIT_SOCKET: Final = 'i=0; until [ -S "$0" ] || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done'


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


class Host(HostThere):
    """A host on another machine."""

    def __init__(self, host: RemoteHost, connection: Connection) -> None:
        """Ask the agent what its machine is. Raises NetworkError."""
        super().__init__(host.name, host.address, connection)
        self.host, self._ssh = host, connection
        self._programs = f"{self.facts['root']}/build"
        self._places[str(BUILD)] = self._programs
        self._stop = threading.Event()
        self.tunnels: list[Way] = []
        self._forward: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._copy_on, daemon=True)

    def built_in(self, build: Path) -> None:
        """Say where the programs are here. Raises NetworkError if the machine has others."""
        there = self.facts.get("checkout", {})
        if other := checkout.difference(checkout.describe(ROOT, build), there):
            raise NetworkError(
                f"{self.name} ({self.host.address}): found {other} in {self.facts['root']}; valid: "
                "the same as here (--install copies and builds them)"
            )
        self._places[str(build)] = self._programs

    def _copy_on(self) -> None:
        while not self._stop.wait(COPY_S):
            with contextlib.suppress(NetworkError):
                self.copy()

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
        return self._ssh.check_at_home(argv)

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
                self._ssh.check_at_home(command)
            check(in_node(pid, ["sh", "-s"]), stdin=way.join())
            self.make_nic(way)
            self.tunnels.append(way)
        self.configure(network, facts)
        self._ping(network.publisher.nic2.ip)
        self._thread.start()  # not before: only a process with one thread can enter a run

    def _ping(self, address: str) -> None:
        if not self.answered(address):
            need = f"UDP port {PORT} open between {self.host.tunnel} and this machine"
            if self.host.circuit:
                pairs = zip(self.host.circuit, self.host.hub_circuit, strict=True)
                need = f"a VLAN that joins {' and '.join(map(' there to '.join, pairs))} here"
            raise NetworkError(f"{self.name}: no answer from {address}; valid: {need}")

    def ctcp_window(self, packets: int) -> str:
        """Return why Circuit TCP is not possible."""
        del packets
        return "hosts are on other machines"

    def forward(self, socket: Path) -> None:
        """Let programs there reach a socket here, at its counterpart. Raises NetworkError."""
        self._forward = self._ssh.forward(self.there(str(socket)), socket)
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
        return super().alive and (self._forward is None or self._forward.poll() is None)

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
        if self._forward is not None:
            self._forward.terminate()
            self._forward.wait()
        super().close()
