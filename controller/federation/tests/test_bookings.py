# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time over three domains: in every domain or in none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.federation.peers import DOMAIN_HEADER, MESSAGES_URL
from controller.federation.tests.networks import chain, endpoint
from controller.federation.tests.rig import DomainRig, WorldRig
from controller.federation.tests.test_federation import (
    IN_B,
    IN_C,
    NEAR,
    RATE,
    ROOT,
    at,
    from_root,
    json_of,
)
from controller.federation.values import AskBooking, Book, Request, Unbook, request_json
from controller.service.problems import ServiceError
from topologies.model.network import Impairment

T = round(time.time()) + 100_000.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WorldRig]:
    """Link c1:c2 carries one path, not two."""
    slow = Impairment(rate_bps=30_000_000, delay_ms=1)
    network = chain("abc")
    links = tuple(
        replace(k, forward=slow, backward=slow) if k.name == "c1:c2" else k for k in network.links
    )
    rig = WorldRig(tmp_path, "abc", replace(network, links=links))
    yield rig
    rig.close()


@pytest.fixture
def a(world: WorldRig) -> DomainRig:
    return world.domains["a"]


def book(rig: DomainRig, status: int = 201, **changes: Any) -> dict[str, Any]:
    body = {
        "name": "R",
        "root": json_of(ROOT),
        "rate_bps": RATE,
        "leaves": [json_of(leaf) for leaf in (NEAR, IN_B, IN_C)],
        "start_time": T,
        "end_time": T + 60,
    }
    response = rig.http.post("/v1/reservations", json=body | changes)
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


def booked(world: WorldRig) -> dict[str, list[str]]:
    return {name: [b.name for b in rig.own.bookings()] for name, rig in world.domains.items()}


def go_to(world: WorldRig, now: float) -> None:
    for rig in world.domains.values():
        rig.own.state.clock = lambda: now
        rig.own.expire()


def fails(rig: DomainRig, domain: str, kind: type, fate: str) -> None:
    def of(request: Request) -> str:
        return fate if isinstance(request, kind) else "ok"

    rig.wires[domain].fate = of


NONE: dict[str, list[str]] = {"a": [], "b": [], "c": []}
ALL = {"a": ["R"], "b": ["a:R"], "c": ["a:R"]}


@pytest.mark.slow
def test_begins_in_every_domain(world: WorldRig, a: DomainRig) -> None:
    empty = world.entries()
    shown = book(a)
    assert [leaf["switch"] for leaf in shown["leaves"]] == ["a2", "b2", "c2"]
    assert book(a, 200) == shown == a.http.get("/v1/reservations/R").json()
    assert "other leaves" in book(a, 409, leaves=[json_of(IN_C)])["detail"]
    assert (booked(world), world.entries()) == (ALL, empty)
    go_to(world, T + 1)
    assert booked(world) == NONE
    assert from_root(world) == sorted(map(at, (NEAR, IN_B, IN_C)))
    world.wait_for("adopted", lambda: a.federation.record("R") is not None)
    world.wait_for("up", lambda: a.http.get("/v1/paths/R").json()["state"] == "up")
    leaves = a.http.get("/v1/paths/R").json()["leaves"]
    assert sorted(leaf["switch"] for leaf in leaves) == ["a2", "b2", "c2"]
    # It is a path like any other: a leaf leaves, another joins.
    assert a.http.delete(f"/v1/paths/R/leaves/{IN_B.switch}/9/{IN_B.vlan}").status_code == 200
    assert from_root(world) == sorted(map(at, (NEAR, IN_C)))
    longer = a.http.patch("/v1/paths/R", json={"end_time": T + 61})
    assert (longer.status_code, f"at most {T + 60:.3f}" in longer.text) == (409, True)
    go_to(world, T + 60)
    world.wait_for("nothing is left", lambda: world.entries() == empty)
    world.wait_for("forgotten", lambda: a.federation.bookings.tree("R") is None)


@pytest.mark.slow
def test_a_domain_without_capacity_leaves_nothing_booked_anywhere(
    world: WorldRig, a: DomainRig
) -> None:
    book(a)
    other: dict[str, Any] = {
        "name": "Q",
        "root": json_of(endpoint("a1", 2)),
        "leaves": [json_of(endpoint("b2", 2)), json_of(endpoint("c2", 2))],
    }
    refused = book(a, 409, **other)
    assert refused["type"] == "urn:downpour:problem:no-capacity"
    assert refused["detail"].startswith("domain 'c': link 'c1:c2'")
    assert booked(world) == ALL
    # After it there is room; and two at the same time get different VLAN ids.
    book(a, start_time=T + 60, end_time=T + 90, **other)
    book(a, **other | {"name": "S", "leaves": other["leaves"][:1], "rate_bps": 1000})
    vlans = [
        (b.name, x.vlan)
        for b in world.domains["b"].own.bookings()
        for x in b.path.endpoints
        if (x.switch, x.port) == ("b1", b.path.root.port) and b.name != "a:Q"
    ]
    assert len(vlans) == 2 and vlans[0][1] != vlans[1][1], vlans


