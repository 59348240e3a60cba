# SPDX-License-Identifier: Apache-2.0
"""Transactions with datapaths that are plain objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from controller.entries import TABLE_MISS
from controller.messages import Barrier, Change, Command, Message
from controller.service import Failure, Why
from controller.switchboard import Switchboard

MESSAGES: tuple[Message, ...] = (Change(Command.ADD, TABLE_MISS), Barrier())


class FakeMessage:
    def __init__(self, description: Message) -> None:
        self.description = description
        self.xid = -1

    def set_xid(self, xid: int) -> None:
        self.xid = xid


class FakeDatapath:
    def __init__(self, number: int | None, answer: Callable[[Any, FakeMessage], None]) -> None:
        self.id = number
        self.answer = answer
        self.sent: list[FakeMessage] = []
        self.is_closed = False
        self.is_released = False

    def send_msg(self, message: FakeMessage) -> None:
        self.sent.append(message)
        self.answer(self, message)


def make_board(timeout_s: float) -> Switchboard:
    def build(_datapath: Any, message: Message) -> FakeMessage:
        return FakeMessage(message)

    def release(datapath: FakeDatapath) -> None:
        datapath.is_released = True

    return Switchboard(
        {"s1": 1, "s2": 2},
        build,
        lambda call: call(),
        lambda datapath: bool(datapath.is_closed),
        release,
        timeout_s,
    )


@pytest.fixture
def board() -> Switchboard:
    return make_board(0.2)


def silent(_datapath: FakeDatapath, _message: FakeMessage) -> None:
    pass


def confirming(board: Switchboard) -> Callable[[FakeDatapath, FakeMessage], None]:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Barrier):
            board.barrier_reply(datapath, message.xid)

    return answer


def test_confirmed_by_the_last_barrier(board: Switchboard) -> None:
    first, second = (FakeDatapath(n, confirming(board)) for n in (1, 2))
    board.connected(first)
    board.connected(second)
    assert board.events.get(timeout=0) == ("up", "s1")
    twice = (*MESSAGES, *MESSAGES)
    assert board.apply({"s1": twice, "s2": MESSAGES}) == {}
    assert [m.xid for m in first.sent] == list(range(first.sent[0].xid, first.sent[0].xid + 4))


def test_not_connected_and_silent(board: Switchboard) -> None:
    board.connected(FakeDatapath(1, silent))
    started = time.monotonic()
    failures = board.apply({"s1": MESSAGES, "s2": MESSAGES})
    assert 0.15 < time.monotonic() - started < 2
    assert failures == {"s1": Failure(Why.TIMEOUT, "0.2 s"), "s2": Failure(Why.NOT_CONNECTED)}


def test_first_barrier_alone_does_not_confirm(board: Switchboard) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if len(datapath.sent) == 2:
            board.barrier_reply(datapath, message.xid)

    board.connected(FakeDatapath(1, answer))
    assert board.apply({"s1": (*MESSAGES, *MESSAGES)})["s1"].why is Why.TIMEOUT


def test_error_for_one_of_ours_refuses(board: Switchboard) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Barrier):
            board.error(datapath, message.xid + 77, "not ours")
            board.barrier_reply(datapath, message.xid)
        else:
            board.error(datapath, message.xid, "OFPET_FLOW_MOD_FAILED")

    board.connected(FakeDatapath(1, answer))
    assert board.apply({"s1": MESSAGES}) == {"s1": Failure(Why.REFUSED, "OFPET_FLOW_MOD_FAILED")}


def test_foreign_error_does_not_refuse(board: Switchboard) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        board.error(datapath, 5, "not ours")
        confirming(board)(datapath, message)

    board.connected(FakeDatapath(1, answer))
    assert board.apply({"s1": MESSAGES}) == {}


def test_lost_connection_ends_the_wait_at_once() -> None:
    slow = make_board(30)
    datapath = FakeDatapath(1, silent)
    slow.connected(datapath)
    threading.Timer(0.1, slow.disconnected, [datapath]).start()
    started = time.monotonic()
    assert slow.apply({"s1": MESSAGES})["s1"].why is Why.NOT_CONNECTED
    assert time.monotonic() - started < 5
    assert slow.connected_switches() == []


def test_late_end_of_an_old_connection_is_ignored(board: Switchboard) -> None:
    old, new = (FakeDatapath(1, confirming(board)) for _ in range(2))
    board.connected(old)
    board.connected(new)
    board.disconnected(old)
    assert board.connected_switches() == ["s1"]
    assert board.apply({"s1": MESSAGES}) == {}
    assert not old.sent
    events = [board.events.get(timeout=0) for _ in range(2)]
    assert events == [("up", "s1"), ("up", "s1")]
    assert board.events.empty()


def test_sweep_finds_connections_that_ended(board: Switchboard) -> None:
    old, new, other = FakeDatapath(1, silent), FakeDatapath(1, silent), FakeDatapath(2, silent)
    for datapath in (old, new, other):
        board.connected(datapath)
    board.sweep()
    assert board.connected_switches() == ["s1", "s2"]
    old.is_closed = other.is_closed = True
    board.sweep()
    assert board.connected_switches() == ["s1"]
    assert (old.is_released, new.is_released, other.is_released) == (True, False, True)
    events = [board.events.get(timeout=0) for _ in range(4)]
    assert events[3] == ("down", "s2")
    assert board.events.empty()


def test_unknown_switches_are_left_alone(board: Switchboard) -> None:
    board.connected(FakeDatapath(99, silent))
    board.disconnected(FakeDatapath(99, silent))
    board.disconnected(FakeDatapath(None, silent))  # gone before it told its id
    assert board.events.empty()


def test_lists_without_a_closing_barrier_are_a_bug(board: Switchboard) -> None:
    with pytest.raises(ValueError, match="do not end with a barrier"):
        board.apply({"s1": MESSAGES[:1]})
