# SPDX-License-Identifier: Apache-2.0
"""Captured outputs of tools, and what their parsers make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.read.ovs_ofctl import (
    Band,
    Flow,
    Group,
    GroupStats,
    Meter,
    MeterStats,
    parse_ovs_ofctl,
)
from parsers.read.sadf import parse_sadf
from parsers.read.tc_class import parse_classes

GOLDEN = Path(__file__).parent / "golden"
T0 = 1_795_308_493.0  # 2026-11-22T00:48:13Z


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_flows_groups_and_meters() -> None:
    dump = parse_ovs_ofctl(golden("ovs_ofctl.log"), "ovs.log")
    assert dump.problems == ()
    match = "in_port=1,dl_dst=01:00:5e:00:00:01"
    assert dump.records[0] == Flow(
        0x444F574E02000001, 1.313, "0", 50, 52_100, 100, "", match, "meter:1,group:7"
    )
    assert dump.records[1] == Flow(
        *(0x444F574E01000001, 1.278, "0", 0, 0, 90, "idle_timeout=60"),
        *("in_port=2,dl_vlan=101", "pop_vlan,output:1"),
    )
    assert dump.records[2] == Flow(0, 1.239, "0", 6, 528, 0, "", "", "drop")
    buckets = ("actions=push_vlan:0x8100,set_field:4197->vlan_vid,output:2", "actions=output:3")
    assert dump.records[3] == Group(7, "all", buckets)
    assert dump.records[4] == GroupStats(7, 1.463, 50, 52_100, ((50, 52_100), (50, 52_100)))
    assert dump.records[5] == Meter(1, ("kbps", "burst", "stats"), (Band("drop", 20_000, 1000),))
    assert dump.records[6] == MeterStats(1, 1, 50, 52_100, 1.536, ((0, 0),))


def test_a_flow_with_flags_and_without_priority() -> None:
    text = (
        " cookie=0x2a, duration=5.5s, table=3, n_packets=1, n_bytes=60, hard_timeout=9, "
        "send_flow_rem in_port=2 actions=NORMAL\n"
    )
    (flow,) = parse_ovs_ofctl(text, "f").records
    assert flow == Flow(42, 5.5, "3", 1, 60, 32_768, "hard_timeout=9", "in_port=2", "NORMAL")


def test_classes() -> None:
    found = parse_classes(golden("tc_class.log"), "tc.log")
    first, second = found.classes
    assert (first.kind, first.handle, first.parent) == ("htb", "1:1", "")
    assert "rate 20Mbit" in first.options
    assert (second.handle, second.sent_bytes, second.sent_packets) == ("1:2", 634_570, 441)
    assert (second.drops, second.overlimits) == (0, 440)
    assert (second.backlog_bytes, second.backlog_packets) == (86_520, 60)


def test_a_large_backlog_is_scaled() -> None:
    text = "class htb 1:2 parent 1:1 prio 0\n backlog 12Kb 3p requeues 0\n"
    (one,) = parse_classes(text, "tc.log").classes
    assert (one.parent, one.backlog_bytes) == ("1:1", 12_288)


def test_a_class_whose_counters_are_malformed_is_told() -> None:
    text = "class htb 1:2 root prio 0\n Sent many bytes\n"
    (problem,) = parse_classes(text, "tc.log").problems
    assert str(problem).startswith("tc.log:2: expected 'Sent N bytes N pkt")


def test_sadf_gives_what_sar_gives() -> None:
    log = parse_sadf(golden("sadf.json"), "sa.json")
    assert [(s.time_s, s.interval_s, s.interface) for s in log.interfaces] == [
        (T0, 1.0, "lo"),
        (T0, 1.0, "eth0"),
        (T0 + 1, 1.0, "lo"),
        (T0 + 1, 1.0, "eth0"),
    ]
    assert [(s.time_s, s.cpu, s.user, s.idle, s.steal) for s in log.cpus] == [
        (T0, "all", 18.18, 0.0, 0.0),
        (T0 + 1, "all", 23.5, 0.0, 0.5),
    ]


def test_sadf_counts_kilobytes_of_1024() -> None:
    text = golden("sadf.json").replace('"txkB": 0.00', '"txkB": 2.00')
    assert {s.tx_bytes_per_s for s in parse_sadf(text, "sa.json").interfaces} == {2048.0}


def test_sadf_cut_off_keeps_complete_samples() -> None:
    text = golden("sadf.json")
    cut = text[: text.index("23.50")]
    log = parse_sadf(cut, "sa.json")
    assert [s.time_s for s in log.cpus] == [T0]
    assert [p.is_cut_off for p in log.problems] == [True]


def test_sadf_says_what_is_wrong() -> None:
    with pytest.raises(BadFile, match="timestamp.date"):
        parse_sadf(golden("sadf.json").replace("2026-11-22", "22.11."), "sa.json")
    with pytest.raises(BadFile, match="sysstat, hosts, statistics"):
        parse_sadf('{"sysstat": {}}', "sa.json")
