# SPDX-License-Identifier: Apache-2.0
"""The Markdown files of the repository, and which of their lines are prose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


@cache
def repository_files(extension: str) -> tuple[Path, ...]:
    """Return every file of the repository whose name ends with `.extension`, sorted."""
    found = []
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if not _is_made(Path(folder), name)]
        found += [Path(folder) / name for name in files if name.endswith(f".{extension}")]
    return tuple(sorted(found))


def _is_made(folder: Path, name: str) -> bool:
    """Return whether a build, a run or a tool makes this folder."""
    if name.startswith("."):
        return name not in (".github", ".ci")
    return name == "__pycache__" or (
        folder == ROOT and (name in ("build", "runs") or name.startswith("build-"))
    )


def markdown_files() -> tuple[Path, ...]:
    """Return every Markdown file of the repository, sorted."""
    return repository_files("md")


def prose_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of the lines of a page outside its fenced code blocks."""
    fence = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        mark = line.strip()[:3]
        if fence:
            fence = "" if mark == fence else fence
        elif mark in ("```", "~~~"):
            fence = mark
        else:
            yield number, line


def headings(page: Path) -> Iterator[str]:
    """Yield the headings of a page, without their marks."""
    for _, line in prose_lines(page):
        if line.startswith("#"):
            yield line.lstrip("#").strip()
