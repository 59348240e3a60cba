# SPDX-License-Identifier: Apache-2.0
"""The REST server over real sockets: TLS, tokens, slow and greedy clients, the event stream, and
the Python client."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import uvicorn

from common import looking
from common.http import server
from controller.api import listening
from controller.api.auth import Access
from controller.api.keys import KeysError, make_keys
from controller.api.path_client import PathClient, PathClientError, PathEvent, PathOptions
from controller.api.rest import make_app
from controller.service.workgroups import Workgroup, Workgroups
from controller.tests.process import wait_until
from controller.tests.rig import Rig
from controller.tests.sample import LEAF_2, LEAF_4, ROOT

TOKEN = "the-secret-of-operations"
OPS = Workgroup("ops", (hashlib.sha256(TOKEN.encode()).digest(),), is_admin=True)


class Live:
    """A service at a Unix socket and at a TCP port."""

    def __init__(self, directory: Path, tls: listening.Tls | None = None) -> None:
        self.rig = Rig()
        self.socket_path = directory / "rest.sock"
        listener = listening.listen_tcp("--rest-listen", "127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        app = make_app(self.rig.service, Access(Workgroups([OPS]), 1000.0))
        local = listening.listen_unix(self.socket_path)
        self.server = (
            server.Server(app, [local, listener])
            if tls is None
            else server.Server(app, [local], [listener], tls.context())
        )
        self.server.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    running = Live(tmp_path)
    yield running
    running.server.stop(5)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    make_keys(directory, ["localhost", "127.0.0.1"])
    return directory


def test_keys_are_private_and_verify(keys: Path) -> None:
    assert {path.name for path in keys.iterdir()} == {
        "ca.pem",
        "ca-key.pem",
        *(
            f"{name}-{kind}.pem"
            for name in ("rest", "controller", "switch")
            for kind in ("key", "cert")
        ),
    }
    for key in keys.glob("*-key.pem"):
        assert key.stat().st_mode & 0o077 == 0, key
    for name in ("rest", "controller", "switch"):
        verified = subprocess.run(
            ["openssl", "verify", "-CAfile", keys / "ca.pem", keys / f"{name}-cert.pem"],
            capture_output=True,
            text=True,
        )
        assert verified.returncode == 0, verified.stderr
    with pytest.raises(KeysError, match="not empty"):
        make_keys(keys, ["localhost"])


def assert_refused(service: PathClient, why: str | None = None) -> None:
    with service, pytest.raises(PathClientError, match=why):
        service.paths()


def test_https_with_a_token(tmp_path: Path, keys: Path) -> None:
    live = Live(tmp_path, listening.Tls(keys / "rest-key.pem", keys / "rest-cert.pem"))
    url = f"https://127.0.0.1:{live.port}"
    try:
        with PathClient(url, token=TOKEN, ca_file=keys / "ca.pem") as service:
            assert service.workgroup()["name"] == "ops"
            assert service.create_path("a", ROOT, 20_000_000)["workgroup"] == "ops"
        assert_refused(PathClient(url, ca_file=keys / "ca.pem"), "no token")
        # The system's authorities do not have it.
        assert_refused(PathClient(url, token=TOKEN), "certificate verify failed")
        assert_refused(PathClient(f"http://127.0.0.1:{live.port}", token=TOKEN))
        with PathClient(live.socket_path) as service:  # the socket beside it is unchanged
            assert [path["name"] for path in service.paths()] == ["a"]
    finally:
        live.server.stop(5)


def test_clients_certificates_if_asked_for(tmp_path: Path, keys: Path) -> None:
    tls = listening.Tls(keys / "rest-key.pem", keys / "rest-cert.pem", keys / "ca.pem")
    live = Live(tmp_path, tls)
    try:
        with (
            PathClient(
                f"https://127.0.0.1:{live.port}", token=TOKEN, ca_file=keys / "ca.pem"
            ) as service,
            pytest.raises(PathClientError),
        ):
            service.health()
        context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        context.load_cert_chain(keys / "switch-cert.pem", keys / "switch-key.pem")
        with context.wrap_socket(live.connect(), server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 401")
    finally:
        live.server.stop(5)


def test_bad_tls_files(tmp_path: Path, keys: Path) -> None:
    missing = listening.Tls(tmp_path / "none", keys / "rest-cert.pem")
    with pytest.raises(listening.ListenError, match="--rest-tls-key .*none: no readable file"):
        missing.context()
    mixed = listening.Tls(keys / "switch-key.pem", keys / "rest-cert.pem")
    with pytest.raises(listening.ListenError, match=r"--rest-tls-key .*; valid: a PEM key"):
        mixed.context()


def test_nobody_says_for_himself_where_he_comes_from(live: Live) -> None:
    """The caller neither becomes the socket's owner nor evades the address's limit of 10 requests
    without a valid token."""
    codes = []
    for value in ("", " ", "unix:", *(f"192.0.2.{number}" for number in range(12))):
        with live.connect() as connection:
            connection.sendall(
                f"GET /v1/paths HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {value}\r\n"
                f"Forwarded: for={value}\r\nConnection: close\r\n\r\n".encode()
            )
            codes.append(connection.recv(12)[-3:])
    assert set(codes) == {b"401", b"429"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /v1/health HT",
        b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + TOKEN.encode()
        + b"\r\nContent-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_slow_clients_are_cut_off(live: Live, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.3)
    with live.connect() as connection:
        connection.sendall(sent)
        started = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
        assert time.monotonic() - started < 10
    with PathClient(f"http://127.0.0.1:{live.port}", token=TOKEN) as service:
        assert service.health()["status"] == "ok"


def test_dripping_client_is_cut_off(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending a byte now and then does not gain time."""
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.5)
    started = time.monotonic()
    with live.connect() as connection, contextlib.suppress(ConnectionError):
        for _ in range(200):
            connection.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - started < 8


