# SPDX-License-Identifier: Apache-2.0
"""A path service for tests of ldmd: the requests of docs/reference/contracts.md over a Unix socket
or TCP, and whatever answers a test wants instead."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

PROBLEM = "urn:downpour:problem:"


@dataclass
class Answer:
    """`raw`: bytes sent instead of an HTTP answer, `drip_s` after each."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    drip_s: float = 0


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    body: Any
    token: str
    brief: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


def problem(status: int, kind: str, **headers: str) -> Answer:
    detail = f"the detail of {kind}"
    body = {"type": PROBLEM + kind, "title": kind.title(), "status": status, "detail": detail}
    return Answer(status, body, {"Content-Type": "application/problem+json", **headers})


class PathService:
    """`path`: what exists, as REST shows it. `override`, where it gives an answer, decides. Threads
    of the server use one lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[Request] = []
        self.paths: dict[str, dict[str, Any]] = {}
        self.override: Callable[[Request], Answer | None] = lambda _request: None
        self._servers: list[socketserver.BaseServer] = []

    # -- what it knows

    def leaves(self, name: str = "EXP") -> list[tuple[str, int, int]]:
        with self.lock:
            path = self.paths.get(name)
            return [(x["switch"], x["port"], x["vlan"]) for x in path["leaves"]] if path else []

    def seen(self) -> list[str]:
        with self.lock:
            return [str(request) for request in self.requests]

    def handle(self, request: Request) -> Answer:
        with self.lock:
            self.requests.append(request)
        other = self.override(request)
        if other is not None:
            return other
        with self.lock:
            answer = self._serve(request)
            if request.brief and answer.status in (200, 201):
                answer.body = {key: answer.body[key] for key in ("name", "state")}
            return answer

    def _serve(self, request: Request) -> Answer:
        match [unquote(part) for part in request.target.split("/")[3:]]:
            case []:
                return self._create(request.body)
            case [name, *_] if name not in self.paths:
                return problem(404, "unknown-path")
            case [name] if request.method == "GET":
                return Answer(200, self.paths[name])
            case [name]:
                del self.paths[name]
                return Answer(204)
            case [name, "leaves"]:
                leaf = {**request.body, "macs": ["02:00:00:00:00:01"]}
                known = leaf in self.paths[name]["leaves"]
                if not known:
                    self.paths[name]["leaves"].append(leaf)
                return Answer(200 if known else 201, self.paths[name])
            case [name, "leaves", switch, port, vlan]:
                key = (switch, int(port), int(vlan))
                leaves = self.paths[name]["leaves"]
                kept = [x for x in leaves if (x["switch"], x["port"], x["vlan"]) != key]
                self.paths[name]["leaves"] = kept
                gone = len(kept) < len(leaves)
                return Answer(200, self.paths[name]) if gone else problem(404, "unknown-leaf")
        return problem(404, "unknown")

    def _create(self, body: dict[str, Any]) -> Answer:
        old = self.paths.get(body["name"])
        if old is None:
            self.paths[body["name"]] = {**body, "state": "up", "leaves": [], "edges": []}
            return Answer(201, self.paths[body["name"]])
        same = all(old[key] == body[key] for key in ("root", "rate_bps"))
        return Answer(200, old) if same else problem(409, "path-exists")

    # -- where it is

    def listen_unix(self, path: Path) -> str:
        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._start(Server(str(path), self._handler()))
        return f"unix:{path}"

    def listen_tcp(self, tls: ssl.SSLContext | None = None) -> str:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self._start(server)
        scheme = "http" if tls is None else "https"
        return f"{scheme}://127.0.0.1:{server.server_address[1]}"

    def _start(self, server: socketserver.BaseServer) -> None:
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = False

            def address_string(self) -> str:
                return "client"

            def log_message(self, *_args: object) -> None:
                pass

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                token = self.headers.get("Authorization", "")
                brief = self.headers.get("Prefer", "") == "return=minimal"
                answer = service.handle(Request(self.command, self.path, body, token, brief))
                try:
                    self._answer(answer)
                except OSError:  # the client had enough
                    self.close_connection = True

            def _answer(self, answer: Answer) -> None:
                if answer.raw is not None:
                    self.close_connection = True
                    while answer.raw:
                        self.wfile.write(answer.raw)
                        time.sleep(answer.drip_s)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                data = b"" if answer.body is None else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _any  # noqa: N815

        return Handler
