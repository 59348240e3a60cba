# SPDX-License-Identifier: Apache-2.0
"""Parse log lines of the LDM programs (Downpour's, and the originals from 6.13 on) into typed
records.

Line format (DRFSM21 Table 2 and Fig. 5; docs/reference/contracts.md): `YYYYMMDDThhmmss.ffffffZ
prog[pid]   file.c:function:line   LEVEL message`, UTC. The message's first words identify the
record. Lines with other messages are only counted, but warnings and errors among them become a
`Notice`. A line that begins like a record and is not one is a `Problem`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, TypeVar

from parsers.base.problems import (
    Lines,
    Problem,
    cut_off,
    numbered_lines,
    problem,
)
from parsers.base.times import MICROSECONDS, utc_microseconds, utc_seconds

Via = Literal["ingest", "backstop", "ldm6", "file"]

# How a product reached a receiver.
How = Literal["fmtp", "backstop", "backlog", "ldm6", "file"]

# Groups: date, clock, fraction, prog, pid, file, function, level, message.
_LINE = re.compile(
    r"(\d{8})T(\d{6})\.(\d{6})Z\s+([^\s\[\]]+)\[(\d+)\]\s+"
    r"([^\s:]+):(\S+):\d+\s+([A-Z]+)\s+(\S.*)",
    re.ASCII,
)
_PRODUCT = re.compile(r"\s*(\d+) +(\d{14})\.(\d{6}) +(\S+) +(\d{3,}) {1,2}(\S.*)", re.ASCII)
_MULTICASTED = re.compile(r'Multicasted: prodIndex=(\d+), prodInfo="(.*)"', re.ASCII)
_RELEASED = re.compile(r"Released: prodIndex=(\d+), why=(all-done|timeout|closed)", re.ASCII)
_RECEIVED = re.compile(
    r'Received: \{delay: (-?\d+(?:\.\d+)?) s, index: (\d+), retrans: (\d+), info: "(.*)"\}',
    re.ASCII,
)
_DUPLICATE = re.compile(r"Duplicate product: sig=([0-9a-f]+), size=(\d+)", re.ASCII)
_MISSED = re.compile(r"Missed: index=(\d+)", re.ASCII)
_REPLAYED = re.compile(
    r"Replayed: products=(\d+) bytes=(\d+) elapsed_s=(-?[\d.]+) late_p50_ms=(-?[\d.]+)"
    r" late_max_ms=(-?[\d.]+)",
    re.ASCII,
)
PRODUCTS_REMEMBERED = 1 << 17  # of the latest logs, about 60 MB: four hours of the NGRID feed
FORMAT = "YYYYMMDDThhmmss.ffffffZ prog[pid] file:function:line LEVEL message"
_KEPT_LEVELS = frozenset({"WARN", "ERROR", "FATAL", "CRIT", "ALERT", "EMERG"})


@dataclass(frozen=True, slots=True, order=True)
class Product:
    """A product as its log line describes it. The same product has equal values in all logs."""

    size_bytes: int
    created_us: int  # microseconds since 1970, UTC
    feed: str
    seqno: int
    ident: str

    def __hash__(self) -> int:
        return hash((self.created_us, self.ident))  # enough to distinguish products, and fast


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of all log records: the time (microseconds since 1970, UTC) and the process."""

    time_us: int
    prog: str
    pid: int


@dataclass(frozen=True, slots=True)
class Received(Record):
    """FMTP delivered a product: multicast plus `retrans` retransmitted blocks."""

    delay_s: float  # since the BOP's time stamp
    index: int
    retrans: int
    product: Product


@dataclass(frozen=True, slots=True)
class Inserted(Record):
    """A product entered a queue: from pqinsert, by LDM7's backstop, or by LDM6."""

    via: Via
    product: Product


@dataclass(frozen=True, slots=True)
class Backlog(Record):
    product: Product


@dataclass(frozen=True, slots=True)
class Duplicate(Record):
    signature: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Missed(Record):
    """FMTP gave up on the product; the backstop requests it."""

    index: int


@dataclass(frozen=True, slots=True)
class Multicasted(Record):
    index: int
    product: Product


@dataclass(frozen=True, slots=True)
class Released(Record):
    index: int
    why: str  # all-done, timeout or closed


@dataclass(frozen=True, slots=True)
class Sending(Record):
    """LDM6's upstream hands a product to one connection."""

    product: Product


@dataclass(frozen=True, slots=True)
class Replayed(Record):
    """pqinsert's summary of a replay: how much, and how late compared with the trace's times."""

    products: int
    size_bytes: int
    elapsed_s: float
    late_p50_ms: float
    late_max_ms: float


