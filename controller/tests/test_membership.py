# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.paths.igmp import ANY, Filter, Query, Record, Report
from controller.service.membership import (
    HOSTS_MAX,
    RECORDS_BURST,
    RECORDS_PER_S,
    SOURCES_MAX,
    Membership,
    Settings,
    Watched,
)

BASE = IPv4Address("232.10.1.0")
KEY, OTHER = ("s2", 9, 102), ("s3", 9, 103)
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ONE, TWO = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")


def says(what: Filter, channel: int = 0, *sources: IPv4Address, version: int = 3) -> Report:
    return Report(version, (Record(what, BASE + channel, sources),))


JOIN, LEAVE = says(Filter.TO_EXCLUDE), says(Filter.TO_INCLUDE)
JOIN_2, LEAVE_2 = (
    says(Filter.IS_EXCLUDE, version=2),
    says(Filter.TO_INCLUDE, version=2),
)


def watching(latency_s: float = 0.0, *macs: str) -> Membership:
    membership = Membership()
    membership.watch(KEY, Watched(BASE, 46, latency_s, macs), 0.0)
    membership.tick(0.0)
    return membership


def run(membership: Membership, until_s: float) -> list[tuple[float, Query]]:
    """Return the queries up to a time, each with its time."""
    found: list[tuple[float, Query]] = []
    while (when_s := membership.next_s()) is not None and when_s <= until_s:
        found += [(when_s, asking.query) for asking in membership.tick(when_s).queries]
    return found


def test_an_endpoint_joins_with_its_first_host_and_leaves_with_its_last() -> None:
    membership = watching()
    for mac in (A, B):
        membership.report(KEY, mac, JOIN, 1.0)
    assert membership.members(KEY) == {0}
    assert membership.tick(1.0).changed == {KEY}
    membership.report(KEY, A, LEAVE, 2.0)
    assert membership.members(KEY) == {0}
    assert membership.tick(2.0).changed == set()
    membership.report(KEY, B, LEAVE, 3.0)
    assert membership.members(KEY) == frozenset()
    assert membership.tick(3.0).changed == {KEY}


def test_channels_are_apart() -> None:
    membership = watching()
    membership.report(KEY, A, says(Filter.TO_EXCLUDE, 0), 1.0)
    membership.report(KEY, A, says(Filter.TO_EXCLUDE, 45), 1.0)
    membership.report(KEY, A, says(Filter.TO_EXCLUDE, 46), 1.0)  # one after the last
    assert membership.members(KEY) == {0, 45}
    assert membership.ignored == {"other group": 1}


def test_leave_latency_imitates_a_router() -> None:
    """3 s: two queries of the group 1.5 s apart, as with a last member query interval of 1.5 s."""
    membership = watching(3.0, A)
    membership.report(KEY, A, JOIN, 1.0)
    membership.report(KEY, A, LEAVE, 10.0)
    membership.report(KEY, A, LEAVE, 10.5)  # the host's repetition does not prolong it
    asked = run(membership, 12.9)
    assert [(when_s, query.group, query.response_s) for when_s, query in asked] == [
        (10.0, BASE, 1.5),
        (11.5, BASE, 1.5),
    ]
    assert membership.members(KEY) == {0}
    run(membership, 13.0)
    assert membership.members(KEY) == frozenset()


def test_who_joins_again_in_time_has_never_left() -> None:
    membership = watching(3.0, A)
    membership.report(KEY, A, JOIN, 1.0)
    membership.tick(1.0)
    membership.report(KEY, A, LEAVE, 10.0)
    membership.report(KEY, A, JOIN, 12.0)
    assert membership.tick(12.0).changed == set()
    run(membership, 20.0)
    assert membership.members(KEY) == {0}
    membership.report(KEY, A, LEAVE, 20.0)
    assert [when_s for when_s, _ in run(membership, 23.0)] == [20.0, 21.5]
    assert membership.members(KEY) == frozenset()


def test_hosts_of_version_2_may_have_kept_quiet() -> None:
    """Another host behind the endpoint heard the report, and sent none itself: it is asked
    first."""
    membership = watching(0.0, A, B)
    membership.report(KEY, A, JOIN_2, 1.0)
    membership.report(KEY, A, LEAVE_2, 2.0)
    assert membership.members(KEY) == {0}
    assert [when_s for when_s, _ in run(membership, 2.5)] == [2.0]
    membership.report(KEY, B, JOIN_2, 2.6)
    run(membership, 9.0)
    assert membership.members(KEY) == {0}
    membership.report(KEY, B, LEAVE_2, 10.0)
    assert [when_s for when_s, _ in run(membership, 11.9)] == [10.0, 11.0]
    run(membership, 12.0)
    assert membership.members(KEY) == frozenset()


def test_a_single_host_of_version_2_leaves_at_once() -> None:
    membership = watching(0.0, A)
    membership.report(KEY, A, JOIN_2, 1.0)
    membership.report(KEY, A, LEAVE_2, 2.0)
    assert membership.members(KEY) == frozenset()


