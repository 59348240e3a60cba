# SPDX-License-Identifier: Apache-2.0
"""Measure a counting stream while something fails or changes. Each function causes it on a running
network (`mesh.yaml`, one path from p to qb, qc and qd) and returns the figures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.shell import check
from controller.api.path_client import PathClient, PathClientError
from controller.paths.core import Endpoint
from tests.path_service.networks import DOMAIN, endpoints, make_path
from tests.path_service.stream import Account, Stream
from topologies.emulate.emulation import Emulation, NetworkError

PATH: Final = "counted"
RATE_BPS: Final = 20_000_000
HOSTS: Final = ("qb", "qc", "qd")
LEASE_S: Final = 1.0
PATIENCE_S: Final = 60.0
SETTLE_S: Final = 0.6  # undisturbed stream before and after the change
# Counting starts with this datagram, after 500 ms: Open vSwitch's barrier covers its tables, but
# its datapath may go on dropping for a few milliseconds what it dropped before the path existed.
FIRST: Final = 500
# The mark of a path's unicast and multicast entries in `ovs-ofctl dump-flows`.
OURS: Final = "cookie=0x444f574e"


@dataclass(frozen=True)
class Figures:
    """The figures of a stream by receiver, and times in ms by name."""

    accounts: Mapping[str, Account]
    times_ms: Mapping[str, float] = field(default_factory=dict)

    def undisturbed(self, hosts: Sequence[str]) -> None:
        """Assert that these receivers got every datagram once."""
        for host in hosts:
            account = self.accounts[host]
            assert (account.lost, account.doubled) == (0, 0), f"{host}: {account}"


def wait_until(what: str, condition: Callable[[], bool], step_s: float = 0.005) -> None:
    """Wait until the condition holds. Raises NetworkError after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise NetworkError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(step_s)


def started(emulation: Emulation, hosts: Sequence[str] = HOSTS) -> Stream:
    """Make the path and start a stream; return it once it has reached all hosts."""
    make_path(emulation, PATH, RATE_BPS, list(hosts))
    stream = Stream(emulation, emulation.state_dir, hosts)
    time.sleep(SETTLE_S)
    return stream


def counted(emulation: Emulation, hosts: Sequence[str]) -> Figures:
    """Count a second of stream over a path that is up."""
    stream = Stream(emulation, emulation.state_dir, hosts)
    time.sleep(SETTLE_S)
    return ended(stream)


def add_leaf(emulation: Emulation, leaf: Endpoint) -> None:
    with PathClient(emulation.controller_socket) as service:
        service.add_leaf(PATH, leaf)


def ended(stream: Stream, times_ms: Mapping[str, float] | None = None) -> Figures:
    time.sleep(SETTLE_S)
    result = stream.stop()
    return Figures({h: result.at(h, FIRST) for h in result.arrivals}, dict(times_ms or {}))


def links_of(service: PathClient) -> set[str]:
    """Return the core links of the path's tree, each written in both directions."""
    ends = [(str(e["from"]), str(e["to"])) for e in service.get(PATH)["edges"]]
    return {f"{a}:{b}" for one, other in ends for a, b in ((one, other), (other, one))}


def link_down(emulation: Emulation, *, silent: bool, link: str = "a:c") -> Figures:
    """Break the link that feeds qc. Its ports report that, unless it is `silent`."""
    stream = started(emulation)
    with PathClient(emulation.controller_socket) as service:
        assert link in links_of(service)
        began = time.monotonic()
        emulation.cut(link, silent=silent)
        wait_until(f"the tree leaves {link}", lambda: link not in links_of(service))
        moved = time.monotonic()
        time.sleep(SETTLE_S)
        emulation.mend(link)
        time.sleep(SETTLE_S)
    return ended(stream, {"re-routed": (moved - began) * 1000})


