# SPDX-License-Identifier: Apache-2.0
"""What two machines of one emulation say to each other over a TCP connection. Pure.

A message is a head and a body. Nothing that arrives is trusted: a number that cannot be raises
CalendarError, and a stream never holds more than one message and what arrived with it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from virtual.parts.calendar import CalendarError

BATCH_SLOTS: Final = 2  # topologies/wire/src/batch.h, also the next two
BATCH_BYTES: Final = 16 << 20
BATCH_HEAD: Final = struct.Struct("=QII")  # number, bytes of records, whether it is the last
LINK_BYTES: Final = BATCH_SLOTS * BATCH_BYTES
TEXT_BYTES: Final = 1 << 20
PROBLEM_BYTES: Final = 2000
OUTPUT_BYTES: Final = 50_000  # of one of a part's outputs
_HEAD: Final = struct.Struct("!IIIQQ")  # kind, index, bytes of the body, two numbers


class Kind(IntEnum):
    """What a message says. `first`, `second`: its numbers; times are in ns."""

    ORDER = 1  # run what the body (JSON) says
    RUN = 2  # part `index` runs from `first` to `second`
    WAIT = 3  # part `index` waits until `first`
    FOREVER = 4  # part `index` waits for nothing
    GONE = 5  # part `index` has ended; body: `Ended` in JSON
    BATCH = 6  # body: batch `first` of link `index`
    PROBLEM = 7  # body: why the sender ends


_MOST_BYTES: Final = {
    Kind.ORDER: TEXT_BYTES,
    Kind.GONE: TEXT_BYTES,
    Kind.BATCH: BATCH_BYTES,
    Kind.PROBLEM: PROBLEM_BYTES,
}


@dataclass(frozen=True)
class Message:
    """See `Kind`."""

    kind: Kind
    index: int = 0
    first: int = 0
    second: int = 0
    body: bytes = b""

    def to_bytes(self) -> bytes:
        """Return what `Stream` reads."""
        head = _HEAD.pack(self.kind, self.index, len(self.body), self.first, self.second)
        return head + self.body

    @property
    def text(self) -> str:
        """Return the body as one line of printable text."""
        words = self.body.decode("utf-8", "replace").split()
        return "".join(c if c.isprintable() else "?" for c in " ".join(words))


class Stream:
    """Finds messages in bytes as they come. `name`: whose, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are now whole. Raises CalendarError."""
        self._rest += data
        found: list[Message] = []
        while len(self._rest) >= _HEAD.size:
            number, index, size, first, second = _HEAD.unpack_from(self._rest)
            if number not in Kind.__members__.values():
                raise CalendarError(
                    f"{self._name}: found a message of kind {number}; valid: {min(Kind):d} to "
                    f"{max(Kind):d}"
                )
            kind = Kind(number)
            if size > _MOST_BYTES.get(kind, 0):
                raise CalendarError(
                    f"{self._name}: found {kind.name} with {size} bytes; valid: at most "
                    f"{_MOST_BYTES.get(kind, 0)}"
                )
            if len(self._rest) < _HEAD.size + size:
                break
            body = bytes(self._rest[_HEAD.size : _HEAD.size + size])
            del self._rest[: _HEAD.size + size]
            found.append(Message(kind, index, first, second, body))
        return found


@dataclass(frozen=True)
class Ended:
    """How a part on another machine ended: its exit code and the ends of its outputs."""

    code: int
    stdout: str
    stderr: str

    @classmethod
    def from_json(cls, text: bytes, name: str) -> Ended:
        """Return what a text says. Raises CalendarError."""
        try:
            raw: Any = json.loads(text)
            found = cls(**raw)
        except (ValueError, TypeError, RecursionError):
            raise CalendarError(
                f"{name}: found '{text[:40]!r}'; valid: a part's code and outputs"
            ) from None
        if type(found.code) is not int or not {type(found.stdout), type(found.stderr)} <= {str}:
            raise CalendarError(f"{name}: found '{text[:40]!r}'; valid: a number and two texts")
        return found
