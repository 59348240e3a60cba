# SPDX-License-Identifier: Apache-2.0
"""A running network: `open_lab` builds it, checks that it is what was asked for, takes it down.

The caller is in the run's network namespace (`lifecycle.enter`); all processes carry its mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from common.shell import (
    NetworkError,
    check,
    check_all,
    in_node,
)
from topologies.emulate import marks, packet_sockets
from topologies.emulate.build import (
    Built,
    build,
    check_ports,
    nic1_interface,
    restart_switch,
)
from topologies.emulate.controllers import Controllers
from topologies.emulate.ctcp_host import CircuitTcp, use_in
from topologies.emulate.facts import KernelFacts, probe
from topologies.emulate.faults import Links
from topologies.emulate.openvswitch import OpenVSwitch
from topologies.emulate.processes import Relay
from topologies.emulate.static_flows import static_flows
from topologies.model import wire_plan
from topologies.model.network import Network
from topologies.model.wire_plan import WIRE, LinkReadback, WirePlan
from topologies.watch import counters, dumps, link_probes
from topologies.watch.capture import DEFAULT_LIMIT_BYTES, Capture, tap_of
from topologies.watch.link_probes import LinkProbe

__all__ = ["KernelFacts", "Emulation", "NetworkError", "LinkReadback", "open_emulation"]

PING_TIMEOUT_S = 5


class Emulation:
    """See docs/contracts.md. Made by `open_lab`."""

    def __init__(
        self,
        network: Network,
        state_dir: Path,
        facts: KernelFacts,
        *,
        seed: int = 1,
        queues: bool = False,
        lease_s: float = 0.0,
        controllers: bool = True,
    ) -> None:
        self.network = network
        self.facts = facts
        self.state_dir = state_dir
        self.run_id = state_dir.name
        self.readback: tuple[LinkReadback, ...] = ()
        self.relay_fifo: bool | None = None  # None: no relay
        self.ctcp_problem = ""  # why `use_ctcp` returned None
        self._seed = seed
        self._ctcp: CircuitTcp | None = None
        self._wire = wire_plan.plan(network, facts.delay_mechanism)
        self._switches = OpenVSwitch(state_dir / "ovs")
        self._relay: Relay | None = None
        self._relay_ready: Mapping[str, Any] | None = None
        self._controllers = Controllers(
            network,
            state_dir,
            queues=self._queue_option() if queues else "",
            lease_s=lease_s,
            wanted=controllers,
        )
        self._links = Links(network, self._wire, facts.datapath)
        self._stopped: dict[str, list[str]] = {}  # switch -> its links that went dark with it
        self._built: Built | None = None
        self._closed = False

    # -- for the rooms above ------------------------------------------------------------------

    @property
    def controller_socket(self) -> Path:
        """Northbound REST of the first controller domain."""
        if not self._controllers.each:
            raise NetworkError(f"{self.network.name}: no domain has a controller")
        return self._controllers.each[0].socket

    @property
    def controller_sockets(self) -> dict[str, Path]:
        """Northbound REST of each controller domain."""
        return {c.domain: c.socket for c in self._controllers.each}

    @property
    def pids(self) -> Mapping[str, int]:
        """Node -> a process that holds its namespace (hosts, routers, wire)."""
        return self._built.pids if self._built is not None else {}

    def nic1_of(self, host: str, lane: int = 1) -> str:
        """The interface that carries the path's address; of several paths, that of `lane`."""
        return nic1_interface(self.network, self.network.host(host), self.facts, lane)

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a host, router or `wire`. It leads a session of its own, so that a
        Ctrl-C on the terminal does not reach it. `env` is added to the environment."""
        return subprocess.Popen(
            self._command(host, argv),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(env or {}), marks.MARK: self.run_id},
            start_new_session=True,
        )

    def capture(
        self,
        link: str,
        directory: Path,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        snap_bytes: int = 0,
    ) -> Capture:
        """tcpdump on a link ("a:b": at a's end, "b:a": at b's), into `directory`. NetworkError."""
        tap = tap_of(self.network, link)

        def start(node: str, argv: Sequence[str], errors: IO[Any]) -> subprocess.Popen[bytes]:
            # Ports of switches are in the run's own namespace, where this process is.
            return subprocess.Popen(
                self._command(node, argv) if node in self.pids else list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "LC_ALL": "C", marks.MARK: self.run_id},
                start_new_session=True,
            )

        return Capture(tap, directory, start, limit_bytes, snap_bytes)

    def run(
        self, host: str, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a node to its end. NetworkError if it fails (with `check`) or hangs."""
        try:
            result = subprocess.run(
                self._command(host, argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env={**os.environ, marks.MARK: self.run_id},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NetworkError(
                f"{host}: {' '.join(argv)}: no end within {timeout_s:g} s"
            ) from error
        if check and result.returncode != 0:
            complaint = (result.stderr or result.stdout).strip()[-500:]
            raise NetworkError(
                f"{host}: {' '.join(argv)}: exit code {result.returncode}: {complaint}"
            )
        return result

    def _command(self, host: str, argv: Sequence[str]) -> list[str]:
        pid = self.pids.get(host)
        if pid is None:
            raise NetworkError(f"found host '{host}'; valid: {', '.join(self.pids)}")
        # Mininet's own helper joins the node's mount namespace as well, whose /sys is the node's.
        return ["mnexec", "-a", str(pid), *argv]

    def use_ctcp(self, cwnd_packets: int) -> str | None:
        """Circuit TCP with a window of `cwnd_packets` segments for all new connections of the
        hosts. Returns its name; None where it cannot be had: `ctcp_problem` says why, and hosts
        keep `facts.congestion_control`."""
        hosts = {h.name: self.pids[h.name] for h in self.network.hosts}
        previous, self._ctcp = self._ctcp, None
        if previous is not None:
            previous.stop()
        ctcp = CircuitTcp(self.run_id, self.state_dir / "ctcp.log")
        try:
            ctcp.start(cwnd_packets)
            use_in(hosts, ctcp.name, cwnd_packets)
        except NetworkError as error:
            self.ctcp_problem = str(error)
            ctcp.stop()
            control = self.facts.congestion_control
            command = ["sysctl", "-q", "-w", f"net.ipv4.tcp_congestion_control={control}"]
            check_all({h: (in_node(pid, command), "") for h, pid in hosts.items()})
            return None
        self.ctcp_problem = ""
        self._ctcp = ctcp
        return ctcp.name

    def counters(self) -> dict[str, Any]:
        """All counters of the network now (docs/contracts.md)."""
        result: dict[str, Any] = {"time": time.time()}
        if self._relay is not None:
            self._relay.ask_report()
        here = os.getpid()
        spaces = {**self.pids, "": here}
        switch_of = self._switch_of_interface()
        result["interfaces"] = self._interface_counters(spaces, switch_of)
        hosts = [h.name for h in self.network.hosts]
        result["udp"] = {h: counters.udp(_read(f"/proc/{self.pids[h]}/net/snmp")) for h in hosts}
        commands: dict[str, tuple[Sequence[str], str]] = {}
        for node, pid in spaces.items():
            tc = ["tc", "-j", "-s", "qdisc", "show"]
            commands[f"qdisc {node}"] = (in_node(pid, tc) if node else tc, "")
        for host in hosts:
            commands[f"iptables {host}"] = (in_node(self.pids[host], ["iptables-save", "-c"]), "")
        for switch in self.network.switches:
            for what in ("meter-stats", "dump-group-stats", "dump-ports"):
                argv = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", what, switch.name]
                commands[f"{what} {switch.name}"] = (argv, "")
        text = check_all(commands)

        result["qdiscs"] = {}
        class_commands: dict[str, tuple[Sequence[str], str]] = {}
        for node, pid in spaces.items():
            found = text[f"qdisc {node}"]
            for key, record in counters.qdiscs(found).items():
                owner = node or switch_of.get(key.partition("/")[0], "")
                if owner:
                    result["qdiscs"][f"{owner}/{key}"] = record
            for interface in counters.classful_interfaces(found) if node else ():
                argv = in_node(pid, ["tc", "-s", "class", "show", "dev", interface])
                class_commands[f"{node}/{interface}"] = (argv, "")
        result["classes"] = {}
        for key, found in check_all(class_commands).items():
            node, _, interface = key.partition("/")
            for name, record in counters.classes(found, interface).items():
                result["classes"][f"{node}/{name}"] = record
        result["iptables"] = {h: counters.iptables(text[f"iptables {h}"]) for h in hosts}
        names = [s.name for s in self.network.switches]
        result["meters"] = {
            f"{s}/{n}": r
            for s in names
            for n, r in counters.meters(text[f"meter-stats {s}"]).items()
        }
        result["groups"] = {
            f"{s}/{n}": r
            for s in names
            for n, r in counters.groups(text[f"dump-group-stats {s}"]).items()
        }
        ports = {
            (port.node, port.number): port.interface
            for link in self.network.links
            for port in (link.a, link.b)
        }
        result["openvswitch"] = {
            f"{s}/{ports[s, number]}": record
            for s in names
            for number, record in counters.switch_ports(text[f"dump-ports {s}"]).items()
            if (s, number) in ports
        }
        lost = self._packet_socket_drops()
        for port, record in result["openvswitch"].items():
            record["socket_drops"] = lost.get(port, 0)
        result["relay"] = self._relay.report() if self._relay is not None else {}
        return result

    def dumps(self) -> dict[str, str]:
        """What the network is made of now, by name of a file (topologies/watch/dumps.py)."""
        return check_all(dumps.commands(self.network, self.pids))

    def _packet_socket_drops(self) -> dict[str, int]:
        """Switch port -> frames lost before the userspace datapath read them."""
        if self.facts.datapath != "user":
            return {}
        lost = packet_sockets.drops(self._switches.datapath_pid)
        return {
            f"{switch}/{interface}": lost[interface]
            for interface, switch in self._switch_of_interface().items()
            if interface in lost
        }

    def _switch_of_interface(self) -> dict[str, str]:
        switches = {s.name for s in self.network.switches}
        return {
            port.interface: port.node
            for link in self.network.links
            for port in (link.a, link.b)
            if port.node in switches
        }

    def _interface_counters(
        self, spaces: Mapping[str, int], switch_of: Mapping[str, str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node, pid in spaces.items():
            for name, record in counters.interfaces(_read(f"/proc/{pid}/net/dev")).items():
                owner = node or switch_of.get(name, "")
                if owner and name != "lo":
                    found[f"{owner}/{name}"] = record
        return found

    def read_links(self) -> tuple[LinkReadback, ...]:
        """The settings of all impaired links as the kernel has them now."""
        if not self._wire.links:
            return ()
        return _read_back(self._wire, self.pids[WIRE], self._relay_ready)

    def probe_links(self) -> tuple[LinkProbe, ...]:
        """The delay of each direction of all impaired links that are not cut, by frames of our own:
        for a network without traffic. NetworkError."""
        return link_probes.probe(self._wire, self.pids, without=self._links.broken)

    def health(self) -> list[str]:
        """What no longer runs ([]: all is well)."""
        problems = []
        if not self._switches.alive:
            problems.append("Open vSwitch has ended")
        if self._relay is not None and not self._relay.alive:
            problems.append(f"wire-relay has ended: {self._relay.complaint()}")
        if self._ctcp is not None and not self._ctcp.alive:
            problems.append("ctcp-load has ended: new connections have no Circuit TCP")
        problems += [
            f"the controller of {c.domain} has ended: {c.log_tail()}"
            for c in self._controllers.all()
            if not c.alive
        ]
        return problems

    # -- faults ---------------------------------------------------------------------------------

    def cut(self, link: str, *, silent: bool = False) -> None:
        """Breaks a link ("a:b") in both directions. The nodes at its ends see their ports go
        down; `silent`: their ports stay up, and only what crosses the link tells. NetworkError."""
        self._links.cut(link, silent=silent)

    def mend(self, link: str) -> None:
        """Undoes `cut`. NetworkError."""
        self._links.mend(link)

    @property
    def broken_links(self) -> tuple[str, ...]:
        """Those that are cut."""
        return self._links.broken

    def stop_switch(self, name: str) -> None:
        """A switch loses its power: its links go dark, and all that it held is gone.
        NetworkError."""
        if name not in {s.name for s in self.network.switches}:
            valid = ", ".join(s.name for s in self.network.switches)
            raise NetworkError(f"found switch '{name}'; valid: {valid}")
        if name in self._stopped:
            raise NetworkError(f"switch '{name}' is off already")
        dark = [k for k in self._links.links_of(name) if k not in self._links.broken]
        for link in dark:
            self._links.cut(link)
        check(["ovs-vsctl", "del-br", name])
        self._stopped[name] = dark

    def start_switch(self, name: str) -> None:
        """The switch has power again: ports as before, no OpenFlow entry of its controller; a
        static switch has its static flows. NetworkError."""
        if name not in self._stopped:
            raise NetworkError(
                f"switch '{name}' is not off; off: {', '.join(self._stopped) or 'none'}"
            )
        assert self._built is not None
        restart_switch(self._built.mininet, name)
        dark = self._stopped.pop(name)
        self._links.break_again(name)
        self._enlarge_packet_sockets()
        self._install_static_flows([name])
        self._controllers.tell_switches([name])
        for link in dark:
            if not self._is_dark(link):
                self._links.mend(link)
        check_ports(self.network, without=self._links.broken)

    def _is_dark(self, link: str) -> bool:
        """Whether a switch at one of the link's ends is off; it takes the link over."""
        ends = next({k.a.node, k.b.node} for k in self.network.links if k.name == link)
        off = next((switch for switch in self._stopped if switch in ends), None)
        if off is not None and link not in self._stopped[off]:
            self._stopped[off].append(link)
        return off is not None

    def restart_switch(self, name: str, *, off_s: float = 0.0) -> None:
        """`stop_switch`, `off_s` seconds, `start_switch`."""
        self.stop_switch(name)
        time.sleep(off_s)
        self.start_switch(name)

    def kill_controller(self, domain: str) -> None:
        """kill -9 of the domain's (first) controller. NetworkError."""
        self._controllers.of(domain).kill()

    def start_controller(self, domain: str) -> None:
        """The domain's controller again, with the store it had; returns when its switches are
        connected and hold what they shall. NetworkError."""
        self._controllers.start_again(domain, without=self._stopped.keys())

    def start_standby(self, domain: str) -> Path:
        """A second controller of the domain on the same store, to which its switches connect,
        too. Returns its northbound socket. NetworkError."""
        return self._controllers.start_standby(domain, without=self._stopped.keys())

    # -- making -------------------------------------------------------------------------------

    def open(self, progress: Callable[[str], None]) -> None:
        progress("Open vSwitch and controller")
        self._controllers.start()
        self._switches.start()
        build(self.network, self.facts, self._wire, self._set_built, progress)
        switches = [s.name for s in self.network.switches]
        text = wire_plan.outlets(self._wire, switches, self.pids.get(WIRE, 0))
        self._outlets_file.write_text(text, encoding="utf-8")
        if self._wire.links:
            progress(f"{len(self._wire.links)} links with {self.facts.delay_mechanism}")
            self._shape()
        self._enlarge_packet_sockets()
        progress("static flows")
        self._install_static_flows()
        if self._controllers.each:
            progress("switches find their controller")
            self._controllers.connect()
        progress("control network")
        self._ping_control_network()
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
        pid = self.pids[WIRE]
        check(in_node(pid, ["tc", "-batch", "-"]), stdin=wire_plan.tc_batch(self._wire))
        if self._wire.relayed:
            self._relay = Relay(self.state_dir)
            ready = self._relay.start(pid, self._wire, seed=self._seed)
            self.relay_fifo = bool(ready["sched_fifo"])
            self._relay_ready = ready
        self.readback = self.read_links()
        bad = [r for r in self.readback if not r.ok]
        if bad:
            raise NetworkError(
                "; ".join(
                    f"link {r.link} {r.direction}: asked {wire_plan.describe(r.asked)}; "
                    f"found {wire_plan.describe(r.found)} ({r.note})"
                    for r in bad[:5]
                )
            )

    def _install_static_flows(self, switches: Sequence[str] | None = None) -> None:
        """Of all switches, or of these."""
        entries = [
            e
            for e in static_flows(self.network, edge_tags=self.facts.edge_tags)
            if switches is None or e.switch in switches
        ]
        ofctl = ["ovs-ofctl", "-O", "OpenFlow13"]
        # Groups first: flows refer to them.
        for what, lines in (
            ("add-groups", {e.switch: e.group_lines() for e in entries}),
            ("add-flows", {e.switch: e.flow_lines() for e in entries}),
        ):
            check_all(
                {f"{what} {s}": ([*ofctl, what, s, "-"], text) for s, text in lines.items() if text}
            )

    def _ping_control_network(self) -> None:
        publisher = self.network.publisher.nic2.ip
        argv = ["ping", "-n", "-q", "-c", "1", "-W", str(PING_TIMEOUT_S), publisher]
        hosts = self.network.subscribers
        try:
            check_all({h.name: (in_node(self.pids[h.name], argv), "") for h in hosts})
        except NetworkError as error:
            raise NetworkError(f"control network: no answer from {publisher}: {error}") from error

    def _save_state(self) -> None:
        """What other processes (status, shell) need to know."""
        state = {
            "pids": dict(self.pids),
            "facts": self.facts.to_dict(),
            "relay_fifo": self.relay_fifo,
            "controllers": {d: str(s) for d, s in self.controller_sockets.items()},
        }
        temporary = self.state_dir / ".lab.json"
        temporary.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        temporary.rename(self.state_dir / "lab.json")

    # -- ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """End all processes of the run (not the caller's own). Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with _interrupts_held():
            # All are told first and waited for then: freeing the relay's rings takes a second.
            for controller in self._controllers.all():
                controller.tell_to_stop()
            if self._relay is not None:
                self._relay.tell_to_stop()
            for controller in self._controllers.all():
                controller.stop()
            self._switches.stop()
            if self._relay is not None:
                self._relay.stop()
            if self._ctcp is not None:
                self._ctcp.stop()
            # Also what nobody has a handle of any more. Mininet's shells end with the pipes.
            marks.end_processes(self.run_id, grace_s=0.0)
            if self._built is not None:
                for node in (*self._built.mininet.hosts, *self._built.mininet.switches):
                    with contextlib.suppress(OSError):
                        node.terminate()


def _read_back(
    wire: WirePlan, pid: int, ready: Mapping[str, Any] | None
) -> tuple[LinkReadback, ...]:
    qdiscs = json.loads(check(in_node(pid, ["tc", "-r", "-j", "qdisc", "show"])) or "[]")
    redirected = [d.ingress for d in wire.directions if d.mechanism != "relay"]
    texts = check_all(
        {
            name: (in_node(pid, ["tc", "-j", "filter", "show", "dev", name, "ingress"]), "")
            for name in redirected
        }
    )
    filters = {name: json.loads(text or "[]") for name, text in texts.items()}
    return wire_plan.read_back(wire, qdiscs, filters, ready)


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A second Ctrl-C must not stop the clean-up that the first one began."""
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
    controllers: bool = True,
) -> Iterator[Emulation]:
    """Build `network`, check it, and take it down at the end, also after an error or Ctrl-C.

    `state_dir` is the run's (from `lifecycle.enter`). `facts` replaces the probe of the kernel
    (for tests). `seed` decides which frames wire-relay loses on lossy links. With `queues` the
    controllers set the queues of the switches' ports. `lease_s`: a controller that has not renewed
    its lease for so long is replaced by its standby (0: there can be none). Without
    `controllers` the switches of controller domains are empty, and nothing controls them.
    NetworkError: what could not be made, or is not what was asked for.
    """
    if os.environ.get(marks.MARK) != state_dir.name:
        raise NetworkError(f"{state_dir}: not the run this process has entered (lifecycle.enter)")
    if sys.platform != "linux":
        raise NetworkError("an emulated network needs Linux")
    progress("what the kernel has")
    emulation = Emulation(
        network,
        state_dir,
        facts if facts is not None else probe(),
        seed=seed,
        queues=queues,
        lease_s=lease_s,
        controllers=controllers,
    )
    try:
        emulation.open(progress)
        yield emulation
    finally:
        emulation.close()
