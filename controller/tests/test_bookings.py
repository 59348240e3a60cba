# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time: booked, begun, ended, cancelled, kept over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.api.auth import Access
from controller.paths.core import Endpoint
from controller.service.service import Failure, PathWish, Why
from controller.service.store import Store
from controller.service.workgroups import Workgroups
from controller.tests.rig import Rig, problem
from controller.tests.sample import LEAF_2, LEAF_4, ROOT, network

MBPS = 1_000_000
NOW = 1_000_000.0  # of the rig's clock
ROOT_B = Endpoint("s1", 1, 501)
LEAF_4B = Endpoint("s4", 9, 504)


def book(rig: Rig, name: str, rate_mbps: int, start: float, end: float, *ends: Endpoint) -> None:
    """Times count from now. The links to s4 have 100 Mbit/s."""
    root, *leaves = ends or (ROOT, LEAF_4)
    wish = PathWish(name, root, rate_mbps * MBPS, end_time=NOW + end, leaves=tuple(leaves))
    rig.service.book(wish, NOW + start)


def names(rig: Rig) -> list[str]:
    return sorted(view.path.name for view in rig.service.paths())


def at(rig: Rig, seconds: float) -> None:
    rig.clock.now = NOW + seconds
    rig.service.expire()


def test_a_reservation_begins_and_ends(rig: Rig) -> None:
    book(rig, "a", 80, 10, 20)
    assert rig.sent == [] and names(rig) == []  # no switch gets messages before that
    at(rig, 9)
    assert names(rig) == []
    at(rig, 10)
    (view,) = rig.service.paths()
    assert view.up and view.path.end_time == NOW + 20
    assert [leaf.key for leaf in view.path.leaves] == [LEAF_4.key]
    assert rig.service.bookings() == []
    at(rig, 20)
    assert names(rig) == []
    rig.assert_settled()


def test_what_is_booked_is_kept_for_it(rig: Rig) -> None:
    """Both ways to s4 have 100 Mbit/s. 80 are booked on one, so 30 fit on the other, once."""
    book(rig, "a", 80, 10, 20)
    rig.service.create("now", ROOT_B, 90 * MBPS)
    error = problem(lambda: rig.service.add_leaf("now", LEAF_4B))
    assert (error.status, error.kind) == (409, "no-capacity")
    assert "80000000 bit/s are guaranteed" in error.detail
    rig.service.delete("now")
    rig.service.create("now", ROOT_B, 90 * MBPS, end_time=NOW + 10)
    rig.service.add_leaf("now", LEAF_4B)
    error = problem(lambda: rig.service.set_end_time("now", NOW + 11))
    assert error.kind == "no-capacity"
    at(rig, 10)
    assert names(rig) == ["a"]


def test_endpoints_are_kept_too(rig: Rig) -> None:
    book(rig, "a", 0, 10, 20)
    error = problem(lambda: rig.service.create("b", ROOT, 0))
    assert error.kind == "endpoint-in-use" and "path 'a'" in error.detail
    wish = PathWish("h", ROOT_B, 0, leaves=(LEAF_4,))
    assert problem(lambda: rig.service.hold("h", wish, NOW + 30)).kind == "endpoint-in-use"
    assert rig.service.owner_of(ROOT_B.key) is None  # nothing of the hold is left
    rig.service.create("b", ROOT, 0, end_time=NOW + 10)


def test_the_name_is_taken(rig: Rig) -> None:
    book(rig, "a", 0, 10, 20)
    book(rig, "a", 0, 10, 20)  # the same again
    error = problem(lambda: rig.service.create("a", ROOT_B, 0, end_time=NOW + 5))
    assert error.kind == "path-exists" and "is reserved from 1000010.000" in error.detail
    assert problem(lambda: book(rig, "a", 5, 10, 20)).kind == "path-exists"
    assert problem(lambda: book(rig, "a", 0, 11, 20)).kind == "path-exists"
    assert problem(lambda: book(rig, "a", 0, 10, 20, ROOT, LEAF_2)).kind == "path-exists"
    rig.service.create("b", ROOT_B, 0)
    assert problem(lambda: book(rig, "b", 0, 30, 40)).kind == "path-exists"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [(0, 10, "start_time 1000000.000"), (-5, 10, "start_time 999995.000"), (10, 10, "end_time")],
)
def test_times_that_cannot_be(rig: Rig, start: float, end: float, text: str) -> None:
    error = problem(lambda: book(rig, "a", 0, start, end))
    assert error.status == 422 and text in error.detail and "valid: after" in error.detail