@pytest.mark.slow
def test_what_is_booked_is_kept_free_in_other_domains(world: WorldRig, a: DomainRig) -> None:
    book(a)
    c = world.domains["c"]
    body = {"name": "L", "root": json_of(endpoint("c1", 3)), "rate_bps": RATE}
    assert c.http.post("/v1/paths", json=body).status_code == 201
    leaf = c.http.post("/v1/paths/L/leaves", json=json_of(endpoint("c2", 3)))
    assert (leaf.status_code, "c1:c2" in leaf.text) == (409, True), leaf.text


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["lost", "deaf"])
def test_a_domain_that_does_not_answer(world: WorldRig, a: DomainRig, fate: str) -> None:
    """In the end no domain has it, even if the request was heard and the message that undoes it was
    not."""
    a.wires["c"].fate = lambda request: {"book": fate, "unbook": "lost"}.get(request.kind, "ok")
    assert book(a, 504)["detail"].startswith("domain 'c' did not answer")
    world.wait_for("nowhere", lambda: booked(world) == NONE)
    assert a.federation.bookings.tree("R") is None
    a.wires["c"].fate = lambda _request: "ok"
    book(a)
    assert booked(world) == ALL


@pytest.mark.slow
def test_cancelling_reaches_a_domain_that_was_away(world: WorldRig, a: DomainRig) -> None:
    # Before there is a booking: a question under way would be answered after the cancellation.
    fails(world.domains["c"], "a", AskBooking, "lost")
    book(a)
    fails(a, "c", Unbook, "lost")
    assert a.http.delete("/v1/reservations/R").status_code == 204
    assert booked(world) == NONE | {"c": ["a:R"]}
    fails(world.domains["c"], "a", AskBooking, "ok")
    world.wait_for("c asked", lambda: booked(world) == NONE)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_restarts_keep_reservations(world: WorldRig, a: DomainRig, victim: str) -> None:
    book(a)
    world.domains[victim].restart()
    assert booked(world) == ALL
    go_to(world, T + 1)
    assert from_root(world) == sorted(map(at, (NEAR, IN_B, IN_C)))


