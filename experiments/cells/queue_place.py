# SPDX-License-Identifier: Apache-2.0
"""Choose where a cell keeps its product queues: in memory when they fit, else on disk.

A queue on disk is written back while the cell runs, and on a virtual machine the delays of the
emulated links suffer: in runs of 60 s with m = 8 and p = 1 % the worst hundredth of a link's frames
was up to 19 ms late with queues on disk, and up to 1.1 ms with queues in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from common import machine
from topologies.emulate.marks import MEMORY_ROOT, make_directory, memory_directory

MEMORY_RESERVE_BYTES: Final = 2_000_000_000  # left to the programs and the kernel


def memory_free_bytes() -> int:
    """Return how much memory queues may take now."""
    if not MEMORY_ROOT.parent.is_dir():
        return 0
    unused = machine.memory_free_bytes() - MEMORY_RESERVE_BYTES
    return max(0, min(shutil.disk_usage(MEMORY_ROOT.parent).free, unused))


def choose(needed_bytes: int, run_id: str, work: Path, *, keep: bool) -> tuple[Path, str]:
    """Return (directory for the queues, "memory", or "disk" and why).

    `keep`: the queues must outlive the run, so they go to `work` on disk. The directory in memory
    belongs to the run: `topologies.emulate.lifecycle.purge` removes it with the rest.
    """
    if keep:
        return work, "disk (they are kept)"
    free = memory_free_bytes()
    if free < needed_bytes:
        return work, f"disk (memory has {free / 1e9:.1f} GB for {needed_bytes / 1e9:.1f} GB)"
    directory = memory_directory(run_id)
    make_directory(directory)
    return directory, "memory"
