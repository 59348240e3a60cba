# SPDX-License-Identifier: Apache-2.0
"""Show a running network as Mininet objects in another process, for Mininet's prompt and for
scripts.

This creates nothing: nodes are shells in existing namespaces, and interfaces are known by name. A
host's address is that of NIC2, on the routed network, which works without a path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from topologies.emulate import marks
from topologies.emulate.build import Intf, Link, Mininet, Node, new_mininet
from topologies.model.network import Network


class AttachedIntf(Intf):  # type: ignore[misc]
    """An interface that exists and keeps its settings."""

    def ifconfig(self, *arguments: str) -> str:
        """Set the interface up or down; refuse other changes."""
        if arguments in (("up",), ("down",)):
            return str(self.node.cmd(f"ip link set dev {self.name} {arguments[0]}"))
        return ""

    def updateIP(self) -> str | None:  # noqa: N802
        """Return the address, which does not change."""
        return self.ip  # type: ignore[no-any-return]

    def status(self) -> str:
        """Return OK or MISSING. A link between switches may consist of ports without interfaces."""
        if not isinstance(self.node, AttachedSwitch):
            return str(super().status())
        found = self.node.cmd(f"ovs-vsctl --if-exists get Interface {self.name} ofport")
        return "OK" if str(found).strip().isdigit() else "MISSING"


class AttachedLink(Link):  # type: ignore[misc]
    """A link that exists."""

    def __init__(self, node1: Node, node2: Node, **parameters: object) -> None:
        parameters.update(cls1=AttachedIntf, cls2=AttachedIntf, fast=True)
        Link.__init__(self, node1, node2, **parameters)

    @classmethod
    def makeIntfPair(cls, *_arguments: object, **_parameters: object) -> None:  # noqa: N802
        """Create nothing."""


class AttachedNode(Node):  # type: ignore[misc]
    """A shell in the namespaces of a node's process, `of_pid`."""

    def __init__(self, name: str, of_pid: int, **parameters: object) -> None:
        self.of_pid = of_pid
        Node.__init__(self, name, **{**parameters, "inNamespace": False})

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: ARG002, N802
        """Start the shell in the node's namespaces."""
        Node.startShell(self, mnopts=f"-cda{self.of_pid}")

    def config(self, **_parameters: object) -> dict[str, object]:
        """Change nothing."""
        return {}

    def terminate(self) -> None:
        """End the shell; the node stays."""
        self.cleanup()


class AttachedHost(AttachedNode):
    """A host, known by its address on the routed network."""

    control_interface = ""

    def defaultIntf(self) -> Intf:  # noqa: N802
        """Return NIC2."""
        return self.nameToIntf[self.control_interface]


class AttachedSwitch(AttachedNode):
    """A switch of the run's own Open vSwitch."""

    def dpctl(self, *words: str) -> str:
        """Run `ovs-ofctl` on the switch, e.g. dump-flows."""
        command, *rest = words
        return str(self.cmd("ovs-ofctl", "-O", "OpenFlow13", command, self.name, *rest))

    def connected(self) -> bool:
        """Return True: `up` waited until the switch forwarded."""
        return True

    def defaultIntf(self) -> Intf | None:  # noqa: N802
        """Return None: switches have no address."""
        return None


def attach(run_id: str, network: Network, pids: Mapping[str, int], run_pid: int) -> Mininet:
    """Return the run's network; `run_pid`: a process of the namespace of its switches.

    Sets Open vSwitch's directories and the run's mark in this process's environment, which every
    shell inherits. Raises NetworkError without Mininet. Call `detach` at the end.
    """
    ovs = str(marks.state_directory(run_id) / "ovs")
    variables = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR")
    os.environ.update({marks.MARK: run_id, **dict.fromkeys(variables, ovs)})
    mininet = new_mininet()
    for host in network.hosts:
        node = mininet.addHost(host.name, cls=AttachedHost, ip=None, of_pid=pids[host.name])
        node.control_interface = host.nic2.interface
    for router in network.routers:
        mininet.addHost(router.name, cls=AttachedNode, ip=None, of_pid=pids[router.name])
    if (monitor := network.monitor) is not None:
        mininet.addHost(monitor.name, cls=AttachedNode, ip=None, of_pid=pids[monitor.name])
    for switch in network.switches:
        mininet.addSwitch(switch.name, cls=AttachedSwitch, of_pid=run_pid)
    for link in network.links:
        mininet.addLink(
            mininet[link.a.node],
            mininet[link.b.node],
            cls=AttachedLink,
            port1=link.a.number,
            port2=link.b.number,
            intfName1=link.a.interface,
            intfName2=link.b.interface,
        )
    _tell_addresses(mininet, network)
    return mininet


def _tell_addresses(mininet: Mininet, network: Network) -> None:
    nics = {h.name: (h.nic1, h.nic2, *h.lanes) for h in network.hosts}
    nics |= {router.name: router.nics for router in network.routers}
    if network.monitor is not None:
        nics[network.monitor.name] = (network.monitor.nic2,)
    for name, of_node in nics.items():
        for nic in of_node:
            interface = mininet[name].nameToIntf[nic.interface]
            interface.ip, interface.prefixLen, interface.mac = nic.ip, str(nic.prefix_len), nic.mac


def detach(mininet: Mininet) -> None:
    """End the shells."""
    for node in mininet.values():
        node.terminate()
