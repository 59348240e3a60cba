# SPDX-License-Identifier: Apache-2.0
"""Domains in one process: real path services, stores and REST applications over switches in pure
Python. Messages between them pass through `Wire`, which loses them at will."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fastapi.testclient import TestClient

from controller.api.counters import router_of
from controller.api.rest import make_app
from controller.federation.joining import join
from controller.federation.peers import DOMAIN_HEADER, MESSAGES_URL, NoReply
from controller.federation.records import Timing
from controller.federation.tests.networks import chain
from controller.federation.values import Reply, Request, read_reply, request_json
from controller.paths.entries import Entries
from controller.paths.messages import Message
from controller.paths.stats import SwitchStats
from controller.service.monitor import Monitor
from controller.service.service import Failure, PathService, Why
from controller.service.store import Store
from controller.tests.fake_switch import FakeNetwork, Frame
from controller.tests.rig import FailingSwitches
from topologies.model.network import Network

# Lost messages are noticed at once; the limits allow for a slow machine.
TIMING = Timing(
    reserve_s=60, commit_s=60, release_s=60, settle_s=30, hold_s=60, retry_first_s=0.1, audit_s=0.3
)


class Wire:
    """Carries messages from one domain to another. `fate(request)`: 'ok', 'lost' (does not arrive)
    or 'deaf' (the reply does not arrive)."""

    def __init__(self, source: str, target: Callable[[], TestClient]) -> None:
        self._source = source
        self._target = target
        self.fate: Callable[[Request], str] = lambda _request: "ok"
        self.requests: list[Request] = []

    def exchange(self, request: Request, _timeout_s: float) -> Reply:
        self.requests.append(request)
        fate = self.fate(request)
        if fate == "lost":
            raise NoReply("lost")
        response = self._target().post(
            MESSAGES_URL, content=request_json(request), headers={DOMAIN_HEADER: self._source}
        )
        if fate == "deaf":
            raise NoReply("no answer came back")
        if response.status_code != 200:
            raise NoReply(response.text)
        return read_reply(response.content)


class DomainRig(FailingSwitches):
    """One domain's controller; `restart` kills it and starts another one on the same store."""

    def __init__(self, world: WorldRig, home: str, store: Path) -> None:
        super().__init__()
        self.world = world
        self.home = home
        self.refusing: set[str] = set()
        self._file = store
        self.wires = {
            name: Wire(home, partial(world.http_of, name)) for name in world.names if name != home
        }
        self.start()
        self.net = FakeNetwork(self.own.core)
        self.connect_switches()

    def start(self) -> None:
        network = self.world.network
        self.store = store = Store(self._file, network.name, self.home)
        self.own = PathService(network, self.home, self.apply, self.read, store=store)
        joined = join(network, self.home, self.own, store, self.wires, timing=TIMING)
        self.service = joined.service
        self.federation = joined.federation
        self.monitor = Monitor(self.own, self.stats)
        routers = [joined.router, router_of(self.own, self.monitor)]
        app = make_app(self.service, None, routers)
        self.http: TestClient = TestClient(app, raise_server_exceptions=False, client=("", 1))

    def connect_switches(self) -> None:
        for switch in self.net.switches:
            self.own.switch_up(switch)

    def restart(self) -> None:
        self.federation.stop()
        self.start()
        self.connect_switches()
        self.federation.start()

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        failures: dict[str, Failure] = {}
        for switch, messages in changes.items():
            if switch in self.failing:
                failures[switch] = self.failing[switch]
                continue
            if switch in self.refusing:
                failures[switch] = Failure(Why.REFUSED, "OFPET_GROUP_MOD_FAILED")
                continue
            refusal = self.handle(switch, messages)
            if refusal is not None:
                failures[switch] = refusal
        return failures

    def stats(self, switches: Iterable[str]) -> dict[str, SwitchStats | Failure]:
        return {switch: SwitchStats() for switch in switches}


class WorldRig:
    def __init__(self, directory: Path, names: str = "abc", network: Network | None = None) -> None:
        self.names = names
        self.network = network if network is not None else chain(names)
        self.domains: dict[str, DomainRig] = {}
        for name in names:
            self.domains[name] = DomainRig(self, name, directory / f"{name}.sqlite")
        for rig in self.domains.values():
            rig.federation.start()

    def close(self) -> None:
        for rig in self.domains.values():
            rig.federation.stop()

    def http_of(self, name: str) -> TestClient:
        return self.domains[name].http

    def entries(self) -> dict[str, dict[str, Entries]]:
        return {name: rig.entries() for name, rig in self.domains.items()}

    def deliver(self, switch: str, port: int, frame: Frame) -> list[tuple[str, int, int | None]]:
        """Return (switch, port, VLAN id) of every copy that leaves the domains, sorted."""
        todo, result = [(switch, port, frame)], []
        domains = self.domains["a"].federation.domains
        while todo:
            switch, port, frame = todo.pop()
            net = self.domains[domains.domain_of[switch]].net
            for out_switch, out_port, out in net.inject(switch, port, frame):
                hand_off = domains.hand_off_at(out_switch, out_port)
                if hand_off is None:
                    result.append((out_switch, out_port, out.vlan))
                else:
                    other = hand_off.ports[hand_off.other(domains.domain_of[out_switch])]
                    todo.append((other.node, other.number, out))
        return sorted(result)

    def wait_for(self, what: str, condition: Callable[[], bool], limit_s: float = 90) -> None:
        until = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < until, f"not within {limit_s:g} s: {what}"
            time.sleep(0.01)
