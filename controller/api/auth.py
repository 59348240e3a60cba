# SPDX-License-Identifier: Apache-2.0
"""Check who sends a request and whether they may send one now, before anything else.

On the Unix socket, which only its owner can open, a request without a token is the owner's. Over
TCP every request needs a workgroup's bearer token (RFC 6750). No token is ever logged or quoted in
an answer.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from common.http.origin import origin_of
from common.http.ratelimit import REQUESTS_PER_S, RateLimit
from common.http.refused import REFUSED, Reason
from common.http.server import MAX_HEAD_BYTES
from controller.service.problems import problem_response
from controller.service.workgroups import (
    MAX_TOKEN_CHARS,
    OWNER,
    Workgroup,
    Workgroups,
)

LOG = logging.getLogger(__name__)

# Limit of an address, whatever tokens it sends: several workgroups may share a machine.
ADDRESS_FACTOR = 4
BURST_S = 2.0
FAILURES_PER_S = 1.0  # requests of one address without a valid token
FAILURES_BURST = 10.0
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*) *")


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `workgroup` has the state it had when the request arrived."""

    workgroup: Workgroup
    address: str  # '' for the Unix socket

    @property
    def name(self) -> str:
        """Return the name of the workgroup."""
        return self.workgroup.name

    @property
    def is_admin(self) -> bool:
        """Return whether the workgroup may see and change everything."""
        return self.workgroup.is_admin

    @property
    def is_peer(self) -> bool:
        """Return whether the workgroup is another domain."""
        return self.workgroup.is_peer


def caller(request: Request) -> Caller:
    """Return who sends a request, as a FastAPI dependency:

    `who: Annotated[Caller, Depends(caller)]`.
    """
    found: Caller = request.state.caller
    return found


class Access:
    """The workgroups, and how often each may send requests. Only the event loop's thread uses this;
    any thread may replace `workgroups`."""

    def __init__(
        self,
        workgroups: Workgroups,
        requests_per_s: float = REQUESTS_PER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workgroups = workgroups
        self._clock = clock
        burst = max(1.0, BURST_S * requests_per_s)
        self._tokens = RateLimit(requests_per_s, burst)
        self._addresses = RateLimit(ADDRESS_FACTOR * requests_per_s, ADDRESS_FACTOR * burst)
        self._failures = RateLimit(FAILURES_PER_S, FAILURES_BURST)

    def admit(self, headers: Headers, address: str) -> Caller | Refusal:
        """Return the caller. `address` '': the Unix socket."""
        now = self._clock()
        origin = origin_of(address)
        given = [value for name, value in headers.items() if name.lower() == "authorization"]
        header = given[0] if given else None
        if header is None and not address:
            return Caller(OWNER, "")
        wait_s = self._addresses.take(origin, now) if address else 0
        if wait_s:
            return _too_many(f"address {address}", wait_s)
        if header is None:
            return self._unauthorized(
                address, now, "no token; valid: the header 'Authorization: Bearer TOKEN'"
            )
        if len(given) > 1:
            return self._unauthorized(address, now, "several tokens; valid: one")
        match = _BEARER.fullmatch(header)
        group = None
        if match is not None and len(match[1]) <= MAX_TOKEN_CHARS:
            group = self.workgroups.by_token(match[1])
        if group is None:
            what = (
                "no workgroup has this token"
                if match is not None
                else "the header is not 'Authorization: Bearer TOKEN'"
            )
            return self._unauthorized(address, now, what)
        wait_s = self._tokens.take(group.name, now)
        if wait_s:
            return _too_many(f"workgroup '{group.name}'", wait_s)
        return Caller(group, address)

    def _unauthorized(self, address: str, now: float, detail: str) -> Refusal:
        wait_s = self._failures.take(origin_of(address), now)
        if wait_s:
            return _too_many(f"address {address or 'of the socket'} without a valid token", wait_s)
        LOG.warning("refused address=%s status=401: %s", address or "socket", detail)
        return Refusal(
            401, "unauthorized", "Unauthorized", detail, (("www-authenticate", "Bearer"),)
        )


@dataclass(frozen=True)
class Refusal:
    status: int
    kind: str
    title: str
    detail: str
    headers: tuple[tuple[str, str], ...] = ()


def _too_many(who: str, wait_s: int) -> Refusal:
    return Refusal(
        429,
        "too-many-requests",
        "Too many requests",
        f"{who} sent too many requests; valid: retry in {wait_s} s",
        (("retry-after", str(wait_s)),),
    )


class AccessMiddleware:
    """Puts the Caller into the request's state, or answers 401 or 429."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if _head_bytes(scope) > MAX_HEAD_BYTES:
            REFUSED.add(Reason.HEAD_TOO_LARGE)
            detail = f"the request's head is larger than {MAX_HEAD_BYTES} bytes"
            too_large = problem_response(431, "", "Request Header Fields Too Large", detail)
            await too_large(scope, receive, send)
            return
        client = scope.get("client")
        answer = self._access.admit(Headers(scope=scope), client[0] if client else "")
        if isinstance(answer, Caller):
            scope.setdefault("state", {})["caller"] = answer
            await self._app(scope, receive, send)
            return
        REFUSED.add(Reason.NO_TOKEN if answer.status == 401 else Reason.TOO_OFTEN)
        response = problem_response(answer.status, answer.kind, answer.title, answer.detail)
        response.headers.update(dict(answer.headers))
        await response(scope, receive, send)


def _head_bytes(scope: Scope) -> int:
    """Return the size of a request's target and headers. The server limits only those that arrive
    in parts."""
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope["query_string"])
