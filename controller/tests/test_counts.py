# SPDX-License-Identifier: Apache-2.0
"""What the counters say, on the network of sample.py; the frames were counted by hand."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from controller.api.auth import Access
from controller.service.service import Failure, Why
from controller.service.workgroups import Workgroup, Workgroups
from controller.tests.fake_switch import FRAME_BYTES, Frame
from controller.tests.rig import Rig, assert_problem
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, MAC_1, MAC_2, MAC_4, ROOT

MULTICAST = "01:00:5e:01:01:01"
ARP = 0x0806


def count(packets: int) -> dict[str, int]:
    return {"packets": packets, "bytes": packets * FRAME_BYTES}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.service.create("p", ROOT, 20_000_000)
    for leaf in (LEAF_2, LEAF_4):
        rig.service.add_leaf("p", leaf)
    return rig


def send(rig: Rig, frames: int, dst: str = MULTICAST) -> None:
    for _ in range(frames):
        rig.net.inject("s1", 1, Frame(dst, MAC_1, 101))


def counters(rig: Rig) -> dict[str, Any]:
    rig.clock.now += 2
    response = rig.http.get("/v1/paths/p/counters")
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def leaf_of(shown: dict[str, Any], switch: str) -> dict[str, Any]:
    (found,) = (leaf for leaf in shown["leaves"] if leaf["switch"] == switch)
    return dict(found)


def test_what_entered_and_what_each_leaf_and_edge_got(rig: Rig) -> None:
    """10 multicast frames, of which the meter drops 3; 4 unicast to h2; h4 sends 2 and an ARP
    request."""
    counters(rig)
    rig.net.switches["s1"].dropping = 3
    send(rig, 10)
    send(rig, 4, MAC_2)
    for frame in (Frame(MAC_1, MAC_4, 104), Frame(MAC_1, MAC_4, 104)):
        rig.net.inject("s4", 9, frame)
    rig.net.inject("s4", 9, Frame("ff:ff:ff:ff:ff:ff", MAC_4, 104, ARP))
    shown = counters(rig)
    assert shown["entered"] == {"multicast": count(10), "unicast": count(4)}
    assert (shown["meter_dropped"], shown["passed"]) == (count(3), count(11))
    assert leaf_of(shown, "s2")["multicast"] == count(7)
    assert leaf_of(shown, "s2")["unicast"] == count(4)
    assert leaf_of(shown, "s2")["sent"] == count(0)
    assert leaf_of(shown, "s4")["multicast"] == count(7)
    assert leaf_of(shown, "s4")["unicast"] == count(0)
    assert leaf_of(shown, "s4")["sent"] == count(3)
    edges = {(e["from"], e["to"], e["vlan"]): (e["sent"], e["arrived"]) for e in shown["edges"]}
    assert edges == {
        ("s1", "s2", 300): (count(7), count(7)),
        ("s2", "s4", 330): (count(7), count(7)),
    }
    for part in (*shown["leaves"], *shown["edges"]):
        assert (part["compared"]["sent"], part["compared"]["missing"]) == (7, 0)
    assert shown["silent"] == []


def test_what_is_dropped_at_endpoints_and_elsewhere(rig: Rig) -> None:
    for _ in range(2):
        rig.net.inject("s2", 9, Frame(MAC_1, "02:00:00:00:00:99", 102))  # spoofed
    for dst in (MAC_4, MULTICAST, MULTICAST):
        rig.net.inject("s2", 9, Frame(dst, MAC_2, 102))  # to another leaf; multicast
    rig.net.inject("s1", 1, Frame("02:00:00:00:00:99", MAC_1, 101))  # to no host
    for vlan in (103, None, 300, 999):
        rig.net.inject("s2", 9, Frame(MAC_1, MAC_2, vlan))
    rig.net.inject("s3", 1, Frame(MAC_1, MAC_2, 310))  # on a core link that no path uses
    shown = counters(rig)
    leaf = leaf_of(shown, "s2")
    assert (leaf["spoofed"], leaf["denied"]) == (count(2), count(3))
    assert (shown["root"]["spoofed"], shown["root"]["denied"]) == (count(0), count(1))
    text = rig.http.get("/v1/metrics").text
    assert 'downpour_port_wrong_vlan_packets_total{port="9",switch="s2"} 4.0' in text
    assert 'downpour_port_wrong_vlan_packets_total{port="1",switch="s1"} 0.0' in text
    assert 'downpour_switch_unexpected_packets_total{switch="s3"} 1.0' in text


def test_frames_that_a_link_loses_are_missing_behind_it(rig: Rig) -> None:
    counters(rig)
    send(rig, 5)
    lost = rig.net.switches["s4"].flows
    rig.net.switches["s4"].flows = {}  # what comes to s4 is not counted and goes nowhere
    send(rig, 2)
    rig.net.switches["s4"].flows = lost
    shown = counters(rig)
    assert leaf_of(shown, "s4")["compared"] == {"since": shown["time"] - 2, "sent": 7, "missing": 2}
    assert leaf_of(shown, "s2")["compared"]["missing"] == 0
    compared = {e["to"]: e["compared"]["missing"] for e in shown["edges"]}
    assert compared == {"s2": 0, "s4": 2}


def test_sums_go_on_when_a_branch_comes_and_comparisons_begin_anew(rig: Rig) -> None:
    """s2's group changes when s3 joins: then Open vSwitch counts its buckets from 0 again."""
    counters(rig)
    send(rig, 5)
    counters(rig)
    rig.service.add_leaf("p", LEAF_3)
    send(rig, 3)
    first = counters(rig)
    send(rig, 4)
    shown = counters(rig)
    assert shown["entered"]["multicast"] == count(12)
    assert leaf_of(shown, "s2")["multicast"] == count(12)
    assert leaf_of(shown, "s3")["multicast"] == count(7)
    for switch in ("s2", "s3", "s4"):
        assert leaf_of(shown, switch)["compared"]["missing"] == 0
    assert leaf_of(shown, "s4")["compared"]["sent"] == 12  # its group at s4 was not changed
    assert leaf_of(shown, "s3")["compared"] == {"since": first["time"], "sent": 4, "missing": 0}


