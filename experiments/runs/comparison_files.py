# SPDX-License-Identifier: Apache-2.0
"""The directory of a comparison. The user may name any, so nothing in it is replaced or removed
but what an earlier comparison wrote."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.files import os_error_text

PAGE: Final = "index.html"
TEXTS: Final = (PAGE, "report.md", "report.txt")
TITLE: Final = "Downpour: comparison"
_BEGINNING: Final = re.compile(rf"<title>{re.escape(TITLE)} ")
_FIGURE: Final = re.compile(r'href="([^"/]+\.(?:png|svg|pdf))"')
VALID: Final = "a new or empty directory, or one with an earlier comparison and nothing else"


class NoPlace(Exception):
    """A directory cannot take a comparison; the text says why."""


def earlier(directory: Path) -> frozenset[str]:
    """Return the names that an earlier comparison may have in a directory; none without its
    page."""
    try:
        page = (directory / PAGE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    if _BEGINNING.search(page) is None:
        return frozenset()
    return frozenset({*TEXTS, *_FIGURE.findall(page)})


def place_for(output: Path, json_file: Path | None) -> Path:
    """Return the directory's absolute path. Raises NoPlace if it has anything of the user's (other
    than `json_file`), or cannot be made or written."""
    try:
        target = output.resolve()
        there = next(p for p in (target, *target.parents) if p.exists())
        if not there.is_dir():
            raise NoPlace(f"--output: found {there}, which is no directory; valid: {VALID}")
        if not os.access(there, os.W_OK | os.X_OK):
            raise NoPlace(f"--output: found {there}, which cannot be written; valid: {VALID}")
        if there == target:
            _refuse_others(target, json_file)
    except (OSError, ValueError, RuntimeError) as error:  # NUL in the name; links in a circle
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        raise NoPlace(f"--output: found '{output}' ({text}); valid: {VALID}") from None
    return target


def _refuse_others(target: Path, json_file: Path | None) -> None:
    own = earlier(target)
    also = json_file.resolve() if json_file is not None else None
    for path in sorted(target.iterdir()):
        is_plain = path.is_file() and not path.is_symlink()
        if path != also and not (is_plain and path.name in own):
            raise NoPlace(f"--output: found {path}, which no comparison wrote; valid: {VALID}")


@contextmanager
def written(target: Path, files: Mapping[str, bytes]) -> Iterator[None]:
    """Write the files aside; put them in the place of an earlier comparison's when the block ends,
    or remove them if it raises. Raises OSError, which names `target`."""
    is_new = not target.is_dir()
    # In an existing directory, which may be a mount point or somebody's working directory, files
    # are moved into it; a new one appears at once.
    fresh = (target.parent if is_new else target) / f".{target.name}.{os.getpid()}.tmp"
    try:
        fresh.mkdir(parents=True)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        yield
        if is_new:
            fresh.rename(target)
            return
        stale = earlier(target) - files.keys()
        for name in files:
            (fresh / name).replace(target / name)
        for name in stale:
            (target / name).unlink(missing_ok=True)
    except OSError as error:
        if str(error.filename or "").startswith(str(fresh)):
            error.filename = str(target)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
