# SPDX-License-Identifier: Apache-2.0
"""Subscriptions from logs that are written here by hand: what was sent to whom, and what was lost,
in flight, or recovered. Times are seconds after 2026-11-21T01:46:00Z."""

from __future__ import annotations

import calendar
import datetime
import json
from collections.abc import Sequence

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.measure.subscriptions import (
    Feed,
    ScriptEvent,
    Subscription,
    feed_of,
    parse_events,
    reached_s,
    sessions_of,
    subscription_of,
)
from parsers.read.ldm_log import LdmLog, parse_ldm_log
from parsers.read.products import ListedProduct

ZERO_S = calendar.timegm((2026, 11, 21, 1, 46, 0, 0, 0, 0))
LEAF = "ashb:2:303"


def moment(at_s: float) -> str:
    when = datetime.datetime.fromtimestamp(ZERO_S, datetime.UTC) + datetime.timedelta(seconds=at_s)
    return f"{when:%Y%m%dT%H%M%S}.{when.microsecond:06d}Z"


def line(at_s: float, message: str, prog: str = "down7") -> str:
    return f"{moment(at_s)} {prog}[7]   x.c:f:1   INFO  {message}\n"


def info(number: int) -> str:
    return f"     10000 20261121014600.000000 NGRID {number:03d}  NGRID.{number:06d}"


def received(at_s: float, number: int) -> str:
    text = f'Received: {{delay: 0.020000 s, index: {number}, retrans: 0, info: "{info(number)}"}}'
    return line(at_s, text)


def listed(*numbers: int, md5: str = "0" * 32) -> tuple[ListedProduct, ...]:
    return tuple(ListedProduct(md5, 10_000, f"NGRID.{n:06d}") for n in numbers)


def log(text: str) -> LdmLog:
    found = parse_ldm_log(text, "x.log")
    assert found.problems == ()
    return found


# Product n is inserted at second n, n = 1 to 9; a subscriber that stays has each 0.1 s later.
NUMBERS = range(1, 10)
PUBLISHER = log(
    line(0.0, "Path service: path ready: path=NGRID, root=star:4:101, ms=30, leaves=0", "mldm")
    + line(2.3, f"Path service: leaf added: path=NGRID, endpoint={LEAF}, ms=12.5, leaves=1", "mldm")
    + line(5.9, f"Path service: leaf removed: path=NGRID, endpoint={LEAF}, ms=8, leaves=0", "mldm")
    + line(7.3, f"Path service: leaf added: path=NGRID, endpoint={LEAF}, ms=11, leaves=1", "mldm")
)
FEED: Feed = feed_of(
    "NGRID",
    log("".join(line(n, f"Inserted: {info(n)}", "pqinsert") for n in NUMBERS)),
    listed(*NUMBERS),
    PUBLISHER,
)
STAYED = log(line(0.2, "Receiving") + "".join(received(n + 0.1, n) for n in NUMBERS))
REACHED = reached_s([STAYED])


def event(at_s: float, what: str) -> ScriptEvent:
    return ScriptEvent.model_validate(
        {"time_s": ZERO_S + at_s, "what": what, "subscriber": "uva", "feed": "NGRID"}
    )


def subscription(
    text: str, events: Sequence[ScriptEvent], held: Sequence[ListedProduct]
) -> Subscription:
    own = log(text)
    sessions = sessions_of(events, own, FEED, LEAF)
    return subscription_of("uva", FEED, sessions, own, held, REACHED)


def test_who_stays_has_everything() -> None:
    found = subscription_of(
        "uwisc",
        FEED,
        sessions_of([event(0.0, "join")], STAYED, FEED, "star:5:404"),
        STAYED,
        listed(*NUMBERS),
        REACHED,
    )
    assert found.stayed
    assert (found.sent, found.received, found.lost, found.in_flight) == (9, 9, (), 0)
    assert (found.away, found.recovered, found.duplicates, found.damaged) == (0, 0, 0, 0)
    assert found.by == {"fmtp": 9}
    (session,) = found.sessions
    assert session.how == "stayed"
    assert session.after_join(session.ready_s) == pytest.approx(0.2)
    assert session.leaf_added_took_s is None  # that was the other subscriber's leaf


# Joins at 2.0, is connected at 2.5, leaves at 5.5; comes back at 7.0, is connected at 7.5.
TWO_SESSIONS = [event(2.0, "join"), event(5.5, "leave"), event(7.0, "join")]
FIRST = line(2.5, "Receiving") + received(3.1, 3) + received(4.1, 4)
SECOND = line(7.5, "Receiving") + "".join(
    (line(7.8, f"Backlog: {info(5)}"), line(7.8, f"Backlog: {info(6)}"),
     line(7.9, f"Backlog: {info(7)}"), received(8.1, 8), received(9.1, 9))
)  # fmt: skip


def test_who_comes_back_gets_what_was_sent_meanwhile() -> None:
    found = subscription(FIRST + SECOND, TWO_SESSIONS, listed(3, 4, 5, 6, 7, 8, 9))
    # 3, 4, 5 in the first session, 8 and 9 in the second; 6 and 7 while it was away.
    assert not found.stayed
    assert (found.sent, found.received, found.lost, found.in_flight) == (5, 5, (), 0)
    assert (found.away, found.recovered, found.not_recovered) == (2, 2, ())
    assert found.by == {"backlog": 3, "fmtp": 4}
    first, second = found.sessions
    assert (first.how, second.how) == ("left", "stayed")
    assert first.after_join(first.first_product_s) == pytest.approx(1.1)
    assert first.leaf_added_took_s == 0.0125
    assert first.prune_took_s == pytest.approx(0.4)
    assert second.after_join(second.ready_s) == pytest.approx(0.5)
    assert second.after_join(second.first_product_s) == pytest.approx(0.8)
    assert second.after_join(second.first_multicast_s) == pytest.approx(1.1)
    assert second.leaf_added_took_s == 0.011
    assert second.prune_took_s is None