def test_counters_that_began_anew_and_are_further_than_before(rig: Rig) -> None:
    """5 frames are read. s3 joins, so s2's group counts from 0 again. After 9 more frames its
    buckets say 9, which is more than 5. All that is known of h2's: at least 9 (14 came)."""
    counters(rig)
    send(rig, 5)
    counters(rig)
    rig.service.add_leaf("p", LEAF_3)
    send(rig, 9)
    shown = counters(rig)
    assert shown["entered"]["multicast"] == count(14)
    assert leaf_of(shown, "s2")["multicast"] == count(9)
    assert leaf_of(shown, "s2")["compared"] == {"since": shown["time"], "sent": 0, "missing": 0}
    assert leaf_of(shown, "s4")["multicast"] == count(14)
    assert leaf_of(shown, "s4")["compared"]["missing"] == 0
    send(rig, 2)
    shown = counters(rig)
    for switch in ("s2", "s3"):
        compared = leaf_of(shown, switch)["compared"]
        assert (compared["sent"], compared["missing"]) == (2, 0)


@pytest.mark.slow
def test_a_switch_that_restarted_counts_anew(rig: Rig) -> None:
    counters(rig)
    send(rig, 5)
    counters(rig)
    rig.net.switches["s4"].hits.clear()
    rig.service.switch_down("s4")
    rig.service.switch_up("s4")
    send(rig, 8)
    counters(rig)
    send(rig, 3)
    shown = counters(rig)
    compared = leaf_of(shown, "s4")["compared"]
    assert (compared["sent"], compared["missing"]) == (3, 0)


