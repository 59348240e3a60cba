# SPDX-License-Identifier: Apache-2.0
"""A running network: `open_emulation` builds it, checks that it is as asked, takes it down.

The caller is in the run's network namespace (`lifecycle.enter`); all processes carry its mark.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from common.counting import counted
from common.files import write_json
from common.shell import (
    NetworkError,
    check_all,
    in_node,
)
from common.virtual_time import begin_afresh
from topologies.emulate import (
    inventory_reading,
    marks,
    own_interfaces,
    packet_sockets,
    shaping,
    switch_reading,
)
from topologies.emulate.build import (
    Built,
    build,
    check_ports,
    nic1_interface,
    restart_switch,
)
from topologies.emulate.controllers import Controllers
from topologies.emulate.counter_reading import Counters, read_counters
from topologies.emulate.ctcp_host import CircuitTcp, planned_buffers, restore_script, use_in
from topologies.emulate.elsewhere import NOBODY, Elsewhere, ask_all, refuse
from topologies.emulate.emulation_state import EmulationState, state_file
from topologies.emulate.facts import KernelFacts, probe
from topologies.emulate.faults import Links
from topologies.emulate.flow_install import install_static_flows
from topologies.emulate.foreign_controller import Foreign
from topologies.emulate.node_programs import NodePrograms, Output
from topologies.emulate.onos import Onos
from topologies.emulate.openvswitch import OpenVSwitch
from topologies.emulate.own_interfaces import OwnInterface, own_interface
from topologies.emulate.processes import Relay
from topologies.emulate.socket_options import SocketOptions
from topologies.emulate.switch_power import SwitchPower
from topologies.emulate.switch_reading import SWITCHES, SwitchReader
from topologies.model import wire_plan
from topologies.model.network import Network
from topologies.model.wire_plan import WIRE, LinkReadback, RelayReady
from topologies.watch import dumps, link_probes
from topologies.watch.capture import DEFAULT_LIMIT_BYTES, Capture, tap_of
from topologies.watch.inventory import OF_QUEUES, Inventory
from topologies.watch.journal import Journal
from topologies.watch.link_probes import LinkProbe

__all__ = ["KernelFacts", "Emulation", "NetworkError", "LinkReadback", "open_emulation"]

if TYPE_CHECKING:
    from mininet.net import Mininet

PING_TIMEOUT_S = 5
HOSTS_EACH_TRY = 64


class Emulation:
    """A running network (docs/reference/contracts.md). `open_emulation` makes it."""

    def __init__(
        self,
        network: Network,
        state_dir: Path,
        facts: KernelFacts,
        *,
        seed: int = 1,
        queues: bool = False,
        lease_s: float = 0.0,
        controllers: bool | Foreign | Onos = True,
        elsewhere: Mapping[str, Elsewhere] = NOBODY,
    ) -> None:
        self.network = network
        self.elsewhere = elsewhere  # hosts whose programs run on other machines
        self.facts = facts
        self.state_dir = state_dir
        self.run_id = state_dir.name
        self.readback: tuple[LinkReadback, ...] = ()
        self.relay_fifo: bool | None = None  # None: no relay
        self.ctcp_problem = ""  # why `use_ctcp` returned None
        self._seed = seed
        self._ctcp: CircuitTcp | None = None
        self._ctcp_buffers: Inventory = {}  # the hosts' socket buffers that the window needs
        self._wire = wire_plan.plan(network, facts.delay_mechanism)
        self._switches = OpenVSwitch(state_dir / "ovs")
        self._relay: Relay | None = None
        self._relay_ready: RelayReady | None = None
        self._controllers = Controllers(
            network,
            state_dir,
            queues=self._queue_option() if queues else "",
            lease_s=lease_s,
            wanted=controllers is not False,
            external=None if isinstance(controllers, bool) else controllers,
        )
        self._links = Links(network, self._wire, facts.datapath)
        self._power = SwitchPower(network, self._links)
        self._built: Built | None = None
        self._programs = NodePrograms(self.run_id, lambda: self.pids, elsewhere)
        self._reader = SwitchReader()
        self._options = SocketOptions()
        self._as_built: Inventory = {}
        self._own: dict[str, OwnInterface] = {}  # by host, if a program makes the interface
        self._closed = False

    # -- for the rooms above ------------------------------------------------------------------

    @property
    def controller_socket(self) -> Path:
        """Return the northbound REST socket of the first controller domain."""
        if not self._controllers.each:
            raise NetworkError(f"{self.network.name}: no domain has a controller")
        return self._controllers.each[0].socket

    @property
    def controller_sockets(self) -> dict[str, Path]:
        """Return the northbound REST socket of each controller domain."""
        return {c.domain: c.socket for c in self._controllers.each}

    @property
    def pids(self) -> Mapping[str, int]:
        """Return by node a process that holds its namespace (hosts, routers, wire)."""
        return self._built.pids if self._built is not None else {}

    def nic1_of(self, host: str, lane: int = 1) -> str:
        """Return the interface that carries the path's address; with several paths, that of
        `lane`."""
        if lane == 1 and host in self._own:
            return self._own[host].name
        return nic1_interface(self.network, self.network.host(host), self.facts, lane)

    def leave_interfaces(self, hosts: Sequence[str]) -> None:
        """Remove the network's own interfaces of the path at these hosts. Programs there will make
        others. Raises NetworkError."""
        refuse(self.elsewhere, hosts, "interfaces that programs make")
        for name in hosts:
            own = own_interface(self.network, self.network.host(name), self.facts)
            for command in own_interfaces.removal(own):
                self.run(name, command)
            self._take_own(own)

    def accept_interface(self, host: str, address: str) -> None:
        """Accept the interface that a program made as the host's end of the path. `address`: with
        its prefix length. Raises NetworkError."""
        self._take_own(dataclasses.replace(self._own[host], address=address))

    def _take_own(self, own: OwnInterface) -> None:
        self._own[own.host] = own
        now = inventory_reading.of_node(own.host, self.pids[own.host])
        self._as_built = own_interfaces.as_made(self._as_built, now, {own.host: own})

    def path_address_of(self, host: str) -> str:
        """Return a host's address on the path; empty while a program that is to make its interface
        has not."""
        if host in self._own:
            address = self._own[host].address
            return own_interfaces.ip_of(address) if address else ""
        return self.network.host(host).nic1.ip

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: Output = None,
        stderr: Output = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a host, router or `wire`; see `NodePrograms.popen`."""
        return self._programs.popen(host, argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env)

    def run(
        self, host: str, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a node to its end. Raises NetworkError if it fails (with `check`) or
        hangs."""
        return self._programs.run(host, argv, timeout_s=timeout_s, check=check)

    def capture(
        self,
        link: str,
        directory: Path,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        snap_bytes: int = 0,
    ) -> Capture:
        """Start tcpdump on a link ("a:b": at a's end, "b:a": at b's), into `directory`. Raises
        NetworkError."""
        tap = tap_of(self.network, link)
        return Capture(tap, directory, self._programs.tap, limit_bytes, snap_bytes)

    def use_ctcp(self, cwnd_packets: int) -> str | None:
        """Use Circuit TCP with a window of `cwnd_packets` segments for all new connections of the
        hosts. Return its name, or None if it is not available: `ctcp_problem` then says why, and
        hosts keep `facts.congestion_control`."""
        hosts = {h.name: self.pids[h.name] for h in self.network.hosts}
        there = (host.ctcp_window(cwnd_packets) for host in self.elsewhere.values())
        self.ctcp_problem = next((problem for problem in there if problem), "")
        if self.ctcp_problem:
            return None
        previous, self._ctcp = self._ctcp, None
        if previous is not None:
            previous.stop()
            self._end_ctcp(hosts)  # otherwise a smaller window would keep the larger buffers
        ctcp = CircuitTcp(self.run_id, self.state_dir / "ctcp.log")
        try:
            ctcp.start(cwnd_packets)
            use_in(hosts, ctcp.name, cwnd_packets, self.elsewhere)
        except NetworkError as error:
            self.ctcp_problem = str(error)
            ctcp.stop()
            self._end_ctcp(hosts)
            return None
        self.ctcp_problem = ""
        self._ctcp = ctcp
        self._ctcp_buffers = planned_buffers(self._as_built, hosts, cwnd_packets)
        return ctcp.name

    def _end_ctcp(self, hosts: Mapping[str, int]) -> None:
        """Give the hosts the congestion control and the buffers that they were built with."""
        control = self.facts.congestion_control
        self._ctcp_buffers = {}
        scripts = {h: restore_script(self._as_built, h, control) for h in hosts}
        commands = {h: (in_node(pid, ["sh", "-s"]), scripts[h]) for h, pid in hosts.items()}
        ask_all(commands, self.pids, self.elsewhere)

    def counters(self) -> Counters:
        """Return all counters of the network now (docs/reference/contracts.md)."""
        datapath = self._switches.datapath_pid if self.facts.datapath == "user" else None
        return read_counters(self.network, self.pids, self._relay, datapath, self.elsewhere)

    def dumps(self) -> dict[str, str]:
        """Return the network's present state by file name (topologies/watch/dumps.py)."""
        before = {s.name: switch_reading.entries(s.name) for s in self.network.switches}
        asked = dumps.commands(self.network, self.pids)
        found = ask_all(asked, self.pids, self.elsewhere)
        for name, known in before.items():  # inventories then need not ask for the same text
            self._reader.learn(name, known, [found[f"{name}.{w}.txt"] for w in dumps.OPENFLOW])
        return found

    def read_links(self) -> tuple[LinkReadback, ...]:
        """Return the present settings of all impaired links, as the kernel reports them."""
        if not self._wire.links:
            return ()
        return shaping.read_back(self._wire, self.pids[WIRE], self._relay_ready)

    def probe_links(self) -> tuple[LinkProbe, ...]:
        """Measure the delay of each direction of all impaired links that are not cut, with probe
        frames. The network must have no traffic. Raises NetworkError."""
        return link_probes.probe(self._wire, self.pids, without=self._links.broken)

    def inventory(self, pause_s: float = 0.0) -> Inventory:
        """Return the present settings of every interface, switch and program. `pause_s`: time
        between the programs that query switches. Raises NetworkError."""
        return inventory_reading.read(
            self.network,
            self.pids,
            self._reader,
            pause_s=pause_s,
            elsewhere=self.elsewhere,
            started=self._started(),
            options=self._options,
        )

    def _started(self) -> set[int]:
        """Return the processes that the run started in nodes here."""
        relay = self._relay.pids if self._relay is not None else set()
        return {*self.pids.values(), *self._programs.started, *relay}

    def socket_options(self) -> Inventory:
        """Return the part of `inventory` that is cheap to read often: options of sockets, of the
        programs that the last inventory found on this machine."""
        return self._options.again(n for n in self.pids if n not in self.elsewhere)

    def planned_inventory(self, shaped: Mapping[str, str]) -> Inventory:
        """Return what `inventory` must find. `shaped`: what an experiment set itself ("p/p-nic1
        qdiscs")."""
        planned = inventory_reading.plan(
            self.network, self.facts, self._wire, self.pids, self.elsewhere
        )
        planned = own_interfaces.planned(planned, self._own)
        places = {thing.partition(" ")[0] for thing in shaped if "/" in thing}
        left = {
            thing: value
            for thing, value in self._as_built.items()
            if not (thing.partition(" ")[0] in places and thing.partition(" ")[2] in OF_QUEUES)
        }
        return {**left, **self._ctcp_buffers, **planned, **shaped}

    def outlet_places(self) -> set[str]:
        """Return each "<node>/<interface>" whose queues controllers set for paths with a
        guarantee."""
        return inventory_reading.outlet_places(self.network, self._wire)

    @property
    def switches_with_paths(self) -> set[str]:
        """Return the switches whose flows are all the path service's."""
        return self._controllers.switches()

    def flow_classes(self) -> set[str]:
        """Return the things that appear while packets wait in queues that sort by flow."""
        return inventory_reading.flow_classes(self._wire)

    def journal(self) -> Journal:
        """Record changes of all interfaces from now on. Raises NetworkError."""
        return Journal({**self.pids, SWITCHES: None})

    def health(self) -> list[str]:
        """Return what no longer runs ([]: everything runs)."""
        problems = []
        if not self._switches.alive:
            problems.append("Open vSwitch has ended")
        if self._relay is not None and not self._relay.alive:
            problems.append(f"wire-relay has ended: {self._relay.complaint()}")
        if self._ctcp is not None and not self._ctcp.alive:
            problems.append("ctcp-load has ended: new connections have no Circuit TCP")
        problems += [
            f"lost the connection to the machine of {host.name}"
            for host in self.elsewhere.values()
            if not host.alive
        ]
        problems += [
            f"the controller of {c.domain} has ended: {c.log_tail()}"
            for c in self._controllers.all()
            if not c.alive
        ]
        external = self._controllers.external
        if external is not None and not external.alive:
            problems.append(f"the relay to {external.address} has ended")
        return problems

    # -- faults ---------------------------------------------------------------------------------

    def cut(self, link: str, *, silent: bool = False) -> None:
        """Break a link ("a:b") in both directions. The nodes at its ends see their ports go down;
        `silent`: their ports stay up, and only traffic shows the cut. Raises NetworkError."""
        self._links.cut(link, silent=silent)

    def mend(self, link: str) -> None:
        """Restore a link that `cut` broke. Raises NetworkError."""
        self._links.mend(link)

    @property
    def broken_links(self) -> tuple[str, ...]:
        """Return the links that are cut."""
        return self._links.broken

    def stop_switch(self, name: str) -> None:
        """Cut a switch's power: its links go down, and all its state is lost. Raises
        NetworkError."""
        self._power.stop(name)

    def start_switch(self, name: str) -> None:
        """Restore a switch's power. It has its ports as before, but none of its controller's
        OpenFlow entries. A static switch has its static flows. Raises NetworkError."""
        assert self._built is not None
        restart = self._built.mininet
        self._power.start(name, lambda: self._power_up(restart, name))
        check_ports(self.network, without=self._links.broken)

    def _power_up(self, mininet: Mininet, name: str) -> None:
        restart_switch(mininet, name, self._switches)
        self._links.break_again(name)
        self._enlarge_packet_sockets()
        install_static_flows(self.network, self.facts, [name])
        self._controllers.tell_switches([name])

    def restart_switch(self, name: str, *, off_s: float = 0.0) -> None:
        """Stop the switch, wait `off_s` seconds, and start it."""
        self.stop_switch(name)
        time.sleep(off_s)
        self.start_switch(name)

    def kill_controller(self, domain: str) -> None:
        """Kill the domain's (first) controller with SIGKILL. Raises NetworkError."""
        self._controllers.of(domain).kill()

    def start_controller(self, domain: str) -> None:
        """Start the domain's controller again, with the store it had. Return when its switches are
        connected and have the entries they should have. Raises NetworkError."""
        self._controllers.start_again(domain, without=self._power.off)

    def start_standby(self, domain: str) -> Path:
        """Start a second controller of the domain on the same store; its switches also connect to
        it. Return its northbound socket. Raises NetworkError."""
        return self._controllers.start_standby(domain, without=self._power.off)

    # -- making -------------------------------------------------------------------------------

    def open(self, progress: Callable[[str], None]) -> None:
        """Build the network; `progress` gets each step. Raises NetworkError."""
        progress("Open vSwitch and controller")
        self._controllers.start()
        begin_afresh()  # by now the controllers have imported their modules
        self._switches.start()
        build(self.network, self.facts, self._wire, self._switches, self._set_built, progress)
        switches = [s.name for s in self.network.switches]
        text = wire_plan.outlets(self._wire, switches, self.pids.get(WIRE, 0))
        self._outlets_file.write_text(text, encoding="utf-8")
        if self._wire.links:
            progress(f"{counted(len(self._wire.links), 'link')} with {self.facts.delay_mechanism}")
            self._shape()
        self._enlarge_packet_sockets()
        progress("static flows")
        install_static_flows(self.network, self.facts)
        if self._controllers.each or self._controllers.external is not None:
            progress("connecting the switches")
            self._controllers.connect()
        progress("control network")
        self._ping_control_network()
        for name, host in self.elsewhere.items():
            progress(f"joining {name} on {host.facts['machine']}")
            host.join(self.network, self.facts, self.pids[name])
        fixed = inventory_reading.fixed_switches(self.network, self.facts)
        found = inventory_reading.read(
            self.network, self.pids, self._reader, switches=fixed, elsewhere=self.elsewhere
        )
        self._as_built = inventory_reading.as_built(found, fixed)
        self._save_state()

    def _enlarge_packet_sockets(self) -> None:
        if self.facts.datapath != "user":
            return
        asked = packet_sockets.RECEIVE_BUFFER_BYTES
        granted = packet_sockets.enlarge(self._switches.datapath_pid)
        bad = [f"{name} has {size}" for name, size in sorted(granted.items()) if size < asked]
        if bad or not granted:
            raise NetworkError(
                f"switch ports' receive buffers: asked {asked}; found {bad or 'none'}"
            )

    def _set_built(self, built: Built) -> None:
        self._built = built
        self._links.pids = built.pids

    def _queue_option(self) -> str:
        if self.facts.datapath == "kernel":
            return f"ovsdb:unix:{self._switches.database_socket}"
        return f"tc:{self._outlets_file}"

    @property
    def _outlets_file(self) -> Path:
        return self.state_dir / "outlets.json"

    def _shape(self) -> None:
        shaped = shaping.shape(
            self._wire, self.pids[WIRE], self.state_dir, self._set_relay, self._seed
        )
        self.relay_fifo = shaped.relay_fifo
        self._relay_ready = shaped.relay_ready
        self.readback = shaped.readback

    def _set_relay(self, relay: Relay) -> None:
        self._relay = relay

    def _ping_control_network(self) -> None:
        publisher = self.network.publisher.nic2.ip
        argv = ["ping", "-n", "-q", "-c", "1", "-W", str(PING_TIMEOUT_S), publisher]
        hosts = self.network.subscribers
        # The kernel activates at most a hundred interfaces a second (net/core/link_watch.c).
        tries = 1 + len(hosts) // HOSTS_EACH_TRY
        for left in reversed(range(tries)):
            try:
                check_all({h.name: (in_node(self.pids[h.name], argv), "") for h in hosts})
                return
            except NetworkError as error:
                if not left:
                    text = f"control network: no answer from {publisher}: {error}"
                    raise NetworkError(text) from error
                time.sleep(1)

    def _save_state(self) -> None:
        """Write what other processes (status, shell) need to know about the network."""
        state: EmulationState = {
            "pids": dict(self.pids),
            "facts": self.facts.to_dict(),
            "relay_fifo": self.relay_fifo,
            "controllers": {d: str(s) for d, s in self.controller_sockets.items()},
        }
        write_json(state_file(self.state_dir), state)

    # -- ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """End all processes of the run (not the caller's own). Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        for host in self.elsewhere.values():
            host.leave()
        with _interrupts_held():
            # Signal all of them, then wait: freeing the relay's rings takes a second.
            self._controllers.tell_to_stop()
            if self._relay is not None:
                self._relay.tell_to_stop()
            self._controllers.stop()
            self._switches.stop()
            if self._relay is not None:
                self._relay.stop()
            if self._ctcp is not None:
                self._ctcp.stop()
            # This also ends processes without a handle here. Mininet's shells end with their pipes.
            marks.end_processes(self.run_id, grace_s=0.0)
            if self._built is not None:
                for node in (*self._built.mininet.hosts, *self._built.mininet.switches):
                    with contextlib.suppress(OSError):
                        node.terminate()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ignore a second Ctrl-C, which must not stop the clean-up that the first one started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _quiet(_text: str) -> None:
    pass


@contextmanager
def open_emulation(
    network: Network,
    state_dir: Path,
    *,
    progress: Callable[[str], None] = _quiet,
    facts: KernelFacts | None = None,
    seed: int = 1,
    queues: bool = False,
    lease_s: float = 0.0,
    controllers: bool | Foreign | Onos = True,
    elsewhere: Mapping[str, Elsewhere] = NOBODY,
) -> Iterator[Emulation]:
    """Build `network`, check it, and take it down at the end, also after an error or Ctrl-C.

    `state_dir` is the run's (from `lifecycle.enter`). `facts` replaces the probe of the kernel (for
    tests). `seed` determines which frames wire-relay loses on lossy links. With `queues`, the
    controllers set the queues of the switches' ports. `lease_s`: a standby replaces a controller
    that has not renewed its lease for this time (0: no standby is possible). Without `controllers`,
    the switches of controller domains are empty, and nothing controls them. A `Foreign` is an
    external controller that has all of them; an `Onos` is what the controllers use. Programs of
    hosts that are `elsewhere` run there. Raises NetworkError, which says what could not be built or
    is not as asked.
    """
    if os.environ.get(marks.MARK) != state_dir.name:
        raise NetworkError(f"{state_dir}: not the run this process has entered (lifecycle.enter)")
    if sys.platform != "linux":
        raise NetworkError("an emulated network needs Linux")
    progress("checking the kernel")
    emulation = Emulation(
        network,
        state_dir,
        facts if facts is not None else probe(),
        seed=seed,
        queues=queues,
        lease_s=lease_s,
        controllers=controllers,
        elsewhere=elsewhere,
    )
    try:
        emulation.open(progress)
        yield emulation
    finally:
        emulation.close()
