# SPDX-License-Identifier: Apache-2.0
"""Server-sent events about what a server shows. Each message is made once for all viewers.

Deliveries come in steps: the columns (products) from the first changed column on. A step replaces
the same columns at any viewer that has all columns before it, so a step may come again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from monitor.running import Shown

LOOK_S: Final = 0.5  # between looks at the files
TELL_S: Final = 1.0  # between messages to one viewer
ALIVE_S: Final = 15.0  # a stream without news sends a sign of life after this time
BYTES_A_SECOND: Final = 400_000  # of deliveries to one viewer; larger messages come less often
MOST_SHARE: Final = 0.05  # of a processor, for packing deliveries
MOST_STEPS: Final = 16  # kept, for viewers that read slowly


@dataclass(frozen=True)
class _Message:
    """An event with its data. `made` distinguishes versions of an event. `base`: the least version
    that a viewer of a step must have."""

    text: bytes
    made: int
    base: int = -1


def _deliveries(cell: str, first: int, blob: bytes) -> bytes:
    head = json.dumps({"cell": cell, "from": first}).encode()[:-1]
    return b'event: deliveries\ndata: %b,"data":"%b"}\n\n' % (head, base64.b64encode(blob))


class _Feed:
    """The messages for viewers of a cell."""

    def __init__(self) -> None:
        self.steps: tuple[_Message, ...] = ()  # one thread replaces it, another reads it
        self.whole: _Message | None = None  # all columns
        self.is_whole_wanted = False
        self.not_before = 0.0

    def add(self, text: bytes, made: int, *, is_whole: bool) -> None:
        """Append a step. A step with all columns replaces earlier steps."""
        if is_whole:
            self.steps, self.whole = (), None
        base = self.steps[-1].made if self.steps else -1
        self.steps = (*self.steps, _Message(text, made, base))[-MOST_STEPS:]

    def since(self, version: int) -> tuple[_Message, ...]:
        """Return the messages for a viewer that has `version`. Return none if it needs all columns,
        which the next look makes."""
        if (later := self._after(version)) is not None:
            return later
        if self.whole is not None and (later := self._after(self.whole.made)) is not None:
            return (self.whole, *later)
        self.is_whole_wanted = True
        return ()

    def _after(self, version: int) -> tuple[_Message, ...] | None:
        later = tuple(step for step in self.steps if step.made > version)
        return later if not later or later[0].base <= version else None


class News:
    """Looks for changes in what is shown, and reports them to streams."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.version = 0
        self.streams = 0  # to viewers, as the server admits them
        self._lock = threading.Lock()  # only one thread at a time reads files
        self._changed = asyncio.Event()
        self._wanted: Counter[str] = Counter()
        self._document = b""
        self._board = _Message(b"", 0)
        self._newest: str | None = None
        self._feeds: dict[str, _Feed] = {}

    def board(self) -> tuple[bytes, int]:
        """Return /v1/board and its version."""
        with self._lock:
            if not self._document:
                self._make()
            return self._document, self.version

    def deliveries(self, cell: str) -> bytes | None:
        """Return deliveries.bin of a cell."""
        with self._lock:
            return self.shown.deliveries(cell)

    async def watch(self) -> None:
        """Look for changes, forever."""
        while True:
            if await asyncio.to_thread(self._look):
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> bool:
        with self._lock:
            self.shown.look()
            before = self._board.made
            if self.shown.version != self.version or not self._document:
                self._make()
            wanted = {name or self._newest or "" for name in self._wanted}
            for forgotten in self._feeds.keys() - wanted:
                del self._feeds[forgotten]
            packed = [self._pack(cell) for cell in wanted]
            return before != self._board.made or any(packed)

    def _make(self) -> None:
        self.version = self.shown.version
        board = dict(self.shown.board())
        document = json.dumps(board, separators=(",", ":")).encode()
        cells: Any = board["cells"]
        newest = board.get("newest") or next((c["name"] for c in cells), None)
        self._newest = str(newest) if newest is not None else None
        if document != self._document:
            self._document = document
            self._board = _Message(b"event: board\ndata: %b\n\n" % document, self.version)

    def _pack(self, cell: str) -> bool:
        """Make the messages that viewers of a cell do not have yet, unless the last ones took long.
        Return whether there are any."""
        now, begun, feed = time.monotonic(), time.thread_time(), self._feeds.get(cell)
        if feed is not None and now < feed.not_before:
            return False
        step = self.shown.added(cell, whole=feed is None)
        if feed is None:
            if step is None:
                return False
            feed = self._feeds[cell] = _Feed()
        if step is not None:
            feed.add(_deliveries(cell, *step), self.version, is_whole=step[0] == 0)
        wants_whole, feed.is_whole_wanted = feed.is_whole_wanted, False
        if wants_whole and (blob := self.shown.deliveries(cell)):
            feed.whole = _Message(_deliveries(cell, 0, blob), self.version)
        feed.not_before = now + (time.thread_time() - begun) / MOST_SHARE
        return step is not None or wants_whole

    async def stream(self, cell: str, since: int) -> AsyncGenerator[bytes, None]:
        """Yield messages about the board and a cell ("": the newest). `since`: the version that the
        viewer has."""
        self._wanted[cell] += 1
        board = packed = since if since <= self.version else -1  # else of another server
        shown = cell or self._newest
        try:
            yield b"retry: 2000\n\n"
            while True:
                changed, news = self._changed, []
                if self._board.made > board:
                    board = self._board.made
                    news.append(self._board.text)
                if (now := cell or self._newest) != shown:
                    shown, packed = now, -1
                if (feed := self._feeds.get(shown or "")) is not None:
                    for message in feed.since(packed):
                        packed = message.made
                        news.append(message.text)
                if news:
                    yield b"id: %d\n" % max(board, packed) + b"".join(news)
                    await asyncio.sleep(max(TELL_S, sum(map(len, news)) / BYTES_A_SECOND))
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE_S)
                except TimeoutError:
                    yield b": here\n\n"
        finally:
            self._wanted[cell] -= 1
            self._wanted += Counter()  # without unwanted ones
