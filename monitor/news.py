# SPDX-License-Identifier: Apache-2.0
"""Server-sent events about what a server shows; it makes each message once for all viewers."""

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
ALIVE_S: Final = 15.0  # a stream without news sends a sign of life
BYTES_A_SECOND: Final = 400_000  # of deliveries to one viewer: larger ones come less often
MOST_SHARE: Final = 0.1  # of a processor, for packing deliveries


@dataclass(frozen=True)
class _Message:
    """An event with its data. `made` distinguishes versions of one event."""

    text: bytes
    made: int


class News:
    """Looks at what is shown, and tells streams what changed."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.version = 0
        self._lock = threading.Lock()  # one thread at a time reads files
        self._changed = asyncio.Event()
        self._wanted: Counter[str] = Counter()
        self._document = b""
        self._board = _Message(b"", 0)
        self._newest: str | None = None
        self._cells: dict[str, _Message] = {}
        self._blobs: dict[str, bytes] = {}
        self._not_before: dict[str, float] = {}

    @property
    def streams(self) -> int:
        """Return how many viewers there are."""
        return self._wanted.total()

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
        """Look for changes, without end."""
        while True:
            if await asyncio.to_thread(self._look):
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> bool:
        with self._lock:
            self.shown.look()
            before = self._board.made, dict(self._cells)
            if self.shown.version != self.version or not self._document:
                self._make()
            wanted = {name or self._newest or "" for name in self._wanted}
            for forgotten in self._cells.keys() - wanted:
                del self._cells[forgotten], self._blobs[forgotten], self._not_before[forgotten]
            for cell in wanted:
                self._pack(cell)
            return before != (self._board.made, self._cells)

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

    def _pack(self, cell: str) -> None:
        """Make the message of a cell's deliveries again, unless the last one took long."""
        begun = time.monotonic()
        if begun < self._not_before.get(cell, 0):
            return
        blob = self.shown.deliveries(cell)
        if not blob or blob is self._blobs.get(cell):
            return
        self._blobs[cell] = blob
        head = json.dumps(cell).encode()
        data = b'{"cell":%b,"data":"%b"}' % (head, base64.b64encode(blob))
        self._cells[cell] = _Message(b"event: deliveries\ndata: %b\n\n" % data, self.version)
        self._not_before[cell] = begun + (time.monotonic() - begun) / MOST_SHARE

    async def stream(self, cell: str, since: int) -> AsyncGenerator[bytes, None]:
        """Yield messages about the board and a cell ('': the newest). `since`: the version that
        the viewer has."""
        self._wanted[cell] += 1
        board = packed = since if since <= self.version else -1  # more: of another server
        try:
            yield b"retry: 2000\n\n"
            while True:
                changed, news, pause_s = self._changed, b"", TELL_S
                if self._board.made > board:
                    board, news = self._board.made, self._board.text
                found = self._cells.get(cell or self._newest or "")
                if found is not None and found.made > packed:
                    packed, news = found.made, news + found.text
                    pause_s = max(TELL_S, len(found.text) / BYTES_A_SECOND)
                if news:
                    yield b"id: %d\n%b" % (max(board, packed), news)
                    await asyncio.sleep(pause_s)
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE_S)
                except TimeoutError:
                    yield b": here\n\n"
        finally:
            self._wanted[cell] -= 1
            self._wanted += Counter()  # without unwanted ones
