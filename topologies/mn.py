# SPDX-License-Identifier: Apache-2.0
"""Offer the bundled topologies to Mininet's own program, `mn`, which reads this file with its
option --custom.

    sudo mn --custom topologies/mn.py --topo geni5,receivers=4 --switch ovsbr,stp=1 \\
        --controller none

`--topo downpour,FILE.yaml` takes a topology file. Names, ports, datapath ids, addresses and the
routed control network are those of `downpour up`. Rates, delays and losses are parameters of the
links: `--link tc` sets them if the kernel has netem, and other kinds of link ignore them. VLAN
segments are not installed: --switch and --controller determine what the switches do.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# Mininet reads this file with the system's Python, without a path to it.
_HERE = Path(inspect.currentframe().f_code.co_filename).resolve()  # type: ignore[union-attr]
for _place in (_HERE.parent.parent, *_HERE.parent.parent.glob(".venv/lib/python3*/site-packages")):
    if str(_place) not in sys.path:
        sys.path.append(str(_place))

from mininet.node import Node  # noqa: E402
from mininet.topo import Topo  # noqa: E402

if TYPE_CHECKING:
    from topologies.model.network import Host, Link, Network


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
        network = _load(name, receivers, parameters).without_monitor()
        for switch in network.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}")
        for host in network.hosts:
            self.addHost(host.name, ip=_address(host), defaultRoute=f"via {host.gateway2}")
        for router in network.routers:
            routes = {host.nic1.ip: host.nic2.ip for host in network.hosts}
            self.addNode(router.name, cls=RouterNode, ip=None, routes=routes)
        from topologies.export.mininet_script import addresses

        of_interface = addresses(network)
        for link in network.links:
            self.addLink(link.a.node, link.b.node, **_options(link, of_interface))


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


def _options(link: Link, addresses: dict[str, str]) -> dict[str, object]:
    """Return the arguments of Mininet's addLink. `params1` describes the first end and the frames
    that leave it."""
    from topologies.export.mininet_script import shaping

    options: dict[str, object] = {}
    for number, port, impairment in ((1, link.a, link.forward), (2, link.b, link.backward)):
        of_end = shaping(impairment)
        if port.interface in addresses:
            of_end["ip"] = addresses[port.interface]
        options |= {
            f"port{number}": port.number,
            f"intfName{number}": port.interface,
            f"addr{number}": port.mac,
            f"params{number}": of_end,
        }
    return options


def _bundled() -> list[str]:
    return sorted(path.stem for path in _HERE.parent.glob("*.yaml"))


# What mn reads: name -> function that makes the Topo from the words after the name.
topos = {name: partial(DownpourTopo, name) for name in _bundled()} | {"downpour": DownpourTopo}