@dataclass(frozen=True, slots=True)
class SenderStats(Record):
    """Counters of the FMTP sender since its start."""

    products: int
    datagrams: int
    datagram_bytes: int
    blocks: int
    retx_requests: int
    retx_blocks: int
    retx_bytes: int
    rejects: int
    timeouts: int
    bad_messages: int


@dataclass(frozen=True, slots=True)
class ReceiverStats(Record):
    """Counters of one FMTP receiver since its start."""

    datagrams: int
    blocks: int
    duplicate_blocks: int
    products: int
    missed: int
    retx_requests: int
    retx_blocks: int
    bad_messages: int
    socket_drops: int
    rcvbuf_granted_bytes: int


@dataclass(frozen=True, slots=True)
class Receiving(Record):
    """The FMTP connection of a subscription is up."""


PathChange = Literal["path ready", "leaf added", "leaf removed", "path deleted"]


@dataclass(frozen=True, slots=True)
class PathEvent(Record):
    """The publisher's path service confirmed a change of a feed's path, `took_s` after the request.
    `endpoint` (switch:port:VLAN): the leaf's, or the root's."""

    what: PathChange
    path: str
    endpoint: str
    took_s: float
    leaves: int | None  # of the path after the change


@dataclass(frozen=True, slots=True)
class Notice(Record):
    """A warning or error with no record type of its own."""

    level: str
    message: str


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class LdmLog:
    """All records of one log file, in the file's order."""

    file: str
    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    lines: int
    other_lines: int  # well-formed lines of other kinds

    def of(self, kind: type[R]) -> list[R]:
        """Return the records of this type."""
        return [r for r in self.records if isinstance(r, kind)]


@functools.lru_cache(maxsize=PRODUCTS_REMEMBERED)
def parse_product(text: str) -> Product:
    """Parse `%10u YYYYMMDDhhmmss.uuuuuu FEED %03u  ident`. Raises ValueError if it is not a
    product.

    All receivers' logs describe the same products in the same words, so each product is made once
    and shared.
    """
    match = _PRODUCT.fullmatch(text)
    if match is None:
        raise ValueError("expected a product: SIZE YYYYMMDDhhmmss.uuuuuu FEED SEQNO  IDENT")
    size, when, fraction, feed, seqno, ident = match.groups()
    return Product(int(size), utc_microseconds(when, fraction), feed, int(seqno), ident)


class _Line(NamedTuple):
    time_us: int
    prog: str
    pid: int
    source: str  # file of the program
    function: str
    message: str


def _groups(pattern: re.Pattern[str], line: _Line, expected: str) -> tuple[str, ...]:
    match = pattern.fullmatch(line.message)
    if match is None:
        raise ValueError(f"expected {expected}")
    return match.groups()


def _after_colon(line: _Line) -> Product:
    return parse_product(line.message.split(":", 1)[1].lstrip())


def _received(line: _Line) -> Record:
    delay, index, retrans, info = _groups(
        _RECEIVED, line, 'Received: {delay: D s, index: I, retrans: N, info: "PRODUCT"}'
    )
    return Received(
        line.time_us,
        line.prog,
        line.pid,
        float(delay),
        int(index),
        int(retrans),
        parse_product(info.lstrip()),
    )


def _inserted(line: _Line) -> Record:
    via: Via
    # The originals' processes have the name of the host that they serve, but their file
    # distinguishes them.
    program = line.source.removesuffix(".c")
    if line.function == "dh_saveProd" or "down6" in (line.prog, program):
        via = "ldm6"
    elif "pqinsert" in (line.prog, program) or program == "feed.py":
        via = "ingest"
    elif program == "inbox.py":
        via = "file"
    elif "down7" in (line.prog, program):
        via = "backstop"
    else:
        raise ValueError(
            "'Inserted' by neither pqinsert, feed, inbox, down6 (dh_saveProd) nor down7"
        )
    return Inserted(line.time_us, line.prog, line.pid, via, _after_colon(line))


def _bare_product(line: _Line) -> Record | None:
    """Read a stored product. The original LDM6's downstream logs it without a keyword in front."""
    if line.function != "dh_saveProd" or not line.message[0].isdigit():
        return None
    return Inserted(line.time_us, line.prog, line.pid, "ldm6", parse_product(line.message))


def _multicasted(line: _Line) -> Record:
    index, info = _groups(_MULTICASTED, line, 'Multicasted: prodIndex=I, prodInfo="PRODUCT"')
    return Multicasted(line.time_us, line.prog, line.pid, int(index), parse_product(info.lstrip()))


def _released(line: _Line) -> Record:
    index, why = _groups(_RELEASED, line, "Released: prodIndex=I, why=all-done, timeout or closed")
    return Released(line.time_us, line.prog, line.pid, int(index), why)