def test_queries_come_when_rfc_3376_says() -> None:
    """RFC 3376, 8.6 and 8.7: two queries a quarter of the interval apart, then one every
    interval."""
    membership = Membership()
    membership.watch(KEY, Watched(BASE, 1), 100.0)
    asked = run(membership, 400.0)
    assert [when_s for when_s, _ in asked] == [100.0, 131.25, 256.25, 381.25]
    assert [query for _, query in asked] == [Query(3, ANY, 1.0)] * 2 + [Query(3, ANY, 10.0)] * 2


def test_a_silent_host_is_a_member_for_the_interval_of_rfc_3376() -> None:
    """RFC 3376, 8.4: robustness times the query interval plus a response interval: 260 s."""
    membership = watching()
    membership.report(KEY, A, JOIN, 1.0)
    run(membership, 200.0)
    membership.report(KEY, A, says(Filter.IS_EXCLUDE), 200.0)
    run(membership, 459.0)
    assert membership.members(KEY) == {0}
    run(membership, 460.0)
    assert membership.members(KEY) == frozenset()


I, E = Filter.TO_INCLUDE, Filter.TO_EXCLUDE  # noqa: E741


@pytest.mark.parametrize(
    ("said", "is_member"),
    [
        ([(Filter.ALLOW, ONE)], True),
        ([(Filter.ALLOW, ONE), (Filter.BLOCK, ONE)], False),
        ([(Filter.ALLOW, ONE), (Filter.ALLOW, TWO), (Filter.BLOCK, ONE)], True),
        ([(Filter.IS_INCLUDE, ONE), (Filter.BLOCK, ONE)], False),
        ([(Filter.IS_INCLUDE, ONE), (I, TWO)], True),
        ([(E, ONE), (Filter.BLOCK, TWO)], True),
        ([(E, ONE), (I, TWO), (Filter.BLOCK, ONE)], True),
        ([(E, ONE), (I, TWO), (Filter.BLOCK, TWO)], False),
        ([(Filter.BLOCK, ONE)], False),
    ],
)
def test_a_host_of_any_source_is_a_member(
    said: list[tuple[Filter, IPv4Address]], is_member: bool
) -> None:
    membership = watching()
    for what, source in said:
        membership.report(KEY, A, says(what, 0, source), 1.0)
    assert (membership.members(KEY) == {0}) == is_member


def test_more_sources_than_are_kept_count_as_all() -> None:
    membership = watching()
    many = [ONE + number for number in range(SOURCES_MAX + 1)]
    membership.report(KEY, A, says(Filter.ALLOW, 0, *many), 1.0)
    membership.report(KEY, A, says(Filter.BLOCK, 0, *many), 2.0)
    assert membership.members(KEY) == {0}
    membership.report(KEY, A, LEAVE, 3.0)
    assert membership.members(KEY) == frozenset()


def test_a_stranger_joins_nothing() -> None:
    membership = watching(0.0, A)
    membership.report(KEY, B, JOIN, 1.0)  # not a host of the endpoint
    membership.report(OTHER, A, JOIN, 1.0)  # not an endpoint that may join
    membership.unwatch(KEY)
    membership.report(KEY, A, JOIN, 2.0)
    assert membership.members(KEY) == membership.members(OTHER) == frozenset()
    assert membership.ignored == {"stranger": 3}


def test_other_hosts_at_an_endpoint_lose_their_channels() -> None:
    membership = watching(0.0, A, B)
    membership.report(KEY, A, JOIN, 1.0)
    membership.report(KEY, B, says(Filter.TO_EXCLUDE, 1), 1.0)
    membership.tick(1.0)
    membership.watch(KEY, Watched(BASE, 46, 0.0, (B,)), 2.0)
    assert membership.members(KEY) == {1}
    assert membership.tick(2.0).changed == {KEY}


def test_an_endpoint_that_is_gone_and_back_begins_without_channels() -> None:
    membership = watching(3.0)
    membership.report(KEY, A, JOIN, 1.0)
    membership.tick(1.0)
    membership.unwatch(KEY)
    assert membership.tick(2.0).changed == {KEY}
    membership.watch(KEY, Watched(BASE, 46), 3.0)
    membership.report(KEY, A, JOIN, 100.0)
    run(membership, 359.0)  # timers of the first time do not count
    assert membership.members(KEY) == {0}
    run(membership, 360.0)
    assert membership.members(KEY) == frozenset()


def test_after_a_restart_channels_stay_until_hosts_had_time_to_answer() -> None:
    """Two queries 31.25 s apart, and 10 s for the last answer."""
    membership = Membership()
    membership.watch(KEY, Watched(BASE, 46, 0.0, (A, B)), 0.0, joined=[0, 1, 2])
    assert membership.members(KEY) == {0, 1, 2}
    membership.report(KEY, A, JOIN, 5.0)
    run(membership, 72.4)
    assert membership.members(KEY) == {0, 1, 2}
    run(membership, 72.5)
    assert membership.members(KEY) == {0}
    assert membership.tick(72.5).changed == set()


