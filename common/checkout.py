# SPDX-License-Identifier: Apache-2.0
"""Whether two machines, or a run's first and last cell, have the same Downpour: another does not
measure what the run's manifest describes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from common.digests import digest_of
from common.places import PROGRAMS

ROOMS: Final = ("common", "controller", "experiments", "parsers", "protocols", "topologies")
AT_HOSTS: Final = ("clockoffset.so", "hostlag", "ldmd", "pqcat", "pqcreate", "pqinsert")
DIGITS: Final = 16  # of a digest in messages


def describe(root: Path, build: Path, programs: Iterable[str] = AT_HOSTS) -> dict[str, str]:
    """Return the digests of the Python files that cells use below `root`, and of the C programs
    below `build`."""
    sources = (
        path
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        if "tests" not in path.parts[len(root.parts) :]
    )
    built = (build / PROGRAMS[name] for name in programs)
    return {"Python files": _digest(root, sources), "C programs": _digest(build, built)}


def _digest(root: Path, paths: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        content = digest_of(path).sha256 if path.is_file() else "absent"
        whole.update(f"{path.relative_to(root)} {content}\n".encode())
    return whole.hexdigest()[:DIGITS]


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return the first difference, as a message goes on after "found"; "" without one."""
    for what, digest in here.items():
        if digest != there.get(what):
            return f"other {what} (digest {there.get(what, 'none')}, on this machine {digest})"
    return ""
