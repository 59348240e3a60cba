# SPDX-License-Identifier: Apache-2.0
"""Transactions with datapaths that are plain objects."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controller.paths.entries import (
    TABLE_MISS,
    Flow,
    Kind,
    Match,
    Meter,
    cookie_of,
)
from controller.paths.messages import (
    Barrier,
    Change,
    Command,
    DeleteOwnedFlows,
    Message,
    Request,
    Role,
    RoleRequest,
)
from controller.paths.replies import Multipart, PacketIn
from controller.paths.stats import SwitchStats
from controller.service.service import Failure, Why
from controller.switches import switchboard
from controller.switches.switchboard import Switchboard
from controller.tests.process import wait_until
from controller.tests.test_replies import (
    COOKIE,
    IN_PORT_3,
    VLAN_101,
    flow,
    meter,
    oxm_match,
    packet_in_message,
)

PORTS = {1: True, 2: False}
MESSAGES: tuple[Message, ...] = (Change(Command.ADD, TABLE_MISS), Barrier())


@dataclass(frozen=True)
class FakeMessage:
    description: Message
    xid: int


class FakeDatapath:
    def __init__(self, number: int | None, answer: Callable[[Any, FakeMessage], None]) -> None:
        self.id = number
        self.answer = answer
        self.sent: list[FakeMessage] = []
        self.is_closed = False


Board = Switchboard[FakeDatapath]


def make_board(timeout_s: float, role: Role = Role.EQUAL) -> Board:
    messages: dict[bytes, FakeMessage] = {}

    def encode(_datapath: Any, message: Message, xid: int) -> bytes:
        data = xid.to_bytes(4, "big")
        messages[data] = FakeMessage(message, xid)
        return data

    def send(datapath: FakeDatapath, data: bytes) -> None:
        assert len(data) % 4 == 0
        for start in range(0, len(data), 4):
            message = messages[data[start : start + 4]]
            datapath.sent.append(message)
            datapath.answer(datapath, message)

    def close(datapath: FakeDatapath) -> None:
        datapath.is_closed = True

    return Switchboard({"s1": 1, "s2": 2}, encode, send, close, timeout_s, role)


def events(board: Board) -> list[Any]:
    found = []
    while not board.events.empty():
        found.append(board.events.get())
    return found


@pytest.fixture
def board() -> Board:
    return make_board(0.2)


def silent(_datapath: FakeDatapath, _message: FakeMessage) -> None:
    pass


def confirming(board: Board) -> Callable[[FakeDatapath, FakeMessage], None]:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Barrier):
            board.barrier_reply(datapath, message.xid)

    return answer


def test_confirmed_by_the_last_barrier(board: Board) -> None:
    first, second = (FakeDatapath(n, confirming(board)) for n in (1, 2))
    board.connected(first, {})
    board.connected(second, {})
    assert board.events.get(timeout=0) == ("up", "s1")
    twice = (*MESSAGES, *MESSAGES)
    assert board.apply({"s1": twice, "s2": MESSAGES}) == {}
    assert [m.xid for m in first.sent] == list(range(first.sent[0].xid, first.sent[0].xid + 4))


def test_not_connected_and_silent(board: Board) -> None:
    board.connected(FakeDatapath(1, silent), {})
    started = time.monotonic()
    failures = board.apply({"s1": MESSAGES, "s2": MESSAGES})
    assert 0.15 < time.monotonic() - started < 2
    assert failures == {"s1": Failure(Why.TIMEOUT, "0.2 s"), "s2": Failure(Why.NOT_CONNECTED)}


def test_first_barrier_alone_does_not_confirm(board: Board) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if len(datapath.sent) == 2:
            board.barrier_reply(datapath, message.xid)

    board.connected(FakeDatapath(1, answer), {})
    assert board.apply({"s1": (*MESSAGES, *MESSAGES)})["s1"].why is Why.TIMEOUT


def test_error_for_one_of_ours_refuses(board: Board) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Barrier):
            board.error(datapath, message.xid + 77, "not ours")
            board.barrier_reply(datapath, message.xid)
        else:
            board.error(datapath, message.xid, "OFPET_FLOW_MOD_FAILED")

    board.connected(FakeDatapath(1, answer), {})
    assert board.apply({"s1": MESSAGES}) == {"s1": Failure(Why.REFUSED, "OFPET_FLOW_MOD_FAILED")}


def test_foreign_error_does_not_refuse(board: Board) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        board.error(datapath, 5, "not ours")
        confirming(board)(datapath, message)

    board.connected(FakeDatapath(1, answer), {})
    assert board.apply({"s1": MESSAGES}) == {}


def test_lost_connection_ends_the_wait_at_once() -> None:
    slow = make_board(30)
    datapath = FakeDatapath(1, silent)
    slow.connected(datapath, {})
    threading.Timer(0.1, slow.disconnected, [datapath]).start()
    started = time.monotonic()
    assert slow.apply({"s1": MESSAGES})["s1"].why is Why.NOT_CONNECTED
    assert time.monotonic() - started < 5
    assert slow.connected_switches() == []


def test_late_end_of_an_old_connection_is_ignored(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old connection is dead without knowing it: it does not answer."""
    monkeypatch.setattr(switchboard, "PROOF_S", 0.05)
    old, new = FakeDatapath(1, silent), FakeDatapath(1, confirming(board))
    board.connected(old, {})
    board.connected(new, {})
    wait_until("the new one is in", lambda: old.is_closed)
    assert (old.is_closed, new.is_closed) == (True, False)
    board.disconnected(old)
    assert board.connected_switches() == ["s1"]
    assert board.apply({"s1": MESSAGES}) == {}
    assert [m.description for m in old.sent] == [Barrier()]
    assert events(board) == [("up", "s1"), ("up", "s1")]


