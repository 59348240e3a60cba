# SPDX-License-Identifier: Apache-2.0
"""Read the JSON of run directories and of tools. An error is one clear message, and what is
complete of a truncated document can be read."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError


class BadFile(Exception):
    """A file of a run directory is missing, or differs from docs/reference/contracts.md."""


def describe(error: ValidationError, file: str) -> str:
    """Return `file: place: what is wrong (found ...)`, one line per error."""
    lines = []
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"])
        found = repr(item["input"])
        if len(found) > 80:
            found = found[:80] + "..."
        lines.append(f"{file}: {place + ': ' if place else ''}{item['msg']}; found {found}")
    return "\n".join(lines)


def load_object(text: str, file: str, expected: str) -> dict[str, object]:
    """Parse a JSON object. Raises `BadFile` (file:line, what would be valid) if the text is not
    one."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(malformed(text, file, error, expected)) from None
    if not isinstance(found, dict):
        raise BadFile(f"{file}: expected {expected}, found {type(found).__name__}")
    return found


def malformed(text: str, file: str, error: json.JSONDecodeError, expected: str) -> str:
    """Return `file:line: reason: 'the line'`."""
    lines = text.split("\n")
    line = lines[error.lineno - 1].strip() if error.lineno <= len(lines) else ""
    quoted = line if len(line) <= 80 else line[:80] + "..."
    return f"{file}:{error.lineno}: not JSON ({error.msg}), expected {expected}: {quoted!r}"


def is_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether the document is truncated rather than wrong: then only an unfinished word or
    string follows the place of the error."""
    rest = text[error.pos :].strip()
    if not rest or error.msg.startswith("Unterminated string"):
        return True
    return re.fullmatch(r'-?[0-9.eE+-]*|[a-z]{1,4}|\\?"?[^"\n]*', rest) is not None and (
        text.rstrip().endswith(rest)
    )


def complete_elements(text: str, name: str) -> tuple[list[object], int]:
    """Return the complete elements of the array `"name": [...]` in a truncated document, and the
    position after the last of them. None of them if the array has not begun."""
    found: list[object] = []
    begin = re.search(rf'"{re.escape(name)}"\s*:\s*\[', text)
    if begin is None:
        return found, 0
    decoder = json.JSONDecoder()
    position = begin.end()
    while True:
        blank = re.compile(r"[\s,]*").match(text, position)
        position = blank.end() if blank else position
        try:
            element, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            return found, position
        found.append(element)
