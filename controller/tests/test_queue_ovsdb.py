# SPDX-License-Identifier: Apache-2.0
"""Queues by Open vSwitch's database: commands, and how they are read back. With its kernel
datapath: tests/path_service, in a guest."""

from __future__ import annotations

import pytest

from controller.paths.queues import (
    LLDP_QUEUE,
    PortQueues,
    QueueClass,
    QueueError,
)
from controller.switches.queue_ovsdb import (
    QueueOvsdb,
    Record,
    commands,
    interfaces_of,
    parse_records,
    read_back,
    without_vlans,
)
from controller.tests.sample import network

TWO = PortQueues(120_000_000).with_share(1, 2001, 20_000_000).with_share(3, 2002, 40_000_000)
# `ovs-vsctl --format=json list` of Open vSwitch 3.1.
QOS = (
    '{"data":[[["uuid","q-1"],["map",[["downpour","a-p1"]]],'
    '["map",[[0,["uuid","d-0"]],[1,["uuid","d-1"]],[3,["uuid","d-3"]],[61439,["uuid","d-l"]]]]],'
    '[["uuid","q-2"],["map",[]],["map",[]]],'
    '[["uuid","q-3"],["map",[["downpour","a-p1"]]],["map",[[0,["uuid","d-9"]]]]]],'
    '"headings":["_uuid","external_ids","queues"]}'
)
PORTS = (
    '{"data":[["a-p1",["uuid","q-1"]],["a-p2",["set",[]]],["b-p1",["uuid","q-2"]]],'
    '"headings":["name","qos"]}'
)
USED = Record("q-1", "a-p1", {0: "d-0", 1: "d-1", 3: "d-3", LLDP_QUEUE: "d-l"}, in_use=True)
STALE = Record("q-3", "a-p1", {0: "d-9"})


def test_interfaces_are_the_networks() -> None:
    assert interfaces_of(network())["s2", 3] == "s2-eth3"


def test_records_of_ours() -> None:
    assert parse_records(QOS, PORTS) == {"a-p1": [USED, STALE]}
    assert parse_records("", "") == {}


def test_a_port_without_queues() -> None:
    words = commands("a-p1", [], None, PortQueues(120_000_000).with_share(1, 2001, 20_000_000))
    # 2 ms of 100 and of 20 Mbit/s in bits; three frames of 1518 bytes are less.
    assert " ".join(words) == (
        "-- --id=@qos create QoS type=linux-htb other-config:max-rate=120000000"
        " external-ids:downpour=a-p1 queues:0=@q0 queues:61439=@q61439 queues:1=@q1"
        " -- --id=@q0 create Queue other-config:min-rate=99936000"
        " other-config:max-rate=120000000 other-config:priority=1 other-config:burst=199872"
        " external-ids:downpour=a-p1"
        " -- --id=@q61439 create Queue other-config:min-rate=64000"
        " other-config:max-rate=120000000 other-config:priority=0 other-config:burst=36432"
        " external-ids:downpour=a-p1"
        " -- --id=@q1 create Queue other-config:min-rate=20000000"
        " other-config:max-rate=120000000 other-config:priority=0 other-config:burst=40000"
        " external-ids:downpour=a-p1"
        " -- set Port a-p1 qos=@qos"
    )


def test_differences_only() -> None:
    kernel = without_vlans(TWO)
    assert commands("a-p1", [USED], kernel, kernel) == []
    one = PortQueues(120_000_000).with_share(1, 2001, 20_000_000)
    assert " ".join(commands("a-p1", [USED], kernel, one)) == (
        "-- set Queue d-0 other-config:min-rate=99936000 other-config:burst=199872"
        " -- remove QoS q-1 queues 3 -- destroy Queue d-3"
    )
    more = TWO.with_share(7, 2003, 10_000_000)
    assert " ".join(commands("a-p1", [USED], kernel, more)) == (
        "-- set Queue d-0 other-config:min-rate=49936000 other-config:burst=99872"
        " -- --id=@q7 create Queue other-config:min-rate=10000000"
        " other-config:max-rate=120000000 other-config:priority=0 other-config:burst=36432"
        " external-ids:downpour=a-p1"
        " -- set QoS q-1 queues:7=@q7"
    )


def test_records_nobody_uses_go() -> None:
    kernel = without_vlans(TWO)
    assert " ".join(commands("a-p1", [USED, STALE], kernel, kernel)) == (
        "-- destroy QoS q-3 -- destroy Queue d-9"
    )


def test_read_back() -> None:
    # Printed by iproute2 6.1 in a guest.
    text = (
        "class htb 1:fffe root rate 120Mbit ceil 120Mbit burst 1485b cburst 1485b \n"
        "class htb 1:f000 parent 1:fffe prio 0 rate 64Kbit ceil 120Mbit burst 4554b \n"
        "class htb 1:1 parent 1:fffe prio 1 rate 60Mbit ceil 120Mbit burst 7500b cburst 7485b \n"
        "class htb 1:2 parent 1:fffe prio 0 rate 20Mbit ceil 120Mbit burst 5000b cburst 4995b \n"
        "class htb 1:4 parent 1:fffe prio 0 rate 40Mbit ceil 120Mbit burst 9995b cburst 9990b \n"
    )
    assert read_back(text) == PortQueues(
        120_000_000, (QueueClass(1, (), 20_000_000), QueueClass(3, (), 40_000_000))
    )
    assert read_back("") is None


def test_no_database_is_an_error() -> None:
    driver = QueueOvsdb(network(), "unix:/nonexistent/db.sock")
    with pytest.raises(QueueError, match=r"ovs-vsctl: unix:/nonexistent/db\.sock: database"):
        driver.apply({("s2", 3): TWO})
