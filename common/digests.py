# SPDX-License-Identifier: Apache-2.0
"""Read a directory's digests.json, and compare the files with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "digests.json"


@dataclass(frozen=True)
class Digest:
    sha256: str
    size_bytes: int


class NoDigests(Exception):
    """There is no usable digests.json; the text is one clear message."""


def digest_of(path: Path) -> Digest:
    """Return the digest of a file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
        return Digest(found.hexdigest(), file.tell())


def digest_of_bytes(data: bytes) -> Digest:
    """Return the digest of a file with this content."""
    return Digest(hashlib.sha256(data).hexdigest(), len(data))


def described(digests: Mapping[str, Digest]) -> dict[str, object]:
    """Return the content of digests.json. `digests`: by name."""
    files = {n: {"sha256": d.sha256, "size_bytes": d.size_bytes} for n, d in digests.items()}
    return {"algorithm": "sha256", "files": files}


def read(directory: Path) -> dict[str, Digest]:
    """Return the digest by name. Raises NoDigests."""
    path = directory / NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): Digest(str(d["sha256"]), int(d["size_bytes"]))
            for name, d in raw["files"].items()
        }
    except FileNotFoundError:
        raise NoDigests(f"no {NAME}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoDigests(f"{NAME} cannot be read: {error}") from None


def compare(directory: Path, files: list[Path], expected: Mapping[str, Digest]) -> list[str]:
    """Return `changed: logs/sar.log (...)`, `missing: ...`, `extra: ...`; nothing if all is
    unchanged."""
    there = {str(p.relative_to(directory)): p for p in files}
    problems = [f"missing: {name}" for name in expected if name not in there]
    problems += [f"extra: {name}" for name in there if name not in expected]
    for name, path in there.items():
        if (before := expected.get(name)) is None:
            continue
        try:
            now = digest_of(path)
        except OSError as error:
            problems.append(f"unreadable: {name} ({error.strerror})")
            continue
        if now != before:
            sizes = f"{before.size_bytes} bytes then, {now.size_bytes} now"
            problems.append(f"changed: {name} ({sizes})")
    return sorted(problems)
