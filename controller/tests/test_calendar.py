# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time: at no moment is more booked than a link has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.paths.calendar import Booking, Calendar, capacities_of, loads_of
from controller.paths.core import Core, Endpoint, EndpointInUse, NoCapacity, PlanError
from controller.paths.multipoint_path import MultipointPath
from controller.paths.reservations import Direction
from controller.tests.domains import cores, endpoints, make_core
from controller.tests.planning import Desk

SETTINGS = settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MBPS = 1_000_000


@st.composite
def wishes(draw: st.DrawFn, core: Core, number: int) -> tuple[MultipointPath, float, float]:
    some = draw(st.lists(endpoints(core), min_size=2, max_size=4, unique_by=lambda e: e.key))
    rate_bps = draw(st.sampled_from([0, 3 * MBPS, 6 * MBPS, 10 * MBPS]))
    start_s = draw(st.integers(0, 8))
    end_s = start_s + draw(st.integers(1, 8))
    path = MultipointPath(f"p{number}", 1, some[0], rate_bps, leaves=tuple(some[1:]))
    return path, float(start_s), float(end_s)


def filled(data: st.DataObject, core: Core, number: int, later_s: float = 0.0) -> Calendar:
    """Return as many of `number` wishes as fit."""
    calendar = Calendar(core)
    for n in range(number):
        wish, start_s, end_s = data.draw(wishes(core, n))
        try:
            calendar.put(calendar.plan(wish, start_s + later_s, end_s + later_s, []))
        except PlanError:
            continue
    return calendar


def at(core: Core, bookings: list[Booking], moment: float) -> Counter[Direction]:
    total: Counter[Direction] = Counter()
    for booking in bookings:
        if booking.start_s <= moment < booking.end_s:
            total.update(loads_of(core, booking.path))
    return total


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_at_no_moment_is_more_booked_than_there_is(data: st.DataObject) -> None:
    core = data.draw(cores())
    capacities = capacities_of(core)
    bookings = list(filled(data, core, 6))
    for moment in range(17):
        load = at(core, bookings, moment)
        assert all(load[d] <= capacities[d] for d in load if d in capacities)
        active = [b for b in bookings if b.start_s <= moment < b.end_s]
        keys = [e.key for b in active for e in b.path.endpoints]
        assert len(keys) == len(set(keys))


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_a_path_of_now_leaves_what_is_booked(data: st.DataObject) -> None:
    """Whatever `check` accepts fits together with all bookings that overlap it."""
    core = data.draw(cores())
    capacities = capacities_of(core)
    calendar = filled(data, core, 3, later_s=1.0)
    desk = Desk(core)
    wish, _, end_s = data.draw(wishes(core, 99))
    try:
        path = desk.create(wish.name, wish.root, wish.rate_bps, end_time=end_s)
        calendar.check(None, path, 0.0, Desk(core).reservations)
        for leaf in wish.leaves:
            desk.add(wish.name, leaf)
        now = desk[wish.name]
        calendar.check(None, now, 0.0, Desk(core).reservations)
    except PlanError:
        return
    mine = loads_of(core, now)
    for moment in range(int(end_s)):
        load = at(core, list(calendar), moment)
        load.update(mine)
        assert all(load[d] <= capacities[d] for d in mine if d in capacities)


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_one_after_the_other_always_fits(data: st.DataObject) -> None:
    """Bookings without common time do not affect each other."""
    core = data.draw(cores())
    wish, _, _ = data.draw(wishes(core, 0))
    calendar = Calendar(core)
    try:
        calendar.put(calendar.plan(wish, 0.0, 10.0, []))
    except PlanError:
        return
    later = MultipointPath("later", 1, wish.root, wish.rate_bps, leaves=wish.leaves)
    calendar.put(calendar.plan(later, 10.0, 20.0, []))
    assert [booking.name for booking in calendar] == [wish.name, "later"]
    with pytest.raises(PlanError):  # the same endpoints
        calendar.plan(MultipointPath("third", 1, wish.root, 0, leaves=wish.leaves), 9.0, 11.0, [])


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_loads_are_those_that_the_books_have(data: st.DataObject) -> None:
    core = data.draw(cores())
    wish, _, _ = data.draw(wishes(core, 0))
    desk = Desk(core)
    try:
        desk.create("p", wish.root, wish.rate_bps)
        for leaf in wish.leaves:
            desk.add("p", leaf)
    except PlanError:
        return
    for (link, node), bps in loads_of(core, desk["p"]).items():
        assert desk.reservations.reserved_bps(link, node) == bps


def line(rate_mbps: int) -> tuple[Core, Endpoint, Endpoint, Endpoint, Endpoint]:
    """Return two switches, a link of this rate, and two endpoints at each."""
    core = make_core([("s1", "s2", 1.0)], {"s1:s2": rate_mbps * MBPS})
    ends = [Endpoint.of(s, 91, vlan) for s in ("s1", "s2") for vlan in (101, 102)]
    return core, ends[0], ends[1], ends[2], ends[3]


def booked(calendar: Calendar, path: MultipointPath, start_s: float, end_s: float) -> Booking:
    booking = calendar.plan(path, start_s, end_s, [])
    calendar.put(booking)
    return booking


def test_a_second_booking_waits_for_the_first() -> None:
    core, a, b, c, d = line(100)
    calendar = Calendar(core)
    booked(calendar, MultipointPath("x", 1, a, 80 * MBPS, leaves=(c,)), 10, 20)
    other = MultipointPath("y", 1, b, 30 * MBPS, leaves=(d,))
    with pytest.raises(NoCapacity, match="'s1:s2' from 's1' has 100000000 bit/s, 80000000 bit/s"):
        calendar.plan(other, 19, 30, [])
    booked(calendar, other, 20, 30)
    assert [booking.name for booking in calendar.due(15)] == ["x"]


def test_a_path_that_ends_before_a_booking_begins_is_not_in_its_way() -> None:
    core, a, b, c, d = line(100)
    calendar = Calendar(core)
    desk = Desk(core)
    desk.create("now", b, 80 * MBPS, end_time=10.0)
    desk.add("now", d)
    wish = MultipointPath("x", 1, a, 80 * MBPS, leaves=(c,))
    with pytest.raises(NoCapacity):
        calendar.plan(wish, 9, 20, [desk["now"]])
    assert calendar.plan(wish, 10, 20, [desk["now"]]).path.hops


def test_a_path_of_now_must_end_in_time() -> None:
    core, a, b, c, d = line(100)
    calendar = Calendar(core)
    booked(calendar, MultipointPath("x", 1, a, 80 * MBPS, leaves=(c,)), 10, 20)
    empty = Desk(core).reservations
    desk = Desk(core)
    desk.create("now", b, 30 * MBPS)
    desk.add("now", d)
    path = desk["now"]
    with pytest.raises(NoCapacity, match="80000000 bit/s are guaranteed"):
        calendar.check(None, path, 0.0, empty)
    calendar.check(None, replace(path, end_time=10.0), 0.0, empty)
    with pytest.raises(EndpointInUse, match="in use by path 'x'"):
        calendar.check(None, MultipointPath("y", 1, a, 0), 0.0, empty)
    calendar.check(None, MultipointPath("y", 1, a, 0, end_time=10.0), 0.0, empty)
