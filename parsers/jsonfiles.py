# SPDX-License-Identifier: Apache-2.0
"""Errors in the JSON files of a run directory, as one clear message."""

from __future__ import annotations

from pydantic import ValidationError


class BadFile(Exception):
    """A file of a run directory is missing or not as docs/contracts.md says."""


def describe(error: ValidationError, file: str) -> str:
    """`file: place: what is wrong (found ...)`, one line per error."""
    lines = []
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"])
        found = repr(item["input"])
        if len(found) > 80:
            found = found[:80] + "..."
        lines.append(f"{file}: {place + ': ' if place else ''}{item['msg']}; found {found}")
    return "\n".join(lines)
