# SPDX-License-Identifier: Apache-2.0
"""Open Mininet's prompt on a running network. It replaces or refuses commands that would kill by
name or change what the run's own process manages."""

from __future__ import annotations

import math
import sys
import warnings
from typing import IO

from common.shell import NetworkError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Mininet 2.3 uses distutils
    try:
        from mininet.cli import CLI
        from mininet.log import setLogLevel
    except ModuleNotFoundError:  # `prompt` says what is missing
        CLI = object
        setLogLevel = None  # noqa: N816

from topologies.emulate import lifecycle, up_down
from topologies.emulate.attached import attach, detach
from topologies.emulate.build import Mininet
from topologies.emulate.emulation_state import pids_of
from topologies.model.network import Network
from topologies.verify import iperf3
from topologies.verify.nodes import Nodes, nodes_of

UDP_MBPS = 10.0
PATH_SUFFIX = ".path"  # suffix of a host's name: its address on the path service


class Prompt(CLI):  # type: ignore[misc]
    """`mininet>`."""

    def __init__(self, mininet: Mininet, network: Network, nodes: Nodes, stdin: IO[str]) -> None:
        self._network = network
        self._nodes = nodes
        super().__init__(mininet, stdin=stdin)

    def do_iperf(self, line: str) -> None:
        """TCP from one host to another over the routed network, by iperf3.
        Usage: iperf [node1 node2]; with node2.path over the path service"""
        self._iperf(line.split(), None)

    def do_iperfudp(self, line: str) -> None:
        """UDP from one host to another, by iperf3.
        Usage: iperfudp [bw node1 node2], e.g. iperfudp 20M ucar uva.path"""
        rate, *hosts = line.split() or [f"{UDP_MBPS:g}M"]
        try:
            udp_bps = float(rate.rstrip("Mm")) * 1e6
        except ValueError:
            udp_bps = math.nan
        if not 1 <= udp_bps < math.inf:
            self._say(f"found '{rate}'; valid: Mbit/s, e.g. 10M")
            return
        self._iperf(hosts, udp_bps)

    def _iperf(self, hosts: list[str], udp_bps: float | None) -> None:
        names = [host.name for host in self._network.hosts]
        client, server = hosts if len(hosts) == 2 else (names[0], names[-1])
        known = {name: self._network.host(name).nic2.ip for name in names}
        known |= {f"{name}{PATH_SUFFIX}": self._network.host(name).nic1.ip for name in names}
        if len(hosts) not in (0, 2) or client not in names or server not in known:
            self._say(f"found '{' '.join(hosts)}'; valid: two of {', '.join(names)}")
            return
        host = server.removesuffix(PATH_SUFFIX)
        test = iperf3.Test(client, host, known[server], udp_bps=udp_bps)
        self._say(f"*** iperf3: {'TCP' if udp_bps is None else 'UDP'} from {client} to {server}")
        try:
            found = iperf3.measure(self._nodes, test)
        except NetworkError as error:
            self._say(str(error))
            return
        lost = "" if found.lost is None else f", {found.lost:.2%} lost"
        self._say(
            f"*** Results: sent {found.sent_bps / 1e6:.2f} Mbit/s, "
            f"received {found.received_bps / 1e6:.2f} Mbit/s{lost}"
        )

    def do_switch(self, _line: str) -> None:
        """Refuse: the network's own process holds the switches."""
        self._say("found switch; valid: link NODE NODE up|down")

    def default(self, line: str) -> None:
        """Run a command in a node. HOST stands for its address on the routed network, HOST.path for
        its address on the path service."""
        first, *rest = line.split(" ")
        words = [self._path_address(word) for word in rest]
        super().default(" ".join([first, *words]))

    def _path_address(self, word: str) -> str:
        name = word.removesuffix(PATH_SUFFIX)
        if name != word and name in (host.name for host in self._network.hosts):
            return self._network.host(name).nic1.ip
        return word

    def _say(self, text: str) -> None:
        print(text, file=self.stdout, flush=True)


def prompt(run_id: str) -> None:
    """Open the prompt on a network that is up, until `exit`. Raises NetworkError."""
    if setLogLevel is None:
        raise NetworkError("found no Python package mininet; valid: apt install mininet")
    network, state = up_down.network_of(run_id), lifecycle.read_state(run_id)
    pids = pids_of(run_id)
    if network is None or state is None or not pids:
        raise NetworkError(f"{run_id}: the network is being built, or has ended (see: status)")
    mininet = attach(run_id, network, pids, state.owner_pid)
    setLogLevel("info")
    try:
        Prompt(mininet, network, nodes_of(run_id), sys.stdin)
    finally:
        detach(mininet)
