# SPDX-License-Identifier: Apache-2.0
"""Measure the path service: how long it takes to add one leaf, and to bring all switches up to
date.

Requests go by REST over a Unix socket and are answered when all switches have confirmed; the store
is a file. `fake`: the service in this process, with switches that confirm as soon as the messages
to them have been encoded. `ovs`: the controller's process and 100 bridges of an Open vSwitch
(userspace datapath).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx

from bench.path_network import ACCESS_PORT, DOMAIN, FAR, NEAR, SWITCHES, endpoint, leaves, network
from bench.statistics import median
from common.http.server import Server
from common.places import ROOT
from common.shell import NetworkError, check, die_with_parent
from controller.api import rest
from controller.api.listening import listen_unix
from controller.api.path_client import Endpoint
from controller.paths.entries import Entry
from controller.paths.messages import Change, Command, Message
from controller.service.service import Failure, PathService
from controller.service.store import Store
from topologies.emulate.openvswitch import OpenVSwitch

SIZES: Final = (8, 100, 1000)
RATE_BPS: Final = 1_000_000
CYCLES: Final = 7  # of joining and leaving, at each size
ENTRIES: Final = 10_000
READY_LIMIT_S: Final = 120.0
OF_PORT: Final = 16653


class Failed(Exception):
    pass


class Client:
    """A client to which the service does not send the whole path in its answers."""

    def __init__(self, socket_path: Path) -> None:
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket_path)),
            base_url="http://controller",
            timeout=60,
            headers={"prefer": "return=minimal"},
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> float:
        """Return how long a call took, in seconds."""
        began = time.perf_counter()
        answer = self._http.request(method, url, json=body)
        took_s = time.perf_counter() - began
        if not answer.is_success:
            raise Failed(f"{method} {url}: {answer.status_code} {answer.text[:300]}")
        return took_s

    def create(self, name: str, root: Endpoint) -> float:
        """Create a path; return how long it took, in seconds."""
        body = {"name": name, "root": _json_of(root), "rate_bps": RATE_BPS}
        return self._request("POST", "/v1/paths", body)

    def add(self, name: str, leaf: Endpoint) -> float:
        """Add a leaf; return how long it took, in seconds."""
        return self._request("POST", f"/v1/paths/{name}/leaves", _json_of(leaf))

    def fill(self, name: str, root: Endpoint, leaves: Sequence[Endpoint]) -> None:
        """Add many leaves in one change: a hold, and its commit."""
        path = {"name": name, "root": _json_of(root), "rate_bps": RATE_BPS}
        path["leaves"] = [_json_of(leaf) for leaf in leaves]
        hold_id = str(uuid.uuid4())
        self._request("POST", "/v1/holds", {"id": hold_id, "hold_s": 60, "path": path})
        self._request("POST", f"/v1/holds/{hold_id}/commit")

    def remove(self, name: str, leaf: Endpoint) -> float:
        """Remove a leaf; return how long it took, in seconds."""
        place = f"{leaf.switch}/{leaf.port}/{leaf.vlan}"
        return self._request("DELETE", f"/v1/paths/{name}/leaves/{place}")

    def ready(self) -> bool:
        """Return whether all switches hold what they should."""
        try:
            switches = self._http.get("/v1/health").json()["switches"]
        except httpx.HTTPError:
            return False
        return all(switches.values())


def _json_of(leaf: Endpoint) -> dict[str, Any]:
    return {
        "switch": leaf.switch, "port": leaf.port, "vlan": leaf.vlan, "macs": list(leaf.macs)
    }  # fmt: skip


@dataclass
class Backend:
    """A running service. `reconnect(empty)` takes all switches away, empties them if asked, and
    returns how long it takes from their return until all hold what they should; `entries` counts
    their entries."""

    client: Client
    reconnect: Callable[[bool], float]
    entries: Callable[[], int]


def measure(backend: Backend) -> dict[str, Any]:
    """Measure, in seconds: `join_N_s` and `leave_N_s` of a leaf at a switch of the tree,
    `branch_N_s` of a leaf that needs a new branch (two phases), each as the Nth leaf;
    `reconcile_same_s`, `reconcile_empty_s`."""
    client, result = backend.client, {}
    client.create("p", endpoint("s1", 0))
    client.add("p", endpoint(NEAR, 0))
    there = 1
    more = leaves()
    for size in SIZES:
        client.fill("p", endpoint("s1", 0), list(islice(more, size - 1 - there)))
        there = size - 1
        for what, leaf in (("join", endpoint(NEAR, 1)), ("branch", endpoint(FAR, 0))):
            joined, left = [], []
            for _ in range(CYCLES):
                joined.append(client.add("p", leaf))
                left.append(client.remove("p", leaf))
            result[f"{what}_{size}_s"] = median(joined)
            if what == "join":
                result[f"leave_{size}_s"] = median(left)
    more = leaves(first=500)
    while (lacking := ENTRIES - backend.entries()) > 0:
        # A leaf has 7 entries of its own, 5 at its switch and 2 on the way.
        client.fill("q", endpoint("s1", 1), list(islice(more, lacking // 7 + 1)))
    result["entries"] = backend.entries()
    result["reconcile_same_s"] = backend.reconnect(False)
    result["reconcile_empty_s"] = backend.reconnect(True)
    return result


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not client.ready():
        if time.monotonic() > deadline:
            raise Failed(f"not all switches were ready within {READY_LIMIT_S:g} s")
        time.sleep(0.01)


# -- simulated switches


class _FakeSwitches:
    def __init__(self) -> None:
        from controller.switches import compat, openflow

        self._datapath = compat.offline_datapath()
        self._encode = openflow.encode
        self.held: dict[str, dict[object, Entry]] = {switch: {} for switch in SWITCHES}

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        for switch, messages in changes.items():
            held = self.held[switch]
            for xid, message in enumerate(messages, 1):
                self._encode(self._datapath, message, xid)
                if isinstance(message, Change):
                    if message.command is Command.DELETE:
                        del held[message.entry.key]
                    else:
                        held[message.entry.key] = message.entry
        return {}

    def read(self, switches: Iterable[str]) -> dict[str, frozenset[Entry] | Failure]:
        return {switch: frozenset(self.held[switch].values()) for switch in switches}


@contextmanager
def fake(work: Path) -> Iterator[Backend]:
    """Yield the path service over switches that confirm at once."""
    switches = _FakeSwitches()
    store = Store(work / "paths.db", "paths", DOMAIN)
    service = PathService(network(), DOMAIN, switches.apply, switches.read, store=store)
    for switch in SWITCHES:
        service.switch_up(switch)
    path = work / "rest.sock"
    listening = Server(rest.make_app(service), [listen_unix(path)])
    listening.start()
    client = Client(path)

    def reconnect(empty: bool) -> float:
        for switch in SWITCHES:
            service.switch_down(switch)
            if empty:
                switches.held[switch].clear()
        began = time.perf_counter()
        for switch in SWITCHES:
            service.switch_up(switch)
        took_s = time.perf_counter() - began
        if not all(service.switches().values()):
            raise Failed("not all switches are ready")
        return took_s

    try:
        yield Backend(client, reconnect, lambda: sum(map(len, switches.held.values())))
    finally:
        client.close()
        listening.stop(timeout_s=5)


# -- Open vSwitch


def _bridges(net_port: int) -> list[str]:
    """Return the arguments of one ovs-vsctl. Access ports are patch ports that lead nowhere."""
    arguments: list[str] = []
    for number, switch in enumerate(SWITCHES, 1):
        arguments += ["--", "add-br", switch, "--", "set", "bridge", switch]
        arguments += ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13"]
        arguments += [f"other_config:datapath-id={number:016x}"]
        arguments += _port(switch, ACCESS_PORT, f"nowhere-{switch}")
    for link in network().links:
        if not link.name.endswith(":edge"):
            a, b = link.a, link.b
            arguments += _port(a.node, a.number, f"{b.node}-p{b.number}")
            arguments += _port(b.node, b.number, f"{a.node}-p{a.number}")
    return [*arguments, *_controllers(net_port)]


def _port(switch: str, number: int, peer: str) -> list[str]:
    name = f"{switch}-p{number}"
    return [
        *("--", "add-port", switch, name, "--", "set", "interface", name, "type=patch"),
        *(f"options:peer={peer}", f"ofport_request={number}"),
    ]


def _controllers(net_port: int) -> list[str]:
    arguments: list[str] = []
    for switch in SWITCHES:
        arguments += ["--", "set-controller", switch, f"tcp:127.0.0.1:{net_port}"]
    return arguments


class _OpenVSwitches:
    """Open vSwitch and a controller process in this process's network namespace."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._socket = work / "rest.sock"
        self._switch = OpenVSwitch(work / "ovs")
        self._controller: subprocess.Popen[bytes] | None = None
        self.client: Client | None = None

    def start(self) -> Client:
        """Return a client of the controller to which all switches are connected."""
        (self._work / "network.json").write_text(network().to_json())
        check(["ip", "link", "set", "lo", "up"])
        self._switch.start()
        argv = [
            *(sys.executable, "-m", "controller", "--network", str(self._work / "network.json")),
            *("--domain", DOMAIN, "--of-listen", f"127.0.0.1:{OF_PORT}"),
            *("--rest-socket", str(self._socket), "--store", str(self._work / "paths.db")),
            *("--log", str(self._work / "controller.log"), "--liveness-period-ms", "0"),
        ]
        with (self._work / "controller.err").open("wb") as err:
            self._controller = subprocess.Popen(
                argv, cwd=ROOT, stderr=err, preexec_fn=die_with_parent()
            )
        _vsctl(_bridges(OF_PORT))
        self.client = Client(self._socket)
        _wait_until_ready(self.client)
        return self.client

    def stop(self) -> None:
        """End the controller and the switches."""
        if self.client is not None:
            self.client.close()
        if self._controller is not None:
            self._controller.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._controller.wait(10)
            if self._controller.poll() is None:
                self._controller.kill()
        self._switch.stop()

    def entries(self) -> int:
        """Return how many flows, groups and meters the switches hold."""
        count = 0
        for bridge in SWITCHES:
            text = _ofctl("dump-aggregate", self._management(bridge))
            count += int(text.rpartition("flow_count=")[2].split()[0])
            count += _ofctl("dump-groups", self._management(bridge)).count("group_id=")
        return count + _ofctl("dump-meters", self._management("s1")).count("meter=")

    def reconnect(self, empty: bool) -> float:
        """Take the controller away and give it back; return the seconds until all switches were
        ready."""
        assert self.client is not None
        _vsctl([word for bridge in SWITCHES for word in ("--", "del-controller", bridge)])
        deadline = time.monotonic() + READY_LIMIT_S
        while any(self.client._http.get("/v1/health").json()["switches"].values()):
            if time.monotonic() > deadline:
                raise Failed("switches whose controller was removed are still connected")
            time.sleep(0.05)
        for bridge in SWITCHES if empty else ():
            for what in ("del-flows", "del-groups", "del-meters"):
                _ofctl(what, self._management(bridge))
        began = time.perf_counter()
        _vsctl(_controllers(OF_PORT))
        _wait_until_ready(self.client)
        return time.perf_counter() - began

    def _management(self, bridge: str) -> str:
        return f"unix:{self._work / 'ovs' / bridge}.mgmt"


def _vsctl(arguments: Sequence[str]) -> None:
    check(["ovs-vsctl", "--timeout=60", *arguments[1:]])


def _ofctl(*arguments: str) -> str:
    done = subprocess.run(
        ["ovs-ofctl", "-O", "OpenFlow13", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise Failed(f"ovs-ofctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def ovs(work: Path) -> Iterator[Backend]:
    """Yield the path service over Open vSwitch, in this process's network namespace."""
    switches = _OpenVSwitches(work)
    try:
        client = switches.start()
        yield Backend(client, switches.reconnect, switches.entries)
    finally:
        switches.stop()


BACKENDS: Final = {"paths-fake": fake, "paths-ovs": ovs}


def run_paths(tool: str, work: Path) -> dict[str, Any]:
    """Return the result of a job of this section."""
    try:
        with BACKENDS[tool](work) as backend:
            return {"status": "ok", **measure(backend)}
    except (Failed, NetworkError, OSError, httpx.HTTPError, json.JSONDecodeError) as error:
        return {"status": "failed", "reason": str(error)}