def test_one_address_has_so_many_connections(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    open_ones = [live.connect() for _ in range(3)]

    def refused() -> bool:
        with live.connect() as one_more:
            try:
                return one_more.recv(1) == b""
            except ConnectionResetError:
                return True

    try:
        wait_until("the fourth is refused", refused)
        with PathClient(live.socket_path) as service:  # the socket's owner is not affected
            assert service.health()["status"] == "ok"
    finally:
        for connection in open_ones:
            connection.close()

    def served() -> bool:
        try:
            with PathClient(f"http://127.0.0.1:{live.port}", token=TOKEN) as service:
                return bool(service.health())
        except PathClientError:
            return False

    wait_until("their places are free again", served)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,  # TLS towards plain HTTP
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /v1/paths HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"\x00" * 1000,
    ],
)
def test_what_is_not_http_is_refused(live: Live, sent: bytes) -> None:
    with live.connect() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        answer = connection.recv(1000)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    with PathClient(live.socket_path) as service:
        assert service.health()["status"] == "ok"


ASK = b"GET /v1/paths%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"


def answer(live: Live, request: bytes) -> bytes:
    """Return the whole answer."""
    with live.connect() as connection:
        connection.sendall(request + b"Connection: close\r\n\r\n")
        received = b""
        while data := connection.recv(65536):
            received += data
    return received


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("size", [17_000, 40_000])
def test_large_heads_are_refused_however_they_come(live: Live, size: int, in_parts: bool) -> None:
    request = ASK % (b"", b"x") + b"X: " + b"a" * size + b"\r\n\r\n"
    with live.connect() as connection, contextlib.suppress(ConnectionError):
        for part in (request[:9000], request[9000:]) if in_parts else (request,):
            connection.sendall(part)
            time.sleep(0.05 if in_parts else 0)
        assert connection.recv(12)[-3:] in ((b"431", b"400") if in_parts else (b"431",))
    assert answer(live, ASK % (b"", b"x") + b"X: " + b"a" * 12_000 + b"\r\n")[9:12] == b"200"
    target = b"?after=" + b"a" * size
    assert answer(live, ASK % (target, b"x"))[9:12] in (b"431", b"400")


def test_two_tokens_are_none(live: Live) -> None:
    for second in (TOKEN.encode(), b"another-token-0123456789"):
        request = ASK % (b"", b"x") + b"Authorization: Bearer " + second + b"\r\n"
        assert answer(live, request)[9:12] == b"401"
    assert answer(live, ASK % (b"", b"x"))[9:12] == b"200"


