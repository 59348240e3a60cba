# SPDX-License-Identifier: Apache-2.0
"""Interfaces on the path that programs at hosts make, instead of the network's own."""

from __future__ import annotations

import dataclasses

import pytest

from common.shell import NetworkError
from topologies.emulate import own_interfaces
from topologies.emulate.facts import KernelFacts, parse_probe
from topologies.emulate.own_interfaces import OwnInterface, own_interface
from topologies.model.load import find, load

TAGS = parse_probe("vlan_8021q=1\ncc=reno\n", kernel="6", cores=2, memory_bytes=1)
EDGE = parse_probe("macvlan=1\ncc=reno\n", kernel="6", cores=2, memory_bytes=1)
HOST = load(find("geni5")).subscribers[0]
SHOWN = """[{}, {"ifname": "n.5", "linkinfo": {"info_kind": "vlan", "info_data": {"protocol":
"802.1Q", "id": 5}}, "addr_info": [{"family": "inet", "local": "10.1.0.7", "prefixlen": 24}]}]"""


def own_of(facts: KernelFacts) -> OwnInterface:
    return own_interface(load(find("geni5")), HOST, facts)


def test_a_host_that_tags_loses_the_networks_interface() -> None:
    own = own_of(TAGS)
    vlan = own.name.rpartition(".")[2]
    assert (own.name, own.was) == (f"{HOST.nic1.interface}.{vlan}", f"vlan{vlan}")
    assert own_interfaces.removal(own) == (["ip", "link", "delete", own.was],)


def test_where_edge_switches_tag_the_nic_loses_its_address() -> None:
    own = own_of(EDGE)
    assert own.was == own.nic == HOST.nic1.interface
    assert [" ".join(c) for c in own_interfaces.removal(own)] == [
        f"ip route flush dev {own.nic}",
        f"ip address flush dev {own.nic}",
    ]


def test_a_kernel_without_such_interfaces_refuses_in_one_line() -> None:
    line = r"^vlans_by: found ldmd on a kernel without 802.1Q and macvlan; valid: network, .*$"
    with pytest.raises(NetworkError, match=line):
        own_of(dataclasses.replace(EDGE, macvlan=False))


def test_what_ip_shows() -> None:
    assert own_interfaces.found(SHOWN) == ("vlan 5", "10.1.0.7/24")
    assert own_interfaces.kind_of(TAGS, 5) == "vlan 5"
    mode = SHOWN.replace('"vlan"', '"macvlan"').replace('"id": 5', '"mode": "passthru"')
    assert own_interfaces.found(mode)[0] == own_interfaces.kind_of(EDGE, 5)
    for nothing in ("", "[]", "[{}]"):
        assert own_interfaces.found(nothing) == ("", "")


@pytest.mark.parametrize("address", ["", "10.1.0.7/24"])
def test_the_plan_has_the_programs_interface(address: str) -> None:
    own = OwnInterface("h", "h-nic1.5", "h-nic1", "vlan5", address)
    plan = {
        "h interfaces": "h-nic1 h-nic2 lo vlan5",
        "h/vlan5 link": "mtu 1500",
        "h/vlan5 gso_max_segs": "1",
        "g/vlan5 link": "mtu 1500",
    }
    asked = own_interfaces.planned(plan, {"h": own})
    kept = {"g/vlan5 link": "mtu 1500"}
    if not address:
        assert asked == {**kept, "h interfaces": "h-nic1 h-nic2 lo"}
        return
    assert asked == {
        **kept,
        "h interfaces": "h-nic1 h-nic1.5 h-nic2 lo",
        "h/h-nic1.5 link": "mtu 1500",
        "h/h-nic1.5 addresses": "10.1.0.7/24",
    }


def test_an_untagged_one_is_beside_the_nic() -> None:
    own = OwnInterface("h", "h-nic1.5", "h-nic1", "h-nic1", "10.1.0.7/24")
    asked = own_interfaces.planned(
        {"h interfaces": "h-nic1 lo", "h/h-nic1 link": "mtu 1500"}, {"h": own}
    )
    assert asked["h interfaces"] == "h-nic1 h-nic1.5 lo"
    assert asked["h/h-nic1 link"] == "mtu 1500"


def test_what_follows_from_the_interface_is_as_it_is_now() -> None:
    own = OwnInterface("h", "n.5", "n", "vlan5", "10.1.0.7/24")
    before = {
        "h routes": "old",
        "h/vlan5 IPv4": "old",
        "h/n frames": "old",
        "h/lo IPv4": "old",
        "h sysctl core/rmem_max": "old",
        "g routes": "old",
    }
    now = {
        "h routes": "new",
        "h/n.5 IPv4": "new",
        "h/n frames": "new",
        "h/lo IPv4": "new",
        "h sysctl core/rmem_max": "new",
    }
    assert own_interfaces.as_made(before, now, {"h": own}) == {
        "h routes": "new",
        "h/n.5 IPv4": "new",
        "h/n frames": "new",
        "h/lo IPv4": "old",
        "h sysctl core/rmem_max": "old",
        "g routes": "old",
    }
