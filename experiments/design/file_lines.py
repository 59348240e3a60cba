# SPDX-License-Identifier: Apache-2.0
"""Find the line of a value in an experiment file that only the plan finds wrong."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from topologies.model.document import Document, Place, TopologyErrors, read_document

_KEY = re.compile(r"([a-z][a-z_]*): ")
_ABOVE = {"duration": "duration_s"}  # keys that messages and the file name differently


def with_lines(text: str, file: Path, level: str | None, by_option: Collection[str]) -> str:
    """Return an error's lines `KEY: ...` as `FILE:LINE: KEY: ...`. `by_option`: keys that the
    command line sets; their lines stay as they are."""
    try:
        document = read_document(file)
    except TopologyErrors:
        return text
    return "\n".join(_with_line(line, document, level, by_option) for line in text.splitlines())


def _with_line(text: str, document: Document, level: str | None, by_option: Collection[str]) -> str:
    match = _KEY.match(text)
    key = _ABOVE.get(match[1], match[1]) if match else ""
    if not key or key in by_option:
        return text
    places: list[Place] = [
        place
        for place in document.lines
        if place[-1:] == (key,)
        and (place[0] in ("factors", "parameters", key) or place[:2] == ("levels", level))
    ]
    if not places:
        return text
    # A level's value replaces the file's, and a factor's replaces a parameter's.
    place = min(places, key=lambda p: (p[0] != "levels", "factors" not in p))
    return f"{document.file}:{document.line(place)}: {text}"