def test_switch_that_answers_keeps_its_place(board: Board) -> None:
    """With a spoofed datapath id: another connection that claims to be the switch is refused."""
    refused: list[int] = []
    board.on_duplicate = lambda: refused.append(1)
    real = FakeDatapath(1, confirming(board))
    board.connected(real, {})
    for _ in range(50):
        spoof = FakeDatapath(1, confirming(board))
        board.connected(spoof, PORTS)
        assert (real.is_closed, spoof.is_closed) == (False, True)
        board.port_status(spoof, 1, False)
        board.disconnected(spoof)
    assert len(refused) == 50
    assert board.apply({"s1": MESSAGES}) == {}
    assert events(board) == [("up", "s1")]
    assert not spoof.sent


def test_claim_that_waits_is_nobody_yet(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchboard, "PROOF_S", 60.0)
    busy = FakeDatapath(1, silent)
    board.connected(busy, {})
    first, second = FakeDatapath(1, silent), FakeDatapath(1, silent)
    board.connected(first, PORTS)
    board.connected(second, PORTS)  # one connection at a time
    assert (busy.is_closed, first.is_closed, second.is_closed) == (False, False, True)
    board.port_status(first, 1, False)
    board.packet_in(first, packet_in_message(3, b"x"))
    assert events(board) == [("up", "s1")]
    board.disconnected(first)
    third = FakeDatapath(1, confirming(board))
    board.connected(third, {})
    board.disconnected(busy)  # its end shows that the claim was right
    assert not third.is_closed
    assert events(board) == [("down", "s1"), ("up", "s1")]
    assert board.apply({"s1": MESSAGES}) == {}


def test_certificate_with_names_of_switches_speaks_for_those_alone(board: Board) -> None:
    stranger = FakeDatapath(1, silent)
    assert not board.connected(stranger, {}, frozenset({"s2", "elsewhere"}))
    assert stranger.is_closed and events(board) == []
    assert board.connected(FakeDatapath(2, silent), {}, frozenset({"s2", "elsewhere"}))
    assert board.connected(FakeDatapath(1, silent), {}, frozenset({"switch"}))  # it names none
    assert events(board) == [("up", "s2"), ("up", "s1")]


