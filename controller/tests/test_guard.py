# SPDX-License-Identifier: Apache-2.0
"""How much work a connection may cause."""

from __future__ import annotations

import pytest

from controller.paths.entries import Kind, cookie_of
from controller.paths.replies import Malformed, Type
from controller.switches.guard import (
    Bucket,
    Counts,
    Inlet,
    Strangers,
)
from controller.tests.test_replies import message, multipart, packet_in_message


def test_bucket() -> None:
    bucket = Bucket(10.0, 3.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.delay_s(100.0) == pytest.approx(0.1)
    assert not bucket.take(100.05)
    assert bucket.take(100.1)
    assert [bucket.take(200.0) for _ in range(4)] == [True, True, True, False]  # never above 3
    assert not bucket.take(150.0)  # a clock that was set back gives nothing


def test_packet_ins_above_the_rate_are_dropped_and_counted() -> None:
    counts = Counts()
    inlet = Inlet(counts)
    raw = packet_in_message(3, b"frame")
    passed = sum(inlet.judge(raw, 100.0 + n / 10_000).passes for n in range(10_000))
    assert 2990 <= passed <= 3010  # a burst of 1000, 2000 in the second
    assert counts.all()["packet_ins_dropped"] == 10_000 - passed
    assert inlet.judge(message(2, b"ping"), 101.0).passes  # others are not affected


def test_reports_leave_link_probes_alone() -> None:
    """However many hosts report at once."""
    inlet = Inlet(Counts())
    report = packet_in_message(3, b"report", cookie_of(Kind.IGMP, 7))
    probe = packet_in_message(3, b"probe", cookie_of(Kind.LLDP))
    passed = sum(inlet.judge(report, 100.0 + n / 10_000).passes for n in range(10_000))
    assert 2990 <= passed <= 3010
    assert all(inlet.judge(probe, 101.0).passes for _ in range(1000))


def test_other_messages_above_the_rate_are_waited_with() -> None:
    counts = Counts()
    inlet = Inlet(counts)
    pauses = [inlet.judge(message(2, b"ping"), 100.0).pause_s for _ in range(4010)]
    assert pauses[:4000] == [0.0] * 4000
    assert pauses[4000] == pytest.approx(0.001)
    assert pauses[4009] == pytest.approx(0.010)
    assert counts.all()["messages_delayed"] == 10


def test_malformed_messages_are_counted() -> None:
    counts = Counts()
    inlet = Inlet(counts)
    for raw in (b"", message(77, b""), message(1, bytes(5000)), multipart(13, bytes(3))):
        with pytest.raises(Malformed):
            inlet.judge(raw, 1.0)
    assert counts.all()["malformed_messages"] == 4
    assert not inlet.judge(message(Type.FLOW_REMOVED, bytes(40)), 1.0).passes


def test_newest_stranger_displaces_the_oldest() -> None:
    strangers = Strangers(2)
    a, b, c, d = (object() for _ in range(4))
    assert strangers.enter(a) is None
    assert strangers.enter(b) is None
    assert strangers.enter(c) is a
    strangers.leave(b)
    assert strangers.enter(d) is None
    assert len(strangers) == 2
    strangers.leave(b)
