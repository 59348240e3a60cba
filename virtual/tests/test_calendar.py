# SPDX-License-Identifier: Apache-2.0
"""The calendar of guests that run together: step by step, and with simulated parts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtual.parts.calendar import Calendar, CalendarError, Grant, window_of

MS = 1_000_000


def test_two_parts_run_the_same_window() -> None:
    """With windows of 10 ms, events at 3 and 7 ms are in the first, one at 10 ms is in the
    second."""
    calendar = Calendar(2, 10 * MS)
    assert calendar.grants() == []
    calendar.waits(0, 3 * MS)
    assert calendar.grants() == []  # part 1 is still starting
    calendar.waits(1, 7 * MS)
    assert calendar.grants() == [Grant(0, 3 * MS, 10 * MS), Grant(1, 7 * MS, 10 * MS)]
    assert calendar.grants() == []
    calendar.waits(1, 10 * MS)
    assert calendar.grants() == []  # not before part 0 has ended the window
    calendar.waits(0, 25 * MS)
    assert calendar.grants() == [Grant(1, 10 * MS, 20 * MS)]
    calendar.waits(1, None)
    assert calendar.grants() == [Grant(0, 25 * MS, 30 * MS)]
    assert calendar.windows == 3


def test_one_after_the_other_is_the_same_windows() -> None:
    calendar = Calendar(2, 10 * MS, together=False)
    calendar.waits(1, 2 * MS)
    calendar.waits(0, 1 * MS)
    assert calendar.grants() == [Grant(0, 1 * MS, 10 * MS)]
    assert calendar.grants() == []
    calendar.waits(0, 11 * MS)
    assert calendar.grants() == [Grant(1, 2 * MS, 10 * MS)]
    calendar.waits(1, 12 * MS)
    assert calendar.grants() == [Grant(0, 11 * MS, 20 * MS)]
    assert calendar.windows == 2


def test_a_part_that_has_ended_holds_nobody_up() -> None:
    calendar = Calendar(2, 10 * MS)
    calendar.waits(0, 0)
    assert calendar.grants() == []
    calendar.gone(1)
    assert calendar.grants() == [Grant(0, 0, 10 * MS)]
    assert not calendar.over
    calendar.gone(0)
    assert calendar.over
    assert calendar.grants() == []


def test_what_breaks_the_protocol_is_said() -> None:
    calendar = Calendar(2, 10 * MS)
    calendar.waits(0, 5 * MS)
    with pytest.raises(CalendarError, match="part 0 waits, but it did not run"):
        calendar.waits(0, 6 * MS)
    calendar.waits(1, None)
    assert calendar.grants() == [Grant(0, 5 * MS, 10 * MS)]
    with pytest.raises(
        CalendarError, match="part 0 wants to run at 9999999 ns; valid: from 10000000"
    ):
        calendar.waits(0, 10 * MS - 1)
    calendar.waits(0, None)
    with pytest.raises(CalendarError, match="all parts wait, and none says until when"):
        calendar.grants()
    with pytest.raises(ValueError, match="found 0 parts, 5 ns"):
        Calendar(0, 5)


def test_a_window_and_the_lead_are_the_least_delay_in_whole_ticks() -> None:
    """17.8 ms are 69,531.25 ticks of 256 ns; the longest window, 22.5 ms, has 87,890.625."""
    assert window_of([45 * MS, 18 * MS]) == 69_531 * 256
    assert window_of([90 * MS, 45 * MS]) == 87_890 * 256
    assert window_of([200_256]) == 256
    for bad in ([], [200_255], [10 * MS, 0]):
        with pytest.raises(ValueError, match="valid: at least 200256 ns"):
            window_of(bad)


@given(
    seed=st.integers(0, 2**32),
    parts=st.integers(1, 5),
    window_ns=st.integers(1, 50),
    together=st.booleans(),
)
def test_no_part_is_two_windows_ahead_of_another(
    seed: int, parts: int, window_ns: int, together: bool
) -> None:
    """Simulated parts wish at random. Whatever the order of their answers, what one does in a
    window is over before another begins the next, and every wish is granted at its time."""
    die = random.Random(seed)
    calendar = Calendar(parts, window_ns, together=together)
    running: dict[int, Grant | None] = dict.fromkeys(range(parts))
    wishes: dict[int, int] = {}
    ended_ns = 0
    for _ in range(200):
        part = die.choice(sorted(running))
        grant = running.pop(part)
        earliest = 0 if grant is None else grant.end_ns
        wishes[part] = earliest + die.randrange(3 * window_ns)
        calendar.waits(part, wishes[part])
        granted = calendar.grants()
        if not granted:
            assert running
            continue
        assert not running  # no part runs while others get a grant
        assert together or len(granted) == 1
        for one in granted:
            assert one.begin_ns == wishes.pop(one.part)
            assert one.end_ns % window_ns == 0
            assert one.end_ns - window_ns <= one.begin_ns < one.end_ns
            assert one.end_ns >= ended_ns
            running[one.part] = one
        ended_ns = granted[0].end_ns
        late = [part for part, wish in wishes.items() if wish < ended_ns]
        assert not late or not together