def test_new_connection_ends_what_the_old_one_has_open() -> None:
    slow = make_board(30)
    slow.connected(FakeDatapath(1, silent), {})
    threading.Timer(0.1, slow.connected, [FakeDatapath(1, silent), {}]).start()
    started = time.monotonic()
    assert slow.apply({"s1": MESSAGES})["s1"].why is Why.NOT_CONNECTED
    assert time.monotonic() - started < 5


def test_unknown_switches_are_refused(board: Board) -> None:
    stranger = FakeDatapath(99, silent)
    assert not board.connected(stranger, PORTS)
    assert stranger.is_closed
    board.disconnected(stranger)
    board.disconnected(FakeDatapath(None, silent))  # it ended before it sent its id
    assert events(board) == []


def test_ports_are_reported_at_connection_and_when_they_change(board: Board) -> None:
    datapath = FakeDatapath(1, silent)
    assert board.connected(datapath, PORTS)
    board.port_status(datapath, 1, False)
    board.port_status(FakeDatapath(1, silent), 2, True)  # of an older connection
    assert events(board) == [
        ("up", "s1"),
        ("port", "s1", 1, True),
        ("port", "s1", 2, False),
        ("port", "s1", 1, False),
    ]


def reply(kind: Multipart, xid: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("!BBHIHH4x", 4, 19, 16 + len(body), xid, kind, flags) + body


def holding(
    board: Board, bodies: dict[Multipart, list[bytes]]
) -> Callable[[FakeDatapath, FakeMessage], None]:
    """Return a function that answers each request with these parts, and barriers at once."""

    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Barrier):
            board.barrier_reply(datapath, message.xid)
        elif isinstance(message.description, Request):
            parts = bodies.get(message.description.kind, [b""])
            for number, body in enumerate(parts, 1):
                more = number < len(parts)
                board.multipart_reply(
                    datapath, reply(message.description.kind, message.xid, body, int(more))
                )

    return answer


def test_reading_joins_the_parts_of_replies(board: Board) -> None:
    flows = [flow(oxm_match(IN_PORT_3)), flow(oxm_match(VLAN_101)), b""]
    bodies = {Multipart.FLOW: flows, Multipart.METER_CONFIG: [meter(7, 20_000, 1000)]}
    board.connected(FakeDatapath(1, holding(board, bodies)), {})
    found = board.read(["s1", "s2"])
    assert found == {
        "s1": {
            Flow(Match(in_port=3), 1000, COOKIE, ()),
            Flow(Match(vlan=101), 1000, COOKIE, ()),
            Meter(7, 20_000, 1000),
        },
        "s2": Failure(Why.NOT_CONNECTED),
    }


def test_flows_of_ours_that_someone_changed_are_deleted_by_their_cookie(
    board: Board,
) -> None:
    bodies = {Multipart.FLOW: [flow(oxm_match(IN_PORT_3)) + flow(oxm_match(), idle_s=5)]}
    datapath = FakeDatapath(1, holding(board, bodies))
    board.connected(datapath, {})
    assert board.read(["s1"]) == {"s1": frozenset()}
    assert [m.description for m in datapath.sent[3:]] == [
        DeleteOwnedFlows(COOKIE, 0xFFFFFFFFFFFFFFFF),
        Barrier(),
    ]


def test_a_reply_that_is_malformed_refused_or_missing_is_a_failure(board: Board) -> None:
    first = FakeDatapath(1, holding(board, {Multipart.FLOW: [bytes(60)]}))
    board.connected(first, {})
    found = board.read(["s1"])["s1"]
    assert isinstance(found, Failure) and "malformed reply" in found.text

    def refuse(datapath: FakeDatapath, message: FakeMessage) -> None:
        board.error(datapath, message.xid, "OFPBRC_BAD_MULTIPART")

    board.disconnected(first)
    board.connected(FakeDatapath(1, refuse), {})
    assert board.read(["s1"]) == {"s1": Failure(Why.REFUSED, "OFPBRC_BAD_MULTIPART")}


