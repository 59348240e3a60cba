# SPDX-License-Identifier: Apache-2.0
"""Draw with Graphviz: DOT text in, a picture out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from common.files import write_bytes

DOT_TIMEOUT_S: Final = 60.0
SUFFIXES: Final = (".svg", ".png", ".pdf", ".dot")


class PictureError(Exception):
    """The picture cannot be made; the text says why and what would help."""


def draw(dot: str, form: str = "svg") -> bytes:
    """Return the picture of a DOT text as "svg", "png" or "pdf". Raises PictureError."""
    try:
        done = subprocess.run(
            ["dot", f"-T{form}"], input=dot.encode(), capture_output=True, timeout=DOT_TIMEOUT_S
        )
    except FileNotFoundError as error:
        text = "the program 'dot' is not installed; valid: apt-get install graphviz, or DOT"
        raise PictureError(text) from error
    except subprocess.TimeoutExpired as error:
        raise PictureError(f"dot did not end within {DOT_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise PictureError(
            f"dot ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}"
        )
    return done.stdout


def check_suffix(file: Path) -> None:
    """Raise PictureError unless the suffix of `file` is one of SUFFIXES."""
    if file.suffix not in SUFFIXES:
        raise PictureError(f"found '{file}'; valid: a name that ends with {', '.join(SUFFIXES)}")


def save(dot: str, file: Path) -> None:
    """Write the picture of a DOT text in the format that the file's suffix names, or the text
    itself to FILE.dot; completely or not at all. Raises PictureError."""
    check_suffix(file)
    content = dot.encode() if file.suffix == ".dot" else draw(dot, file.suffix[1:])
    try:
        write_bytes(file, content)
    except OSError as error:
        raise PictureError(f"{file}: {error.strerror}") from error


def label(*lines: str) -> str:
    """Return lines of text as a quoted DOT label."""
    return '"' + "\\n".join(_escaped(line) for line in lines) + '"'


def quoted(text: str) -> str:
    """Return a name quoted for DOT."""
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
