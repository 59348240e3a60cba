# SPDX-License-Identifier: Apache-2.0
"""The machine: system, Python, cores, load, memory, disk. Uses only the standard library.

Every function reads below `root`, so that a test can present another machine.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.counting import counted
from common.findings import ADVICE, MISSING, OK, Finding

LEAST_PYTHON: Final = (3, 11)
LEAST_CORES: Final = 2
LEAST_MEMORY_BYTES: Final = 2 * 1024**3
LEAST_DISK_BYTES: Final = 5 * 1024**3
_GIB: Final = 1024**3


def system_name(root: Path = Path("/")) -> str:
    """Return the name that /etc/os-release gives; "unknown system" if it does not say."""
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown system"
    found = re.search(r"""^PRETTY_NAME=["']?([^"'\n]*)""", text, re.MULTILINE)
    return found[1] if found else "unknown system"


def memory_available_bytes(meminfo: str) -> int:
    """Return MemAvailable from the text of /proc/meminfo; 0 if it is missing."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def memory_free_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process may still take: what the machine has, or what its control
    groups (versions 1 and 2) leave."""
    free = memory_available_bytes(_read(root / "proc/meminfo"))
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            free = min(free, _left(groups / "memory", path, "limit_in_bytes", "usage_in_bytes"))
        elif not controllers:
            for place in (groups, groups / "unified"):
                free = min(free, _left(place, path, "max", "current"))
    return max(0, free)


def _left(place: Path, path: str, limit_name: str, usage_name: str) -> int:
    """Return what the limits of a control group, and of those above it, leave. Inactive file pages
    can be freed at once, so they count as free."""
    left = sys.maxsize
    group = place / path.lstrip("/")
    for directory in (group, *group.parents):
        limit = _read(directory / f"memory.{limit_name}").strip()
        usage = _read(directory / f"memory.{usage_name}").strip()
        if limit.isdigit() and usage.isdigit():
            unused = re.search(
                r"^(?:total_)?inactive_file (\d+)$", _read(directory / "memory.stat"), re.M
            )
            left = min(left, int(limit) - int(usage) + (int(unused[1]) if unused else 0))
        if directory == place:
            break
    return left


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def load_average(root: Path = Path("/")) -> float | None:
    """Return the machine's load over the last minute; None if the kernel does not report it."""
    try:
        return float((root / "proc/loadavg").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def machine_findings(
    disk: Path,
    *,
    root: Path = Path("/"),
    cores: int | None = None,
    python: Sequence[int] | None = None,
) -> list[Finding]:
    """Describe this machine. `disk`: where results go; `cores`, `python`: None: this machine's."""
    number = len(os.sched_getaffinity(0)) if cores is None else cores
    return [
        Finding(
            OK, "system", f"{system_name(root)}, Linux {platform.release()}, {platform.machine()}"
        ),
        _python(tuple(platform.python_version_tuple()) if python is None else python),
        _cores(number),
        _load(load_average(root), number),
        _memory(root),
        _disk(disk),
    ]


def _python(version: Sequence[int | str]) -> Finding:
    text = ".".join(map(str, version))
    if tuple(map(int, version[:2])) < LEAST_PYTHON:
        return Finding(MISSING, "Python", f"found {text}; valid: 3.11 or later")
    return Finding(OK, "Python", text)


def _cores(number: int) -> Finding:
    if number < LEAST_CORES:
        text = f"found {number}; native: at least {LEAST_CORES}; virtual time: 1 is enough"
        return Finding(ADVICE, "cores", text)
    return Finding(OK, "cores", str(number))


def _load(load: float | None, cores: int) -> Finding:
    if load is None:
        return Finding(OK, "load", "unknown")
    if load >= cores:
        text = (
            f"{load:.1f} on {counted(cores, 'core')}: a "
            "busy machine gives degraded native verdicts; "
            "virtual time takes longer, its figures stay the same"
        )
        return Finding(ADVICE, "load", text)
    return Finding(OK, "load", f"{load:.1f} on {counted(cores, 'core')}")


def _memory(root: Path) -> Finding:
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    available = memory_available_bytes(text)
    if available < LEAST_MEMORY_BYTES:
        text = f"found {available / _GIB:.1f} GiB available; valid: at least 2 GiB"
        return Finding(ADVICE, "memory", text)
    return Finding(OK, "memory", f"{available / _GIB:.1f} GiB available")


def _disk(place: Path) -> Finding:
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / _GIB:.1f} GiB free below {place}"
    if free < LEAST_DISK_BYTES:
        return Finding(ADVICE, "disk", f"found {text}; valid: at least 5 GiB")
    return Finding(OK, "disk", text)
