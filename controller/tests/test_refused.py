# SPDX-License-Identifier: Apache-2.0
"""What the REST interface refuses is counted by reason, shown to admins, and logged in few lines;
nothing of this affects the owner's Unix socket."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.http import server
from common.http.refused import REFUSED, Reason
from controller.api import listening
from controller.api.keys import make_keys
from controller.api.path_client import PathClient
from controller.tests.process import wait_until
from controller.tests.rig import Rig
from controller.tests.test_access import Site
from controller.tests.test_bounds import UNFINISHED, from_address
from controller.tests.test_server import TOKEN, Live


class Since:
    """By how much the counters have grown."""

    def __init__(self) -> None:
        self._before = REFUSED.all()

    def __getitem__(self, reason: Reason) -> int:
        return REFUSED.all()[reason] - self._before[reason]


@pytest.fixture
def since() -> Since:
    return Since()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have logged and counted, before and after a test."""
    monkeypatch.setattr(server._LimitedProtocol, "_tcp", server._Connections())


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    running = Live(tmp_path)
    yield running
    running.server.stop(5)


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Like `live`, but the kernel buffers little of what clients do not read."""
    listen_tcp = listening.listen_tcp

    def listen(option: str, host: str, port: int) -> socket.socket:
        listener = listen_tcp(option, host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(listening, "listen_tcp", listen)
    running = Live(tmp_path)
    yield running
    running.server.stop(5)


def assert_owner_is_served(live: Live) -> None:
    with PathClient(live.socket_path) as owner:
        assert owner.health()["status"] == "ok"


def test_requests_without_a_token_and_too_many(since: Since) -> None:
    site = Site(requests_per_s=1.0)
    codes = [site.http.get("/v1/paths").status_code for _ in range(30)]
    assert since[Reason.NO_TOKEN] == codes.count(401) > 0
    assert since[Reason.TOO_OFTEN] == codes.count(429) > 0


def test_too_many_of_an_address(live: Live, since: Since, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(live.connect())
        wait_until("seven are refused", lambda: since[Reason.ADDRESS_FULL] == 7)
        assert_owner_is_served(live)


def test_idle_ones_that_make_room(
    live: Live, since: Since, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        for number in range(10):
            stack.enter_context(from_address(live, f"127.0.1.{number}"))
        wait_until("six are displaced", lambda: since[Reason.DISPLACED] == 6)
        assert_owner_is_served(live)


def test_slow_ones(live: Live, since: Since, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.2)
    with live.connect() as connection:
        connection.sendall(UNFINISHED[:20])
        wait_until("it is ended", lambda: since[Reason.TOO_SLOW] == 1)


@pytest.mark.parametrize(
    "what", [b"\x16\x03\x01\x02\x00", b"GET /\xff HTTP/1.1\r\nHost: x", b"\x00\n" * 99]
)
def test_what_is_no_http(
    live: Live, since: Since, caplog: pytest.LogCaptureFixture, what: bytes
) -> None:
    """It is sent a hundred times: counted each time, logged once at most."""
    for _ in range(100):
        with live.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(what + b"\r\n\r\n")
            assert connection.recv(12) in (b"HTTP/1.1 400", b"")
    wait_until("all are counted", lambda: since[Reason.NOT_HTTP] == 100)
    assert len([line for line in caplog.messages if "Invalid HTTP" in line]) <= 1


def test_upgrades_fill_no_log(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(30):
        with live.connect() as connection:
            connection.sendall(
                b"GET /v1/paths HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
            )
            assert connection.recv(12)[-3:] in (b"401", b"429")
    assert len([line for line in caplog.messages if "upgrade" in line.lower()]) <= 1


PIPELINED = b"GET /v1/paths HTTP/1.1\r\nHost: x\r\n\r\n" * 2000


def pipeline(connections: list[socket.socket]) -> None:
    """Send requests until the server takes no more of them, and read no answer."""
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)

    def are_stuck() -> bool:
        for connection in connections:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                connection.send(PIPELINED)
        opened = list(server._LimitedProtocol._tcp._open)
        return len(opened) == len(connections) and all(c.flow.write_paused for c in opened)

    wait_until("nothing can be written to them", are_stuck)


@pytest.mark.slow
def test_client_that_asks_and_reads_nothing(
    narrow: Live, since: Since, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger without a token sends requests without end, and reads no answers."""
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 2.0)
    with narrow.connect() as connection:
        pipeline([connection])
        wait_until("it is ended", lambda: since[Reason.UNREAD] == 1)
        assert_owner_is_served(narrow)
    assert "address=127.0.0.1: does not read its answers" in caplog.text


