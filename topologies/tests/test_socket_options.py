# SPDX-License-Identifier: Apache-2.0
"""Which options of sockets are not as planned, and which have changed."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from topologies.emulate import socket_options
from topologies.emulate.census import Program
from topologies.emulate.socket_options import AS_SET, ESTABLISHED, LISTENS, Seen, SocketOptions

TCP = (int(socket.AF_INET), int(socket.SOCK_STREAM))
USUAL: socket_options.Values = {
    **{"SO_MAX_PACING_RATE": 2**64 - 1, "filter": "none", "SO_BUF_LOCK": 0, "SO_RCVLOWAT": 1},
    **{"TCP_CORK": 0, "TCP_CONGESTION": "cubic", "window": 65536, "receive buffer": 131072},
    **{"state": ESTABLISHED, "IP_TTL": 64},
}


def program(name: str) -> Program:
    return Program("p", os.getpid(), name, True, 0, frozenset(), False)


def seen(values: socket_options.Values | None = None, name: str = "up6") -> Seen:
    return Seen("p", name, TCP, {**USUAL, **(values or {})})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, ""),
        ({"SO_MAX_PACING_RATE": 12000}, "SO_MAX_PACING_RATE 12000, not 18446744073709551615"),
        ({"filter": "4 instructions"}, "filter 4 instructions, not none"),
        ({"SO_BUF_LOCK": 2}, "SO_BUF_LOCK 2, not 0"),
        ({"SO_RCVLOWAT": 150_000}, "SO_RCVLOWAT 150000, not 1"),
        ({"SO_RCVLOWAT": socket_options.ADMISSION_BYTES}, ""),
        ({"TCP_CORK": 1}, "TCP_CORK 1, not 0"),
        ({"TCP_CONGESTION": "reno"}, "TCP_CONGESTION reno, not cubic"),
        ({"window": 16_000}, "TCP_WINDOW_CLAMP 16000, not 19661 or more"),
        ({"window": 0, "state": LISTENS}, ""),
        ({"window": 16_000, "state": LISTENS}, "TCP_WINDOW_CLAMP 16000, not 0"),
    ],
)
def test_what_is_not_as_planned(values: socket_options.Values, text: str) -> None:
    assert socket_options.unplanned(seen(values), "cubic") == ({text} if text else set())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, ""),
        ({"IP_TTL": 1}, "IP_TTL 1, was 64"),
        ({"SO_RCVLOWAT": 9}, "SO_RCVLOWAT 9, was 1"),
        ({"window": 6_000_000, "receive buffer": 9_000_000}, ""),  # TCP enlarges them
        ({"window": 40_000}, ""),  # packets fill their memory badly
        ({"window": 16_000}, "window 16000, was 65536"),
        ({"receive buffer": 40_000}, "receive buffer 40000, was 131072"),
        ({"window": 0, "state": 8}, ""),  # the other end has closed
    ],
)
def test_what_has_changed(values: socket_options.Values, text: str) -> None:
    now = {**USUAL, **values}
    assert socket_options.changed(USUAL, now) == ({text} if text else set())


def looks(*each: dict[int, Seen]) -> SocketOptions:
    left = list(each)
    return SocketOptions(lambda _: left.pop(0) if len(left) > 1 else left[0], pause_s=0.0)


def test_while_its_program_sets_options() -> None:
    new, ready = seen({"SO_RCVLOWAT": 9}), seen()
    options = looks({7: new}, {7: ready})
    assert options.look(["p"], [], {"p": "cubic"}) == {"p socket options": AS_SET}
    assert options.again(["p"]) == {"p socket options": AS_SET}


def test_another_protocols_programs_are_as_at_first() -> None:
    first, later = (seen({"SO_BUF_LOCK": lock}, "norm") for lock in (2, 3))
    options = looks({7: first}, {7: first}, {7: later})
    assert options.look(["p", "q"], [], {}) == dict.fromkeys(
        ("p socket options", "q socket options"), AS_SET
    )
    found = options.again(["p", "q"])
    assert found["p socket options"] == "norm TCP: SO_BUF_LOCK 3, was 2"


def test_the_host_s_algorithm_is_remembered() -> None:
    options = looks({7: seen()}, {7: seen()}, {7: seen({"TCP_CONGESTION": "reno"})})
    options.look(["p"], [], {"p": "cubic"})
    assert "TCP_CONGESTION reno, not cubic" in options.again(["p"])["p socket options"]


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        yield one


def drop_all(one: socket.socket) -> None:
    lines = ctypes.create_string_buffer(struct.pack("@HBBI", 6, 0, 0, 0))
    one.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", 1, ctypes.addressof(lines)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda one: one.setsockopt(1, 47, struct.pack("@I", 12000)), "SO_MAX_PACING_RATE 12000"),
        (drop_all, "filter 1 instructions"),
        (lambda one: one.setsockopt(1, socket.SO_RCVBUF, 20_000), "SO_BUF_LOCK 2"),
        (lambda one: one.setsockopt(6, 10, 16_000), "TCP_WINDOW_CLAMP 16000"),
        (lambda one: one.setsockopt(1, socket.SO_RCVLOWAT, 60_000), "SO_RCVLOWAT 60000"),
        (lambda one: one.setsockopt(6, 3, 1), "TCP_CORK 1"),
    ],
)
def test_real_sockets(
    connection: socket.socket, change: Callable[[socket.socket], None], text: str
) -> None:
    options = SocketOptions(pause_s=0.0)
    here = [program("up6")]
    before = options.look(["p"], here, {})["p socket options"]
    assert text not in before
    change(connection)
    assert text in options.again(["p"])["p socket options"]
