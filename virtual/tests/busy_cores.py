# SPDX-License-Identifier: Apache-2.0
"""Loops on every core, for tests of what must not depend on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from common.shell import die_with_parent

LOOP = (sys.executable, "-S", "-c", "while True: pass")


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core of this machine busy. At the end, all loops must have run."""
    with ExitStack() as stack:
        loops = []
        for _ in range(os.cpu_count() or 1):
            loop = stack.enter_context(subprocess.Popen(LOOP, preexec_fn=die_with_parent()))
            stack.callback(loop.kill)
            loops.append(loop)
        yield
        for loop in loops:
            ticks = Path(f"/proc/{loop.pid}/stat").read_text().rpartition(")")[2].split()[11]
            assert int(ticks) > 0
