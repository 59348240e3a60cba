# SPDX-License-Identifier: Apache-2.0
"""Whatever answers at ONOS's address: each failure is one line, in bounded time and memory."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from common import onos
from common.onos import OnosAddress, OnosError, OnosNotFound, OnosRefused, Rest

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def served(answer: Answer) -> Iterator[Rest]:
    """Serve every request by `answer`; yield a client of it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5.0  # else a kept connection would keep its thread

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            self.rfile.read(length)
            with contextlib.suppress(OSError):  # the client has had enough
                answer(self)

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield Rest(OnosAddress("127.0.0.1", server.server_port), timeout_s=1.0)
    finally:
        server.shutdown()
        server.server_close()


def says(status: int, body: bytes) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def failure(rest: Rest, kind: type[OnosError] = OnosError) -> str:
    with pytest.raises(kind) as caught:
        rest.get("/system")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8181", OnosAddress("127.0.0.1", 8181)),
        ("http://onos", OnosAddress("onos", 8181)),
        ("http://[::1]:81/", OnosAddress("::1", 81)),
    ],
)
def test_addresses(text: str, address: OnosAddress) -> None:
    assert OnosAddress.parse(text) == address
    assert OnosAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "onos", "127.0.0.1:8181", "https://onos:8181", "http://", "http://onos:0"),
        *("http://onos:99999", "http://onos:x", "http://u:p@onos", "http://onos/onos/v1"),
        *("http://[::1", "http://onos?a"),
    ],
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"found '.*'; valid: http://HOST:PORT"):
        OnosAddress.parse(text)


def test_answers_over_one_connection() -> None:
    ports = set()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ports.add(handler.client_address[1])
        says(200, b'{"version": "2.7.0"}')(handler)

    with served(answer) as rest:
        assert [onos.version(rest) for _ in range(3)] == ["2.7.0"] * 3
        assert rest.call("POST", "/flows", {"flows": []}) == {"version": "2.7.0"}
    assert len(ports) == 1


def test_a_connection_that_onos_closed_is_made_again() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        says(200, b"{}")(handler)
        handler.close_connection = True  # without saying so

    with served(answer) as rest:
        assert [rest.get("/system") for _ in range(3)] == [{}] * 3


def test_the_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        found.append(handler.headers["Authorization"])
        says(401, b"<html>\n<p>no</html>")(handler)

    monkeypatch.setenv("ONOS_WEB_USER", "ann")
    monkeypatch.setenv("ONOS_WEB_PASS", "secret")
    with served(answer) as rest:
        text = failure(rest)
    assert found == ["Basic YW5uOnNlY3JldA=="]
    assert "status 401 <html> <p>no</html>" in text
    assert "ONOS_WEB_USER" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("status", "kind"), [(404, OnosNotFound), (400, OnosRefused), (500, OnosError)]
)
def test_errors_of_onos(status: int, kind: type[OnosError]) -> None:
    with served(says(status, b"x" * 9999)) as rest:
        text = failure(rest, kind)
    assert f"GET /system: status {status} xxx" in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[" * 100_000, b"\xff", b"{}", b'{"version": 2}']
)
def test_something_else_answers(body: bytes) -> None:
    with served(says(200, body)) as rest, pytest.raises(OnosError, match="version|not JSON"):
        onos.version(rest)


def test_an_endless_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onos, "ANSWER_MAX_BYTES", 100_000)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 10_000)

    with served(answer) as rest:
        assert "an answer above 100000 bytes" in failure(rest)


def test_a_slow_answer_ends() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        pause = threading.Event()
        for _ in range(100):
            handler.wfile.write(b"x")
            pause.wait(0.1)

    with served(answer) as rest:
        assert "takes too long" in failure(rest)


def test_a_silent_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rest = Rest(OnosAddress("127.0.0.1", listener.getsockname()[1]), timeout_s=0.2)
        assert "does not answer: timed out" in failure(rest)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    assert failure(Rest(OnosAddress.parse(address))) == (
        f"{address} does not answer: Connection refused"
    )


def test_no_http() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-x\r\n")
        handler.close_connection = True

    with served(answer) as rest:
        assert "does not answer: SSH-2.0-x" in failure(rest)