def test_no_way_leads_to_a_host_that_the_client_names(live: Live) -> None:
    for path in (b"/", b"//", b"/x/", b"/?a=b"):
        got = answer(live, ASK % (path, b"evil.example"))
        assert got[9:12] == b"404", got
        assert b"location" not in got.lower() and b"evil" not in got


def test_client_knows_everything(live: Live) -> None:
    with PathClient(live.socket_path) as service:
        service.create_path("a", ROOT, 20_000_000, algorithm="steiner")
        assert service.add_leaf("a", LEAF_2)["leaves"][0]["state"] == "up"
        end = time.time() + 1000
        assert service.set_end_time("a", end)["end_time"] == end
        with pytest.raises(PathClientError, match="algorithm steiner instead of shortest"):
            service.hold("a", ROOT, 20_000_000, [LEAF_4])
        held = service.hold(
            "a",
            ROOT,
            20_000_000,
            [LEAF_4],
            hold_id="h",
            hold_s=99,
            options=PathOptions(algorithm="steiner"),
        )
        assert held["state"] == "held"
        with pytest.raises(PathClientError, match="hold 'h' of path 'a' is open"):
            service.add_leaf("a", LEAF_4)
        assert len(service.commit("h")["leaves"]) == 2
        assert service.hold_state("h")["state"] == "committed"
        service.remove_leaf("a", LEAF_2)
        service.delete_path("a")
        assert service.paths() == []
        service.hold("b", ROOT, 0, hold_id="j")
        service.release("j")
        service.release("j")


def test_events_by_the_client(live: Live) -> None:
    seen: list[PathEvent] = []

    def watch() -> None:
        with PathClient(live.socket_path) as watcher, contextlib.suppress(PathClientError):
            for event in watcher.events():
                seen.append(event)
                if event.kind == "path-deleted":
                    return

    watching = threading.Thread(target=watch)
    watching.start()
    wait_until("somebody watches", lambda: bool(live.rig.service.events._wakers))
    with PathClient(live.socket_path) as service:
        service.create_path("a", ROOT, 20_000_000)
        service.add_leaf("a", LEAF_2)
        live.rig.service.switch_down("s2")
        live.rig.service.switch_up("s2")
        service.delete_path("a")
        watching.join(20)
        kinds = [event.kind for event in seen]
        assert kinds == [
            "path-created",
            "leaf-added",
            "path-degraded",
            "switch-down",
            "path-up",
            "switch-up",
            "path-deleted",
        ]
        assert seen[1].data["leaf"] == "s2:9:102"
        again = list(islice(service.events(seen[3].id), 3))
        assert [event.id for event in again] == [event.id for event in seen[4:]]
        of_another_process = next(service.events("0abc-3", quiet_s=5))
        assert of_another_process.kind == "resync"
    wait_until("no watcher is left", lambda: not live.rig.service.events._wakers)


@pytest.mark.slow
def test_event_streams_at_once_take_exactly_their_places(live: Live) -> None:
    """Of 60 requests of a workgroup before any is answered, 16 get streams and 44 get 429. The
    places of streams that end, even before their first event, are free again."""
    ask = (
        b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + TOKEN.encode()
        + b"\r\n\r\n"
    )

    def codes(count: int) -> Counter[bytes]:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(live.connect()) for _ in range(count)]
            for connection in connections:
                connection.sendall(ask)
            return Counter(connection.recv(12)[-3:] for connection in connections)

    def all_are_free() -> bool:
        return codes(16) == {b"200": 16}

    assert codes(60) == {b"200": 16, b"429": 44}
    wait_until("their places are free again", all_are_free)
    for _ in range(40):
        with live.connect() as connection:
            connection.sendall(ask)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until("nothing is left of those that left at once", all_are_free)


def test_a_soak_s_server_looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def app(scope: object, receive: object, send: object) -> None:
        pass

    monkeypatch.setenv(looking.VARIABLE, "600")
    seldom = server.bounded(app, None, None)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        seldom.should_exit = len(slept) == 3

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(seldom.main_loop())
    assert slept == [600, 600, 600]
    monkeypatch.delenv(looking.VARIABLE)
    assert type(server.bounded(app, None, None)).main_loop is uvicorn.Server.main_loop
