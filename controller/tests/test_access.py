# SPDX-License-Identifier: Apache-2.0
"""Who may do what by REST, how often, and that no answer ever contains a token."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import pytest
from fastapi.testclient import TestClient

from controller.api.auth import Access
from controller.service.booking_requests import MOST_OF_A_WORKGROUP
from controller.service.events import EventKind
from controller.service.workgroups import (
    Grant,
    VlanSet,
    Workgroup,
    Workgroups,
)
from controller.tests.rig import Clock, Rig, assert_problem
from controller.tests.sample import MAC_1, MAC_2

TOKENS = {name: f"the-secret-token-of-{name}" for name in ("unidata", "other", "ops", "peer")}


def digest(name: str) -> tuple[bytes]:
    return (hashlib.sha256(TOKENS[name].encode()).digest(),)


GROUPS = Workgroups(
    [
        Workgroup(
            "unidata",
            digest("unidata"),
            grants=(
                Grant("s1", 1, VlanSet.parse("100-199")),
                Grant("s2", 9, VlanSet.parse("100-199,205")),
            ),
        ),
        Workgroup("other", digest("other"), grants=(Grant("s1", 1, VlanSet.parse("1-4094")),)),
        Workgroup("ops", digest("ops"), is_admin=True),
        Workgroup("peer", digest("peer"), is_peer=True),
    ]
)
ROOT: dict[str, Any] = {"switch": "s1", "port": 1, "vlan": 101, "macs": [MAC_1]}
LEAF: dict[str, Any] = {"switch": "s2", "port": 9, "vlan": 102, "macs": [MAC_2]}
PATH: dict[str, Any] = {"name": "NGRID", "root": ROOT, "rate_bps": 20_000_000}


class Site:
    def __init__(self, requests_per_s: float = 1000.0) -> None:
        self.rig = Rig()
        self.clock = Clock()
        self.access = Access(GROUPS, requests_per_s, self.clock)
        self.http = self.rig.http_as("192.0.2.1", self.access)

    def __getitem__(self, name: str) -> TestClient:
        """Return a client of a workgroup."""
        self.http.headers["authorization"] = f"Bearer {TOKENS[name]}"
        return self.http


@pytest.fixture
def site() -> Site:
    return Site()


def test_no_token_no_answer(site: Site) -> None:
    response = site.http.get("/v1/paths")
    assert_problem(response, 401, "no token; valid: the header 'Authorization: Bearer TOKEN'")
    assert response.headers["www-authenticate"] == "Bearer"
    for header in ("Bearer wrong-token-0123456789", "Basic eDp5", "Bearer", "Bearer a b", "\x01"):
        response = site.http.get("/v1/health", headers={"authorization": header})
        assert_problem(response, 401)
    for url in ("/openapi.json", "/v1/metrics", "/v1/health", "/nowhere"):
        assert site.http.get(url).status_code in (401, 429)


def test_forged_origin_is_not_believed(site: Site) -> None:
    for header in ("x-forwarded-for", "forwarded", "x-real-ip"):
        assert site.http.get("/v1/paths", headers={header: ""}).status_code == 401


def test_workgroup_uses_what_it_was_granted(site: Site) -> None:
    response = site["unidata"].post("/v1/paths", json={**PATH, "root": {**ROOT, "vlan": 200}})
    assert_problem(response, 403, "VLAN 200 on port 1 of switch 's1'", "valid VLANs there: 100-199")
    assert site["unidata"].post("/v1/paths", json=PATH).status_code == 201
    far = {**LEAF, "switch": "s4"}
    response = site["unidata"].post("/v1/paths/NGRID/leaves", json=far)
    assert_problem(response, 403, "s2:9 VLANs 100-199,205")
    response = site["unidata"].post("/v1/paths/NGRID/leaves", json=LEAF)
    assert (response.status_code, response.json()["workgroup"]) == (201, "unidata")
    assert site["unidata"].get("/v1/workgroups/me").json() == {
        "name": "unidata",
        "admin": False,
        "peer": False,
        "endpoints": [
            {"switch": "s1", "port": 1, "vlans": "100-199"},
            {"switch": "s2", "port": 9, "vlans": "100-199,205"},
        ],
    }


def test_others_do_not_see_a_path(site: Site) -> None:
    site["unidata"].post("/v1/paths", json=PATH)
    for response in (
        site["other"].get("/v1/paths/NGRID"),
        site["other"].delete("/v1/paths/NGRID"),
        site["other"].patch("/v1/paths/NGRID", json={"end_time": None}),
        site["other"].post("/v1/paths/NGRID/leaves", json=LEAF),
        site["other"].delete("/v1/paths/NGRID/leaves/s2/9/102"),
    ):
        assert_problem(response, 404, "no path 'NGRID'")
        assert response.json() == {
            **site["other"].get("/v1/paths/none").json(),
            "detail": response.json()["detail"],
        }
    assert site["other"].get("/v1/paths").json() == []
    response = site["other"].post("/v1/paths", json=PATH)
    assert_problem(response, 409, "the name 'NGRID' is in use")
    assert "unidata" not in response.text and "101" not in response.json()["detail"]
    assert len(site["ops"].get("/v1/paths").json()) == 1
    assert site["ops"].delete("/v1/paths/NGRID").status_code == 204


def test_admin_makes_paths_for_others(site: Site) -> None:
    made = site["ops"].post("/v1/paths", json={**PATH, "workgroup": "unidata"})
    assert (made.status_code, made.json()["workgroup"]) == (201, "unidata")
    assert site["unidata"].post("/v1/paths", json=PATH).status_code == 200
    response = site["unidata"].post("/v1/paths", json={**PATH, "name": "x", "workgroup": "other"})
    assert_problem(response, 403, "may not make paths of 'other'")


def test_holds_are_the_workgroups_own(site: Site) -> None:
    body = {"id": "h", "hold_s": 60, "path": {**PATH, "leaves": [LEAF]}}
    assert site["unidata"].post("/v1/holds", json=body).status_code == 201
    assert site["unidata"].post("/v1/holds", json=body).status_code == 201
    assert_problem(site["other"].post("/v1/holds/h/commit"), 404, "no hold 'h'")
    assert_problem(site["other"].delete("/v1/holds/h"), 404)
    assert_problem(site["other"].get("/v1/holds/h"), 404)
    assert site["unidata"].get("/v1/paths").json() == []
    assert site["unidata"].get("/v1/holds/h").json()["state"] == "held"
    response = site["unidata"].post("/v1/holds/h/commit")
    assert response.json()["leaves"] == [{**LEAF, "state": "up"}]
    bad = {**body, "id": "i", "path": {**PATH, "leaves": [{**LEAF, "switch": "s3"}]}}
    assert_problem(site["unidata"].post("/v1/holds", json=bad), 403, "switch 's3'")


def reservation(site: Site, name: str, number: int = 0, **changes: Any) -> dict[str, Any]:
    """The number says how many hours from now."""
    start = site.rig.clock.now + 3600 * (number + 1)
    times = {"start_time": start, "end_time": start + 3600}
    return {**PATH, "name": name, "rate_bps": 0, "leaves": [], **times, **changes}


@pytest.mark.slow
def test_no_workgroup_takes_all_reservations(site: Site) -> None:
    for number in range(MOST_OF_A_WORKGROUP):
        made = site["unidata"].post(
            "/v1/reservations", json=reservation(site, f"R{number}", number)
        )
        assert made.status_code == 201
    last = reservation(site, "last", MOST_OF_A_WORKGROUP)
    response = site["unidata"].post("/v1/reservations", json=last)
    assert_problem(response, 409, "found 100 reservations of workgroup 'unidata'; valid: fewer")
    again = site["unidata"].post("/v1/reservations", json=reservation(site, "R3", 3))
    assert again.status_code == 200
    for number in range(2):
        body = reservation(site, f"S{number}", number, root={**ROOT, "vlan": 900})
        assert site["other"].post("/v1/reservations", json=body).status_code == 201
    assert site["unidata"].delete("/v1/reservations/R3").status_code == 204
    assert site["unidata"].post("/v1/reservations", json=last).status_code == 201


def test_others_do_not_see_a_reservation(site: Site) -> None:
    """They see neither its name, its workgroup nor its times, whatever they ask for."""
    secret = reservation(site, "secret-name", 7)
    assert site["unidata"].post("/v1/reservations", json=secret).status_code == 201
    for response in (
        site["other"].get("/v1/reservations/secret-name"),
        site["other"].delete("/v1/reservations/secret-name"),
    ):
        assert_problem(response, 404, "nothing is reserved for path 'secret-name'")
    assert site["other"].get("/v1/reservations").json() == []
    start = f"{secret['start_time']:.3f}"
    vlan = {**ROOT, "vlan": 900}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/reservations", {**secret, "root": vlan}),
        ("/v1/reservations", {**secret, "name": "mine"}),
        ("/v1/paths", {**PATH, "name": "secret-name", "root": vlan}),
        ("/v1/paths", {**PATH, "name": "mine"}),
        ("/v1/holds", {"id": "i", "hold_s": 60, "path": {**PATH, "name": "mine", "leaves": []}}),
        ("/v1/holds", {"id": "j", "hold_s": 60, "path": {**PATH, "name": "secret-name",
                                                          "root": vlan, "leaves": []}}),
    ]  # fmt: skip
    for url, body in asked:
        response = site["other"].post(url, json=body)
        assert response.status_code == 409, (url, body, response.text)
        named = body.get("name") or body["path"]["name"]
        for word in ("secret-name", "unidata", start):
            assert word not in response.text or word == named, response.text
    assert len(site["ops"].get("/v1/reservations").json()) == 1


@pytest.mark.slow
def test_rate_limits() -> None:
    """5 requests per second and workgroup, 10 at once; 4 times as many for an address."""
    site = Site(requests_per_s=5.0)
    codes = [site["unidata"].get("/v1/health").status_code for _ in range(11)]
    assert codes == [200] * 10 + [429]
    response = site["unidata"].get("/v1/health")
    assert_problem(response, 429, "workgroup 'unidata' sent too many requests; valid: retry in 1 s")
    assert response.headers["retry-after"] == "1"
    assert site["ops"].get("/v1/health").status_code == 200
    site.clock.now += 1
    codes = [site["unidata"].get("/v1/health").status_code for _ in range(6)]
    assert codes == [200] * 5 + [429]
    for name in ("ops", "peer", "other", "ops", "peer", "other"):
        for _ in range(10):
            response = site[name].get("/v1/health")
    assert_problem(response, 429, "address 192.0.2.1")


def test_guessing_tokens_is_slow(site: Site) -> None:
    headers = {"authorization": "Bearer not-a-token-of-anybody"}
    codes = [site.http.get("/v1/health", headers=headers).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2
    assert site["ops"].get("/v1/health").status_code == 200  # a connection that exists stays


def test_owner_of_the_socket_needs_no_token_but_may_use_one(site: Site) -> None:
    local = site.rig.http_as("", site.access)
    assert local.get("/v1/workgroups/me").json()["name"] == "owner"
    local.headers["authorization"] = f"Bearer {TOKENS['unidata']}"
    assert local.get("/v1/workgroups/me").json()["name"] == "unidata"
    local.headers["authorization"] = "Bearer wrong-token-0123456789"
    assert local.get("/v1/workgroups/me").status_code == 401


def test_no_token_is_logged_or_answered(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [*TOKENS.values(), "wrong-secret-0123456789"]
    answers = []
    for secret in secrets:
        site.http.headers["authorization"] = f"Bearer {secret}"
        for method, url, body in (
            ("GET", "/v1/paths", None),
            ("POST", "/v1/paths", PATH),
            ("POST", "/v1/paths", {**PATH, "rate_bps": -1}),
            ("POST", "/v1/paths", {**PATH, "root": {**ROOT, "switch": "nowhere"}}),
            ("POST", "/v1/paths/NGRID/leaves", LEAF),
            ("PUT", "/v1/paths", None),
            ("GET", "/v1/workgroups/me", None),
        ):
            answers.append(site.http.request(method, url, json=body))
        site.http.headers["authorization"] = f"Basic {secret}"
        answers.append(site.http.get("/v1/paths"))
    assert {answer.status_code for answer in answers} >= {200, 201, 401, 403, 405, 422}
    assert "refused workgroup=unidata request=POST '/v1/paths' status=422" in caplog.text
    for secret in secrets:
        assert secret not in caplog.text
        for answer in answers:
            assert secret not in answer.text
            assert secret not in str(answer.headers)


def test_pages(site: Site) -> None:
    for number in range(5):
        body = {**PATH, "name": f"p{number}", "root": {**ROOT, "vlan": 110 + number}}
        assert site["unidata"].post("/v1/paths", json=body).status_code == 201
    first = site["unidata"].get("/v1/paths?limit=2")
    assert [path["name"] for path in first.json()] == ["p0", "p1"]
    assert first.headers["link"] == '</v1/paths?limit=2&after=p1>; rel="next"'
    last = site["unidata"].get("/v1/paths?limit=2&after=p3")
    assert [path["name"] for path in last.json()] == ["p4"]
    assert "link" not in last.headers
    for bad in ("limit=0", "limit=1001", "limit=x"):
        assert_problem(site["unidata"].get(f"/v1/paths?{bad}"), 422, "query.limit")


def test_minimal_answer(site: Site) -> None:
    prefer = {"prefer": "return=minimal"}
    response = site["unidata"].post("/v1/paths", json=PATH, headers=prefer)
    assert (response.status_code, response.json()) == (201, {"name": "NGRID", "state": "up"})
    assert response.headers["preference-applied"] == "return=minimal"


@pytest.mark.slow
def test_standby_says_who_is_active(site: Site) -> None:
    site.rig.service.deactivate("192.0.2.7:8080")
    response = site["ops"].get("/v1/paths")
    assert_problem(response, 503, "the active one is 192.0.2.7:8080")
    assert response.headers["retry-after"] == "2"
    assert_problem(site["ops"].post("/v1/paths", json=PATH), 503)
    assert site["ops"].get("/v1/health").json()["role"] == "standby"


def test_network_events_are_for_admins_and_peers(site: Site) -> None:
    from controller.api.rest import _concerns

    log = site.rig.service.events
    of_path = log.add(EventKind.LEAF_ADDED, 0.0, "unidata", path="NGRID")
    of_network = log.add(EventKind.LINK_DOWN, 0.0, link="s1:s2")
    seen = {}
    for name in TOKENS:
        who = site.access.admit(site[name].headers, "192.0.2.1")
        seen[name] = tuple(_concerns(who, event) for event in (of_path, of_network))  # type: ignore[arg-type]
    assert seen == {
        "unidata": (True, False),
        "other": (False, False),
        "ops": (True, True),
        "peer": (False, True),
    }


SECRETS = ("unidata", "ops", "secretpath", "hx", "4:1404", "1404", "02:aa:bb:cc:dd:ee", "s4", "151")
SECRET_LEAF = {"switch": "s4", "port": 9, "vlan": 1404, "macs": ["02:aa:bb:cc:dd:ee"]}
SECRET = {
    **PATH,
    "name": "secretpath",
    "root": {**ROOT, "vlan": 151},
    "workgroup": "unidata",
    "leaves": [SECRET_LEAF],
}


def assert_tells_nothing(response: Any, status: int, asked: str = "") -> None:
    """Check that the answer has no word that the asking workgroup did not send itself."""
    assert_problem(response, status)
    for secret in SECRETS:
        assert secret in asked or secret not in response.text, response.text


def test_another_workgroups_hold_id_is_only_taken(site: Site) -> None:
    body = {"id": "hx", "hold_s": 60, "path": SECRET}
    assert site["ops"].post("/v1/holds", json=body).status_code == 201
    for path in (
        PATH,
        {**PATH, "root": SECRET["root"]},
        {**PATH, "rate_bps": 0, "end_time": 2_000_000_000},
    ):
        response = site["other"].post("/v1/holds", json={"id": "hx", "hold_s": 1, "path": path})
        assert_tells_nothing(response, 409, "hx" + str(path))
        assert response.json()["detail"] == "the hold id 'hx' is in use; valid: another one"
    own = {"id": "hx", "hold_s": 60, "path": {**SECRET, "rate_bps": 0}}
    assert_problem(site["ops"].post("/v1/holds", json=own), 409, "exists with other content")


def test_name_that_another_workgroup_holds_is_only_taken(site: Site) -> None:
    """The answer gives neither the hold's id nor its end, nor even that it is a hold."""
    body = {"id": "hx", "hold_s": 60, "path": SECRET}
    assert site["ops"].post("/v1/holds", json=body).status_code == 201
    wish = {**PATH, "name": "secretpath"}
    for response in (
        site["other"].post("/v1/paths", json=wish),
        site["other"].post("/v1/holds", json={"hold_s": 1, "path": wish}),
    ):
        assert_tells_nothing(response, 409, "secretpath")
        assert response.json()["detail"] == "the name 'secretpath' is in use; valid: another one"
        assert response.json()["type"].endswith(":path-exists")
    assert_problem(
        site["unidata"].post("/v1/paths", json={**PATH, "name": "secretpath"}), 409, "hx"
    )


