# SPDX-License-Identifier: Apache-2.0
"""The files of cut links that have an end on another machine: which batches to send there, and
where what comes from there is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtual.parts.calendar import CalendarError
from virtual.parts.messages import BATCH_BYTES, BATCH_HEAD, BATCH_SLOTS, Kind, Message


@dataclass(frozen=True)
class LinkFile:
    """One direction of a cut link, from part `writer` to part `reader`."""

    name: str
    writer: int
    reader: int


class LinkFiles:
    """`here`: the parts on this machine."""

    def __init__(self, directory: Path, links: Sequence[LinkFile], here: Collection[int]) -> None:
        crossing = {i: k for i, k in enumerate(links) if (k.writer in here) != (k.reader in here)}
        self._fds = {
            index: os.open(directory / link.name, os.O_RDWR | os.O_CLOEXEC)
            for index, link in crossing.items()
        }
        self._links = crossing
        self._out = [index for index, link in crossing.items() if link.writer in here]
        self._number = dict.fromkeys(crossing, 0)  # of the last batch that was sent or written

    def written(self, readers: Collection[int], writers: Collection[int]) -> Iterator[Message]:
        """Yield what `writers`, which must not be running, have written for `readers` since the
        last call. Raises CalendarError."""
        for index in self._out:
            if self._links[index].reader in readers and self._links[index].writer in writers:
                yield from self._batches(index)

    def _batches(self, index: int) -> Iterator[Message]:
        fd, found = self._fds[index], []
        for slot in range(BATCH_SLOTS):
            at = slot * BATCH_BYTES
            number, n_bytes, _ = BATCH_HEAD.unpack(os.pread(fd, BATCH_HEAD.size, at))
            size = BATCH_HEAD.size + n_bytes
            if number <= self._number[index]:
                continue
            if number % BATCH_SLOTS != slot or size > BATCH_BYTES:
                raise CalendarError(
                    f"link {self._links[index].name}: found batch {number} of {size} bytes in "
                    f"slot {slot}; valid: at most {BATCH_BYTES}, in slot {number % BATCH_SLOTS}"
                )
            found.append((number, size, at))
        for number, size, at in sorted(found):
            self._number[index] = number
            yield Message(Kind.BATCH, index, number, body=os.pread(fd, size, at))

    def write(self, message: Message, writers: Collection[int], name: str) -> None:
        """Write a batch that came from `name`, which has the parts `writers`. cut-link checks its
        frames. Raises CalendarError."""
        link = self._links.get(message.index)
        if link is None or link.writer not in writers:
            raise CalendarError(f"{name}: found a batch of link {message.index}; valid: its own")
        body, last = message.body, self._number[message.index]
        head = BATCH_HEAD.unpack_from(body) if len(body) >= BATCH_HEAD.size else (0, 0, 0)
        if head[0] != message.first or message.first <= last:
            raise CalendarError(
                f"{name}: found batch {message.first} of {link.name}, with number {head[0]}; "
                f"valid: the same number, above {last}"
            )
        if BATCH_HEAD.size + head[1] != len(body):
            raise CalendarError(
                f"{name}: found a batch of {len(body)} bytes; valid: {BATCH_HEAD.size + head[1]}"
            )
        os.pwrite(self._fds[message.index], body, message.first % BATCH_SLOTS * BATCH_BYTES)
        self._number[message.index] = message.first