@pytest.mark.slow
def test_clients_that_read_nothing_make_room(
    narrow: Live, since: Since, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        pipeline([stack.enter_context(from_address(narrow, f"127.0.1.{n}")) for n in range(4)])
        with PathClient(f"http://127.0.0.1:{narrow.port}", token=TOKEN) as client:
            assert client.health()["status"] == "ok"
        assert since[Reason.DISPLACED] >= 1


def test_client_that_reads_slowly_is_served(
    narrow: Live, since: Since, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 2.0)
    request = (
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + TOKEN.encode()
        + b"\r\n\r\n"
    )
    with narrow.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        threading.Thread(target=connection.sendall, args=(request * 20,), daemon=True).start()
        received = len(connection.recv(16_384))
        began = time.monotonic()
        # Longer than it may leave everything unread; a busy server begins late.
        while received <= 4 * 16_384 or time.monotonic() < began + 6:
            more = connection.recv(16_384)
            assert more, f"ended after {received} bytes"
            received += len(more)
            time.sleep(0.05)
    assert since[Reason.UNREAD] == 0


@pytest.mark.slow
def test_event_stream_that_is_not_read_is_ended(
    narrow: Live, since: Since, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher returns with `Last-Event-ID` and misses nothing."""
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 0.5)
    with narrow.connect() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.sendall(
            b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            + TOKEN.encode()
            + b"\r\n\r\n"
        )
        assert stream.recv(12).endswith(b"200")
        until = time.monotonic() + 60
        while since[Reason.UNREAD] == 0 and time.monotonic() < until:
            for _ in range(500):
                narrow.rig.service.switch_down("s2")
                narrow.rig.service.switch_up("s2")
    assert since[Reason.UNREAD] == 1
    wait_until("no watcher is left", lambda: not narrow.rig.service.events._wakers)


@pytest.mark.slow
def test_tls_handshakes(tmp_path: Path, since: Since, monkeypatch: pytest.MonkeyPatch) -> None:
    make_keys(tmp_path / "keys", ["127.0.0.1"])
    keys = tmp_path / "keys"
    monkeypatch.setattr(server, "MAX_HANDSHAKES", 3)
    live = Live(tmp_path, listening.Tls(keys / "rest-key.pem", keys / "rest-cert.pem"))
    url = f"https://127.0.0.1:{live.port}"
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(live.connect())
            wait_until("five are displaced", lambda: since[Reason.HANDSHAKE_DISPLACED] == 5)

        def failures_are_seen() -> bool:
            with live.connect() as plain, contextlib.suppress(ConnectionError):
                plain.sendall(UNFINISHED)
                plain.recv(100)
            return since[Reason.HANDSHAKE_FAILED] >= 3

        wait_until("failed ones are counted", failures_are_seen)
        with PathClient(url, token=TOKEN, ca_file=keys / "ca.pem") as client:
            assert client.health()["status"] == "ok"
        assert_owner_is_served(live)
    finally:
        live.server.stop(5)


def test_admins_see_the_counters() -> None:
    text = Rig().http.get("/v1/metrics").text
    found = dict(re.findall(r'^downpour_rest_refused_total{reason="([a-z-]+)"} (\S+)$', text, re.M))
    assert set(found) == set(Reason)
    assert {Reason(name): float(number) for name, number in found.items()} == dict(REFUSED.all())
    site = Site()
    assert "downpour_rest_refused" not in site["unidata"].get("/v1/metrics").text
    assert site["unidata"].get("/v1/metrics").status_code == 200
