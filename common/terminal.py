# SPDX-License-Identifier: Apache-2.0
"""The user's terminal: its width in columns, and the characters that it can show."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
import unicodedata
from typing import IO, Final

LEAST_COLUMNS: Final = 40
MOST_COLUMNS: Final = 120  # longer lines are hard to read
DEFAULT_COLUMNS: Final = 80  # in a pipe

_ASCII: Final = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—−─━═", "-"),
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("╭╮╰╯┌┐└┘╔╗╚╝├┤┬┴┼╞╡╪", "+"),
        **dict.fromkeys("‘’", "'"),
        **dict.fromkeys("“”„", '"'),
        "×": "x",
        "±": "+/-",
        "…": "...",
        "≤": "<=",
        "≥": ">=",
        "µ": "u",
        "μ": "u",
        "Γ": "Gamma",
        "τ": "tau",
        "•": "*",
        "→": "->",
    }
)


def columns() -> int:
    """Return the width of the terminal, or COLUMNS; 80 in a pipe."""
    found = shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns
    return max(LEAST_COLUMNS, min(MOST_COLUMNS, found))


def is_ascii_only(stream: IO[str]) -> bool:
    """Return whether `stream` is limited to ASCII, since it is not UTF-8."""
    try:
        return codecs.lookup(getattr(stream, "encoding", None) or "ascii").name != "utf-8"
    except LookupError:
        return True


def to_ascii(text: str) -> str:
    """Return `text` in ASCII: the nearest characters, or `?`."""
    plain = unicodedata.normalize("NFKD", text.translate(_ASCII))
    kept = "".join(c for c in plain if not unicodedata.combining(c))
    return kept.encode("ascii", "replace").decode("ascii")


def open_closed() -> None:
    """Open /dev/null in the place of standard streams that were closed (`>&-`). Python has None for
    them, and the next file to be opened would get a program's output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def never_fail(stream: IO[str]) -> None:
    """Make `stream` escape characters that it cannot encode, so that print does not raise."""
    if isinstance(stream, io.TextIOWrapper) and is_ascii_only(stream):
        stream.reconfigure(errors="backslashreplace")
