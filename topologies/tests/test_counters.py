# SPDX-License-Identifier: Apache-2.0
"""Counters from the tools' output (samples as printed by iproute2 6.1 and iptables 1.8.9)."""

from __future__ import annotations

import json

from topologies.watch import counters

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
wsu1-nic1: 1062 8 0 3 0 0 0 0 2044 9 0 1 0 0 0 0
"""

SNMP = """\
Tcp: RtoAlgorithm RtoMin
Tcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 86 1 3 5 2 4 0
UdpLite: InDatagrams NoPorts
UdpLite: 0 0
"""

CLASSES = """\
class htb 1:10 root leaf 10: prio 0 rate 20Mbit ceil 20Mbit burst 6000b cburst 1600b
 Sent 1500 bytes 1 pkt (dropped 2, overlimits 3 requeues 0)
 backlog 12Kb 8p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 37500 ctokens: 10000

class htb 1:20 root leaf 20: prio 0 rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b
 Sent 3000 bytes 2 pkts (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
"""


def test_interfaces() -> None:
    found = counters.interfaces(NET_DEV)
    assert found["wsu1-nic1"] == {
        "rx_bytes": 1062,
        "rx_packets": 8,
        "rx_dropped": 3,
        "tx_bytes": 2044,
        "tx_packets": 9,
        "tx_dropped": 1,
    }
    assert set(found) == {"lo", "wsu1-nic1"}


def test_udp() -> None:
    assert counters.udp(SNMP) == {
        "in_datagrams": 86,
        "in_errors": 3,
        "rcvbuf_errors": 2,
        "sndbuf_errors": 4,
    }
    assert counters.udp("")["in_datagrams"] == 0


def test_qdiscs() -> None:
    text = json.dumps(
        [
            {"kind": "noqueue", "handle": "0:", "dev": "lo", "bytes": 0},
            {
                "kind": "tbf",
                "handle": "10:",
                "dev": "w0b",
                "bytes": 9845891,
                "packets": 6554,
                "drops": 7,
                "overlimits": 18193,
                "backlog": 3000,
                "qlen": 2,
            },
            {"kind": "htb", "handle": "1:", "dev": "p-nic1"},
        ]
    )
    found = counters.qdiscs(text)
    assert set(found) == {"w0b/10:", "p-nic1/1:"}
    assert found["w0b/10:"] == {
        "kind": "tbf",
        "sent_bytes": 9845891,
        "sent_packets": 6554,
        "drops": 7,
        "overlimits": 18193,
        "backlog_bytes": 3000,
        "backlog_packets": 2,
    }
    assert counters.classful_interfaces(text) == ("p-nic1",)


def test_classes() -> None:
    found = counters.classes(CLASSES, "p-nic1")
    assert found["p-nic1/1:10"] == {
        "kind": "htb",
        "sent_bytes": 1500,
        "sent_packets": 1,
        "drops": 2,
        "overlimits": 3,
        "backlog_bytes": 12 * 1024,
        "backlog_packets": 8,
    }
    assert found["p-nic1/1:20"]["sent_packets"] == 2


def test_iptables() -> None:
    text = (
        "*filter\n:INPUT ACCEPT [100:2000]\n"
        "[86:128000] -A INPUT -p udp -m statistic --mode random --probability 0.01 -j DROP\n"
        "COMMIT\n"
    )
    assert counters.iptables(text) == [
        {
            "chain": "INPUT",
            "packets": 86,
            "bytes": 128000,
            "rule": "-A INPUT -p udp -m statistic --mode random --probability 0.01 -j DROP",
        }
    ]
