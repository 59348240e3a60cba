# SPDX-License-Identifier: Apache-2.0
"""ONOS's JSON: the files in `answers` are what ONOS 2.7.0 said about the root's switch of a path of
geni5 with two leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.onos import OnosError
from controller.onos import records
from controller.onos.records import Held, held_of
from controller.paths.entries import (
    CONTROLLER,
    LLDP_METER,
    TABLE_MISS,
    Action,
    Bucket,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
    ToGroup,
    cookie_of,
)
from controller.paths.stats import Count, PortCount

DEVICE = "of:0000000000000001"
ROOT = "02:64:70:00:0a:01"
MULTICAST = EthMatch("01:00:00:00:00:00", "01:00:00:00:00:00")


def answer(name: str) -> Any:
    return json.loads((Path(__file__).parent / "answers" / f"{name}.json").read_text())


def held(cookies: dict[Any, int] | None = None) -> Held:
    return held_of(answer("flows"), answer("groups"), answer("meters"), cookies or {})


def down(match: Match, kind: Kind, *actions: Action) -> Flow:
    return Flow(match, 1000, cookie_of(kind, 1), actions, 1)


DATA = down(Match(3, 1101, MULTICAST, ROOT), Kind.DATA_DOWN, ToGroup(1))
UNICAST = down(
    Match(3, 1101, EthMatch("02:64:70:00:0b:01"), ROOT),
    Kind.UNICAST_DOWN,
    SetVlan(2000),
    Output(1),
)
LLDP = Flow(
    Match(1, eth_type=0x88CC), 2000, cookie_of(Kind.LLDP), (Output(CONTROLLER),), LLDP_METER
)
DENIED = Flow(Match(3, 1101, eth_src=ROOT), 300, cookie_of(Kind.DENIED, 1), ())


def test_what_onos_said_is_what_the_path_service_wanted() -> None:
    wanted = [DATA, UNICAST, LLDP, DENIED, TABLE_MISS]
    found = frozenset(held({flow.key: flow.cookie for flow in wanted}).entries())
    assert found.issuperset(wanted)
    assert sum(isinstance(entry, Flow) for entry in found) == 12
    assert {entry for entry in found if not isinstance(entry, Flow)} == {
        Group(1, (Bucket(2000, 1), Bucket(2001, 2))),
        Meter(1, 20000, 1000),
        Meter(LLDP_METER, 200, 200),
    }


def test_a_flow_that_is_not_wanted_has_the_cookie_of_none() -> None:
    assert held().flows[DATA.key].flow.cookie == records.UNKNOWN
    assert held({DATA.key: DATA.cookie}).flows[DATA.key].flow == DATA


def test_requests() -> None:
    assert records.flow_json(DEVICE, DATA) == {
        "appId": "downpour",
        "deviceId": DEVICE,
        "tableId": "0",
        "priority": 1000,
        "isPermanent": True,
        "timeout": 0,
        "selector": {
            "criteria": [
                {"type": "IN_PORT", "port": 3},
                {"type": "VLAN_VID", "vlanId": 1101},
                {
                    "type": "ETH_DST_MASKED",
                    "mac": "01:00:00:00:00:00",
                    "macMask": "01:00:00:00:00:00",
                },
                {"type": "ETH_SRC", "mac": ROOT},
            ]
        },
        "treatment": {
            "instructions": [{"type": "METER", "meterId": "1"}, {"type": "GROUP", "groupId": 1}]
        },
    }
    assert records.group_json(Group(7, (Bucket(2000, 1),))) == {
        "type": "ALL",
        "appCookie": "0x444f574e00000007",
        "groupId": "7",
        "givenGroupId": "7",
        "buckets": [
            {
                "type": "ALL",
                "treatment": {
                    "instructions": [
                        {"type": "L2MODIFICATION", "subtype": "VLAN_ID", "vlanId": 2000},
                        {"type": "OUTPUT", "port": "1"},
                    ]
                },
            }
        ],
    }
    assert records.meter_json(DEVICE, Meter(1, 20000, 1000)) == {
        "deviceId": DEVICE,
        "unit": "KB_PER_SEC",
        "burst": True,
        "bands": [{"type": "DROP", "rate": 20000, "burstSize": 1000}],
        "scope": "global",
        "index": 1,
    }
    criteria = records.flow_json(DEVICE, Flow(Match(2, eth_type=0x800, ip_proto=2), 1, 0, ()))
    assert criteria["selector"]["criteria"][1:] == [
        {"type": "ETH_TYPE", "ethType": "0x0800"},
        {"type": "IP_PROTO", "protocol": 2},
    ]
    with pytest.raises(ValueError, match="SetQueue"):
        records.flow_json(DEVICE, Flow(Match(1), 1, 0, (SetQueue(1), Output(2))))


def test_strangers_entries_are_not_read() -> None:
    flows, groups, meters = answer("flows"), answer("groups"), answer("meters")
    flows["flows"][0]["appId"] = "org.onosproject.core"
    groups["groups"][0]["appCookie"] = "0x1234"
    meters["meters"][0]["appId"] = "org.example"
    found = held_of(flows, groups, meters, {})
    assert (len(found.flows), len(found.groups), len(found.meters)) == (11, 0, 1)


def test_what_something_else_changed_differs_from_what_is_wanted() -> None:
    flows, groups, meters = answer("flows"), answer("groups"), answer("meters")
    flows["flows"][0]["selector"]["criteria"].append({"type": "UDP_DST", "udpPort": 7})
    flows["flows"][1]["isPermanent"] = False
    buckets = groups["groups"][0]["buckets"]
    buckets[0]["treatment"]["instructions"].append({"type": "L0MODIFICATION"})
    meters["meters"][0]["unit"] = "PKTS_PER_SEC"
    found = held_of(flows, groups, meters, {})
    assert found.strange == {item["id"] for item in flows["flows"][:2]}
    assert found.groups[1].group == Group(1, ())
    assert found.meters[1].meter == Meter(1, 0, 0)


def test_entries_that_onos_is_deleting_are_gone() -> None:
    groups = answer("groups")
    groups["groups"][0]["state"] = "PENDING_DELETE"
    found = held_of(answer("flows"), groups, answer("meters"), {})
    assert not any(isinstance(entry, Group) for entry in found.entries())
    assert ("group", 1) in found.all_keys()


def test_counters() -> None:
    flows, groups = answer("flows"), answer("groups")
    for item in flows["flows"]:
        item["packets"], item["bytes"] = item["priority"], 10 * item["priority"]
    for bucket, packets in zip(groups["groups"][0]["buckets"], (5, 6), strict=True):
        bucket["packets"] = packets
    groups["groups"][0]["buckets"].reverse()  # ours are sorted
    ports = records.port_counts_of(answer("port-statistics"))[DEVICE]
    found = held_of(flows, groups, answer("meters"), {}).stats(ports)
    assert found.flows[DENIED.key] == Count(300, 3000)
    assert [count.packets for count in found.groups[1].buckets] == [5, 6]
    assert found.ports[1] == PortCount(Count(), Count(), 0, 0)
    assert set(found.ports) == {1, 2, 3}


def test_devices_and_their_ports() -> None:
    devices = answer("devices")
    devices["devices"][0]["available"] = False
    found = records.devices_of(devices, answer("ports"))
    assert found.available == {item["id"] for item in devices["devices"][1:]}
    assert found.ports[DEVICE] == {1: True, 2: True, 3: True}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each value within an answer."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(path, key) for key, _ in inner]
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


@given(st.data())
def test_any_answer_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["flows", "groups", "meters", "devices", "ports"]))
    changed = answer(name)
    path, key = data.draw(st.sampled_from(places(changed)))
    inner = changed
    for step in path:
        inner = inner[step]
    inner[key] = data.draw(JSON)
    given_ = {n: answer(n) for n in ("flows", "groups", "meters", "devices", "ports")}
    given_[name] = changed
    try:
        list(held_of(given_["flows"], given_["groups"], given_["meters"], {}).entries())
        records.devices_of(given_["devices"], given_["ports"])
        records.port_counts_of(changed)
    except OnosError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 200
