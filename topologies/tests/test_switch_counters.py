# SPDX-License-Identifier: Apache-2.0
"""Counters of switches from the bytes of their answers: laid out by hand after OpenFlow 1.3.5
(7.3.5.6, 7.3.5.8, 7.3.5.10), and Open vSwitch's beside what ovs-ofctl shows."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from topologies.tests.own_openvswitch import beside_open_vswitch
from topologies.watch import switch_counters

UNKNOWN = 0xFFFFFFFFFFFFFFFF
# packets, bytes, dropped, errors (received and sent, in turn), then frame, over, CRC, collisions
KNOWN = (5, 6, 300, 360, 1, 2, 4, 3, 0, 0, 0, 0)
PARTLY = (7, 8, 420, 480, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


def port(number: int, values: tuple[int, ...]) -> bytes:
    return struct.pack("!I4x12QII", number, *values, 9, 500)


def group(number: int, total: tuple[int, int], *buckets: tuple[int, int]) -> bytes:
    tail = b"".join(struct.pack("!QQ", *one) for one in buckets)
    head = struct.pack("!H2xII4xQQII", 40 + len(tail), number, 1, *total, 9, 500)
    return head + tail


def meter(number: int, total: tuple[int, int], *bands: tuple[int, int]) -> bytes:
    tail = b"".join(struct.pack("!QQ", *one) for one in bands)
    return struct.pack("!IH6xIQQII", number, 40 + len(tail), 2, *total, 9, 500) + tail


def test_ports() -> None:
    names = ("rx_packets", "rx_dropped", "tx_packets", "tx_dropped", "tx_errors")
    body = port(0xFFFFFFFE, KNOWN) + port(1, KNOWN) + port(12, PARTLY)
    assert switch_counters.ports(body) == {
        1: dict(zip(names, (5, 1, 6, 2, 3), strict=True)),
        12: dict(zip(names, (7, 0, 8, 0, 0), strict=True)),
    }


def test_groups() -> None:
    body = group(1, (4, 184), (4, 184), (3, 138)) + group(7, (UNKNOWN, UNKNOWN))
    assert switch_counters.groups(body) == {
        1: {
            "bytes": 184,
            "packets": 4,
            "buckets": [{"bytes": 184, "packets": 4}, {"bytes": 138, "packets": 3}],
        },
        7: {"bytes": 0, "packets": 0, "buckets": []},
    }


def test_meters() -> None:
    body = meter(1, (55368, 83666142), (4700, 7113609), (1, 60)) + meter(2, (0, 0))
    assert switch_counters.meters(body) == {
        1: {
            "in_bytes": 83666142,
            "in_packets": 55368,
            "drop_bytes": 7113669,
            "drop_packets": 4701,
        },
        2: {"in_bytes": 0, "in_packets": 0, "drop_bytes": 0, "drop_packets": 0},
    }


@pytest.mark.parametrize(
    ("read", "body", "complaint"),
    [
        (switch_counters.ports, port(1, KNOWN)[:100], "ports of 100 bytes; valid: multiples"),
        (switch_counters.groups, group(1, (1, 1), (1, 1))[:50], "counters of 56 bytes in 50"),
        (switch_counters.groups, bytes(40), "counters of 0 bytes in 40"),
        (switch_counters.meters, meter(1, (1, 1))[:7], "counters of 0 bytes in 7"),
    ],
)
def test_what_is_cut_off_is_said(
    read: Callable[[bytes], object], body: bytes, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(body)


READ = """
from topologies.emulate import switch_reading
found = switch_reading.counters("s")
print(found.groups)
print(found.meters)
print(sorted(found.ports), found.ports[1]["tx_packets"], found.ports[1]["rx_packets"])
"""


@pytest.mark.root
@pytest.mark.slow
def test_open_vswitch_counts_what_it_forwards(tmp_path: Path) -> None:
    """Three frames pass a meter and a group of one bucket, and leave by port 1."""
    script = tmp_path / "read.py"
    script.write_text(READ)
    ofctl = "ovs-ofctl -O OpenFlow13"
    frame = "packet=" + "01" * 60
    commands = [
        "ovs-vsctl add-br s -- set bridge s datapath_type=netdev protocols=OpenFlow13"
        " fail_mode=secure",
        "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6",
        "ip link add one type veth peer other && ip link set one up && ip link set other up",
        "ovs-vsctl add-port s one -- set interface one ofport_request=1",
        f"{ofctl} add-meter s meter=3,pktps,stats,band=type=drop,rate=100000",
        f"{ofctl} add-group s group_id=5,type=all,bucket=output:1",
        f"{ofctl} add-flow s priority=7,actions=meter:3,group:5",
        *(f"{ofctl} packet-out s 'in_port=controller {frame} actions=table'" for _ in range(3)),
        "sleep 2",
        f"{ofctl} dump-ports s 1 | grep -o 'tx pkts=[0-9]*'",
        f"PYTHONPATH=. {sys.executable} {script}",
    ]
    done = beside_open_vswitch(lambda _: "\n".join(commands))
    assert done.returncode == 0, done.stderr[-2000:]
    shown, groups, meters, ports = done.stdout.splitlines()[-4:]
    assert groups.startswith("{5: {'bytes': 180, 'packets': 3, 'buckets': [{'bytes': 180,")
    assert meters.startswith("{3: {'in_bytes': 180, 'in_packets': 3, 'drop_bytes': 0")
    assert ports == f"[1] {shown.removeprefix('tx pkts=')} 0"
