# SPDX-License-Identifier: Apache-2.0
"""Peers that cannot be trusted: wrong and expired certificates, silent handshakes, endless replies,
messages that come again."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.api.keys import make_keys
from controller.federation import peers
from controller.federation.peers import MESSAGES_URL, NoReply, Peer, PeerAddress
from controller.federation.tests.rig import WorldRig
from controller.federation.tests.test_federation import IN_B, IN_C, ROOT, json_of
from controller.federation.values import Connection, Release, request_json
from controller.tests import certificates

RELEASE = Release(Connection("a", "P"), 1, None)
Talk = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "keys"
    make_keys(directory, ("localhost", "127.0.0.1"))
    return directory


@contextlib.contextmanager
def serving(talk: Talk, tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Run a peer that does `talk` with each connection; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            talk(connection)

    waiting = threading.Thread(target=serve, daemon=True)
    waiting.start()
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # wakes accept(); a thread that stays keeps tests
        waiting.join()  # in the same process from entering a network
        listener.close()


def read_to_end(connection: socket.socket) -> None:
    """Say nothing until the other side has closed the connection."""
    while connection.recv(65536):
        pass


def read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
    while len(body) < length:
        body += connection.recv(65536)


def done(connection: socket.socket) -> None:
    """Send the right answer."""
    read_request(connection)
    body = b'{"kind":"done"}'
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def asked(at: str, ca: Path | None = None, timeout_s: float = 5.0) -> str:
    """Return why the peer has not answered, or "" if it has."""
    peer = Peer("a", PeerAddress("b", (at,), ca_file=ca))
    try:
        peer.exchange(RELEASE, timeout_s)
    except NoReply as error:
        return str(error)
    finally:
        peer.close()
    return ""


def test_certificate_of_the_authority(keys: Path) -> None:
    with serving(done, (keys / "rest-cert.pem", keys / "rest-key.pem")) as at:
        assert asked(at, keys / "ca.pem") == ""
        assert "certificate verify failed" in asked(at)  # the system does not know it


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"host": "elsewhere.example.net"}, "IP address mismatch"),
        ({"begins": -3, "ends": -1}, "certificate has expired"),
        ({"begins": 1, "ends": 3}, "certificate is not yet valid"),
        ({"is_self_signed": True}, "self-signed certificate"),
    ],
    ids=["wrong-name", "expired", "not-yet", "self-signed"],
)
def test_bad_certificates(keys: Path, tmp_path: Path, kind: dict[str, object], why: str) -> None:
    made = {"host": "127.0.0.1", **kind}
    tls = certificates.make(tmp_path, "peer", keys, **made)  # type: ignore[arg-type]
    heard: list[bytes] = []
    with serving(lambda connection: heard.append(connection.recv(65536)), tls) as at:
        assert why in asked(at, keys / "ca.pem")
    assert b"".join(heard) == b""  # it was told nothing, not even a token


def silent(connection: socket.socket) -> None:
    read_request(connection)
    read_to_end(connection)


def endless(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + bytes(0x10000) + b"\r\n")


def huge(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


def dripping(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.1)


def packed(connection: socket.socket) -> None:
    """Send 10 MB of zeros, packed into 10 kB."""
    import gzip

    read_request(connection)
    body = gzip.compress(bytes(10_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)


def elsewhere(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(
        b"HTTP/1.1 307 See\r\nLocation: http://127.0.0.1:9/secret\r\nContent-Length: 0\r\n\r\n"
    )


def nested(connection: socket.socket) -> None:
    read_request(connection)
    body = b"[" * 200_000
    connection.sendall(b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (silent, "timed out"),
        (endless, f"a reply of more than {peers.MAX_REPLY_BYTES} bytes"),
        (huge, f"a reply of more than {peers.MAX_REPLY_BYTES} bytes"),
        (dripping, "no whole reply within 1 s"),
        (packed, "Invalid JSON"),
        (elsewhere, "HTTP 307"),
        (nested, "HTTP 500"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_answers_that_are_none(talk: Talk, why: str) -> None:
    with serving(talk) as at:
        began = time.monotonic()
        assert why in asked(at, timeout_s=1.0)
        assert time.monotonic() - began < 20


def test_silent_handshake(keys: Path) -> None:
    with serving(read_to_end) as at:
        began = time.monotonic()
        assert "timed out" in asked(at.replace("http:", "https:"), keys / "ca.pem", 30.0)
        assert time.monotonic() - began < 20


@pytest.mark.slow
def test_messages_that_come_again(tmp_path: Path) -> None:
    """Everything that a peer ever sent comes again, in other orders, after the path has ended and
    while a newer path of that name exists."""
    world = WorldRig(tmp_path)
    try:
        a = world.domains["a"]
        body = {"name": "P", "root": json_of(ROOT), "rate_bps": 1_000_000}
        empty = world.entries()
        assert a.http.post("/v1/paths", json=body).status_code == 201
        for leaf in (IN_B, IN_C):
            assert a.http.post("/v1/paths/P/leaves", json=json_of(leaf)).status_code == 201
        assert a.http.delete("/v1/paths/P").status_code == 204
        assert world.entries() == empty
        recorded = {name: list(wire.requests) for name, wire in a.wires.items()}
        order = random.Random(5)

        def replay() -> None:
            for name, requests in recorded.items():
                again = list(itertools.chain(requests, reversed(requests)))
                order.shuffle(again)
                for request in again:
                    answer = world.domains[name].http.post(
                        MESSAGES_URL,
                        content=request_json(request),
                        headers={"downpour-domain": "a"},
                    )
                    assert answer.status_code == 200, answer.text

        replay()
        assert world.entries() == empty
        assert a.http.post("/v1/paths", json=body).status_code == 201
        assert a.http.post("/v1/paths/P/leaves", json=json_of(IN_C)).status_code == 201
        there = world.entries()
        replay()
        assert world.entries() == there
        for request in recorded["b"][:3]:  # no other peer can claim to be a
            answer = world.domains["b"].http.post(
                MESSAGES_URL, content=request_json(request), headers={"downpour-domain": "c"}
            )
            assert answer.status_code == 403
    finally:
        world.close()
