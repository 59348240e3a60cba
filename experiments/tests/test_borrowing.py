# SPDX-License-Identifier: Apache-2.0
"""Feeds that share a NIC under one HTB; the figures were worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from common.shell import NetworkError
from experiments.design import borrowing
from experiments.design.borrowing import Leaf
from experiments.design.expansion import Feed
from experiments.design.join_leave_expansion import expand, feeds_of
from experiments.design.spec import JoinLeaveSpec, SpecErrors, find, load, load_as
from experiments.verdict.evidence import ShaperSample
from experiments.verdict.replay import borrowed_rate_check, total_check
from topologies.emulate.build import build, host_script
from topologies.emulate.facts import KernelFacts
from topologies.emulate.openvswitch import OpenVSwitch
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network
from topologies.model.shared_nic import shares_nics, with_shared_nics
from topologies.model.static_flows import static_flows
from topologies.model.wire_plan import WirePlan

M = 1_000_000
GROUPS = {1: "239.10.1.1", 2: "239.10.1.2"}
SUBNETS = {1: "10.10.1.1/24", 2: "10.10.2.1/24"}


FACTS = KernelFacts(
    kernel="6",
    namespace=True,
    veth=True,
    tun=True,
    kernel_openvswitch=True,
    netem=True,
    vlan_8021q=True,
    tbf=True,
    htb=True,
    bfifo=True,
    clsact=True,
    mirred=True,
    iptables_statistic=True,
    sched_fifo=True,
    congestion_controls=("bbr",),
    congestion_control="bbr",
    cores=2,
    memory_bytes=1,
)


def feed(lane: int, r_bps: int, ceil_bps: int) -> Feed:
    return Feed(f"F{lane}", lane, r_bps, r_bps, 0, ceil_bps=ceil_bps)


def queues(*feeds: Feed) -> tuple[Leaf, ...]:
    return borrowing.leaves(feeds, GROUPS, SUBNETS, 300 * M, 200 * M)


@pytest.fixture
def network() -> Network:
    return with_shared_nics(
        load_topology(find_topology("bottleneck"), {"receivers": 2, "lanes": 3})
    )


def test_the_total_is_what_is_guaranteed_and_a_path_carries_the_ceil() -> None:
    feeds = [feed(1, 8 * M, 20 * M), feed(2, 4 * M, 10 * M)]
    total = borrowing.total_bps(feeds)
    assert total == 24 * M  # 2 x 8 + 2 x 4
    assert borrowing.path_bps(feeds[0], total) == 24 * M  # 2 x 20, but the NIC has no more
    assert borrowing.path_bps(feeds[1], total) == 20 * M  # 2 x 10
    assert borrowing.path_bps(feed(2, 4 * M, 0), total) == 8 * M  # its rates


def test_each_feed_has_two_queues() -> None:
    made = queues(feed(1, 8 * M, 20 * M), feed(2, 4 * M, 10 * M))
    assert [(q.classid, q.handle, q.rate_bps, q.ceil_bps, q.quantum_bytes) for q in made] == [
        ("1:11", "11:", 8 * M, 20 * M, 3028),  # twice the slowest's frame
        ("1:12", "12:", 8 * M, 20 * M, 3028),
        ("1:21", "21:", 4 * M, 10 * M, 1514),
        ("1:22", "22:", 4 * M, 10 * M, 1514),
    ]
    assert [str(q.destination) for q in made] == [
        *("239.10.1.1/32", "10.10.1.0/24", "239.10.1.2/32", "10.10.2.0/24")
    ]
    assert [q.limit_bytes for q in made] == [300 * M, 200 * M] * 2
    plain = queues(feed(1, 8 * M, 0), feed(2, 4 * M, 0))
    assert all(q.ceil_bps == q.rate_bps for q in plain)


def test_quanta_stay_below_what_the_kernel_warns_of() -> None:
    made = queues(feed(1, 1000 * M, 0), feed(2, 1 * M, 0))
    assert [q.quantum_bytes for q in made] == [200_000, 200_000, 1514, 1514]


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        (["1:11"], {"1:11": 20.0}),  # 8 + the 16 that are left, but no more than its ceil
        (["1:21"], {"1:21": 10.0}),
        # 12 are left: 2/3 and 1/3 of them.
        (["1:11", "1:21"], {"1:11": 16.0, "1:21": 8.0}),
        (
            ["1:11", "1:12", "1:21", "1:22"],
            {"1:11": 8.0, "1:12": 8.0, "1:21": 4.0, "1:22": 4.0},
        ),
        ([], {}),
    ],
)
def test_what_a_feed_gets_when_others_idle(busy: list[str], expected: dict[str, float]) -> None:
    made = queues(feed(1, 8 * M, 20 * M), feed(2, 4 * M, 10 * M))
    got = borrowing.share_bps(made, busy, 24 * M)
    assert {name: bps / M for name, bps in got.items()} == pytest.approx(expected)


def test_what_one_cannot_take_goes_to_the_others() -> None:
    made = queues(feed(1, 8 * M, 9 * M), feed(2, 4 * M, 20 * M))
    got = borrowing.share_bps(made, ["1:11", "1:21"], 24 * M)
    assert got == pytest.approx({"1:11": 9.0 * M, "1:21": 15.0 * M})  # 24 in all


def test_without_a_ceil_nothing_is_borrowed() -> None:
    made = queues(feed(1, 8 * M, 0), feed(2, 4 * M, 0))
    assert borrowing.share_bps(made, ["1:11"], 24 * M) == {"1:11": 8.0 * M}


def test_commands_make_one_tree() -> None:
    made = queues(feed(1, 8 * M, 20 * M))
    lines = [" ".join(c) for c in borrowing.commands("p-nic1", made, 16 * M)]
    assert lines[:3] == [
        "tc qdisc add dev p-nic1 root handle 1: htb default 12",
        "tc class add dev p-nic1 parent 1: classid 1:100 htb rate 16000000bit ceil 16000000bit "
        "quantum 1514",
        "tc class add dev p-nic1 parent 1:100 classid 1:11 htb rate 8000000bit ceil 20000000bit "
        "quantum 1514",
    ]
    assert lines[-1] == (
        "tc filter add dev p-nic1 parent 1: protocol all prio 1 u32 match ip dst 10.10.1.0/24 "
        "flowid 1:12"
    )
    assert borrowing.things("p/p-nic1", made) == {
        "p/p-nic1 qdiscs": "1:11 bfifo, 1:12 bfifo, root htb",
        "p/p-nic1 classes": "1:11 htb, 1:12 htb, 1:100 htb",
        "p/p-nic1 filters": "2 x root u32",
    }


def test_ten_feeds_are_in_the_inventorys_order() -> None:
    """The inventory sorts disciplines by text and classes by number; 1:100 is the total."""
    names = ("1:91", "1:92", "1:101", "1:102")
    made = queues(feed(1, 8 * M, 0))
    found = borrowing.things("p/p-nic1", [replace(made[0], classid=name) for name in names])
    assert found["p/p-nic1 qdiscs"] == (
        "1:101 bfifo, 1:102 bfifo, 1:91 bfifo, 1:92 bfifo, root htb"
    )
    assert found["p/p-nic1 classes"] == "1:91 htb, 1:92 htb, 1:100 htb, 1:101 htb, 1:102 htb"


def _shown(made: tuple[Leaf, ...], ceil: str) -> tuple[str, str, str]:
    qdiscs = [{"kind": "htb", "root": True}]
    qdiscs += [
        {"kind": "bfifo", "parent": q.classid, "options": {"limit": q.limit_bytes}} for q in made
    ]
    classes = "class htb 1:100 root rate 16Mbit ceil 16Mbit\n" + "".join(
        f"class htb {q.classid} parent 1:100 prio 0 rate 8Mbit ceil {ceil}\n" for q in made
    )
    filters = [
        {
            "options": {
                "flowid": q.classid,
                "match": {
                    "value": f"{int(q.destination.network_address):x}",
                    "mask": f"{int(q.destination.netmask):x}",
                    "off": 16,
                },
            }
        }
        for q in made
    ]
    return json.dumps(qdiscs), classes, json.dumps(filters)


def test_reading_back_finds_a_ceil_that_is_not_as_asked() -> None:
    made = queues(feed(1, 8 * M, 20 * M))
    settings = borrowing.read_back(*_shown(made, "20Mbit"), made, 16 * M)
    assert all(s.ok for s in settings)
    assert len(settings) == 11  # the root, the total's two, four of each queue
    wrong = [s.name for s in borrowing.read_back(*_shown(made, "8Mbit"), made, 16 * M) if not s.ok]
    assert wrong == ["F1 multicast ceil", "F1 unicast ceil"]
    swapped = (made[0], replace(made[1], destination=made[0].destination))
    wrong = [
        s.name for s in borrowing.read_back(*_shown(made, "20Mbit"), swapped, 16 * M) if not s.ok
    ]
    assert wrong == ["F1 unicast filter"]


def test_all_lanes_are_on_one_nic(network: Network) -> None:
    assert shares_nics(network)
    pub = network.publisher
    assert [nic.interface for nic in pub.lanes] == [pub.nic1.interface] * 2
    assert [pub.path_nic(lane).ip for lane in (1, 2, 3)] == ["10.10.1.1", "10.10.2.1", "10.10.3.1"]
    assert sum(pub.name in (k.a.node, k.b.node) for k in network.links) == 2  # NIC1 and NIC2
    plain = load_topology(find_topology("bottleneck"), {"receivers": 2, "lanes": 3})
    assert not shares_nics(plain)
    assert sum(pub.name in (k.a.node, k.b.node) for k in plain.links) == 4


def test_hosts_tag_and_edge_switches_match_the_tags(network: Network) -> None:
    script = host_script(network, network.publisher, FACTS)
    nic = network.publisher.nic1.interface
    for vlan in (101, 102, 103):
        assert f"link add link {nic} name vlan{vlan} type vlan id {vlan}\n" in script
    flows = next(e for e in static_flows(network, edge_tags=False) if e.switch == "tor-west")
    port = next(k.b.number for k in network.links if k.a.interface == nic)
    assert {f"in_port={port},dl_vlan={v}" for v in (101, 102, 103)} <= {
        str(f.match) for f in flows.flows
    }


def test_a_kernel_without_tags_refuses_in_one_line(network: Network, tmp_path: Path) -> None:
    facts = replace(FACTS, vlan_8021q=False)
    with pytest.raises(NetworkError, match=r"^lanes: found vlan .*802.1Q; valid: nics.*$"):
        ovs = OpenVSwitch(tmp_path)
        build(network, facts, WirePlan(()), ovs, lambda _: None, lambda _: None)


def test_the_experiment_borrows_in_one_of_two_cells() -> None:
    spec = load_as(JoinLeaveSpec, find("borrowing"))
    off, on = expand(spec, ("a", "b"))
    assert (off.factors["borrow"], on.factors["borrow"]) == ("false", "true")
    assert [f.ceil_bps for f in off.feeds] == [0, 0, 0]
    assert [f.ceil_bps for f in on.feeds] == [16 * M] * 3
    assert [f.r_vn_bps for f in off.feeds] == [9_600_000] * 3  # 1.2 x (4 + 4)
    assert [f.r_vn_bps for f in on.feeds] == [28_800_000] * 3  # 1.2 x the NIC's 24
    assert sorted((e.subscriber, e.feed) for e in on.script) == sorted(
        (s, f.name) for s in ("a", "b") for f in on.feeds
    )
    assert {(e.at_s, e.what) for e in on.script} == {(0.0, "join")}
    assert feeds_of(spec) == off.feeds


def test_borrowing_needs_one_nic_and_a_ceil(tmp_path: Path) -> None:
    text = find("borrowing").read_text(encoding="utf-8")
    file = tmp_path / "x.yaml"
    file.write_text(text.replace("lanes: vlan\n", "").replace("r_mc_ceil: 4", "r_mc_ceil: 1"))
    with pytest.raises(SpecErrors) as found:
        load(file)
    assert "borrow with lanes nics; valid: lanes: vlan" in str(found.value)
    assert "borrow with r_mc_ceil 1; valid: above r_mc and r_uc" in str(found.value)


def _samples(rate_bps: int) -> list[ShaperSample]:
    """Return samples of a queue that always holds 100 MB and sends at `rate_bps`."""
    return [ShaperSample(float(t), t * rate_bps // 8, 100 * M) for t in range(11)]


@pytest.mark.parametrize(
    ("rate", "status"),
    [(3 * M, "fail"), (4 * M, "pass"), (9 * M, "pass"), (16 * M, "pass"), (17 * M, "fail")],
)
def test_a_feed_that_borrows_stays_between_its_rate_and_its_ceil(rate: int, status: str) -> None:
    check = borrowed_rate_check(_samples(rate), 4 * M, 16 * M, "virtual", "NGRID")
    assert check.status == status


def test_the_sum_is_never_above_the_total() -> None:
    assert total_check(_samples(24 * M), 24 * M, "virtual").status == "pass"
    above = _samples(10 * M)
    above[5:] = [replace(s, sent_bytes=s.sent_bytes + 2 * M) for s in above[5:]]  # 26 Mbit/s once
    assert total_check(above, 24 * M, "virtual").status == "fail"
    assert total_check([], 24 * M, "virtual").status == "warn"
