# SPDX-License-Identifier: Apache-2.0
"""Three domains' path services together: what users see, what switches hold, where frames go."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.federation.tests.networks import chain, endpoint, mac
from controller.federation.tests.rig import DomainRig, WorldRig
from controller.federation.values import Commit, Release, Request, Reserve
from controller.paths.core import Endpoint
from controller.service.service import Failure, Why
from controller.tests.fake_switch import Frame
from topologies.model.network import Impairment

GROUP = "01:00:5e:01:01:01"
RATE = 20_000_000
ROOT = endpoint("a1")
NEAR, IN_B, IN_C, IN_C_TOO = endpoint("a2"), endpoint("b2"), endpoint("c2"), endpoint("c1", 2)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WorldRig]:
    rig = WorldRig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def a(world: WorldRig) -> DomainRig:
    rig = world.domains["a"]
    body = {"name": "P", "root": json_of(ROOT), "rate_bps": RATE}
    assert rig.http.post("/v1/paths", json=body).status_code == 201
    return rig


def json_of(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "switch": endpoint.switch,
        "port": endpoint.port,
        "vlan": endpoint.vlan,
        "macs": list(endpoint.macs),
    }


def join(rig: DomainRig, leaf: Endpoint, status: int = 201) -> dict[str, Any]:
    response = rig.http.post("/v1/paths/P/leaves", json=json_of(leaf))
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body


def leave(rig: DomainRig, leaf: Endpoint, status: int = 200) -> dict[str, Any]:
    url = f"/v1/paths/P/leaves/{leaf.switch}/{leaf.port}/{leaf.vlan}"
    response = rig.http.delete(url)
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body


def at(leaf: Endpoint) -> tuple[str, int, int]:
    return leaf.key


def from_root(world: WorldRig, dst: str = GROUP) -> list[tuple[str, int, int | None]]:
    return world.deliver("a1", 9, Frame(dst, ROOT.macs[0], ROOT.vlan))


def test_a_path_over_three_domains(world: WorldRig, a: DomainRig) -> None:
    shown = join(a, IN_C)
    assert (shown["state"], shown["leaves"]) == ("up", [{**json_of(IN_C), "state": "up"}])
    assert from_root(world) == [at(IN_C)]
    for leaf in (IN_B, NEAR, IN_C_TOO):
        join(a, leaf)
    assert from_root(world) == sorted(map(at, (NEAR, IN_B, IN_C, IN_C_TOO)))
    # Unicast both ways, through two hand-offs; nothing from leaf to leaf.
    assert from_root(world, IN_C.macs[0]) == [at(IN_C)]
    assert from_root(world, IN_B.macs[0]) == [at(IN_B)]
    up = Frame(ROOT.macs[0], IN_C.macs[0], IN_C.vlan)
    assert world.deliver("c2", 9, up) == [at(ROOT)]
    across = Frame(IN_B.macs[0], IN_C.macs[0], IN_C.vlan)
    assert world.deliver("c2", 9, across) == []
    assert world.deliver("c2", 9, Frame(ROOT.macs[0], mac("c2", 3), IN_C.vlan)) == []


@pytest.mark.slow
def test_asking_again_changes_nothing(world: WorldRig, a: DomainRig) -> None:
    join(a, IN_C)
    before = world.entries()
    sent = len(a.wires["b"].requests)
    assert join(a, IN_C, 200)["leaves"] == [{**json_of(IN_C), "state": "up"}]
    without_macs = Endpoint(*IN_C.key)
    assert join(a, without_macs, 200)["state"] == "up"
    assert "exists with MACs" in join(a, Endpoint.of(*IN_C.key, [mac("c2", 2)]), 409)["detail"]
    assert world.entries() == before
    assert [r for r in a.wires["b"].requests[sent:] if r.kind != "query"] == []


@pytest.mark.slow
def test_leaving_undoes_joining(world: WorldRig, a: DomainRig) -> None:
    empty = world.entries()
    join(a, IN_C)
    one = world.entries()
    join(a, IN_B)
    join(a, IN_C_TOO)
    leave(a, IN_B)
    leave(a, IN_C_TOO)
    assert world.entries() == one
    assert leave(a, IN_C)["leaves"] == []
    assert world.entries() == empty
    assert a.federation.record("P") is None
    detail = leave(a, IN_C, 404)["detail"]
    assert detail == "path 'P' has no leaf c2:9:101; its leaves: none"
    join(a, IN_C)
    assert a.http.delete("/v1/paths/P").status_code == 204
    assert all(rig.http.get("/v1/paths").json() == [] for rig in world.domains.values())


@pytest.mark.slow
def test_order_of_messages(world: WorldRig, a: DomainRig) -> None:
    """It is reserved from the root on, and committed from the far end."""
    order: list[tuple[str, str]] = []
    for name, wire in a.wires.items():

        def note(request: Any, name: str = name) -> str:
            if request.kind != "query":
                order.append((name, request.kind))
                if request.kind == "commit":  # the own domain's switches have no entries yet
                    assert not world.deliver("a1", 9, Frame(GROUP, ROOT.macs[0], ROOT.vlan))
            return "ok"

        wire.fate = note
    join(a, IN_C)
    assert order == [("b", "reserve"), ("c", "reserve"), ("c", "commit"), ("b", "commit")]


@pytest.mark.slow
def test_views(world: WorldRig, a: DomainRig) -> None:
    join(a, IN_C)
    shown = a.http.get("/v1/domains/paths/P").json()
    assert shown["coordinator"] == "a"
    assert [(s["domain"], s["link"], s["vlan"], s["state"]) for s in shown["segments"]] == [
        ("a", None, None, "confirmed"),
        ("b", "a2:b1", 200, "confirmed"),
        ("c", "b2:c1", 201, "confirmed"),
    ]
    assert shown["segments"][2]["leaves"] == ["c2:9:101"]
    in_b = world.domains["b"].http.get("/v1/domains/connections").json()
    assert [(c["coordinator"], c["path"], c["state"]) for c in in_b] == [("a", "P", "committed")]
    peers = {p["domain"]: p["state"] for p in a.http.get("/v1/domains/peers").json()}
    assert peers == {"b": "answers", "c": "answers"}
    assert [p["name"] for p in world.domains["b"].http.get("/v1/paths").json()] == ["a:P"]


@pytest.mark.slow
def test_counters_and_metrics_are_of_the_own_domain(a: DomainRig) -> None:
    join(a, NEAR)
    join(a, IN_C)
    counters = a.http.get("/v1/paths/P/counters")
    assert counters.status_code == 200, counters.text
    assert {(leaf["switch"], leaf["port"]) for leaf in counters.json()["leaves"]} == {
        ("a2", 9),
        ("a2", 2),  # what was handed off to domain b
    }
    metrics = a.http.get("/v1/metrics")
    assert metrics.status_code == 200, metrics.text
    assert 'downpour_path_up{path="P"' in metrics.text


@pytest.mark.slow
def test_a_vlan_id_that_only_the_other_side_has_given_away(world: WorldRig, a: DomainRig) -> None:
    b = world.domains["b"]
    for number, vlan in ((1, 200), (2, 201)):
        root = Endpoint("b1", 2, vlan, (mac("b1", number),))
        b.own.create(f"x{number}", root, 1000)
    join(a, IN_B)
    entry = a.http.get("/v1/domains/paths/P").json()["segments"][1]
    assert (entry["link"], entry["vlan"]) == ("a2:b1", 202)
    assert len([r for r in a.wires["b"].requests if isinstance(r, Reserve)]) == 2
    assert from_root(world) == [at(IN_B)]


@pytest.mark.slow
def test_no_capacity_in_a_remote_domain(tmp_path: Path) -> None:
    slow = Impairment(rate_bps=30_000_000, delay_ms=1)
    network = chain("abc")
    links = tuple(
        replace(k, forward=slow, backward=slow) if k.name == "c1:c2" else k for k in network.links
    )
    world = WorldRig(tmp_path, "abc", replace(network, links=links))
    try:
        a, c = world.domains["a"], world.domains["c"]
        for name, root in (("Q", endpoint("a1", 2)), ("P", ROOT)):
            body = {"name": name, "root": json_of(root), "rate_bps": RATE}
            assert a.http.post("/v1/paths", json=body).status_code == 201
        first = a.http.post("/v1/paths/Q/leaves", json=json_of(endpoint("c2", 2)))
        assert first.status_code == 201, first.text
        before = world.entries()
        refused = join(a, IN_C, 409)
        assert refused["type"] == "urn:downpour:problem:no-capacity"
        assert refused["detail"].startswith("domain 'c': link 'c1:c2'")
        assert "30000000 bit/s" in refused["detail"]
        assert world.entries() == before
        assert [note.connection.path for note in c.federation.notes()] == ["Q"]
        # Nothing is held any more: the reservations along the way were released.
        join(a, IN_B)
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Reserve, Commit])
@pytest.mark.parametrize("domain", ["b", "c"])
@pytest.mark.parametrize("fate", ["lost", "deaf"])
def test_no_answer(
    world: WorldRig, a: DomainRig, kind: type[Reserve] | type[Commit], domain: str, fate: str
) -> None:
    before = world.entries()
    a.wires[domain].fate = lambda request: fate if isinstance(request, kind) else "ok"
    problem = join(a, IN_C, 504)
    assert problem["type"] == "urn:downpour:problem:domain-timeout"
    assert problem["detail"].startswith(f"domain '{domain}' did not answer {kind.__name__.lower()}")
    assert world.entries() == before
    assert a.federation.record("P") is None
    a.wires[domain].fate = lambda _request: "ok"
    join(a, IN_C)
    assert from_root(world) == [at(IN_C)]


@pytest.mark.slow
def test_releases_are_repeated(world: WorldRig, a: DomainRig) -> None:
    """Domain c is cut off for a while; b obeys, but its replies are lost."""
    before = world.entries()
    lost, deaf = iter(range(4)), iter(range(3))
    a.wires["c"].fate = lambda _request: "lost" if next(lost, None) is not None else "ok"

    def fate(request: Request) -> str:
        if isinstance(request, Release):
            return "deaf" if next(deaf, None) is not None else "ok"
        return "deaf" if isinstance(request, Commit) else "ok"

    a.wires["b"].fate = fate
    assert join(a, IN_C, 504)["detail"].startswith("domain 'c'")
    assert join(a, IN_B, 504)["detail"].startswith("domain 'b'")
    world.wait_for("all is undone", lambda: a.federation.record("P") is None)
    assert next(lost, None) is None and next(deaf, None) is None
    assert world.entries() == before


@pytest.mark.slow
def test_a_switch_that_refuses_or_is_not_there(world: WorldRig, a: DomainRig) -> None:
    before = world.entries()
    b = world.domains["b"]
    b.refusing = {"b1"}
    refused = join(a, IN_C, 502)
    assert refused["detail"].startswith("domain 'b': not done: ")
    b.refusing = set()
    world.wait_for("undone", lambda: world.entries() == before)
    b.failing = {"b1": Failure(Why.NOT_CONNECTED)}
    assert "domain 'b'" in join(a, IN_C, 504)["detail"]
    b.failing = {}
    b.own.switch_up("b1")
    world.wait_for("undone", lambda: world.entries() == before)
    assert b.http.get("/v1/paths").json() == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_restarts_keep_the_path(world: WorldRig, a: DomainRig, victim: str) -> None:
    join(a, IN_C)
    join(a, IN_B)
    before = world.entries()
    world.domains[victim].restart()
    assert world.entries() == before
    assert a.http.get("/v1/paths/P").json()["state"] == "up"
    leave(a, IN_C)
    assert from_root(world) == [at(IN_B)]


@pytest.mark.slow
def test_a_segment_that_its_coordinator_does_not_know_is_released(
    world: WorldRig, a: DomainRig, tmp_path: Path
) -> None:
    empty_b = world.domains["b"].entries()
    join(a, IN_C)
    a.federation.stop()
    a._file = tmp_path / "new.sqlite"  # the disk of `a` is lost
    a.start()
    a.federation.start()
    b = world.domains["b"]
    world.wait_for("b is empty", lambda: b.http.get("/v1/paths").json() == [])
    assert b.entries() == empty_b


@pytest.mark.slow
def test_a_domain_that_lost_its_segment_gets_it_back(world: WorldRig, a: DomainRig) -> None:
    join(a, IN_C)
    before = world.entries()
    b = world.domains["b"]
    b.own.delete("a:P")
    assert from_root(world) == []
    world.wait_for("all is back", lambda: world.entries() == before)
    world.wait_for("up", lambda: a.http.get("/v1/paths/P").json()["state"] == "up")


@pytest.mark.slow
def test_a_controller_that_is_not_active_any_more_decides_nothing(
    world: WorldRig, a: DomainRig
) -> None:
    before = world.entries()
    a.store.fence(1)  # another controller has the lease
    assert join(a, IN_C, 503)["type"] == "urn:downpour:problem:standby"
    assert world.entries() == before
    a.store.fence(None)
    world.wait_for("it is active again", lambda: a.federation.is_running)
    join(a, IN_C)
    assert from_root(world) == [at(IN_C)]


@pytest.mark.slow
def test_a_path_that_ends_by_itself_ends_everywhere(world: WorldRig, a: DomainRig) -> None:
    join(a, IN_C)
    a.own.delete("P")  # as when its end time comes
    c = world.domains["c"]
    world.wait_for("c is empty", lambda: c.http.get("/v1/paths").json() == [])
    world.wait_for("forgotten", lambda: a.federation.record("P") is None)


@pytest.mark.slow
def test_changes_answer_with_the_view_that_get_gives(world: WorldRig, a: DomainRig) -> None:
    """PATCH and the commit of a hold show the leaves in all domains, without hand-offs."""
    join(a, IN_C)
    end_time = time.time() + 1000
    changed = a.http.patch("/v1/paths/P", json={"end_time": end_time})
    assert changed.status_code == 200, changed.text
    assert changed.json() == a.http.get("/v1/paths/P").json()
    assert [leaf["switch"] for leaf in changed.json()["leaves"]] == [IN_C.switch]
    path = a.http.get("/v1/paths/P").json()
    wish = {key: path[key] for key in ("name", "root", "rate_bps", "end_time")}
    near = {**wish, "leaves": [json_of(NEAR)]}
    held = a.http.post("/v1/holds", json={"id": "h", "hold_s": 60, "path": near})
    assert held.status_code == 201, held.text
    done = a.http.post("/v1/holds/h/commit")
    assert done.status_code == 200, done.text
    assert done.json() == a.http.get("/v1/paths/P").json()
    assert sorted(leaf["switch"] for leaf in done.json()["leaves"]) == [NEAR.switch, IN_C.switch]
    a.http.patch("/v1/paths/P", json={"end_time": None})
    assert from_root(world) == sorted(map(at, (NEAR, IN_C)))


@pytest.mark.slow
def test_end_time_of_a_path_that_is_just_growing(a: DomainRig) -> None:
    """The hold for leaves in other domains is internal: PATCH waits for it to end."""
    answers: list[int] = []

    def patch() -> None:
        answers.append(a.http.patch("/v1/paths/P", json={"end_time": None}).status_code)

    threads: list[threading.Thread] = []

    def note(request: Any) -> str:
        if request.kind == "reserve" and not threads:
            threads.append(threading.Thread(target=patch))
            threads[0].start()
            time.sleep(0.3)  # it finds the path held
        return "ok"

    a.http.patch("/v1/paths/P", json={"end_time": time.time() + 1000})
    a.wires["b"].fate = note
    join(a, IN_C)
    threads[0].join(60)
    assert answers == [200]
    assert a.http.get("/v1/paths/P").json()["end_time"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "ends", "instead"), [("a2:b1", "ab", "a1:b2"), ("b2:c1", "bc", "b1:c1")]
)
def test_another_hand_off_when_one_fails(
    world: WorldRig, a: DomainRig, link: str, ends: str, instead: str
) -> None:
    for leaf in (NEAR, IN_B, IN_C):
        join(a, leaf)
    before = world.entries()
    for end in ends:
        world.domains[end].service.note_link(link, False, "port down")

    def links() -> list[str]:
        return [s["link"] for s in a.http.get("/v1/domains/paths/P").json()["segments"]]

    everyone = sorted(map(at, (NEAR, IN_B, IN_C)))
    world.wait_for("another hand-off", lambda: instead in links() and link not in links())
    world.wait_for("all are served", lambda: from_root(world) == everyone)
    # Frames flow before the coordinator has written down that all have confirmed.
    world.wait_for("up", lambda: a.http.get("/v1/paths/P").json()["state"] == "up")
    assert len(a.http.get("/v1/paths/P").json()["leaves"]) == 3
    # The link works again; paths stay where they are until a leaf joins again.
    for end in ends:
        world.domains[end].service.note_link(link, True, "")
    for leaf in (IN_B, IN_C):
        leave(a, leaf)
    assert from_root(world) == [at(NEAR)]
    if link == "a2:b1":  # the coordinator notices by itself
        join(a, IN_B)
        join(a, IN_C)
        assert world.entries() == before


@pytest.mark.slow
def test_leaves_without_any_way_wait_for_one(world: WorldRig, a: DomainRig) -> None:
    join(a, NEAR)
    join(a, IN_B)
    both = from_root(world)
    for link in ("a2:b1", "a1:b2"):
        for end in "ab":
            world.domains[end].service.note_link(link, False, "port down")

    def is_left() -> bool:
        record = a.federation.record("P")
        assert record is not None
        return record.is_at_rest and not record.tree.entries

    world.wait_for("b is left", is_left)
    assert world.domains["b"].http.get("/v1/paths").json() == []
    assert from_root(world) == [at(NEAR)]
    shown = a.http.get("/v1/paths/P").json()
    assert shown["state"] == "degraded"
    assert {leaf["switch"]: leaf["state"] for leaf in shown["leaves"]} == {"a2": "up", "b2": "down"}
    refused = join(a, IN_C, 422)
    assert refused["type"] == "urn:downpour:problem:unreachable"
    for end in "ab":
        world.domains[end].service.note_link("a1:b2", True, "")
    world.wait_for("b is served again", lambda: from_root(world) == both)
    leave(a, IN_B)
    assert from_root(world) == [at(NEAR)]


@pytest.mark.slow
def test_what_cannot_be(a: DomainRig) -> None:
    hand_off = Endpoint("a2", 2, 200, (mac("b2", 1),))
    assert "is at the hand-off to domain 'b'" in join(a, hand_off, 422)["detail"]
    assert "is not in domain 'a'" in join(a, Endpoint("zz", 9, 101, ()), 422)["detail"]
    unknown = Endpoint("c2", 9, 150)
    assert "is in another domain and has no MACs" in join(a, unknown, 422)["detail"]
    bad_port = Endpoint("c2", 7, 101, (mac("c2", 1),))
    detail = join(a, bad_port, 422)["detail"]
    assert detail.startswith("domain 'c': port 7 of switch 'c2' is not an access port")
    assert a.federation.record("P") is None
    join(a, NEAR)
    stolen = Endpoint("c2", 9, 101, NEAR.macs)
    assert (
        f"MAC {NEAR.macs[0]} of leaf c2:9:101 is already at a2:9:101"
        in (join(a, stolen, 422)["detail"])
    )


@pytest.mark.slow
def test_messages_of_others_are_refused(world: WorldRig, a: DomainRig) -> None:
    b = world.domains["b"]
    join(a, IN_C)
    body = b'{"connection":{"coordinator":"a","path":"P"},"version":9,"kind":"commit"}'

    def post(body: bytes, domain: str | None) -> tuple[int, str]:
        headers = {} if domain is None else {"downpour-domain": domain}
        response = b.http.post("/v1/domains/messages", content=body, headers=headers)
        return response.status_code, response.text

    assert post(body, "c")[0] == 403
    assert "is not a connection of domain 'c'" in post(body, "c")[1]
    assert post(body, None)[0] == 403
    assert "not another controller domain" in post(body, "zz")[1]
    status, text = post(body, "a")
    assert status == 200
    assert "is not, or no longer, reserved" in text
    for broken in (b"", b"{", b'{"kind":"reserve"}', body.replace(b"9", b"-9")):
        assert post(broken, "a")[0] == 422
