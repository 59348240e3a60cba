# SPDX-License-Identifier: Apache-2.0
"""The REST contract, with switches that confirm, stay silent or refuse at will."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from controller.api.rest import MAX_BODY_BYTES
from controller.paths.forwarding import base_entries
from controller.service.service import Failure, Why
from controller.tests.openapi import contract, whole_app
from controller.tests.process import wait_until
from controller.tests.rig import Rig, assert_problem
from controller.tests.sample import MAC_1, MAC_2

ROOT: dict[str, Any] = {"switch": "s1", "port": 1, "vlan": 101, "macs": [MAC_1]}
LEAF: dict[str, Any] = {"switch": "s2", "port": 9, "vlan": 102, "macs": [MAC_2]}
PATH: dict[str, Any] = {"name": "NGRID", "root": ROOT, "rate_bps": 20_000_000}


def test_health(rig: Rig) -> None:
    rig.service.switch_down("s3")
    response = rig.http.get("/v1/health")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "role": "active",
        "switches": {"s1": True, "s2": True, "s3": False, "s4": True},
    }


def test_whole_life_of_a_path(rig: Rig) -> None:
    response = rig.http.post("/v1/paths", json=PATH)
    assert response.status_code == 201
    assert response.json() == {
        "name": "NGRID",
        "state": "up",
        "workgroup": "owner",
        "root": ROOT,
        "rate_bps": 20_000_000,
        "algorithm": "shortest",
        "leaf_to_leaf": False,
        "end_time": None,
        "leaves": [],
        "meter": {"switch": "s1", "id": 1},
        "edges": [],
        "groups": [],
        "channels": None,
    }
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert response.status_code == 201
    shown = response.json()
    assert shown["leaves"] == [{**LEAF, "state": "up"}]
    assert shown["edges"] == [{"from": "s1", "from_port": 2, "to": "s2", "to_port": 1, "vlan": 300}]
    assert shown["groups"] == [{"switch": "s1", "id": 1}, {"switch": "s2", "id": 1}]
    assert rig.http.get("/v1/paths/NGRID").json() == shown
    assert rig.http.get("/v1/paths").json() == [shown]
    response = rig.http.delete("/v1/paths/NGRID/leaves/s2/9/102")
    assert response.status_code == 200
    assert response.json()["leaves"] == []
    response = rig.http.delete("/v1/paths/NGRID")
    assert (response.status_code, response.content) == (204, b"")
    assert_problem(rig.http.get("/v1/paths/NGRID"), 404, "no path 'NGRID'", "GET /v1/paths")
    assert_problem(rig.http.delete("/v1/paths/NGRID"), 404)


def test_repeated_requests_change_nothing(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    rig.calls = 0
    assert rig.http.post("/v1/paths", json=PATH).status_code == 200
    again = {**LEAF, "macs": [MAC_2.upper(), MAC_2]}  # the same address, written otherwise
    response = rig.http.post("/v1/paths/NGRID/leaves", json=again)
    assert response.status_code == 200
    assert response.json()["leaves"] == [{**LEAF, "state": "up"}]
    assert rig.calls == 0


def test_conflicts(rig: Rig) -> None:
    rig.http.post("/v1/paths", json=PATH)
    rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    other_rate = {**PATH, "rate_bps": 1_000_000}
    assert_problem(rig.http.post("/v1/paths", json=other_rate), 409, "rate_bps 20000000 instead")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rate_bps": -1}, "body.rate_bps"),
        ({"rate_bps": 999}, "valid: 0 (best effort), or 1000 and more"),
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
    assert shown["leaves"] == [{**LEAF, "state": "down"}]
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
    rig.gate["s2"] = threading.Event()
    adding = threading.Thread(
        target=rig.http.post, args=("/v1/paths/NGRID/leaves",), kwargs={"json": LEAF}
    )
    adding.start()
    wait_until(
        "the leaf is planned", lambda: bool(rig.http.get("/v1/paths/NGRID").json()["leaves"])
    )
    assert rig.http.get("/v1/health").status_code == 200
    rig.gate["s2"].set()
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


@pytest.mark.parametrize("done", [0, 1, 3])
def test_refused_change_is_undone(rig: Rig, done: int) -> None:
    rig.http.post("/v1/paths", json=PATH)
    before = rig.entries()
    rig.refuse_next["s2"] = done  # after so many messages were carried out
    response = rig.http.post("/v1/paths/NGRID/leaves", json=LEAF)
    assert_problem(response, 502, "not done", "OFPET_GROUP_MOD_FAILED")
    shown = rig.http.get("/v1/paths/NGRID").json()
    assert (shown["leaves"], shown["state"]) == ([], "up")
    assert rig.entries() == before
    assert rig.http.post("/v1/paths/NGRID/leaves", json=LEAF).status_code == 201


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


def test_bug_is_a_problem_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(_switch: object, _messages: object) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as patched:
        patched.setattr("controller.tests.fake_switch.FakeSwitch.handle", handle)
        assert_problem(rig.http.post("/v1/paths", json=PATH), 500, "RuntimeError")
    rig.service.retry(["s1"])  # what it holds was unknown
    assert rig.http.get("/v1/paths/NGRID").json()["state"] == "up"
    rig.assert_settled()


# What clients outside this repository call: /openapi.json describes each.
OPERATIONS = """
delete /v1/holds/{hold_id}
delete /v1/paths/{name}
delete /v1/paths/{name}/leaves/{switch}/{port}/{vlan}
delete /v1/reservations/{name}
get /v1/domains/connections
get /v1/domains/paths/{name}
get /v1/domains/peers
get /v1/events
get /v1/health
get /v1/holds/{hold_id}
get /v1/metrics
get /v1/paths
get /v1/paths/{name}
get /v1/paths/{name}/counters
get /v1/reservations
get /v1/reservations/{name}
get /v1/workgroups/me
patch /v1/paths/{name}
post /v1/domains/messages
post /v1/holds
post /v1/holds/{hold_id}/commit
post /v1/paths
post /v1/paths/{name}/leaves
post /v1/reservations
"""


def test_openapi_document(rig: Rig) -> None:
    served = whole_app(rig).openapi()
    validate(json.loads(json.dumps(served)), cls=OpenAPIV31SpecValidator)
    found = contract(served)
    assert sorted(found["operations"]) == OPERATIONS.split("\n")[1:-1]
    for name, operation in found["operations"].items():
        in_path = set(re.findall(r"\{(\w+)\}", name))
        assert in_path <= set(operation["parameters"]), name
    for name, schema in found["schemas"].items():
        assert set(schema["required"]) <= set(schema["properties"]), name
    for operations in served["paths"].values():
        for operation in operations.values():
            assert {"401", "403", "404", "409", "422", "429", "502", "503", "504"} <= set(
                operation["responses"]
            )
    own = rig.http.get("/openapi.json").json()
    assert set(own["paths"]) < set(served["paths"])
    examples = served["components"]["schemas"]["PathRequest"]["examples"]
    assert rig.http.post("/v1/paths", json={**examples[0], "root": ROOT}).status_code == 201


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*PATH, *ROOT, "workgroup", "algorithm", "end_time", "leaves"])
            | st.text(max_size=5),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


CHANGED = st.dictionaries(
    st.sampled_from([*PATH, "end_time", "leaf_to_leaf"]), JSON, max_size=2
).map(lambda change: {**PATH, **change})


@pytest.mark.slow
@given(body=JSON | CHANGED)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_json_is_answered(shared: Rig, body: Any) -> None:
    """It is answered by 201 or a problem, and never by an internal error."""
    text = json.dumps(body)
    for url in ("/v1/paths", "/v1/paths/NGRID/leaves", "/v1/holds"):
        response = shared.http.post(url, content=text, headers={"content-type": "application/json"})
        assert response.status_code in (200, 201, 404, 409, 422), (url, text, response.text)
        if response.status_code >= 400:
            assert_problem(response, response.status_code)
    for view in shared.service.paths():
        shared.service.delete(view.path.name)


@pytest.fixture(scope="module")
def shared() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{" * 50_000, 422),
        (b"[" * 200_000, 400),
        (b'{"name": ' + b"9" * 100_000 + b"}", 400),
        (b'{"rate_bps": 1e999999999}', 422),
        (b'{"name": "\\ud800"}', 422),
        (b'{"name": "a", "name": "b"}', 422),
        (b"\xef\xbb\xbf{}", 422),
        (b"\x00" * 1000, 422),
        (b"", 422),
        (b" " * (MAX_BODY_BYTES + 1), 413),
    ],
)
def test_hostile_bodies(rig: Rig, body: bytes, status: int) -> None:
    for url in ("/v1/paths", "/v1/holds"):
        response = rig.http.post(url, content=body, headers={"content-type": "application/json"})
        assert_problem(response, status)
        assert len(response.content) < 10_000
