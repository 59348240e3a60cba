# SPDX-License-Identifier: Apache-2.0
"""Counters of start and end: what was lost, and who asked for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.read.counters import (
    Counters,
    Drop,
    InjectedLoss,
    drops_between,
    foreign_drops,
    injected_loss,
    parse_counters,
)

RULE = (
    "-i uva-eth0 -p udp -m statistic --mode random --probability 0.01 "
    "-m comment --comment downpour-loss -j DROP"
)


def counters(**parts: Any) -> Counters:
    return parse_counters(json.dumps({"time": 1.0, **parts}), "c.json")


def iptables(packets: int, passed: int = 0) -> dict[str, Any]:
    return {
        "uva": [
            {"chain": "INPUT", "packets": packets, "bytes": 1, "rule": RULE},
            {"chain": "INPUT", "packets": passed, "bytes": 1, "rule": "-p udp"},
        ]
    }


def test_every_kind_of_loss_is_found_as_a_difference() -> None:
    start = counters(
        qdiscs={"umass/e0/11:": {"kind": "bfifo", "drops": 5}},
        udp={"uva": {"rcvbuf_errors": 2, "in_errors": 2}},
        interfaces={"uva/e0": {"rx_dropped": 1}, "umass/e0": {"tx_dropped": 1}},
    )
    end = counters(
        qdiscs={
            "umass/e0/1:": {"kind": "htb", "drops": 7},  # repeats its leaf's count
            "umass/e0/11:": {"kind": "bfifo", "drops": 12},
            "new/e1/1:": {"drops": 3},
        },
        classes={"umass/e0/1:1": {"drops": 12}},
        udp={"uva": {"rcvbuf_errors": 6, "in_errors": 6, "sndbuf_errors": 1}},
        # 11 - 1 = 10 at the interface, 7 of which are its qdisc's
        interfaces={"uva/e0": {"rx_dropped": 1}, "umass/e0": {"tx_dropped": 11}},
        meters={"newy/1": {"drop_packets": 9}},
        openvswitch={"newy/e3": {"tx_dropped": 2, "socket_drops": 1}},
        relay={"a:b/forward": {"dropped": 40}, "c:d/backward": {"dropped": 4}},
        iptables=iptables(100, 9900),
    )
    # Uninjected drops first, each kind by its size: 12 - 5 = 7 in the bfifo, 6 - 2 = 4 in the
    # socket.
    assert drops_between(start, end, frozenset({"a:b/forward"})) == (
        Drop("newy/1", "meter drop_packets", 9, False),
        Drop("umass/e0/11:", "qdisc drops", 7, False),
        Drop("c:d/backward", "relay dropped", 4, False),
        Drop("uva", "UDP rcvbuf_errors", 4, False),
        Drop("new/e1/1:", "qdisc drops", 3, False),
        Drop("umass/e0", "interface tx_dropped", 3, False),
        Drop("newy/e3", "switch port tx_dropped", 2, False),
        Drop("newy/e3", "switch port socket_drops", 1, False),
        Drop("uva", "iptables", 100, True),
        Drop("a:b/forward", "relay dropped", 40, True),
    )


def test_nothing_lost() -> None:
    same = counters(qdiscs={"a/b/1:": {"drops": 5}}, iptables=iptables(7))
    assert drops_between(same, same) == ()


def test_injected_loss_counts_from_the_start() -> None:
    start, end = counters(iptables=iptables(30)), counters(iptables=iptables(130))
    assert injected_loss("uva", start, end) == InjectedLoss(None, 100, "uva-eth0")
    # A rule inserted after the first reading counts from 0; an accounting rule drops nothing.
    late = counters(iptables=iptables(130, 10))
    assert injected_loss("uva", counters(), late) == InjectedLoss(None, 130, "uva-eth0")
    assert injected_loss("umd", counters(), end) == InjectedLoss(None, None, None)


@pytest.mark.parametrize("target", ["DROP", "REJECT --reject-with icmp-port-unreachable"])
def test_only_rules_with_the_comment_are_injected(target: str) -> None:
    foreign = f"-A INPUT -p udp -j {target}"

    def rules(taken: int, dropped: int) -> dict[str, Any]:
        found = iptables(dropped)
        found["uva"].insert(0, {"chain": "INPUT", "packets": taken, "bytes": 1, "rule": foreign})
        return found

    start, end = counters(iptables=rules(5, 0)), counters(iptables=rules(305, 100))
    assert injected_loss("uva", start, end).dropped == 100
    other = Drop("uva", f"iptables rule '{foreign}'", 300, injected=False)
    assert list(foreign_drops("uva", start, end)) == [other]
    assert drops_between(start, end) == (other, Drop("uva", "iptables", 100, injected=True))


def test_arrivals_are_counted_by_the_marked_rule() -> None:
    def rules(packets: int) -> dict[str, Any]:
        rule = "-A INPUT -i uva-eth0 -p udp -m comment --comment downpour-arrived"
        return {"uva": [{"chain": "INPUT", "packets": packets, "bytes": 1, "rule": rule}]}

    start, end = counters(iptables=rules(200)), counters(iptables=rules(1200))
    assert injected_loss("uva", start, end).arrived == 1000
    assert injected_loss("uva", counters(), end).arrived == 1200
    assert injected_loss("umd", start, end).arrived is None
    unmarked = counters(iptables=iptables(5, 10))
    assert injected_loss("uva", start, unmarked).arrived is None


def test_bad_counters_name_file_and_place() -> None:
    with pytest.raises(BadFile, match=r"c.json: qdiscs.x.drops: .*found 'many'"):
        counters(qdiscs={"x": {"drops": "many"}})
    with pytest.raises(BadFile, match=r"c.json: time: Field required"):
        parse_counters("{}", "c.json")
    with pytest.raises(BadFile, match="c.json"):
        parse_counters("{", "c.json")
