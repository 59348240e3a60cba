# SPDX-License-Identifier: Apache-2.0
"""The path service over switches in pure Python that confirm, stay silent or refuse at will."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from controller.api.auth import Access
from controller.api.counters import router_of
from controller.api.rest import make_app
from controller.paths.entries import Entries
from controller.paths.messages import Message
from controller.paths.queues import QueueDriver
from controller.paths.stats import SwitchStats
from controller.service.monitor import Monitor
from controller.service.service import Failure, PathService, ServiceError, Why
from controller.service.store import Store
from controller.tests.fake_switch import FakeNetwork, Refused
from controller.tests.sample import network
from topologies.model.network import Network


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FailingSwitches:
    """Switches in pure Python that fail at will. `failing`: what a switch answers instead of
    acting."""

    def __init__(self) -> None:
        self.failing: dict[str, Failure] = {}
        self.net: FakeNetwork
        self._one_at_a_time = threading.Lock()

    def handle(self, switch: str, messages: Sequence[Message]) -> Failure | None:
        try:
            with self._one_at_a_time:
                self.net.switches[switch].handle(messages)
        except Refused as error:
            return Failure(Why.REFUSED, str(error))
        return None

    def read(self, switches: Iterable[str]) -> dict[str, Entries | Failure]:
        return {s: self.failing.get(s) or self.net.switches[s].entries() for s in switches}

    def stats(self, switches: Iterable[str]) -> dict[str, SwitchStats | Failure]:
        return {s: self.failing.get(s) or self.net.switches[s].stats() for s in switches}

    def entries(self) -> dict[str, Entries]:
        return {name: switch.entries() for name, switch in self.net.switches.items()}


class Rig(FailingSwitches):
    """`failing`: what a switch answers instead of acting. `refuse_next`: switches that refuse the
    next list of messages after its first `k`. `silent`: switches that act on messages and do not
    confirm them."""

    def __init__(
        self,
        store: Store | None = None,
        of: Network | None = None,
        queue_driver: QueueDriver | None = None,
    ) -> None:
        super().__init__()
        self.refuse_next: dict[str, int] = {}
        self.silent: set[str] = set()
        self.gate: dict[str, threading.Event] = {}  # a switch waits for its event before it acts
        self.calls = self.reads = 0
        self.asked: list[str] = []  # switches that were to get messages
        self.sent: list[str] = []  # switches that got messages
        self.clock = Clock()
        self.of = of if of is not None else network()
        self.store = store if store is not None else Store(None, self.of.name, "core")
        self.queue_driver = queue_driver
        self._http: TestClient | None = None
        self.service = self.new_service()
        self.monitor = Monitor(self.service, self.stats, self.clock)
        self.net = FakeNetwork(self.service.core)
        for switch in self.net.switches:
            self.service.switch_up(switch)
        self.calls = self.reads = 0
        self.sent.clear()

    def new_service(self) -> PathService:
        return PathService(
            self.of,
            "core",
            self.apply,
            self.read,
            store=self.store,
            queue_driver=self.queue_driver,
            clock=self.clock,
        )

    def restart(self) -> None:
        """Kill the process and start another one; the switches continue."""
        self.service = self.new_service()
        self.monitor = Monitor(self.service, self.stats, self.clock)
        self._http = None
        for switch in self.net.switches:
            self.service.switch_up(switch)

    @property
    def http(self) -> TestClient:
        """Return a client that comes by the Unix socket."""
        if self._http is None:
            self._http = self.http_as("")
        return self._http

    def http_as(self, address: str, access: Access | None = None) -> TestClient:
        """Return a client that comes by TCP from that address."""
        app = make_app(self.service, access, [router_of(self.service, self.monitor)])
        return TestClient(app, raise_server_exceptions=False, client=(address, 1))

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        self.calls += 1
        self.asked += changes
        failures: dict[str, Failure] = {}
        for switch, messages in changes.items():
            if switch in self.gate:
                assert self.gate[switch].wait(20)
            failure = self.failing.get(switch)
            if failure is not None:
                failures[switch] = failure
                continue
            self.sent.append(switch)
            if switch in self.refuse_next:
                self.net.switches[switch].handle(messages[: self.refuse_next.pop(switch)])
                failures[switch] = Failure(Why.REFUSED, "OFPET_GROUP_MOD_FAILED")
                continue
            refusal = self.handle(switch, messages)
            if refusal is not None:
                failures[switch] = refusal
            if switch in self.silent:
                failures[switch] = Failure(Why.TIMEOUT, "5 s")
        return failures

    def read(self, switches: Iterable[str]) -> dict[str, Entries | Failure]:
        self.reads += 1
        return super().read(switches)

    def assert_settled(self) -> None:
        """Check that every switch holds exactly what it should."""
        for name, switch in self.net.switches.items():
            assert self.service.desired(name) == switch.entries(), name


def problem(call: Callable[[], object]) -> ServiceError:
    """Return the ServiceError that the call must raise."""
    with pytest.raises(ServiceError) as caught:
        call()
    return caught.value


def assert_problem(response: Any, status: int, *texts: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == status
    for text in texts:
        assert text in body["detail"], body["detail"]
