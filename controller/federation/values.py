# SPDX-License-Identifier: Apache-2.0
"""What controllers of different domains send each other: segments, requests, replies. Pure.

The vocabulary is that of NSI CS 2.0 (OGF GFD.212). A *connection* is a path that its root's domain
coordinates, and every domain on the way contributes a *segment*. A change to a segment is
*reserved* (held for a limited time), then *committed*, or *released* (NSI's reserveAbort and
terminate in one: the request says what remains). Versions grow with every attempt of a connection,
so that a request that was delayed for long is recognised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from controller.paths.core import MAX_MACS, Endpoint
from controller.paths.entries import CHANNELS_MAX
from controller.paths.multipoint_path import Channels

MAX_LEAVES = 4096  # of one segment
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class FederationError(Exception):
    """What a peer sent cannot be used; the text says what and why."""


@dataclass(frozen=True)
class Connection:
    """A path over several domains, identified by its coordinator and its name there."""

    coordinator: Annotated[str, Field(min_length=1, max_length=64)]
    path: Annotated[str, Field(min_length=1, max_length=64)]

    def __str__(self) -> str:
        return f"{self.coordinator}:{self.path}"


@dataclass(frozen=True)
class Segment:
    """One domain's contribution: a path from where frames enter it to its leaves and hand-offs.

    `leaves` are sorted; a leaf at a hand-off port has the MACs of all hosts behind it. A segment
    has no end time: its coordinator ends it.
    """

    root: Endpoint
    rate_bps: Annotated[int, Field(ge=0, le=1_000_000_000_000)]
    leaves: Annotated[tuple[Endpoint, ...], Field(max_length=MAX_LEAVES)]
    algorithm: Annotated[str, Field(max_length=32)] = "shortest"
    channels: Channels | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the root and the leaves."""
        return (self.root, *self.leaves)


@dataclass(frozen=True)
class Problem:
    """Why a domain refuses a request, as RFC 9457 describes problems."""

    status: int
    kind: str
    title: str
    detail: str


Version = Annotated[int, Field(ge=1, lt=2**63)]


@dataclass(frozen=True)
class Reserve:
    """Hold everything that the segment needs in addition, for `hold_s` seconds."""

    connection: Connection
    version: Version
    segment: Segment
    hold_s: Annotated[float, Field(gt=0, le=3600)]
    kind: Literal["reserve"] = "reserve"


@dataclass(frozen=True)
class Commit:
    """Install what was reserved as `version`."""

    connection: Connection
    version: Version
    kind: Literal["commit"] = "commit"


@dataclass(frozen=True)
class Release:
    """Give up everything up to `version` but `segment` (None: everything)."""

    connection: Connection
    version: Version
    segment: Segment | None
    kind: Literal["release"] = "release"


@dataclass(frozen=True)
class Query:
    """Asks the coordinator: does the connection still have a segment here?"""

    connection: Connection
    version: Version
    kind: Literal["query"] = "query"


@dataclass(frozen=True)
class Members:
    """Tells the domain at the other end of a hand-off link, which sends frames with `vlan`, which
    of the connection's channels, counted from 0, the leaves here and beyond have joined."""

    connection: Connection
    link: Annotated[str, Field(max_length=200)]
    vlan: Annotated[int, Field(ge=1, le=4094)]
    channels: Annotated[
        frozenset[Annotated[int, Field(ge=0, lt=CHANNELS_MAX)]], Field(max_length=CHANNELS_MAX)
    ]
    version: Version = 1  # has no meaning here: the last message counts
    kind: Literal["members"] = "members"


Seconds = Annotated[float, Field(gt=0, lt=1e11)]  # since the epoch


@dataclass(frozen=True)
class Book:
    """Reserve the segment from `start_s` to `end_s`; no switch is changed before that."""

    connection: Connection
    version: Version
    segment: Segment
    start_s: Seconds
    end_s: Seconds
    kind: Literal["book"] = "book"


@dataclass(frozen=True)
class Unbook:
    """Void what was booked up to `version`, and what has begun from it."""

    connection: Connection
    version: Version
    kind: Literal["unbook"] = "unbook"


@dataclass(frozen=True)
class AskBooking:
    """Asks the coordinator: is the connection still reserved for later?"""

    connection: Connection
    version: Version
    kind: Literal["ask-booking"] = "ask-booking"


BookingRequest = Book | Unbook | AskBooking
Request = Annotated[
    Reserve | Commit | Release | Query | Members | BookingRequest, Field(discriminator="kind")
]


@dataclass(frozen=True)
class Done:
    """Reserved, committed or released, as asked; in answer to a query: yes, it has one."""

    kind: Literal["done"] = "done"


@dataclass(frozen=True)
class Refused:
    """Not done. `taken`: all VLAN ids in use here, by hand-off link, if that is the
    reason."""

    problem: Problem
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Unknown:
    """The answer to a query: the connection has no segment there, or no longer has one."""

    kind: Literal["unknown"] = "unknown"


Reply = Annotated[Done | Refused | Unknown, Field(discriminator="kind")]

AnyRequest = Reserve | Commit | Release | Query | Members | BookingRequest
_REQUEST: TypeAdapter[AnyRequest] = TypeAdapter(Request)
_REPLY: TypeAdapter[Done | Refused | Unknown] = TypeAdapter(Reply)


def request_json(request: Request) -> bytes:
    """Return a request in the form in which it is sent."""
    return _REQUEST.dump_json(request)


def reply_json(reply: Reply) -> bytes:
    """Return a reply in the form in which it is sent."""
    return _REPLY.dump_json(reply)


def read_request(body: bytes) -> AnyRequest:
    """Parse a request. Raises FederationError, which says what is wrong where."""
    try:
        request = _REQUEST.validate_json(body)
    except ValidationError as error:
        raise FederationError(_first(error)) from None
    if isinstance(request, (Reserve, Release, Book)) and request.segment is not None:
        check_segment(request.segment)
    return request


def read_reply(body: bytes) -> Done | Refused | Unknown:
    """Parse a reply. Raises FederationError."""
    try:
        return _REPLY.validate_json(body)
    except ValidationError as error:
        raise FederationError(_first(error)) from None


def _first(error: ValidationError) -> str:
    item = error.errors()[0]
    found = repr(item.get("input"))
    found = found if len(found) <= 80 else found[:77] + "..."
    return f"{'.'.join(map(str, item['loc']))}: {item['msg']}; found {found}"


def check_segment(segment: Segment) -> None:
    """Raise FederationError unless endpoints are in canonical form and differ."""
    keys = [endpoint.key for endpoint in segment.endpoints]
    if len(set(keys)) != len(keys):
        raise FederationError("the segment has an endpoint twice")
    for endpoint in segment.endpoints:
        if not 1 <= endpoint.vlan <= 4094:
            raise FederationError(f"VLAN id {endpoint.vlan} of {endpoint} is not within 1..4094")
        if len(endpoint.macs) > MAX_MACS:
            raise FederationError(
                f"{len(endpoint.macs)} MACs at {endpoint}; valid: at most {MAX_MACS}"
            )
        if list(endpoint.macs) != sorted(set(endpoint.macs)):
            raise FederationError(f"MACs of {endpoint} are not sorted, each once")
        for mac in endpoint.macs:
            if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
                raise FederationError(
                    f"'{mac[:40]}' at {endpoint}; valid: a unicast address like 02:00:00:00:00:01"
                )
