# SPDX-License-Identifier: Apache-2.0
"""The REST interface of ONOS: its address, and bounded exchanges of JSON. ONOS may be down, busy,
or something else: every failure is an `OnosError` of one line."""

from __future__ import annotations

import http.client
import json
import os
import queue
import time
from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

VALID: Final = "http://HOST:PORT, e.g. http://127.0.0.1:8181"
PORT: Final = 8181
OPENFLOW_PORT: Final = 6653
ROOT: Final = "/onos/v1"
USER_VARIABLE, PASSWORD_VARIABLE = "ONOS_WEB_USER", "ONOS_WEB_PASS"  # as ONOS's own tools
USER, PASSWORD = "onos", "rocks"  # ONOS's own
TIMEOUT_S: Final = 5.0
ANSWER_MAX_BYTES: Final = 16 << 20
TOLD_BYTES: Final = 200  # of an answer that is an error


class OnosError(Exception):
    """ONOS does not answer, or not as expected."""


class OnosRefused(OnosError):
    """ONOS answered that it will not do it."""


class OnosNotFound(OnosRefused):
    """ONOS answered that it has no such thing."""


@dataclass(frozen=True)
class OnosAddress:
    """Where ONOS serves REST. `host`: an IPv6 address has no brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> OnosAddress:
        """Read `http://HOST:PORT`. Raises ValueError."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise ValueError(f"found '{text}'; valid: {VALID}") from None
        more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
        if parts.scheme != "http" or not parts.hostname or port == 0 or more:
            raise ValueError(f"found '{text}'; valid: {VALID}")
        return cls(parts.hostname, port or PORT)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def credentials() -> tuple[str, str]:
    """Return ONOS's user and password: those of its own tools' variables, or its own."""
    return os.environ.get(USER_VARIABLE, USER), os.environ.get(PASSWORD_VARIABLE, PASSWORD)


class Rest:
    """Exchanges JSON with ONOS. Thread-safe: each exchange has its own connection, which is
    kept for the next one."""

    def __init__(self, address: OnosAddress, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        token = b64encode(":".join(credentials()).encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Accept": "application/json"}
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()

    def get(self, path: str) -> Any:
        """GET. Raises OnosError."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, and return the answer's JSON; None without one. Raises OnosError."""
        sent = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **({"Content-Type": "application/json"} if sent else {})}
        status, answer = self._exchange(method, ROOT + path, sent, headers)
        if status >= 400:
            told = " ".join(answer[:TOLD_BYTES].decode(errors="replace").split())
            text = f"{self.address}: {method} {path}: status {status} {told}".rstrip()
            if status == 401:
                text += f" (user and password: {USER_VARIABLE}, {PASSWORD_VARIABLE})"
            kinds = {404: OnosNotFound, 400: OnosRefused, 409: OnosRefused, 422: OnosRefused}
            raise kinds.get(status, OnosError)(text)
        if not answer.strip():
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise OnosError(f"{self.address}: {method} {path}: the answer is not JSON") from None

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection, is_new = self._connection(), True
        else:
            is_new = False
        try:
            try:
                connection.request(method, target, body, headers)
                response = connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if is_new:  # else ONOS has closed a connection that was idle
                    raise
                connection.close()
                connection.request(method, target, body, headers)
                response = connection.getresponse()
            answer = _read(response, time.monotonic() + self._timeout_s)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            reason = " ".join(reason.split())[:TOLD_BYTES] or type(error).__name__
            raise OnosError(f"{self.address} does not answer: {reason}") from None
        except OnosError as error:
            connection.close()
            raise OnosError(f"{self.address}: {method} {target}: {error}") from None
        self._idle.put(connection)
        return response.status, answer

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            self.address.host, self.address.port, timeout=self._timeout_s
        )


def _read(response: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """Return the body. Raises OnosError if it is too large, or arrives too slowly."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_MAX_BYTES:
            raise OnosError(f"an answer above {ANSWER_MAX_BYTES} bytes")
        if time.monotonic() > deadline_s:
            raise OnosError("an answer that takes too long")
    response.close()  # else an empty one counts as unread, and the connection as busy
    return b"".join(parts)


def version(rest: Rest) -> str:
    """Return the version of the ONOS at an address. Raises OnosError."""
    found = rest.get("/system")
    text = found.get("version") if isinstance(found, dict) else None
    if not isinstance(text, str) or not text:
        raise OnosError(f"{rest.address} answers without a version; valid: ONOS")
    return text
