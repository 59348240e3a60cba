# SPDX-License-Identifier: Apache-2.0
"""Lanes as VLANs of one NIC: "logically separate NICs" (DRFSM21 2.1.2). Pure."""

from __future__ import annotations

import dataclasses

from topologies.model.network import Host, Network


def with_shared_nics(network: Network) -> Network:
    """Return the network with all lanes of each host on NIC1, each lane with its own VLAN and
    addresses. The lanes' own links are left out."""
    lanes = {nic.interface for host in network.hosts for nic in host.lanes}
    links = tuple(k for k in network.links if not {k.a.interface, k.b.interface} & lanes)
    return dataclasses.replace(network, hosts=tuple(map(_on_one, network.hosts)), links=links)


def _on_one(host: Host) -> Host:
    interface, mac = host.nic1.interface, host.nic1.mac
    lanes = tuple(dataclasses.replace(n, interface=interface, mac=mac) for n in host.lanes)
    return dataclasses.replace(host, lanes=lanes)


def shares_nics(network: Network) -> bool:
    """Return whether hosts have several lanes on one NIC, so that they must tag frames."""
    return any(n.interface == h.nic1.interface for h in network.hosts for n in h.lanes)