def test_after_a_restart_a_single_host_leaves_at_once() -> None:
    membership = Membership()
    membership.watch(KEY, Watched(BASE, 46, 0.0, (A,)), 0.0, joined=[0])
    membership.report(KEY, A, LEAVE, 1.0)
    assert membership.members(KEY) == frozenset()


def test_a_host_that_reports_without_end_harms_no_other() -> None:
    """10,000 reports a second for 10 s; then the others' reports count as before."""
    membership = watching(9.0, A, B)
    for number in range(100_000):
        now_s = 1.0 + number / 10_000
        membership.report(KEY, A, LEAVE if number % 2 else JOIN, now_s)
        membership.tick(now_s)
    taken = 100_000 - membership.ignored["too often"]
    assert RECORDS_BURST <= taken <= RECORDS_BURST + 10 * RECORDS_PER_S + 1
    assert timers(membership) < 4 * taken
    membership.report(KEY, B, says(Filter.TO_EXCLUDE, 7), 11.0)
    assert 7 in membership.members(KEY)


def test_a_report_of_many_groups_takes_no_memory() -> None:
    membership = watching()
    records = tuple(Record(Filter.TO_EXCLUDE, BASE + 46 + n) for n in range(180))
    for number in range(1000):
        membership.report(KEY, A, Report(3, records), 1.0 + number / 100)
    assert membership.ignored == {"other group": 180_000}
    assert timers(membership) == 1  # the general query


def timers(membership: Membership) -> int:
    return len(membership._timers)


def test_hosts_of_an_endpoint_are_bounded() -> None:
    """Hosts that have joined nothing are dropped first; those that have joined stay."""
    membership = watching()
    for number in range(2 * HOSTS_MAX):
        membership.report(KEY, f"06:00:00:00:00:{number:02x}", LEAVE, 1.0)
    membership.report(KEY, A, JOIN, 2.0)
    assert membership.members(KEY) == {0}
    for number in range(2 * HOSTS_MAX):
        membership.report(KEY, f"06:00:00:00:00:{number:02x}", JOIN, 3.0)
    assert membership.ignored["too many hosts"] == HOSTS_MAX + 1
    membership.report(KEY, A, LEAVE, 4.0)
    assert membership.members(KEY) == {0}


hosts = st.sampled_from([A, B])
events = st.one_of(
    st.tuples(st.just("report"), hosts, st.integers(0, 3), st.sampled_from(Filter), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.0, 200.0)),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(events, max_size=60), st.sampled_from([0.0, 0.5, 9.0]))
def test_members_are_those_whose_hosts_said_so(
    story: list[tuple[object, ...]], latency_s: float
) -> None:
    """Compare with a model: each host's last report per group, and its time. An endpoint is a
    member as long as a report of a host is fresh, and for `latency_s` after the last one was taken
    back."""
    membership = Membership(Settings(last_member_s=0.0))
    membership.watch(KEY, Watched(BASE, 3, latency_s, (A, B)), 0.0)
    now_s = 0.0
    wants: dict[tuple[str, int], tuple[bool, bool, float]] = {}  # excludes, source, since
    left_s: dict[int, float] = {}

    def wanting(channel: int, at_s: float) -> bool:
        return any(
            (excludes or source) and at_s < since_s + 260.0
            for (_, number), (excludes, source, since_s) in wants.items()
            if number == channel
        )

    for event in story:
        if event[0] == "wait":
            assert isinstance(event[1], float)
            now_s += event[1]
        else:
            _, mac, channel, what, with_source = event
            assert isinstance(mac, str) and isinstance(channel, int) and isinstance(what, Filter)
            membership.tick(now_s)
            named = (ONE,) if with_source else ()
            membership.report(KEY, mac, says(what, channel, *named), now_s)
            if channel < 3:
                before = wanting(channel, now_s)
                excludes, source, since_s = wants.get((mac, channel), (False, False, now_s))
                if since_s + 260.0 <= now_s:
                    excludes = source = False
                if what in (Filter.IS_EXCLUDE, Filter.TO_EXCLUDE):
                    excludes, source = True, False
                elif what in (Filter.IS_INCLUDE, Filter.TO_INCLUDE):
                    excludes, source = False, bool(with_source)
                elif what is Filter.ALLOW:
                    source = source or (bool(with_source) and not excludes)
                elif not excludes:
                    source = source and not with_source
                if excludes or source:
                    wants[mac, channel] = (excludes, source, now_s)
                    left_s.pop(channel, None)
                else:
                    wants.pop((mac, channel), None)
                    if before and not wanting(channel, now_s):
                        left_s[channel] = now_s + latency_s
        membership.tick(now_s)
        expected = {
            channel
            for channel in range(3)
            if wanting(channel, now_s) or now_s < left_s.get(channel, -1.0)
        }
        assert membership.members(KEY) == expected
        next_s = membership.next_s()
        assert next_s is not None and next_s > now_s