def test_replies_that_nobody_asked_for_are_not_kept(board: Board) -> None:
    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        if isinstance(message.description, Request):
            board.multipart_reply(datapath, reply(Multipart.PORT_STATS, message.xid, bytes(112)))
            board.multipart_reply(datapath, reply(message.description.kind, 5, bytes(112)))
        holding(board, {})(datapath, message)

    board.connected(FakeDatapath(1, answer), {})
    assert board.read(["s1"]) == {"s1": frozenset()}


def test_reply_without_end_is_cut_off(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.switches.switchboard.REPLY_MAX_BYTES", 1000)

    def answer(datapath: FakeDatapath, message: FakeMessage) -> None:
        for _ in range(20):
            board.multipart_reply(datapath, reply(Multipart.FLOW, message.xid, bytes(100), 1))

    board.connected(FakeDatapath(1, answer), {})
    assert board.read(["s1"]) == {"s1": Failure(Why.REFUSED, "reply above 1000 bytes")}


def test_two_threads_may_use_one_switch_for_reading_and_changing() -> None:
    board = make_board(30)
    held: list[FakeMessage] = []
    datapath = FakeDatapath(1, lambda _, message: held.append(message))
    board.connected(datapath, {})
    results: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda: results.update(read=board.stats(["s1"]))),
        threading.Thread(target=lambda: results.update(apply=board.apply({"s1": MESSAGES}))),
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while len(held) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    for message in reversed(held):
        holding(board, {})(datapath, message)
    for thread in threads:
        thread.join(timeout=10)
    assert results == {"read": {"s1": SwitchStats()}, "apply": {}}


def test_master_is_up_when_the_switch_confirmed_the_role() -> None:
    board = make_board(0.2, Role.SLAVE)
    datapath = FakeDatapath(1, silent)
    board.connected(datapath, {})
    request = datapath.sent[-1]
    assert request.description == RoleRequest(Role.SLAVE, 0)
    board.role_reply(datapath, request.xid)
    assert events(board) == []
    assert board.apply({"s1": MESSAGES}) == {
        "s1": Failure(Why.NOT_CONNECTED, "this controller is standby")
    }
    board.post("s1", MESSAGES)
    assert len(datapath.sent) == 1  # a slave writes nothing

    board.set_role(Role.MASTER, 7)
    request = datapath.sent[-1]
    assert request.description == RoleRequest(Role.MASTER, 7)
    assert events(board) == []
    board.role_reply(datapath, request.xid)
    board.role_reply(datapath, request.xid)
    assert events(board) == [("up", "s1")]

    other = FakeDatapath(2, silent)
    board.connected(other, {})
    assert other.sent[-1].description == RoleRequest(Role.MASTER, 7)
    board.error(other, other.sent[-1].xid, "OFPRRFC_STALE")
    board.role_reply(other, other.sent[-1].xid)
    assert events(board) == []


def test_packet_ins_are_handed_on_with_the_name_of_the_switch(board: Board) -> None:
    seen: list[Any] = []
    board.on_packet_in = lambda name, packet: seen.append((name, packet))
    datapath = FakeDatapath(1, silent)
    raw = packet_in_message(3, b"frame")
    board.packet_in(datapath, raw)
    board.connected(datapath, {})
    board.packet_in(datapath, raw)
    assert seen == [("s1", PacketIn(3, COOKIE, b"frame"))]


def test_reports_are_handed_on_apart(board: Board) -> None:
    seen: list[Any] = []
    cookie = cookie_of(Kind.IGMP, 7)
    datapath = FakeDatapath(1, silent)
    board.connected(datapath, {})
    board.packet_in(datapath, packet_in_message(3, b"report", cookie))  # no handler yet
    board.on_report = lambda name, packet: seen.append((name, packet))
    board.packet_in(datapath, packet_in_message(3, b"report", cookie))
    board.packet_in(datapath, packet_in_message(3, b"probe"))
    assert seen == [("s1", PacketIn(3, cookie, b"report"))]


def test_lists_without_a_closing_barrier_are_a_bug(board: Board) -> None:
    with pytest.raises(ValueError, match="do not end with a barrier"):
        board.apply({"s1": MESSAGES[:1]})