def test_a_path_of_the_same_name_begins_at_zero(rig: Rig) -> None:
    send(rig, 5)
    counters(rig)
    rig.service.delete("p")
    rig.service.create("p", ROOT, 20_000_000)
    shown = counters(rig)
    assert shown["entered"]["multicast"] == count(0)


def test_a_switch_that_does_not_answer_is_named(rig: Rig) -> None:
    send(rig, 5)
    counters(rig)
    rig.failing["s4"] = Failure(Why.TIMEOUT, "10 s")
    send(rig, 2)
    shown = counters(rig)
    assert shown["silent"] == ["s4"]
    assert leaf_of(shown, "s2")["multicast"] == count(7)
    assert leaf_of(shown, "s4")["multicast"] == count(5)  # as far as is known


def test_readings_younger_than_a_second_are_used_again(rig: Rig) -> None:
    counters(rig)
    send(rig, 5)
    rig.clock.now += 0.5
    assert rig.http.get("/v1/paths/p/counters").json()["entered"]["multicast"] == count(0)
    rig.clock.now += 0.6
    assert rig.http.get("/v1/paths/p/counters").json()["entered"]["multicast"] == count(5)


def test_a_path_that_is_newer_than_the_last_reading(rig: Rig) -> None:
    counters(rig)
    rig.service.create("q", LEAF_3, 0)
    response = rig.http.get("/v1/paths/q/counters")
    assert response.status_code == 200, response.text
    assert response.json()["entered"]["multicast"] == count(0)


def test_metrics_of_a_path(rig: Rig) -> None:
    send(rig, 5)
    response = rig.http.get("/v1/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    for line in (
        'downpour_path_up{path="p"} 1.0',
        'downpour_path_rate_bits_per_second{path="p"} 2e+07',
        'downpour_path_leaves{path="p"} 2.0',
        'downpour_path_entered_packets_total{kind="multicast",path="p"} 5.0',
        'downpour_path_entered_bytes_total{kind="multicast",path="p"} 500.0',
        'downpour_path_meter_dropped_packets_total{path="p"} 0.0',
        'downpour_leaf_delivered_packets_total{kind="multicast",path="p",port="9",switch="s4",'
        'vlan="104"} 5.0',
        'downpour_leaf_missing_packets{path="p",port="9",switch="s4",vlan="104"} 0.0',
        'downpour_edge_packets_total{end="arrived",from="s2",path="p",to="s4",vlan="330"} 5.0',
        'downpour_link_reserved_bits_per_second{from="s2",link="s2:s4"} 2e+07',
        'downpour_link_rate_bits_per_second{from="s2",link="s2:s4"} 1e+08',
        'downpour_switch_up{switch="s3"} 1.0',
    ):
        assert line in lines
    helps = [line for line in lines if line.startswith("# HELP")]
    assert len(helps) == len({line.split()[2] for line in helps})


def test_a_workgroup_sees_its_own_paths_only(rig: Rig) -> None:
    rig.service.create("q", LEAF_3, 0, workgroup="other")
    token = "a-token-of-the-other-workgroup"
    other = Workgroup("other", (hashlib.sha256(token.encode()).digest(),))
    http = rig.http_as("192.0.2.1", Access(Workgroups([other])))
    headers = {"authorization": f"Bearer {token}"}
    text = http.get("/v1/metrics", headers=headers).text
    assert 'downpour_path_up{path="q"} 1.0' in text
    assert 'path="p"' not in text and "switch_up" not in text and "link_" not in text
    assert http.get("/v1/paths/q/counters", headers=headers).status_code == 200
    response = http.get("/v1/paths/p/counters", headers=headers)
    assert_problem(response, 404, "there is no path 'p'")
    assert http.get("/v1/metrics").status_code == 401
    assert_problem(rig.http.get("/v1/paths/nope/counters"), 404, "no path 'nope'")
