# SPDX-License-Identifier: Apache-2.0
"""Sending a recording: what is refused, and servers that answer strangely. Each error is a line."""

from __future__ import annotations

import io
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message

import pytest

from monitor.push import PushError, import_url, push
from monitor.recording import Recording, Series
from monitor.remote_write import PATH

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def recorded() -> Recording:
    recording = Recording()
    recording.of(Series("x", "counter")).add(1_000_000, 5)
    return recording


class Server:
    """Gives the same answer to each connection, and keeps the first line of each request."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.asked.append(connection.recv(1 << 16).split(b"\r\n")[0])
                connection.sendall(self._answer)

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.stop()


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost", "localhost:8428", "http://", "http://[", "http://[::1", "http://h:port",
        "http://h:99999", "http://h:0", "http://h/a b", "http://h\n/", "http://\u00e9\u0301/",
        f"ftp://h{PATH}", f"file://localhost{PATH}", "http://h/?token=x", "//h:1",
    ],
)  # fmt: skip
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(PushError, match="found URL .*; valid: http://HOST:PORT") as found:
        push(url, "x", recorded())
    assert "\n" not in str(found.value)


def test_addresses() -> None:
    assert import_url("http://h:1", "a b") == (
        "http://h:1/api/v1/import/prometheus?extra_label=run%3Da+b"
    )
    assert import_url(f"https://[::1]:9090{PATH}", "a") == f"https://[::1]:9090{PATH}"


@pytest.mark.parametrize("answering", [OK], indirect=True)
def test_what_is_sent(answering: Server) -> None:
    assert push(answering.url, "x", recorded()) == len("downpour_x_total 5 1000\n")
    assert answering.asked == [b"POST /api/v1/import/prometheus?extra_label=run%3Dx HTTP/1.1"]


@pytest.mark.parametrize(
    "answering",
    [
        b"",
        b"junk\r\n\r\n",
        b"HTTP/1.1 " + b"9" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 400 no\x1b[31m\r\n\r\n",
        b"HTTP/1.1 400 no\r\n\r\ntwo\nlines \x1b[31m\xff",
        b"HTTP/1.1 500 no\r\nContent-Length: -3\r\n\r\n",
    ],
    indirect=True,
)
def test_strange_answers_are_one_line(answering: Server) -> None:
    with pytest.raises(PushError) as found:
        push(answering.url, "x", recorded())
    assert str(found.value).isprintable()
    assert str(found.value).startswith(answering.url)


def test_an_answer_that_breaks_off_in_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status has come, and the connection is reset before the text that goes with it."""

    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise ConnectionResetError(104, "Connection reset by peer")

    def refuse(_opener: object, request: urllib.request.Request, **_: object) -> None:
        raise urllib.error.HTTPError(request.full_url, 500, "no", Message(), Broken())

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    with pytest.raises(PushError, match="^http://h:1/.*: found status 500 no; valid: "):
        push("http://h:1", "x", recorded())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_no_success(status: int) -> None:
    """Where it leads, the request would come without its data."""
    there = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    moved = Server(f"HTTP/1.1 {status} Moved\r\nLocation: {there.url}/\r\n\r\n".encode())
    with pytest.raises(PushError, match=f"found status {status} Moved; valid: "):
        push(moved.url, "x", recorded())
    assert not there.asked
    there.stop()
    moved.stop()


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                try:
                    while True:
                        connection.sendall(b"x" * (1 << 16))
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        push(f"http://127.0.0.1:{listener.getsockname()[1]}", "x", recorded())
