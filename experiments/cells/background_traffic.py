# SPDX-License-Identifier: Apache-2.0
"""Competing traffic: long TCP flows of iperf3 over the links that the path crosses.

The flows have their own best-effort path on the second lane. It uses separate NICs and access links
at the publisher's and the subscribers' sites, and the same links beyond the edge switches. So the
flows compete with the path under test for the network, not for a host's interface. Each flow's
sender runs CUBIC, whatever the hosts' default is.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from common.files import tail
from controller.api.path_client import Channels, PathClient, PathClientError, endpoints_of
from experiments.design.networks import BACKGROUND_LANE
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network

PATH: Final = "background"
PORT: Final = 5201
LEAD_S: Final = 3  # before the replay, so that slow start is over and not counted
START_S: Final = 30.0  # for servers to listen, and for addresses to be resolved
END_S: Final = 120.0  # for clients to end after their time
POLL_S: Final = 0.05
CONGESTION_CONTROL: Final = "cubic"
UNTIL_STOPPED_S: Final = 86_400  # longer than any replay


class BackgroundError(Exception):
    """The flows are impossible; the text says why."""


def shares(flows: int, hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of flows of each host that has some, dealt out in turn."""
    counts = dict.fromkeys(hosts, 0)
    for number in range(flows):
        counts[hosts[number % len(hosts)]] += 1
    return {host: count for host, count in counts.items() if count}


def client_argv(address: str, flows: int, seconds: int, tcp: str = CONGESTION_CONTROL) -> list[str]:
    """Return the command of a sender of parallel flows for `LEAD_S` and then `seconds`; it reports
    only the latter. `tcp`: their congestion control."""
    return [
        *["iperf3", "-c", address, "-p", str(PORT), "-P", str(flows), "-C", tcp],
        *["-O", str(LEAD_S), "-t", str(seconds), "-i", "10", "-J"],
    ]


def log_name(host: str) -> str:
    """Return the name, below `logs/`, of the report of the flows to a host."""
    return f"iperf3.{host}.json"


def make_path(
    emulation: Emulation,
    network: Network,
    hosts: Iterable[str],
    channels: Channels | None = None,
) -> None:
    """Create the path for competing traffic: best effort (rate 0), on the second lane, to the
    segments of these hosts. Raises BackgroundError."""
    root, leaves = endpoints_of(network, BACKGROUND_LANE)
    segments = {network.segment_of(host, BACKGROUND_LANE).name for host in hosts}
    try:
        with PathClient(emulation.controller_socket) as service:
            service.create_path(PATH, root, 0, channels=channels)
            for name in sorted(segments):
                service.add_leaf(PATH, leaves[name])
    except PathClientError as error:
        raise BackgroundError(
            f"the path service refused the competing flows' path: {error}"
        ) from None


class Background:
    """The flows of one cell, from the publisher to its subscribers."""

    def __init__(
        self,
        emulation: Emulation,
        network: Network,
        subscribers: Sequence[str],
        flows: int,
        tcp: str = CONGESTION_CONTROL,
    ) -> None:
        if network.lane_count < BACKGROUND_LANE:
            raise BackgroundError(
                f"{network.name}: found {network.lane_count} lane; valid with background_flows: a "
                "topology with a parameter `lanes`, such as bottleneck"
            )
        self._emulation, self._network = emulation, network
        self._tcp = tcp
        self._shares = shares(flows, subscribers)
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: Path | None = None

    def start(self, logs: Path, seconds: float) -> None:
        """Create the flows' path and start the flows; return when slow start is over. Raises
        BackgroundError, NetworkError."""
        self._logs = logs
        make_path(self._emulation, self._network, self._shares)
        for host in self._shares:
            self._resolve(self._address(host))
            self._servers[host] = self._emulation.popen(
                host,
                ["iperf3", "-s", "-1", "-B", self._address(host), "-p", str(PORT)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
        self._await_servers()
        publisher = self._network.publisher.name
        for host, flows in self._shares.items():
            argv = client_argv(self._address(host), flows, round(seconds), self._tcp)
            with (logs / log_name(host)).open("wb") as log:
                self._clients[host] = self._emulation.popen(
                    publisher, argv, stdout=log, stderr=subprocess.STDOUT
                )
        time.sleep(LEAD_S)

    def finish(self) -> None:
        """Wait until all flows have ended and their reports are written. Raises BackgroundError."""
        assert self._logs is not None
        for host, client in self._clients.items():
            try:
                code = client.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                raise BackgroundError(f"iperf3 to {host} did not end") from None
            if code != 0:
                says = tail(self._logs / log_name(host))
                raise BackgroundError(f"iperf3 to {host} ended with {code}:\n{says}")
        self.stop()

    def stop(self) -> None:
        """End the programs that still run. Idempotent."""
        for process in (*self._clients.values(), *self._servers.values()):
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=END_S)

    def _address(self, host: str) -> str:
        return self._network.host(host).path_nic(BACKGROUND_LANE).ip

    def _resolve(self, address: str) -> None:
        """Wait until `address` answers, so that no address is resolved during the measurement."""
        publisher = self._network.publisher.name
        deadline = time.monotonic() + START_S
        ping = ["ping", "-n", "-q", "-c", "1", "-W", "1", address]
        while self._emulation.run(publisher, ping, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise BackgroundError(f"{address} does not answer over the flows' path")

    def _await_servers(self) -> None:
        deadline = time.monotonic() + START_S
        for host in self._shares:
            listening = f"{self._address(host)}:{PORT}"
            while listening not in self._emulation.run(host, ["ss", "-Hltn"]).stdout:
                if time.monotonic() > deadline:
                    raise BackgroundError(f"iperf3's server at {host} did not start")
                time.sleep(POLL_S)