def test_endpoint_in_use_does_not_say_by_whose_path(site: Site) -> None:
    """Neither while it is held, nor when it is a path's."""
    body = {"id": "hx", "hold_s": 60, "path": SECRET}
    assert site["ops"].post("/v1/holds", json=body).status_code == 201
    wish = {**PATH, "name": "x", "root": SECRET["root"]}
    for commit in (False, True):
        if commit:
            assert site["ops"].post("/v1/holds/hx/commit").status_code == 200
        for response in (
            site["other"].post("/v1/paths", json=wish),
            site["other"].post("/v1/holds", json={"hold_s": 1, "path": wish}),
        ):
            assert_tells_nothing(response, 409, str(wish))
            assert response.json()["detail"] == "endpoint s1:1:151 is in use by another path"
        for name in ("ops", "unidata"):  # they may see that path
            response = site[name].post("/v1/paths", json=wish)
            assert_problem(response, 409, "in use by path 'secretpath'")


def test_hold_of_an_admin_on_a_workgroups_path(site: Site) -> None:
    site["unidata"].post("/v1/paths", json=PATH)
    body = {"id": "hx", "hold_s": 60, "path": {**PATH, "workgroup": "ops", "leaves": [LEAF]}}
    response = site["ops"].post("/v1/holds", json=body)
    assert_problem(response, 409, "workgroup unidata instead of ops")


def test_path_made_meanwhile_by_another_workgroup(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of the name and the change, another workgroup may get the name."""
    site["unidata"].post("/v1/paths", json=PATH)
    monkeypatch.setattr("controller.api.rest._owner", lambda *asked: asked[-1].name)
    for wish in (PATH, {**PATH, "rate_bps": 0}):
        for response in (
            site["other"].post("/v1/paths", json=wish),
            site["other"].post("/v1/holds", json={"hold_s": 1, "path": wish}),
        ):
            assert_tells_nothing(response, 409)
            assert response.json()["detail"] == "the name 'NGRID' is in use; valid: another one"


def test_a_path_that_may_not_be_seen_answers_as_one_that_is_not_there(site: Site) -> None:
    site["unidata"].post("/v1/paths", json=PATH)
    for url in ("/v1/paths/{}", "/v1/paths/{}/counters"):
        hidden = site["other"].get(url.format("NGRID"))
        missing = site["other"].get(url.format("NGRIE"))
        assert hidden.status_code == missing.status_code == 404
        assert hidden.text.replace("NGRID", "NGRIE") == missing.text
