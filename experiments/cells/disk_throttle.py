# SPDX-License-Identifier: Apache-2.0
"""Simulate a slow disk: a control group of the kernel limits the writes a second of some programs.

cgroup v1 (`blkio`) or v2 (`io`). Each direct write counts as one, whatever its size and place, so
the limit models a disk that spends its time on seeks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/mounts")
BLOCK_DEVICES: Final = Path("/sys/dev/block")
_V1, _V2 = "blkio.throttle.write_iops_device", "io.max"


class DiskError(Exception):
    """The disk cannot be slowed down here; the text says why and what would be valid."""


@dataclass(frozen=True)
class Throttle:
    """A control group that limits the writes to one disk."""

    group: Path
    file: str  # of the limit
    device: str  # major:minor

    def limit(self, writes_per_s: int) -> None:
        """Create the group with its limit. Raises DiskError."""
        value = f"{writes_per_s}" if self.file == _V1 else f"wiops={writes_per_s}"
        try:
            if self.file == _V2:
                (self.group.parent / "cgroup.subtree_control").write_text("+io")
            self.group.mkdir(exist_ok=True)
            (self.group / self.file).write_text(f"{self.device} {value}\n")
        except OSError as error:
            raise DiskError(
                f"{self.group}: {error.strerror}; valid: root, cgroup v1 or v2"
            ) from None

    def found(self) -> float | None:
        """Return the limit that the kernel reports; None if there is none."""
        for line in (self.group / self.file).read_text().splitlines():
            device, *values = line.split()
            for value in values if device == self.device else ():
                number = value.removeprefix("wiops=")
                if number.isdigit():
                    return float(number)
        return None

    def take(self, pid: int) -> None:
        """Put a process into the group."""
        (self.group / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        self.group.rmdir()


def find(
    where: Path, name: str, mounts: str | None = None, devices: Path = BLOCK_DEVICES
) -> Throttle:
    """Return the throttle `name` for the disk of `where`; create nothing yet.

    `mounts`: the text of /proc/mounts; None: read the file. Raises DiskError."""
    device = disk_of(where, devices)
    for mount in (MOUNTS.read_text() if mounts is None else mounts).splitlines():
        _, place, kind, options, *_ = mount.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            return Throttle(Path(place) / name, _V1, device)
        if kind == "cgroup2" and "io" in _controllers(Path(place)):
            return Throttle(Path(place) / name, _V2, device)
    raise DiskError("found no control groups for disks; valid: a kernel with cgroup blkio or io")


def _controllers(group: Path) -> Sequence[str]:
    file = group / "cgroup.controllers"
    return file.read_text().split() if file.is_file() else ()


def disk_of(where: Path, devices: Path = BLOCK_DEVICES) -> str:
    """Return `major:minor` of the whole disk below a path. Raises DiskError if there is none."""
    number = where.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    entry = devices / device
    if not entry.exists():
        raise DiskError(
            f"'{where}' is on no disk (device {device}); valid: a directory on a block device"
        )
    if (entry / "partition").exists():
        return (entry.resolve().parent / "dev").read_text().strip()
    return device
