# SPDX-License-Identifier: Apache-2.0
"""Bounds on connections by TCP, which do not affect the owner's Unix socket."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.http import server
from common.http.origin import origin_of
from controller.api import listening
from controller.api.auth import Access, Caller
from controller.api.keys import make_keys
from controller.api.path_client import PathClient, PathClientError
from controller.service.workgroups import Workgroups
from controller.tests.process import wait_until
from controller.tests.test_server import TOKEN, Live

UNFINISHED = b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    running = Live(tmp_path)
    yield running
    running.server.stop(5)


def from_address(live: Live, address: str) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", live.port), timeout=20, source_address=(address, 0)
    )


# In another process: this one has the server's ends, and 1,024 descriptors unless the limit was
# raised.
STRANGERS = """
import contextlib, socket, sys
port, unfinished, kept = int(sys.argv[1]), sys.argv[2].encode(), []
for n in range(640):
    address = (f"127.0.1.{n % 10}", 0)
    kept.append(socket.create_connection(("127.0.0.1", port), timeout=20, source_address=address))
    with contextlib.suppress(ConnectionError):  # it made room for another one
        kept[-1].sendall(unfinished[: 1 + n % len(unfinished)])
print("all", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def strangers(live: Live) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", STRANGERS, str(live.port), UNFINISHED.decode()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None and process.stdout.readline() == "all\n"
        yield
        process.kill()


@pytest.mark.slow
def test_strangers_do_not_lock_the_owner_out(live: Live) -> None:
    """Despite 640 unfinished requests from ten addresses, the Unix socket answers, and a workgroup
    is still served by TCP."""
    with strangers(live):
        with PathClient(live.socket_path) as owner:
            for _ in range(5):
                assert owner.health()["status"] == "ok"
        with PathClient(f"http://127.0.0.1:{live.port}", token=TOKEN) as client:
            assert client.health()["status"] == "ok"


def test_newer_connections_displace_silent_ones(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(from_address(live, f"127.0.1.{n}")) for n in range(20)]
        with PathClient(f"http://127.0.0.1:{live.port}", token=TOKEN) as client:
            assert client.health()["status"] == "ok"
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
    lines = [line for line in caplog.messages if "connections are open" in line]
    assert lines == ["4 connections are open: closing the oldest idle ones"]


def test_event_stream_is_not_displaced(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    with live.connect() as stream, contextlib.ExitStack() as stack:
        stream.sendall(
            b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            + TOKEN.encode()
            + b"\r\n\r\n"
        )
        assert stream.recv(12).endswith(b"200")
        while b"id: " not in stream.recv(1000):
            pass
        for number in range(20):
            stack.enter_context(from_address(live, f"127.0.1.{number}"))
        live.rig.service.switch_down("s2")
        assert b"switch-down" in stream.recv(1000)


def test_refusals_are_logged_once_per_address(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS_PER_ADDRESS", 2)
    with contextlib.ExitStack() as stack:
        for number in range(30):
            stack.enter_context(from_address(live, f"127.0.1.{number % 2}"))
        wait_until("both are refused", lambda: caplog.text.count("too many connections") == 2)
    with contextlib.suppress(PathClientError), PathClient(live.socket_path) as owner:
        owner.health()
    lines = [line for line in caplog.messages if "too many connections" in line]
    assert sorted(lines) == [
        f"refused address=127.0.1.{number}: too many connections" for number in (0, 1)
    ]


def test_an_ipv6_network_counts_as_one_address() -> None:
    origins = {origin_of(f"2001:db8:0:7::{number:x}") for number in range(1000)}
    assert origins == {"2001:db8:0:7::/64"}
    assert origin_of("2001:db8:0:8::1") == "2001:db8:0:8::/64"
    assert origin_of("fe80::1%eth0") == "fe80::/64"
    assert origin_of("::ffff:192.0.2.1") == origin_of("192.0.2.1") == "192.0.2.1"
    assert origin_of("192.0.2.2") != origin_of("192.0.2.1")
    assert origin_of("") == ""


def test_an_ipv6_network_guesses_tokens_as_slowly_as_an_address() -> None:
    from starlette.datastructures import Headers

    access = Access(Workgroups(), clock=lambda: 0.0)
    answers = [access.admit(Headers(), f"2001:db8::{number:x}") for number in range(1, 40)]
    codes = [answer.status for answer in answers if not isinstance(answer, Caller)]
    assert codes == [401] * 10 + [429] * 29


def test_connections_of_an_ipv6_network_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The server sees 100 addresses of one network, which get 64 connections; another gets its
    own."""
    caplog.set_level(logging.WARNING)
    counted = server._Connections()

    def enters(address: str) -> bool:
        connection = object.__new__(server._LimitedProtocol)
        return counted.enter(connection, origin_of(address))

    entered = [enters(f"2001:db8::{number:x}") for number in range(100)]
    assert entered == [True] * 64 + [False] * 36
    assert enters("2001:db8:0:1::1")


@pytest.mark.slow
def test_unfinished_tls_handshakes_displace_each_other(tmp_path: Path) -> None:
    """300 connections from ten addresses send nothing, or half a ClientHello."""
    make_keys(tmp_path / "keys", ["127.0.0.1"])
    keys = tmp_path / "keys"
    live = Live(tmp_path, listening.Tls(keys / "rest-key.pem", keys / "rest-cert.pem"))
    try:
        with contextlib.ExitStack() as stack:
            strangers = []
            for number in range(300):
                stranger = stack.enter_context(from_address(live, f"127.0.1.{number % 10}"))
                strangers.append(stranger)
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(b"\x16\x03\x01\x02"[: number % 5])
            url = f"https://127.0.0.1:{live.port}"
            for _ in range(3):
                with PathClient(url, token=TOKEN, ca_file=keys / "ca.pem") as client:
                    assert client.health()["status"] == "ok"
            with PathClient(live.socket_path) as owner:
                assert owner.health()["status"] == "ok"
            ended = 0
            for stranger in strangers[:170]:
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(100) == b""
                ended += 1
            assert ended == 170
            strangers[-1].settimeout(0.1)
            with pytest.raises(TimeoutError):
                strangers[-1].recv(1)
    finally:
        live.server.stop(5)
