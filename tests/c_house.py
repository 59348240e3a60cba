# SPDX-License-Identifier: Apache-2.0
"""Which C files may include which: the house's rule for C, as plain data, and its check.

A wing is a folder. A file belongs to the longest wing that its path begins with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Wing -> wings whose headers it may include, in addition to its own.
MAY_INCLUDE: dict[str, tuple[str, ...]] = {
    "sandbox": (),
    "sandbox/tests": ("sandbox",),
    "common/c": (),
    "common/c/tests": ("common/c",),
    "common/c/fuzz": ("common/c", "tests"),
    "transport/net": (),
    "transport/net/tests": ("transport/net",),
    "transport/loop": (),
    "transport/sim": (),
    "transport/tool": ("transport/net", "sandbox"),
    "transport/fec": (),
    "transport/fec/tests": ("transport/fec", "tests"),
    "transport/fec/fuzz": ("transport/fec", "tests"),
    "fmtp/include": ("transport/net",),
    "fmtp/src": ("fmtp/include", "transport/fec", "transport/loop", "transport/net"),
    "fmtp/tools": ("fmtp/include", "transport/tool", "common/c"),
    "fmtp/tests": (
        "fmtp/include",
        "fmtp/src",
        "fmtp/tools",
        "transport/loop",
        "transport/net",
        "transport/sim",
        "tests",
    ),
    "fmtp/fuzz": ("fmtp/src", "transport/loop", "tests"),
    "fcast/include": (),
    "fcast/src": ("fcast/include", "transport/fec"),
    "fcast/tools": (
        "fcast/include",
        "transport/loop",
        "transport/net",
        "transport/tool",
        "common/c",
    ),
    "fcast/tests": ("common/c", "fcast/include", "fcast/src", "fcast/tools", "transport/sim"),
    "fcast/fuzz": ("fcast/include", "fcast/tools", "tests"),
    "m2c/include": (),
    "m2c/src": ("fcast/include", "m2c/include"),
    "m2c/tools": (
        "fcast/include",
        "fcast/tools",
        "m2c/include",
        "transport/loop",
        "transport/net",
        "transport/tool",
    ),
    "m2c/tests": ("fcast/include", "fcast/src", "m2c/include", "transport/sim"),
    "m2c/fuzz": ("fcast/include", "m2c/include", "tests"),
    "ldm7/queue": (),
    "ldm7/queue/tests": ("ldm7/queue", "ldm7/common", "tests"),
    "ldm7/queue/fuzz": ("ldm7/queue", "tests"),
    "ldm7/common": ("ldm7/queue", "common/c"),
    "ldm7/common/tests": ("ldm7/common", "tests"),
    "ldm7/common/fuzz": ("ldm7/common", "tests"),
    "ldm7/ldmd": ("fmtp/include", "ldm7/common", "ldm7/queue", "common/c", "sandbox"),
    "ldm7/ldmd/tests": ("ldm7/ldmd", "ldm7/common"),
    "ldm7/ldmd/fuzz": ("ldm7/ldmd", "ldm7/common", "tests"),
    "ldm7/tools": ("ldm7/ldmd", "ldm7/common", "ldm7/queue", "common/c"),
    "ldm7/tools/tests": ("ldm7/queue", "tests"),
    "ldm7/site": ("ldm7/ldmd", "ldm7/common", "ldm7/queue", "common/c"),
    "ldm7/site/pqact/tests": ("ldm7/site", "ldm7/common"),
    "ldm7/site/pqact/fuzz": ("ldm7/site", "common/c", "tests"),
    "ldm7/site/rtstats/tests": ("ldm7/site",),
    "topologies/wire/src": ("common/c",),
    "topologies/wire/tests": ("topologies/wire/src",),
    "topologies/ctcp": (),
    "experiments/lag": (),
    "bench/peers": ("ldm7/queue",),
    "virtual": (),
    "tests": (),
}

# Where to look for an include that is not in its own folder: Meson's include directories.
INCLUDE_PATHS = (
    "common/c",
    "sandbox",
    "transport",
    "transport/fec",
    "fmtp/include",
    "fmtp/src",
    "fcast/include",
    "fcast/src",
    "fcast/tools",
    "m2c/include",
    "ldm7",
    "tests",
    "topologies/wire/src",
)

# Linux headers beside a drop-in, once it is in the kernel's source.
KERNEL = "virtual/kernel/"
KERNEL_HEADERS = ("sched.h",)

# Folders of the checkout that hold no source.
NOT_SOURCE = ("build", "runs", ".")

_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]*)"')


def wing_of(path: str) -> str | None:
    """Return the wing that the file `path` (below the root) belongs to."""
    wings = [wing for wing in MAY_INCLUDE if path.startswith(f"{wing}/")]
    return max(wings, key=len, default=None)


def c_files(root: Path) -> list[str]:
    """Return all C files below `root`, as paths below it."""
    rooms = [one for one in root.iterdir() if one.is_dir() and not one.name.startswith(NOT_SOURCE)]
    found = (path for room in rooms for path in room.rglob("*.[ch]"))
    return sorted(str(path.relative_to(root)) for path in found)


def resolve(root: Path, path: str, name: str) -> list[str]:
    """Return the files below `root` that `#include "name"` in the file `path` can mean."""
    beside = os.path.normpath(Path(path).parent / name)
    if (root / beside).is_file():
        return [beside]
    return [f"{folder}/{name}" for folder in INCLUDE_PATHS if (root / folder / name).is_file()]


def includes(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, name) of each `#include "name"` in the file `path`, Linux's left out."""
    of_linux = KERNEL_HEADERS if path.startswith(KERNEL) else ()
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        match = _INCLUDE.match(line)
        if match and match[1] not in of_linux:
            yield number, match[1]


def arrows(root: Path) -> set[tuple[str, str]]:
    """Return (wing, included wing) of all includes that leave their wing."""
    found: set[tuple[str, str]] = set()
    for path in c_files(root):
        for _, name in includes(root, path):
            targets = resolve(root, path, name)
            here, there = wing_of(path), wing_of(targets[0]) if targets else None
            if here and there and here != there:
                found.add((here, there))
    return found


def violations(root: Path) -> list[str]:
    """Return what breaks the rule below `root`, one line `file:line: ...` each."""
    found = []
    for path in c_files(root):
        here = wing_of(path)
        if here is None:
            found.append(f"{path}:1: belongs to no wing of tests/c_house.py")
            continue
        for number, name in includes(root, path):
            targets = resolve(root, path, name)
            there = wing_of(targets[0]) if targets else None
            where = f'{path}:{number}: found #include "{name}"'
            if len(targets) != 1:
                found.append(f"{where}, which is {' or '.join(targets) or 'not a file here'}")
            elif there != here and there not in MAY_INCLUDE[here]:
                valid = ", ".join((here, *MAY_INCLUDE[here]))
                found.append(f"{where} of {there or targets[0]}; valid: headers of {valid}")
    return found