def test_cancelled_is_gone(rig: Rig) -> None:
    book(rig, "a", 80, 10, 20)
    rig.service.cancel("a")
    assert problem(lambda: rig.service.cancel("a")).kind == "unknown-reservation"
    at(rig, 15)
    assert names(rig) == []
    book(rig, "b", 80, 20, 30)


def test_a_restart_keeps_reservations(tmp_path: Path) -> None:
    rig = Rig(Store(tmp_path / "store", network().name, "core"))
    book(rig, "a", 80, 10, 20)
    book(rig, "b", 5, 30, 40, ROOT_B, LEAF_4B)
    rig.restart()
    assert [booking.name for booking in rig.service.bookings()] == ["a", "b"]
    at(rig, 12)
    assert names(rig) == ["a"]
    rig.restart()
    assert [booking.name for booking in rig.service.bookings()] == ["b"]


def test_one_that_cannot_begin_is_tried_again(rig: Rig) -> None:
    book(rig, "a", 80, 10, 20)
    rig.failing["s1"] = Failure(Why.NOT_CONNECTED)
    rig.service.switch_down("s1")
    at(rig, 10)
    assert [booking.name for booking in rig.service.bookings()] == ["a"]
    del rig.failing["s1"]
    rig.service.switch_up("s1")
    at(rig, 12)
    (view,) = rig.service.paths()
    assert view.up and [leaf.key for leaf in view.path.leaves] == [LEAF_4.key]
    assert rig.service.bookings() == []


def test_one_that_never_could_begin_ends(rig: Rig) -> None:
    book(rig, "a", 80, 10, 20)
    at(rig, 21)
    assert names(rig) == [] and rig.service.bookings() == []


def body(**changes: Any) -> dict[str, Any]:
    ends = {"root": {"switch": "s1", "port": 1, "vlan": 101}}
    leaf = {"switch": "s4", "port": 9, "vlan": 104}
    times = {"start_time": NOW + 10, "end_time": NOW + 20}
    return {"name": "a", **ends, "leaves": [leaf], "rate_bps": 0, **times, **changes}


def test_rest(rig: Rig) -> None:
    http = rig.http
    first = http.post("/v1/reservations", json=body())
    assert first.status_code == 201
    assert first.json()["start_time"] == NOW + 10
    assert http.post("/v1/reservations", json=body()).status_code == 200
    assert http.get("/v1/reservations").json() == [first.json()]
    assert http.get("/v1/reservations/a").json() == first.json()
    wrong = http.post("/v1/reservations", json=body(name="b", start_time=NOW - 1))
    assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:downpour:problem:invalid")
    without = {k: v for k, v in body(name="b").items() if k != "end_time"}
    assert http.post("/v1/reservations", json=without).status_code == 422
    assert http.delete("/v1/reservations/a").status_code == 204
    gone = http.get("/v1/reservations/a")
    assert (gone.status_code, gone.json()["type"]) == (
        404,
        "urn:downpour:problem:unknown-reservation",
    )


def test_another_workgroup_sees_nothing(rig: Rig) -> None:
    rig.service.book(
        PathWish("a", ROOT, 0, workgroup="ops", end_time=NOW + 20, leaves=(LEAF_4,)), NOW + 10
    )
    access = Access(Workgroups())
    assert rig.http_as("", access).get("/v1/reservations").json()[0]["workgroup"] == "ops"