def test_changes_of_the_path_belong_to_the_session_they_were_for() -> None:
    """It left before the leaf was there, and came back before the leaf was gone: the leaf was added
    at 2.3 and removed at 5.9."""
    events = [event(1.0, "join"), event(2.1, "kill"), event(2.2, "join"), event(5.5, "leave")]
    early, second = sessions_of([*events, event(5.7, "join")], log(FIRST), FEED, LEAF)[:2]
    assert (early.leaf_added_took_s, early.pruned_s, early.ready_s) == (None, None, None)
    assert second.leaf_added_took_s == 0.0125
    assert second.pruned_s is None


def test_a_product_missing_in_a_session_is_lost() -> None:
    found = subscription(FIRST + SECOND, TWO_SESSIONS, listed(3, 5, 6, 7, 8, 9))
    assert (found.sent, found.received, found.lost) == (5, 4, ("NGRID.000004",))


def test_a_product_with_other_bytes_is_lost_and_damaged() -> None:
    held = [*listed(3, 5, 6, 7, 8, 9), *listed(4, md5="f" * 32)]
    found = subscription(FIRST + SECOND, TWO_SESSIONS, held)
    assert (found.lost, found.damaged, found.duplicates) == (("NGRID.000004",), 1, 0)


def test_a_product_twice_is_a_duplicate_and_not_lost() -> None:
    found = subscription(FIRST + SECOND, TWO_SESSIONS, listed(3, 4, 4, 5, 6, 7, 8, 9))
    assert (found.lost, found.damaged, found.duplicates) == ((), 0, 1)


def test_a_product_that_the_publisher_does_not_have_is_damaged() -> None:
    found = subscription(FIRST + SECOND, TWO_SESSIONS, listed(3, 4, 5, 6, 7, 8, 9, 77))
    assert (found.lost, found.damaged, found.duplicates) == ((), 1, 0)


def test_what_is_missing_of_a_break_is_told() -> None:
    found = subscription(FIRST + SECOND, TWO_SESSIONS, listed(3, 4, 5, 6, 8, 9))
    assert (found.lost, found.recovered) == ((), 1)
    assert found.not_recovered == ("NGRID.000007",)


@pytest.mark.parametrize(
    ("leave_s", "in_flight", "lost"),
    [
        (5.15, 1, 0),  # those who stayed had product 5 at 5.1
        (6.05, 1, 0),  # 0.95 s before
        (6.09, 1, 0),
        (6.105, 1, 1),  # 5 is more than a second old; 6 has just been sent
    ],
)
def test_only_what_was_sent_just_before_a_leave_may_be_in_flight(
    leave_s: float, in_flight: int, lost: int
) -> None:
    """Product 5 (and 6) do not arrive."""
    events = [event(2.0, "join"), event(leave_s, "kill")]
    found = subscription(FIRST, events, listed(3, 4))
    assert found.sessions[0].how == "killed"
    assert (found.in_flight, len(found.lost)) == (in_flight, lost)
    assert found.received == 2
    assert found.sent == 2 + in_flight + lost


def test_who_has_left_for_good_need_not_have_what_he_missed() -> None:
    events = [*TWO_SESSIONS, event(9.05, "leave")]
    found = subscription(FIRST + SECOND, events, listed(3, 4, 5, 8))
    assert (found.away, found.recovered, found.not_recovered) == (2, 0, ())
    assert (found.sent, found.lost) == (4, ())  # 9 had not reached those who stayed


def test_a_product_that_who_stayed_lost_too_is_lost() -> None:
    stayed = log(line(0.2, "Receiving") + "".join(received(n + 0.1, n) for n in NUMBERS if n != 4))
    own = log(FIRST)
    sessions = sessions_of([event(2.0, "join"), event(5.5, "leave")], own, FEED, LEAF)
    found = subscription_of("uva", FEED, sessions, own, listed(3, 5), reached_s([stayed]))
    assert found.lost == ("NGRID.000004",)


def test_all_who_stayed_must_have_had_it() -> None:
    late = log(line(0.2, "Receiving") + "".join(received(n + 0.5, n) for n in NUMBERS if n != 9))
    found = reached_s([STAYED, late])
    assert found["NGRID.000003"] == ZERO_S + 3.5
    assert "NGRID.000009" not in found


def test_never_connected_was_sent_nothing() -> None:
    found = subscription(line(2.1, "anything"), [event(2.0, "join")], ())
    assert (found.sent, found.away, found.lost) == (0, 0, ())
    assert found.sessions[0].ready_s is None


def test_events_are_read_in_order_of_time() -> None:
    raw = [
        {"time_s": 2.0, "what": "leave", "subscriber": "uva", "feed": "NGRID", "at_s": 1.0},
        {"time_s": 1.0, "what": "join", "subscriber": "uva", "feed": "NGRID", "at_s": 0.0},
    ]
    assert [e.what for e in parse_events(json.dumps(raw), "events.json")] == ["join", "leave"]
    raw[0]["what"] = "fly"
    with pytest.raises(BadFile, match=r"events.json: 0.what.*'join', 'leave' or 'kill'.*'fly'"):
        parse_events(json.dumps(raw), "events.json")
    with pytest.raises(BadFile, match="events.json:1: not JSON"):
        parse_events("[", "events.json")
