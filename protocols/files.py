# SPDX-License-Identifier: Apache-2.0
"""Compare files as they were sent with files as they arrived."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 1 << 20


def same_bytes(a: Path, b: Path) -> bool:
    """Return whether two files have the same bytes. A program may still write `b`, or remove it."""
    with a.open("rb") as one:
        if not b.is_file():  # reading a pipe could last forever
            return False
        try:
            with b.open("rb") as two:
                while chunk := one.read(CHUNK_BYTES):
                    if two.read(CHUNK_BYTES) != chunk:
                        return False
                return not two.read(1)
        except OSError:
            return False
