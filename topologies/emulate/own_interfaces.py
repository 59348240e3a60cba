# SPDX-License-Identifier: Apache-2.0
"""Path interfaces that programs at hosts make, instead of the network's own (DRFSM21 2.2.2). Hosts
tag on these interfaces if the kernel has 802.1Q; otherwise their edge switch tags."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass

from common.shell import NetworkError
from topologies.emulate.build import nic1_interface
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Host, Network
from topologies.watch.inventory import Inventory

MTU_TEXT = "mtu 1500"


@dataclass(frozen=True)
class OwnInterface:
    """An interface that a program at `host` makes. `was`: the network's own; `nic`: the NIC of
    both; `address`: the program's interface's, if it has one yet."""

    host: str
    name: str
    nic: str
    was: str
    address: str = ""


def own_interface(network: Network, host: Host, facts: KernelFacts) -> OwnInterface:
    """Return the interface as ldmd names it for a host's VLAN. Raises NetworkError if the kernel
    has no such interfaces."""
    if facts.edge_tags and not facts.macvlan:
        raise NetworkError(
            "vlans_by: found ldmd on a kernel without 802.1Q and macvlan; valid: network, a kernel "
            "with the module 8021q or macvlan, or virtual time (--clock virtual)"
        )
    nic = host.nic1.interface
    name = f"{nic}.{network.segment_of(host.name).vlan}"
    return OwnInterface(host.name, name, nic, nic1_interface(network, host, facts))


def removal(own: OwnInterface) -> tuple[list[str], ...]:
    """Return the commands that remove the network's own interface, or its address."""
    if own.was != own.nic:
        return (["ip", "link", "delete", own.was],)
    return (
        ["ip", "route", "flush", "dev", own.nic],
        ["ip", "address", "flush", "dev", own.nic],
    )


def kind_of(facts: KernelFacts, vlan: int) -> str:
    """Return the kind that `found` gives for a correct interface."""
    return "macvlan passthru" if facts.edge_tags else f"vlan {vlan}"


def found(text: str) -> tuple[str, str]:
    """Return the kind of an interface, and its address with the prefix length, from the text of
    `ip -j -d -4 address show`. Each is empty if there is none."""
    shown = [one for one in json.loads(text or "[]") if one]
    if not shown:
        return "", ""
    info = shown[0].get("linkinfo", {})
    data = info.get("info_data", {})
    detail = data.get("id", data.get("mode", ""))
    addresses = [f"{a['local']}/{a['prefixlen']}" for a in shown[0].get("addr_info", [])]
    return f"{info.get('info_kind', 'none')} {detail}".strip(), " ".join(addresses)


def planned(plan: Mapping[str, str], made: Mapping[str, OwnInterface]) -> Inventory:
    """Return the plan with the programs' interfaces instead of the network's own."""
    asked = dict(plan)
    for host, own in made.items():
        names = set(asked[f"{host} interfaces"].split())
        if own.was != own.nic:
            names.discard(own.was)
            asked = {t: v for t, v in asked.items() if not t.startswith(f"{host}/{own.was} ")}
        if own.address:
            names.add(own.name)
            asked[f"{host}/{own.name} link"] = MTU_TEXT
            asked[f"{host}/{own.name} addresses"] = own.address
        asked[f"{host} interfaces"] = " ".join(sorted(names))
    return asked


def as_made(
    before: Mapping[str, str], now: Mapping[str, str], made: Mapping[str, OwnInterface]
) -> Inventory:
    """Return what the builder left to the kernel, with what these hosts' own interfaces entail:
    routes, and how frames are sent. `now`: an inventory, by host and thing."""

    def follows(thing: str) -> bool:
        place, _, what = thing.partition(" ")
        host, _, interface = place.partition("/")
        if (own := made.get(host)) is None:
            return False
        return interface in (own.name, own.was, own.nic) if interface else what == "routes"

    kept = {thing: value for thing, value in before.items() if not follows(thing)}
    return {**kept, **{thing: value for thing, value in now.items() if follows(thing)}}


def ip_of(address: str) -> str:
    """Return the address without its prefix length."""
    return str(ipaddress.ip_interface(address).ip)
