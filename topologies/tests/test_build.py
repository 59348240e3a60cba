# SPDX-License-Identifier: Apache-2.0
"""The scripts that configure nodes, and the check of what nodes then report."""

from __future__ import annotations

import json
import re
import resource
from typing import Any

import pytest

from topologies.emulate import build
from topologies.emulate.facts import KernelFacts, parse_probe
from topologies.model.load import find, load
from topologies.model.network import Impairment
from topologies.tests.networks import two_hosts
from topologies.tests.test_facts import NO_MODULES

NETWORK = two_hosts(Impairment())


def facts(more: str = "") -> KernelFacts:
    return parse_probe(NO_MODULES + more, kernel="6.1.0", cores=2, memory_bytes=2**32)


def ip_lines(script: str) -> list[str]:
    return script.partition("<<'END' || exit 1\n")[2].partition("END\n")[0].splitlines()


def test_host_whose_edge_switch_tags() -> None:
    host = NETWORK.host("q")
    assert build.nic1_interface(NETWORK, host, facts()) == "q-nic1"
    script = build.host_script(NETWORK, host, facts())
    assert ip_lines(script) == [
        "link set dev lo up",
        "link set dev q-nic1 gso_max_segs 1 up",
        "link set dev q-nic2 gso_max_segs 1 up",
        "address add 10.9.1.2/24 dev q-nic1",
        "address add 10.8.2.2/30 dev q-nic2",
        "route add 239.0.0.0/8 dev q-nic1",
        "route add default via 10.8.2.1 dev q-nic2",
    ]
    assert "ethtool -K q-nic1 tx off tso off >/dev/null || exit 1\n" in script
    assert "echo bbr > /proc/sys/net/ipv4/tcp_congestion_control || exit 1\n" in script


def test_host_that_tags() -> None:
    host, f = NETWORK.host("q"), facts("vlan_8021q=1\n")
    assert build.nic1_interface(NETWORK, host, f) == "vlan100"
    assert ip_lines(build.host_script(NETWORK, host, f))[3:7] == [
        "link add link q-nic1 name vlan100 type vlan id 100",
        "link set dev vlan100 gso_max_segs 1 up",
        "address add 10.9.1.2/24 dev vlan100",
        "address add 10.8.2.2/30 dev q-nic2",
    ]


@pytest.mark.parametrize(("more", "second"), [("", "uva-nic3"), ("vlan_8021q=1\n", "vlan304")])
def test_host_with_lanes(more: str, second: str) -> None:
    network = load(find("drfsm8"), {"lanes": 2})
    lines = ip_lines(build.host_script(network, network.host("uva"), facts(more)))
    assert f"address add 10.10.2.2/24 dev {second}" in lines
    assert f"route add 239.10.1.2/32 dev {second}" in lines
    assert ("link add link uva-nic3 name vlan304 type vlan id 304" in lines) == bool(more)
    first = "vlan303" if more else "uva-nic1"
    assert [line for line in lines if line.startswith("route")] == [
        f"route add 239.0.0.0/8 dev {first}",
        f"route add 239.10.1.2/32 dev {second}",
        "route add default via 10.20.0.5 dev uva-nic2",
    ]


def test_router_forwards() -> None:
    script = build.router_script([("r-p1", "10.8.1.1/30")])
    assert "address add 10.8.1.1/30 dev r-p1" in ip_lines(script)
    assert "echo 1 > /proc/sys/net/ipv4/ip_forward || exit 1\n" in script


def test_neighbours_of_the_control_network_are_asked_for_once() -> None:
    """A run's bandwidth there then holds no question of the kernel's. The path's NIC keeps them."""
    monitor = load(find("geni5"), monitored=True).monitor
    assert monitor is not None
    for script, names in (
        (build.host_script(NETWORK, NETWORK.host("q"), facts()), {"q-nic2"}),
        (build.router_script([("r-p1", "10.8.1.1/30"), ("r-p2", "10.8.2.1/30")]), {"r-p1", "r-p2"}),
        (build.monitor_script(monitor), {"monitor-nic1"}),
    ):
        found = re.findall(r"echo (\d+) > \S+/neigh/(\S+)/base_reachable_time_ms", script)
        assert {name for _, name in found} == names
        assert {int(ms) for ms, _ in found} == {24 * 3600 * 1000}


def test_pairs_are_made_in_their_namespaces() -> None:
    pairs = [
        build.Pair("q-nic1", "02:00:00:00:01:02", "q", "sw-p3", "02:00:00:00:03:03", "sw"),
        build.Pair("r-p1", None, "r", "w0a", None, "wire"),
    ]
    assert build.pair_commands(pairs, {"q": 11, "r": 12, "wire": 13}).splitlines() == [
        "link add name q-nic1 address 02:00:00:00:01:02 netns 11 index 10000 type veth"
        " peer name sw-p3 address 02:00:00:00:03:03 index 1000000",
        "link set dev sw-p3 up",  # the switch's end stays here
        "link add name r-p1 netns 12 index 10001 type veth peer name w0a netns 13 index 1000001",
    ]


def printed(**changes: Any) -> str:
    """Return what a host prints: a sample of `ip -j -d address show` and `ethtool -k`,
    shortened."""
    interface = {
        "ifname": "q-nic1",
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "gso_max_segs": 1,
        "addr_info": [{"family": "inet", "local": "10.9.1.2", "prefixlen": 24}],
        **changes.get("interface", {}),
    }
    tx = changes.get("tx", "off")
    features = (
        "Features for q-nic1:\nrx-checksumming: on\n"
        f"tx-checksumming: {tx}\n\ttx-checksum-ip-generic: {tx}\n"
        "tcp-segmentation-offload: off\n\ttx-tcp-segmentation: off [requested on]\n"
    )
    return f"{json.dumps([interface])}\n----\n0\nbbr\n----\n{features}"


def test_read_back_as_asked() -> None:
    found = build.parse_node_readback(printed())
    assert (found.ip_forward, found.congestion_control) == (False, "bbr")
    assert found.offloads_on == {"q-nic1": {"rx-checksumming"}}
    assert build.node_problems("q", found, {"q-nic1": "10.9.1.2/24"}) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tx": "on"}, "q, q-nic1: tx-checksumming asked off, found on"),
        ({"interface": {"gso_max_segs": 65535}}, "q, q-nic1: gso_max_segs asked 1, found 65535"),
        ({"interface": {"flags": ["BROADCAST"]}}, "q, q-nic1: asked up, found ['BROADCAST']"),
        (
            {"interface": {"addr_info": []}},
            "q, q-nic1: address asked 10.9.1.2/24, found []",
        ),
        ({"interface": {"ifname": "x"}}, "q: interface q-nic1 is missing"),
    ],
)
def test_read_back_problems_are_named(changes: dict[str, Any], problem: str) -> None:
    found = build.parse_node_readback(printed(**changes))
    assert build.node_problems("q", found, {"q-nic1": "10.9.1.2/24"}) == [problem]


@pytest.mark.parametrize(
    ("nodes", "soft", "hard", "expected"),
    [
        (11, 1024, 4096, 1024),  # 432 are enough
        (131, 1024, 4096, 2352),  # 16 x 131 + 256
        (131, 1024, 2000, 2000),
        (131, 1024, resource.RLIM_INFINITY, 2352),
        (131, resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_a_large_network_gets_descriptors(
    monkeypatch: pytest.MonkeyPatch, nodes: int, soft: int, hard: int, expected: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    build.enough_descriptors(nodes)
    assert limits[-1] == (expected, hard)
