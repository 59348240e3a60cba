# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in messages: `1 cell`, `2 cells`."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `number` and the noun in the right form. `plural`: if it is not `noun` with an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
