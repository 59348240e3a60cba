# SPDX-License-Identifier: Apache-2.0
"""The page of a file that a guest's kernel keeps up to date while it runs (`kernel/downpour.h`).

The host reads it without asking the guest: the virtual time so far, and the task on the processor.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE_BYTES: Final = 4096
MAGIC: Final = b"DPSTATUS"
VERSION: Final = 1
_LAYOUT: Final = struct.Struct("=8sIIQQQQQiI16s")
_SEQUENCE: Final = struct.Struct("=Q")
_SEQUENCE_AT: Final = 16
# The sequence is odd for about 10 ns; but the kernel may lose its core during that time.
_ATTEMPTS: Final = 1000


class StatusPageError(ValueError):
    """The bytes are not a status page of this version; the text says what they are."""


@dataclass(frozen=True)
class StatusPage:
    """`virtual_ns`: since the guest's boot; `jumps`: of the clock to the next timer while nothing
    could run; `switches`: from task to task; `syscalls`: of all programs; `pid` (the guest's; 0:
    idle) and `comm`: of the task on the processor. `sequence` is odd while the last two change."""

    virtual_ns: int
    jumps: int
    switches: int
    syscalls: int
    pid: int
    comm: str
    sequence: int


def create(path: Path) -> None:
    """Write an empty page, which `downpour_status=` needs. Raises OSError."""
    path.write_bytes(bytes(FILE_BYTES))


def parse(data: bytes) -> StatusPage | None:
    """Return the page in the first bytes of `data`; None: the kernel has not begun to write it.
    Raises StatusPageError."""
    if len(data) < _LAYOUT.size:
        raise StatusPageError(f"found {len(data)} bytes; valid: at least {_LAYOUT.size}")
    magic, version, size, sequence, ns, jumps, switches, syscalls, pid, _, comm = (
        _LAYOUT.unpack_from(data)
    )
    if magic == bytes(len(MAGIC)):
        return None
    if (magic, version, size) != (MAGIC, VERSION, _LAYOUT.size):
        raise StatusPageError(
            f"found {magic!r}, version {version}, {size} bytes; "
            f"valid: {MAGIC!r}, version {VERSION}, {_LAYOUT.size} bytes"
        )
    name = comm.split(b"\0", 1)[0].decode(errors="replace")
    return StatusPage(ns, jumps, switches, syscalls, pid, name, sequence)


def read(path: Path) -> StatusPage | None:
    """Return the page as it is now; None: the kernel has not begun to write it. Raises OSError,
    StatusPageError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        found = None
        for _ in range(_ATTEMPTS):
            found = parse(os.pread(fd, FILE_BYTES, 0))
            if found is None or found.sequence % 2 == 0:
                after = os.pread(fd, _SEQUENCE.size, _SEQUENCE_AT)
                if found is None or _SEQUENCE.unpack(after)[0] == found.sequence:
                    return found
        # A name that may mix two names is better than none.
        return found
    finally:
        os.close(fd)