def _backlog(line: _Line) -> Record:
    return Backlog(line.time_us, line.prog, line.pid, _after_colon(line))


def _sending(line: _Line) -> Record:
    return Sending(line.time_us, line.prog, line.pid, _after_colon(line))


def _duplicate(line: _Line) -> Record:
    signature, size = _groups(_DUPLICATE, line, "Duplicate product: sig=HEX, size=N")
    return Duplicate(line.time_us, line.prog, line.pid, signature, int(size))


def _missed(line: _Line) -> Record:
    (index,) = _groups(_MISSED, line, "Missed: index=I")
    return Missed(line.time_us, line.prog, line.pid, int(index))


def _replayed(line: _Line) -> Record:
    products, size, elapsed, p50, highest = _groups(
        _REPLAYED,
        line,
        "Replayed: products=N bytes=N elapsed_s=X late_p50_ms=X late_max_ms=X",
    )
    return Replayed(
        line.time_us,
        line.prog,
        line.pid,
        int(products),
        int(size),
        float(elapsed),
        float(p50),
        float(highest),
    )


def _stats(kind: type[SenderStats] | type[ReceiverStats]) -> Callable[[_Line], Record]:
    names = [f.name for f in fields(kind)][3:]

    def build(line: _Line) -> Record:
        given: dict[str, int] = {}
        for item in line.message.split(":", 1)[1].split():
            name, equals, digits = item.partition("=")
            if not equals or not digits.isascii() or not digits.isdigit():
                raise ValueError(f"expected NAME=NUMBER, found {item!r}")
            given[name] = int(digits)
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(f"counters missing: {', '.join(missing)}")
        # Names unknown to this version come from a newer program: this is not an error.
        return kind(line.time_us, line.prog, line.pid, **{name: given[name] for name in names})

    return build


_PATH_CHANGE = re.compile(
    r"Path service: (path ready|leaf added|leaf removed|path deleted): (.*)", re.ASCII
)


def _path_event(line: _Line) -> Record | None:
    match = _PATH_CHANGE.fullmatch(line.message)
    if match is None:
        return None  # a refusal, or a service that does not answer
    given = dict(item.partition("=")[::2] for item in match[2].split(", "))
    needed = {"leaf added": ("endpoint", "leaves"), "leaf removed": ("endpoint", "leaves")}
    for name in ("path", "ms", *needed.get(match[1], ())):
        if not given.get(name):
            raise ValueError(f"expected {name}=...")
    what: PathChange = match[1]  # type: ignore[assignment]
    leaves = given.get("leaves")
    return PathEvent(
        line.time_us,
        line.prog,
        line.pid,
        what,
        given["path"],
        given.get("endpoint") or given.get("root") or "",
        float(given["ms"]) / 1000,
        None if leaves is None else int(leaves),
    )


def _receiving(line: _Line) -> Record:
    return Receiving(line.time_us, line.prog, line.pid)


_BUILDERS: dict[str, Callable[[_Line], Record | None]] = {
    "Receiving": _receiving,
    "Path service": _path_event,
    "Received": _received,
    "Inserted": _inserted,
    "Backlog": _backlog,
    "Duplicate product": _duplicate,
    "Missed": _missed,
    "Multicasted": _multicasted,
    "Released": _released,
    "sending": _sending,
    "Replayed": _replayed,
    "FMTP sender": _stats(SenderStats),
    "FMTP receiver": _stats(ReceiverStats),
}


def parse_ldm_log(text: Lines, file: str) -> LdmLog:
    """Parse a whole log. Never raises: malformed lines are in `problems`, as file:line.

    A last line without its newline is a problem even if it can be parsed: otherwise a truncated
    name or number would go unnoticed.
    """
    records: list[Record] = []
    problems: list[Problem] = []
    lines = 0
    other = 0
    for number, raw, complete in numbered_lines(text):
        lines += 1
        if not complete:
            problems.append(cut_off(file, number, raw))
            continue
        if not raw.strip():
            other += 1
            continue
        match = _LINE.fullmatch(raw)
        if match is None:
            problems.append(problem(file, number, raw, f"not a log line; expected {FORMAT}"))
            continue
        date, clock, fraction, prog, pid, source, function, level, message = match.groups()
        try:
            time_us = utc_seconds(date + clock) * MICROSECONDS + int(fraction)
            line = _Line(time_us, sys.intern(prog), int(pid), source, function, message)
            record = _BUILDERS.get(message.partition(":")[0], _bare_product)(line)
            if record is not None:
                records.append(record)
            elif level in _KEPT_LEVELS:
                records.append(Notice(time_us, line.prog, line.pid, level, message))
            else:
                other += 1
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return LdmLog(file, tuple(records), tuple(problems), lines, other)
