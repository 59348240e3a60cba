# SPDX-License-Identifier: Apache-2.0
"""Start a network's controllers and tell the switches where they listen: one controller for each
controller domain, with its standby, or one external controller for all domains. With ONOS, switches
connect to it, and the domains' controllers use it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from common import looking
from common.shell import NetworkError, check
from topologies.emulate.foreign_controller import Foreign, ForeignController
from topologies.emulate.onos import Onos, OnosBridges
from topologies.emulate.processes import CONTROLLER_CONNECT_TIMEOUT_S, Controller
from topologies.emulate.remote_controllers import make_controller
from topologies.model.network import ControlledBy, Network

__all__ = ["Controllers"]

OPENFLOW_PORT = 6653
STANDBY_PORT_OFFSET = 500
LONGEST_LIVENESS_MS = 60_000.0
ONOS_CONNECT_TIMEOUT_S = 60.0  # it may skip polls, by which the switches' content is confirmed
PROBE_S = 10.0  # until a silent controller counts as dead


class Controllers:
    """`queues`: the value of `--queues`, or ""; `lease_s`: 0 if no domain has a standby; not
    `wanted`: no domain has a controller; `external`: a controller of all switches, or ONOS."""

    def __init__(
        self,
        network: Network,
        state_dir: Path,
        *,
        queues: str = "",
        lease_s: float = 0.0,
        wanted: bool = True,
        external: Foreign | Onos | None = None,
    ) -> None:
        self.each: list[Controller] = []  # one of each domain
        self._standbys: dict[str, Controller] = {}
        self._network = network
        self._state_dir = state_dir
        self._queues = queues
        self._lease_s = lease_s
        self._wanted = wanted and not isinstance(external, Foreign)
        self.foreign: ForeignController | None = None
        self.onos: OnosBridges | None = None
        if isinstance(external, Foreign):
            self.foreign = ForeignController(external, OPENFLOW_PORT, state_dir)
        elif external is not None:
            self.onos = OnosBridges(external, OPENFLOW_PORT, state_dir)

    @property
    def external(self) -> ForeignController | OnosBridges | None:
        """Return the connection to what the switches connect to, if not to the controllers."""
        return self.foreign or self.onos

    def all(self) -> list[Controller]:
        """Return all controllers, the standbys included."""
        return [*self.each, *self._standbys.values()]

    def switches(self) -> set[str]:
        """Return the switches that the domains' controllers control themselves."""
        if self.external is not None:
            return set()
        return {name for one in self.each for name in self._switches_of(one.domain)}

    def of(self, domain: str) -> Controller:
        """Return the domain's first controller. Raises NetworkError."""
        for controller in self.each:
            if controller.domain == domain:
                return controller
        valid = ", ".join(c.domain for c in self.each) or "none"
        raise NetworkError(f"found controller domain '{domain}'; valid: {valid}")

    def start(self) -> None:
        """Start the controllers, before there is a switch."""
        if self.onos is not None:
            self.onos.start()
        self._network_file.write_text(self._network.to_json(), encoding="utf-8")
        domains = [
            d.name
            for d in self._network.domains
            if self._wanted and d.controlled_by is ControlledBy.CONTROLLER
        ]
        for index, domain in enumerate(domains):
            options = self._options(domain, domains)
            port = OPENFLOW_PORT + index
            self.each.append(make_controller(domain, port, self._state_dir, options=options))
        for controller in self.each:
            controller.start(self._network_file)
        if self.foreign is not None:
            self.foreign.start()

    def connect(self) -> None:
        """Wait until every switch is connected to its controller. Raises NetworkError."""
        for controller in self.each:
            controller.wait_listening()
        self.tell_switches([s.name for s in self._network.switches])
        for controller in self.each:
            controller.wait_connected(self._switches_of(controller.domain), self._patience_s)
        if self.foreign is not None:
            self.foreign.wait_connected(self._controlled())

    def start_again(self, domain: str, *, without: Collection[str] = ()) -> None:
        """Start the domain's controller again after it ended, with the store it had. Return when
        the domain's switches (except `without`, those that are off) are connected and have the
        entries they should have. Raises NetworkError."""
        controller = self.of(domain)
        if controller.alive:
            raise NetworkError(f"the controller of {domain} is already running")
        controller.start(self._network_file)
        controller.wait_listening()
        controller.wait_connected(self._switches_of(domain) - set(without), self._patience_s)

    def start_standby(self, domain: str, *, without: Collection[str] = ()) -> Path:
        """Start a second controller of the domain on the same store; its switches also connect to
        it. Return its northbound socket. Raises NetworkError."""
        first = self.of(domain)
        if not self._lease_s:
            raise NetworkError(f"{domain}: no standby without a lease (open_emulation: lease_s)")
        if domain in self._standbys:
            raise NetworkError(f"{domain} already has a standby")
        port = first.port + STANDBY_PORT_OFFSET
        standby = make_controller(
            domain, port, self._state_dir, role="standby", options=first.options
        )
        self._standbys[domain] = standby
        standby.start(self._network_file)
        standby.wait_listening()
        self.tell_switches(sorted(self._switches_of(domain) - set(without)))
        return standby.socket

    def tell_switches(self, switches: Sequence[str]) -> None:
        """Tell switches where the controllers of their domain listen. Raises NetworkError."""
        argv = ["ovs-vsctl"]
        probe_ms = min(LONGEST_LIVENESS_MS, 1000 * looking.every_s(PROBE_S))
        for switch in self._network.switches:
            ports = [c.port for c in self.all() if c.domain == switch.domain]
            if self.external is not None and switch.name in self._controlled():
                ports = [self.external.port]
            if switch.name not in switches or not ports:
                continue
            names = [f"@c{number}-{switch.name}" for number in range(len(ports))]
            for name, port in zip(names, ports, strict=True):
                target = f'target="tcp:127.0.0.1:{port}"'
                argv += ["--", f"--id={name}", "create", "Controller", target]
                argv += ["max_backoff=1000", f"inactivity_probe={probe_ms:.0f}"]
            argv += ["--", "set", "Bridge", switch.name, f"controller=[{','.join(names)}]"]
        if len(argv) > 1:
            check(argv)

    def tell_to_stop(self) -> None:
        """Ask all controllers to end; do not wait."""
        for controller in self._ends():
            controller.tell_to_stop()

    def stop(self) -> None:
        """End all controllers and wait until they have ended."""
        for controller in self._ends():
            controller.stop()

    def _ends(self) -> list[Controller | ForeignController | OnosBridges]:
        return [*self.all(), *([self.external] if self.external is not None else [])]

    @property
    def _network_file(self) -> Path:
        return self._state_dir / "network.json"

    @property
    def _patience_s(self) -> float:
        """Return how long switches may take to connect."""
        return CONTROLLER_CONNECT_TIMEOUT_S if self.onos is None else ONOS_CONNECT_TIMEOUT_S

    def _controlled(self) -> set[str]:
        """Return the switches of all controller domains."""
        domains = {
            d.name for d in self._network.domains if d.controlled_by is ControlledBy.CONTROLLER
        }
        return {s.name for s in self._network.switches if s.domain in domains}

    def _switches_of(self, domain: str) -> set[str]:
        return {s.name for s in self._network.switches if s.domain == domain}

    def _options(self, domain: str, domains: Sequence[str]) -> list[str]:
        """Return options for the controllers of other domains, if any, and for a queue driver."""
        options: list[str] = []
        others = [other for other in domains if other != domain]
        if others:
            peers = self._state_dir / f"peers-{domain}.yaml"
            lines = (f"  {other}: {{ at: {self._peer_sockets(other)} }}\n" for other in others)
            peers.write_text(f"peers:\n{''.join(lines)}", encoding="utf-8")
            options += ["--peers", str(peers)]
        if self.onos is not None:
            options += self.onos.option
        if self._lease_s:
            options += ["--lease-s", f"{self._lease_s:g}"]
        if self._queues:
            options += ["--queues", self._queues]
        if looking.every_s(0.0):
            period_ms = min(LONGEST_LIVENESS_MS, 1000 * looking.every_s(0.0))
            options += ["--liveness-period-ms", f"{period_ms:g}"]
        return options

    def _peer_sockets(self, domain: str) -> str:
        """Return a YAML list: the first controller's socket, then the socket that a standby would
        have."""
        roles = ("", "standby")
        sockets = (make_controller(domain, 0, self._state_dir, role=role).socket for role in roles)
        return f"[{', '.join(f'unix:{socket}' for socket in sockets)}]"
