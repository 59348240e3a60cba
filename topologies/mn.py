# SPDX-License-Identifier: Apache-2.0
"""The bundled topologies for Mininet's own program, `mn`: its option --custom reads this file.

    sudo mn --custom topologies/mn.py --topo geni5,receivers=4 --switch ovsbr,stp=1

`--topo downpour,FILE.yaml` takes a topology file. Names, ports, datapath ids, addresses and the
routed control network are as `downpour up` makes them. Rates, delays and losses are parameters of
the links: `--link tc` sets them where the kernel has netem, other kinds of link ignore them. VLAN
segments are not installed: the switches do what --switch and --controller say.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# Mininet reads this file without saying where it lies, and with the system's Python.
_HERE = Path(inspect.currentframe().f_code.co_filename).resolve()  # type: ignore[union-attr]
for _place in (_HERE.parent.parent, *_HERE.parent.parent.glob(".venv/lib/python3*/site-packages")):
    if str(_place) not in sys.path:
        sys.path.append(str(_place))

from mininet.node import Node  # noqa: E402
from mininet.topo import Topo  # noqa: E402

if TYPE_CHECKING:
    from topologies.model.network import Host, Impairment, Link, Network

TC_RATE_MAX_MBPS = 1000  # above it, Mininet's TCLink refuses a rate
PACKET_BYTES = 1500  # Mininet counts a queue in packets


class RouterNode(Node):  # type: ignore[misc]
    """The router of the control network."""

    def config(self, routes: Mapping[str, str] = {}, **parameters: object) -> object:  # noqa: B006
        """Configure the node, let it forward, and add `routes`: address -> gateway."""
        result: object = super().config(**parameters)
        self.cmd("sysctl -q -w net.ipv4.ip_forward=1")
        for address, gateway in routes.items():
            self.cmd(f"ip route add {address} via {gateway}")
        return result


class DownpourTopo(Topo):  # type: ignore[misc]
    """A topology file as Mininet's Topo; `parameters` are the file's, e.g. receivers=8."""

    def build(self, name: str, receivers: int | None = None, **parameters: int | str) -> None:
        """Add all nodes and links. Exits with one line if the file has mistakes."""
        network = _load(name, receivers, parameters)
        for switch in network.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}")
        for host in network.hosts:
            self.addHost(host.name, ip=_address(host), defaultRoute=f"via {host.gateway2}")
        for router in network.routers:
            routes = {host.nic1.ip: host.nic2.ip for host in network.hosts}
            self.addNode(router.name, cls=RouterNode, ip=None, routes=routes)
        addresses = _addresses(network)
        for link in network.links:
            self.addLink(link.a.node, link.b.node, **_options(link, addresses))


def _load(name: str, receivers: int | None, parameters: dict[str, int | str]) -> Network:
    from topologies.model.load import TopologyErrors, find, load

    if receivers is not None:
        parameters["receivers"] = receivers
    try:
        return load(find(name), parameters)
    except TopologyErrors as error:
        sys.exit(str(error))


def _address(host: Host) -> str:
    return f"{host.nic1.ip}/{host.nic1.prefix_len}"


def _addresses(network: Network) -> dict[str, str]:
    """Interface -> address/prefix, of hosts and routers."""
    nics = [nic for h in network.hosts for nic in (h.nic1, h.nic2, *h.lanes)]
    nics += [nic for router in network.routers for nic in router.nics]
    return {nic.interface: f"{nic.ip}/{nic.prefix_len}" for nic in nics}


def _options(link: Link, addresses: dict[str, str]) -> dict[str, object]:
    """What Mininet's addLink takes: `params1` is about the first end and what leaves there."""
    options: dict[str, object] = {}
    for number, port, impairment in ((1, link.a, link.forward), (2, link.b, link.backward)):
        of_end = _shaping(impairment)
        if port.interface in addresses:
            of_end["ip"] = addresses[port.interface]
        options |= {
            f"port{number}": port.number,
            f"intfName{number}": port.interface,
            f"addr{number}": port.mac,
            f"params{number}": of_end,
        }
    return options


def _shaping(impairment: Impairment) -> dict[str, object]:
    """One direction in the words of Mininet's TCIntf: Mbit/s, percent, packets."""
    found: dict[str, object] = {}
    if impairment.rate_bps is not None:
        found["bw"] = min(impairment.rate_bps / 1e6, TC_RATE_MAX_MBPS)
    if impairment.delay_ms:
        found["delay"] = f"{impairment.delay_ms}ms"
    if impairment.jitter_ms:
        found["jitter"] = f"{impairment.jitter_ms}ms"
    if impairment.loss:
        found["loss"] = impairment.loss * 100
    if impairment.queue_bytes is not None:
        found["max_queue_size"] = max(1, impairment.queue_bytes // PACKET_BYTES)
    return found


def _bundled() -> list[str]:
    return sorted(path.stem for path in _HERE.parent.glob("*.yaml"))


# What mn looks for: name -> what makes the Topo of the words behind the name.
topos = {name: partial(DownpourTopo, name) for name in _bundled()} | {"downpour": DownpourTopo}
