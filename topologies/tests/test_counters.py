# SPDX-License-Identifier: Apache-2.0
"""Counters from the tools' output (samples as printed by iproute2 6.1, iptables 1.8.9 and Open
vSwitch 3.1)."""

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

METERS = """\
OFPST_METER reply (OF1.3) (xid=0x2):
meter:1 flow_count:2 packet_in_count:55368 byte_in_count:83666142 duration:9.5s bands:
0: packet_count:4700 byte_count:7113609

meter:2 flow_count:0 packet_in_count:0 byte_in_count:0 duration:1.0s bands:
0: packet_count:0 byte_count:0
"""

GROUPS = """\
OFPST_GROUP reply (OF1.3) (xid=0x2):
 group_id=1,duration=9.5s,ref_count=1,packet_count=4,byte_count=184,bucket0:packet_count=4,byte_count=184,bucket1:packet_count=3,byte_count=138
"""  # noqa: E501


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


def test_meters() -> None:
    assert counters.meters(METERS) == {
        "1": {
            "in_bytes": 83666142,
            "in_packets": 55368,
            "drop_bytes": 7113609,
            "drop_packets": 4700,
        },
        "2": {"in_bytes": 0, "in_packets": 0, "drop_bytes": 0, "drop_packets": 0},
    }


def test_groups() -> None:
    assert counters.groups(GROUPS) == {
        "1": {
            "bytes": 184,
            "packets": 4,
            "buckets": [{"bytes": 184, "packets": 4}, {"bytes": 138, "packets": 3}],
        }
    }


PORTS = """\
OFPST_PORT reply (OF1.3) (xid=0x2): 3 ports
  port LOCAL: rx pkts=0, bytes=0, drop=9, errs=0, frame=0, over=0, crc=0
           tx pkts=0, bytes=0, drop=9, errs=0, coll=0
           duration=4.2s
  port  1: rx pkts=5, bytes=300, drop=1, errs=0, frame=0, over=0, crc=0
           tx pkts=6, bytes=360, drop=2, errs=3, coll=0
           duration=4.2s
  port 12: rx pkts=7, bytes=420, drop=?, errs=?, frame=?, over=?, crc=?
           tx pkts=8, bytes=480, drop=?, errs=?, coll=?
           duration=4.2s
"""


def test_switch_ports() -> None:
    names = ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped", "tx_errors")
    assert counters.switch_ports(PORTS) == {
        1: dict(zip(names, (5, 1, 6, 2, 3), strict=True)),
        12: dict(zip(names, (7, 0, 8, 0, 0), strict=True)),
    }