@pytest.mark.slow
def test_the_own_domain_decides_last(
    world: WorldRig, a: DomainRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its booking cannot be written, the others are told to drop theirs."""

    def full(*_: object) -> None:
        raise ServiceError(507, "store", "Store cannot be written", "the disk is full")

    monkeypatch.setattr(a.own, "book", full)
    assert book(a, 507)["detail"] == "the disk is full"
    assert (booked(world), a.federation.bookings.tree("R")) == (NONE, None)


@pytest.mark.slow
def test_a_domain_that_lost_its_booking_is_asked_anew(world: WorldRig, a: DomainRig) -> None:
    book(a)
    world.domains["c"].own.cancel("a:R")
    world.wait_for("c has it again", lambda: booked(world) == ALL)


@pytest.mark.slow
def test_a_domain_that_an_attempt_came_by_is_told(world: WorldRig, a: DomainRig) -> None:
    """It is no longer on the way: a booking of another version is void, at once or when the domain
    asks."""
    # Before there is a booking: a question under way would be answered after the cancellation.
    fails(world.domains["c"], "a", AskBooking, "lost")
    book(a)
    fails(a, "c", Unbook, "lost")
    assert a.http.delete("/v1/reservations/R").status_code == 204
    book(a, leaves=[json_of(leaf) for leaf in (NEAR, IN_B)])
    assert booked(world) == ALL  # c still has the old one
    fails(world.domains["c"], "a", AskBooking, "ok")
    world.wait_for("c asked", lambda: booked(world) == ALL | {"c": []})


@pytest.mark.slow
def test_old_messages_undo_nothing(world: WorldRig, a: DomainRig) -> None:
    """Messages that were delayed for long: a booking of an earlier version, and its end."""
    book(a)
    old = next(r for r in a.wires["c"].requests if isinstance(r, Book))
    fails(a, "c", Unbook, "lost")
    a.http.delete("/v1/reservations/R")
    book(a, end_time=T + 90)
    for late in (old, Unbook(old.connection, old.version)):
        assert send(world.domains["c"], "a", late).status_code == 200
        assert world.domains["c"].own.booking("a:R").end_s == T + 90
    # The same again under a new version, which the old end does not concern.
    a.http.delete("/v1/reservations/R")
    fails(a, "c", Unbook, "ok")
    book(a, end_time=T + 90)
    send(world.domains["c"], "a", Unbook(old.connection, old.version))
    assert booked(world) == ALL


@pytest.mark.slow
def test_an_audit_does_not_forget_what_is_being_booked(
    world: WorldRig, a: DomainRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit runs between the note of a booking and the booking itself. The note's version must
    still keep out whatever is older."""
    book(a)
    old = next(r for r in a.wires["c"].requests if isinstance(r, Book))
    fails(a, "c", Unbook, "lost")
    a.http.delete("/v1/reservations/R")
    c = world.domains["c"]
    really_book = c.own.book

    def book_later(*wanted: Any) -> Any:
        c.federation._audit()
        time.sleep(0.5)
        return really_book(*wanted)

    monkeypatch.setattr(c.own, "book", book_later)
    book(a, end_time=T + 90)
    assert send(c, "a", old).status_code == 200
    assert c.own.booking("a:R").end_s == T + 90


def test_only_a_domain_on_the_way_is_told_what_is_reserved(a: DomainRig) -> None:
    book(a, leaves=[json_of(IN_B)])
    asked = next(r for r in a.wires["b"].requests if isinstance(r, Book))
    question = AskBooking(asked.connection, asked.version)
    assert send(a, "b", question).json()["kind"] == "done"
    assert send(a, "c", question).json()["kind"] == "unknown"


@pytest.mark.slow
def test_a_domain_whose_clock_is_ahead_has_begun(world: WorldRig, a: DomainRig) -> None:
    """When asked again, it says that it already has the path."""
    book(a)
    c = world.domains["c"]
    c.own.state.clock = lambda: T + 1
    c.own.expire()
    assert booked(world) == ALL | {"c": []}
    asked = next(r for r in a.wires["c"].requests if isinstance(r, Book))
    assert send(c, "a", asked).json()["kind"] == "done"
    assert [view.path.name for view in c.own.paths()] == ["a:R"]


@pytest.mark.slow
def test_what_began_is_known_while_another_is_booked(
    world: WorldRig, a: DomainRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leaf that leaves leaves at once in its own domain, even while a silent domain is
    awaited."""
    book(a)
    monkeypatch.setattr(a.federation.bookings, "tend", lambda _adopt: None)
    go_to(world, T + 1)
    with a.federation.bookings._lock:
        url = f"/v1/paths/R/leaves/{IN_C.switch}/9/{IN_C.vlan}"
        assert a.http.delete(url).status_code == 200
    assert from_root(world) == sorted(map(at, (NEAR, IN_B)))


@pytest.mark.slow
def test_a_silent_domain_is_asked_once_a_turn(world: WorldRig, a: DomainRig) -> None:
    b = world.domains["b"]
    for number in range(3):
        root, leaf = endpoint("a1", number), endpoint("b2", number)
        changes: dict[str, Any] = {
            "name": f"R{number}",
            "root": json_of(root),
            "leaves": [json_of(leaf)],
        }
        book(a, rate_bps=1000, **changes)
    a.wires["b"].fate = b.wires["a"].fate = lambda _request: "lost"
    for rig, other in ((a, "b"), (b, "a")):
        rig.federation.stop()
        for pool in rig.federation._pools.values():
            pool.shutdown()  # an audit that had begun has ended
        bookings, asked = rig.federation.bookings, rig.wires[other].requests
        asked.clear()
        with bookings._auditing:  # another turn is under way
            bookings.audit(lambda _connection: False, rig.federation._lock_of)
        assert not asked
        bookings.audit(lambda _connection: False, rig.federation._lock_of)
        assert len(asked) == 1
    assert [len(rig.own.bookings()) for rig in (a, b)] == [3, 3]


@pytest.mark.slow
def test_no_peer_takes_all_places(
    world: WorldRig, a: DomainRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.federation.bookings.MOST_OF_A_DOMAIN", 1)
    book(a)
    other: dict[str, Any] = {
        "root": json_of(endpoint("a1", 2)),
        "leaves": [json_of(endpoint("b2", 2))],
    }
    refused = book(a, 409, name="Q", rate_bps=1000, **other)
    assert "domain 'b': found 1 reservation of domain 'a'; valid: fewer" in refused["detail"]
    assert booked(world) == ALL
    assert a.http.delete("/v1/reservations/R").status_code == 204
    book(a, name="Q", rate_bps=1000, **other)


def send(rig: DomainRig, sender: str, request: Request) -> Any:
    headers = {DOMAIN_HEADER: sender}
    return rig.http.post(MESSAGES_URL, content=request_json(request), headers=headers)


@pytest.mark.slow
def test_what_cannot_be(a: DomainRig) -> None:
    nowhere = json_of(replace(IN_B, switch="nowhere"))
    assert "nowhere" in book(a, 422, leaves=[json_of(IN_C), nowhere])["detail"]
    assert (
        "b2:9:101 is in domain 'b'"
        in book(a, 422, root=json_of(IN_B), leaves=[json_of(NEAR)])["detail"]
    )
    assert "leaf_to_leaf" in book(a, 422, leaf_to_leaf=True)["detail"]
    assert "start_time" in book(a, 422, start_time=1.0)["detail"]


@pytest.mark.slow
def test_peers_book_for_themselves_alone(world: WorldRig, a: DomainRig) -> None:
    book(a)
    asked = next(r for r in a.wires["c"].requests if isinstance(r, Book))
    response = world.domains["c"].http.post(
        MESSAGES_URL, content=request_json(asked), headers={DOMAIN_HEADER: "b"}
    )
    assert response.status_code == 403, response.text
