# SPDX-License-Identifier: Apache-2.0
"""Tell when files become complete, by inotify, in the same way for every tool."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_TO: Final = 0x80
IN_Q_OVERFLOW: Final = 0x4000
_HEADER: Final = struct.Struct("iIII")


def parse_events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield (watch, mask, name) from the bytes of an inotify descriptor."""
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield watch, mask, data[at : at + length].rstrip(b"\0").decode("utf-8", "replace")
        at += length


class Watch:
    """Files that were closed after writing, or moved in, in several directories."""

    def __init__(self, directories: list[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._index: dict[int, int] = {}
        for i, directory in enumerate(directories):
            mask = IN_CLOSE_WRITE | IN_MOVED_TO
            watch = libc.inotify_add_watch(self._fd, str(directory).encode(), mask)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch {directory}")
            self._index[watch] = i

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        """Return (directory's number, file's name) of new files; [] after the time-out. It is exact
        to the microsecond, since products are due by it."""
        if not select.select([self._fd], [], [], max(0.0, timeout_s))[0]:
            return []
        found = []
        for watch, mask, name in parse_events(os.read(self._fd, 1 << 16)):
            if mask & IN_Q_OVERFLOW:
                raise OSError("more file events than the kernel keeps")
            if watch in self._index:
                found.append((self._index[watch], name))
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)