def switch_restart(emulation: Emulation, switch: str = "c") -> Figures:
    """Stop the switch at which qc joins the core for half a second."""
    stream = started(emulation)
    with PathClient(emulation.controller_socket) as service:
        emulation.stop_switch(switch)
        time.sleep(0.5)
        wait_until("the path is degraded", lambda: service.get(PATH)["state"] == "degraded")
        began = time.monotonic()
        emulation.start_switch(switch)
        wait_until("the path is up", lambda: service.get(PATH)["state"] == "up")
    return ended(stream, {"path up again": (time.monotonic() - began) * 1000})


def controller_restart(emulation: Emulation) -> tuple[Figures, dict[str, list[str]]]:
    """Kill the controller by SIGKILL, and restart it after a second. Also return, by switch, the
    path's flows that did not exist throughout."""
    stream = started(emulation)
    time.sleep(SETTLE_S)
    began = time.monotonic()
    emulation.kill_controller(DOMAIN)
    time.sleep(1.0)
    again = time.monotonic()
    emulation.start_controller(DOMAIN)
    ready = time.monotonic()
    with PathClient(emulation.controller_socket) as service:
        wait_until("the path is up", lambda: service.get(PATH)["state"] == "up")
    age_s = time.monotonic() - began
    younger = {s: flows_younger_than(s, age_s) for s in "abcd"}
    return ended(stream, {"ready again": (ready - again) * 1000}), younger


def standby_takeover(emulation: Emulation) -> Figures:
    """Kill the active controller; measure the time until the standby makes a change. The network
    has a lease of LEASE_S."""
    stream = started(emulation, ["qb", "qc"])
    standby = emulation.start_standby(DOMAIN)
    _, leaves = endpoints(emulation.network)
    with PathClient(standby) as service:
        refused = status_of(lambda: service.add_leaf(PATH, leaves["qd"]))
        assert refused == 503, f"the standby acts (status {refused})"
        began = time.monotonic()
        emulation.kill_controller(DOMAIN)

        def done() -> bool:
            return status_of(lambda: service.add_leaf(PATH, leaves["qd"])) == 200

        wait_until("the standby takes over", done)
        taken = time.monotonic()
    return ended(stream, {"taken over": (taken - began) * 1000})


def status_of(call: Callable[[], object]) -> int:
    """Return the HTTP status of a call to the path service, 200 if it succeeds."""
    try:
        call()
    except PathClientError as error:
        return error.status
    return 200


def joins_and_leaves(emulation: Emulation, count: int = 50) -> Figures:
    """Let qd join and leave `count` times while qb and qc stay."""
    stream = started(emulation, ["qb", "qc"])
    _, leaves = endpoints(emulation.network)
    joins: list[float] = []
    prunes: list[float] = []
    with PathClient(emulation.controller_socket) as service:
        for _ in range(count):
            began = time.monotonic()
            service.add_leaf(PATH, leaves["qd"])
            joined = time.monotonic()
            service.remove_leaf(PATH, leaves["qd"])
            joins.append((joined - began) * 1000)
            prunes.append((time.monotonic() - joined) * 1000)
    middle = count // 2
    return ended(stream, {"join": sorted(joins)[middle], "leave": sorted(prunes)[middle]})


# -- the switches' entries


def flow_table(switch: str) -> list[str]:
    """Return the controller's flows in a switch, without counters and times."""
    try:
        text = check(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", switch])
    except NetworkError:
        return []
    return sorted(line.strip() for line in text.splitlines() if OURS in line)


def flows_younger_than(switch: str, seconds: float) -> list[str]:
    text = check(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch])
    found = []
    for line in text.splitlines():
        match = re.search(r"duration=([\d.]+)s", line)
        if OURS in line and match is not None and float(match[1]) < seconds:
            found.append(line.strip())
    return found


def add_flow(switch: str, text: str) -> None:
    check(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch, text])


def del_flow(switch: str, line: str) -> None:
    """Delete the flow that `flow_table` shows as `line`, and no other."""
    match = re.sub(r"cookie=\S+?,? |actions=.*", "", line).strip().rstrip(",")
    check(["ovs-ofctl", "-O", "OpenFlow13", "--strict", "del-flows", switch, match])


def has_flow(switch: str, text: str) -> bool:
    return text in check(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch])
