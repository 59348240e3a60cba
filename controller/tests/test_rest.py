# SPDX-License-Identifier: Apache-2.0
"""The REST contract, with switches that confirm, do not answer, or refuse at will."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from controller.forwarding import base_entries
from controller.messages import Message
from controller.rest import MAX_BODY_BYTES, make_app
from controller.service import Failure, PathService, Why
from controller.tests.fake_switch import FakeNetwork
from controller.tests.sample import MAC_1, MAC_2, network

ROOT: dict[str, Any] = {"switch": "s1", "port": 1, "vlan": 101, "macs": [MAC_1]}
LEAF: dict[str, Any] = {"switch": "s2", "port": 9, "vlan": 102, "macs": [MAC_2]}
PATH: dict[str, Any] = {"name": "NGRID", "root": ROOT, "rate_bps": 20_000_000}


class Rig:
    def __init__(self) -> None:
        self.failing: dict[str, Failure] = {}
        self.calls = 0
        self.service = PathService(network(), "core", self.apply)
        self.net = FakeNetwork(self.service.core)
        for switch in self.net.switches:
            self.service.switch_up(switch)
        self.http = TestClient(make_app(self.service), raise_server_exceptions=False)

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        self.calls += 1
        for switch, messages in changes.items():
            if switch not in self.failing:
                self.net.switches[switch].handle(messages)
        return {s: f for s, f in self.failing.items() if s in changes}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.calls = 0
    return rig


def assert_problem(response: Any, status: int, *texts: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == status
    for text in texts:
        assert text in body["detail"]


def test_health(rig: Rig) -> None:
    rig.service.switch_down("s3")
    response = rig.http.get("/v1/health")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "switches": {"s1": True, "s2": True, "s3": False, "s4": True},
    }


def test_whole_life_of_a_path(rig: Rig) -> None:
    response = rig.http.post("/v1/paths", json=PATH)
    assert response.status_code == 201
    assert response.json() == {
        "name": "NGRID",
        "state": "up",
        "root": ROOT,
        "rate_bps": 20_000_000,
        "leaves": [],
        "meter": {"switch": "s1", "id": 1},
        "edges": [],
        "groups": [],
    }
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert response.status_code == 201
    shown = response.json()
    assert shown["leaves"] == [LEAF]
    assert shown["edges"] == [{"from": "s1", "from_port": 2, "to": "s2", "to_port": 1, "vlan": 300}]
    assert shown["groups"] == [{"switch": "s1", "id": 1}, {"switch": "s2", "id": 1}]
    assert rig.http.get("/v1/paths/NGRID").json() == shown
    assert rig.http.get("/v1/paths").json() == [shown]
    response = rig.http.delete("/v1/paths/NGRID/leaves/s2/9/102")
    assert response.status_code == 200
    assert response.json()["leaves"] == []
    response = rig.http.delete("/v1/paths/NGRID")
    assert (response.status_code, response.content) == (204, b"")
    assert_problem(rig.http.get("/v1/paths/NGRID"), 404, "no path 'NGRID'", "existing: none")
    assert_problem(rig.http.delete("/v1/paths/NGRID"), 404)


def test_repeated_requests_change_nothing(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    rig.calls = 0
    assert rig.http.post("/v1/paths", json=PATH).status_code == 200
    again = {**LEAF, "macs": [MAC_2.upper(), MAC_2]}  # the same address, written otherwise
    response = rig.http.post("/v1/paths/NGRID/leaves", json=again)
    assert response.status_code == 200
    assert response.json()["leaves"] == [LEAF]
    assert rig.calls == 0


def test_conflicts(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    other_rate = {**PATH, "rate_bps": 1_000_000}
    assert_problem(rig.http.post("/v1/paths", json=other_rate), 409, "exists with root s1:1:101")
    other_name = {**PATH, "name": "other"}
    assert_problem(rig.http.post("/v1/paths", json=other_name), 409, "in use by path 'NGRID'")
    other_macs = {**LEAF, "macs": [MAC_1]}
    response = rig.http.post("/v1/paths/NGRID/leaves", json=other_macs)
    assert_problem(response, 409, "leaf s2:9:102 of path 'NGRID' exists with MACs " + MAC_2)


def test_no_capacity_changes_nothing(rig: Rig) -> None:
    rig.http.post("/v1/paths", json={**PATH, "rate_bps": 100_000_001})
    leaf = {"switch": "s4", "port": 9, "vlan": 104, "macs": []}
    response = rig.http.post("/v1/paths/NGRID/leaves", json=leaf)
    assert_problem(response, 409, "link 's2:s4' from 's2'", "needs 100000001 bit/s")
    assert response.json()["type"] == "urn:downpour:problem:no-capacity"
    assert rig.http.get("/v1/paths/NGRID").json()["leaves"] == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rate_bps": 0}, "body.rate_bps"),
        ({"rate_bps": "20000000"}, "body.rate_bps"),
        ({"rate_bps": 1.5}, "body.rate_bps"),
        ({"rate_bps": True}, "body.rate_bps"),
        ({"name": ""}, "body.name"),
        ({"name": "a/b"}, "found 'a/b'"),
        ({"name": "x" * 65}, "body.name"),
        ({"extra": 1}, "body.extra"),
        ({"root": {**ROOT, "vlan": 0}}, "body.root.vlan"),
        ({"root": {**ROOT, "vlan": 4095}}, "body.root.vlan"),
        ({"root": {**ROOT, "port": -1}}, "body.root.port"),
        ({"root": {**ROOT, "macs": ["nonsense"]}}, "'nonsense'"),
        ({"root": {**ROOT, "macs": ["01:00:5e:00:00:01"]}}, "multicast address"),
        ({"root": {**ROOT, "macs": [MAC_1] * 1025}}, "body.root.macs"),
        ({"root": {**ROOT, "switch": "s9"}}, "switch 's9' is not in domain 'core'"),
        ({"root": {**ROOT, "port": 2}}, "port 2 of switch 's1' is not an access port; valid: 1"),
        ({"root": None}, "body.root"),
    ],
)
def test_invalid_paths(rig: Rig, change: dict[str, Any], text: str) -> None:
    assert_problem(rig.http.post("/v1/paths", json={**PATH, **change}), 422, text)
    assert rig.http.get("/v1/paths").json() == []


def test_invalid_otherwise(rig: Rig) -> None:
    assert_problem(rig.http.post("/v1/paths", content=b"{"), 422)
    assert_problem(rig.http.post("/v1/paths", content=b"\xff\xfe"), 422)
    assert_problem(rig.http.post("/v1/paths", content=b"[" * 100_000), 422)
    assert_problem(rig.http.post("/v1/paths", content=b" " * (MAX_BODY_BYTES + 1)), 413)
    assert_problem(rig.http.get("/nowhere"), 404, "/nowhere")
    assert_problem(rig.http.put("/v1/paths"), 405)
    assert_problem(rig.http.post("/v1/paths/none/leaves", json=LEAF), 404, "no path 'none'")
    rig.http.post("/v1/paths", json=PATH)
    assert_problem(rig.http.delete("/v1/paths/NGRID/leaves/s2/9/102"), 404, "no leaf s2:9:102")
    assert_problem(rig.http.delete("/v1/paths/NGRID/leaves/s2/x/102"), 422, "found 'x'")


def test_switch_that_does_not_confirm(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.failing["s2"] = Failure(Why.TIMEOUT, "5 s")
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert_problem(response, 504, "switch 's2' no answer to the barrier in time: 5 s")
    shown = rig.http.get("/v1/paths/NGRID").json()
    assert shown["state"] == "degraded"
    assert shown["leaves"] == [LEAF]
    assert rig.http.get("/v1/health").json()["switches"]["s2"] is False
    assert_problem(rig.http.post("/v1/paths/NGRID/leaves", json=LEAF), 504)  # still
    del rig.failing["s2"]
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert response.status_code == 200
    assert response.json()["state"] == "up"


def test_repeated_creation_repairs(rig: Rig) -> None:
    rig.failing["s1"] = Failure(Why.TIMEOUT)
    assert_problem(rig.http.post("/v1/paths", json=PATH), 504)
    assert_problem(rig.http.post("/v1/paths", json=PATH), 504)
    rig.failing.clear()
    response = rig.http.post("/v1/paths", json=PATH)
    assert (response.status_code, response.json()["state"]) == (200, "up")
    assert any(entry.key[0] == "meter" for entry in rig.net.switches["s1"].entries())


def test_reading_does_not_wait_for_switches(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    waiting, go_on = threading.Event(), threading.Event()

    def apply(changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        waiting.set()
        assert go_on.wait(10)
        return rig.apply(changes)

    rig.service._apply = apply
    adding = threading.Thread(
        target=rig.http.post, args=("/v1/paths/NGRID/leaves",), kwargs={"json": LEAF}
    )
    adding.start()
    assert waiting.wait(10)
    assert rig.http.get("/v1/health").status_code == 200
    assert rig.http.get("/v1/paths/NGRID").json()["leaves"] == [LEAF]
    go_on.set()
    adding.join()


def test_retry_repairs_without_a_request(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.failing["s2"] = Failure(Why.TIMEOUT)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    rig.service.retry(["s1", "s2"])
    assert rig.http.get("/v1/paths/NGRID").json()["state"] == "degraded"
    rig.failing.clear()
    rig.service.retry(["s1"])
    assert rig.http.get("/v1/paths/NGRID").json()["state"] == "degraded"
    rig.service.retry(["s1", "s2"])
    assert rig.http.get("/v1/paths/NGRID").json()["state"] == "up"


def test_refused_change_is_undone(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    before = {name: switch.entries() for name, switch in rig.net.switches.items()}

    def apply_once(changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        failures = rig.apply(changes)
        rig.failing.clear()
        return failures

    rig.service._apply = apply_once
    rig.failing["s2"] = Failure(Why.REFUSED, "OFPET_GROUP_MOD_FAILED")
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert_problem(response, 502, "not done", "OFPET_GROUP_MOD_FAILED")
    shown = rig.http.get("/v1/paths/NGRID").json()
    assert (shown["leaves"], shown["state"]) == ([], "up")
    assert {name: switch.entries() for name, switch in rig.net.switches.items()} == before


def test_delete_with_a_switch_gone_cleans_it_later(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    rig.failing["s2"] = Failure(Why.NOT_CONNECTED)
    rig.service.switch_down("s2")
    assert_problem(rig.http.delete("/v1/paths/NGRID"), 504, "'s2' not connected")
    assert rig.http.get("/v1/paths").json() == []
    base = base_entries(rig.service.core)["s2"]
    assert rig.net.switches["s2"].entries() > base
    rig.failing.clear()
    rig.service.switch_up("s2")
    assert rig.net.switches["s2"].entries() == base


def test_bug_is_a_problem_too(rig: Rig) -> None:
    def apply(changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        raise RuntimeError(f"boom {len(changes)}")

    rig.service._apply = apply
    assert_problem(rig.http.post("/v1/paths", json=PATH), 500, "RuntimeError")


def test_openapi_names_every_route(rig: Rig) -> None:
    description = rig.http.get("/openapi.json").json()
    routes = {(m, p) for p, methods in description["paths"].items() for m in methods}
    assert routes == {
        ("get", "/v1/health"),
        ("post", "/v1/paths"),
        ("get", "/v1/paths"),
        ("get", "/v1/paths/{name}"),
        ("delete", "/v1/paths/{name}"),
        ("post", "/v1/paths/{name}/leaves"),
        ("delete", "/v1/paths/{name}/leaves/{switch}/{port}/{vlan}"),
    }
