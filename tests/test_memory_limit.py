# SPDX-License-Identifier: Apache-2.0
"""Runs complete in a control group with 2 GB, the size of a small container: the kernel kills no
process for memory, and the group's limit counts as the free memory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from common.places import ROOT
from experiments.tests.built import NEEDS_PROGRAMS

LIMIT_BYTES = 2 * 1024**3
# version 1, version 2: directory, limit, events with the number of killed processes
VERSIONS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.oom_control"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.events"),
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: control groups need root"),
]


class Group:
    """A control group with a limit."""

    def __init__(self, directory: Path, events: str) -> None:
        self.directory, self._events = directory, directory / events

    def run(self, argv: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command in the group."""
        enter = f'echo $$ >"{self.directory}/cgroup.procs" && exec "$@"'
        return subprocess.run(
            ["sh", "-c", enter, "sh", *argv],
            cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False,
        )  # fmt: skip

    @property
    def killed(self) -> int:
        """Return how many processes the kernel killed because memory was short."""
        found = re.search(r"^oom_kill (\d+)$", self._events.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


@pytest.fixture
def group() -> Iterator[Group]:
    name = f"downpour-test-{os.getpid()}"
    for root, limit, events in VERSIONS:
        directory = root / name
        try:
            directory.mkdir()
            (directory / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            with contextlib.suppress(OSError):
                directory.rmdir()
            continue
        yield Group(directory, events)
        for _ in range(50):  # a process stays in the group for a moment after its end
            with contextlib.suppress(OSError):
                directory.rmdir()
                return
            time.sleep(0.1)
        raise AssertionError(
            f"{directory} has processes: {(directory / 'cgroup.procs').read_text()}"
        )
    pytest.skip("SKIPPED: this machine allows no control group with a memory limit")


def test_the_limit_is_what_is_free(group: Group) -> None:
    code = "from common.machine import memory_free_bytes; print(memory_free_bytes())"
    found = int(group.run([sys.executable, "-c", code], 60).stdout)
    assert LIMIT_BYTES / 2 < found <= LIMIT_BYTES


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
@NEEDS_PROGRAMS
@pytest.mark.parametrize("clock", ["native", "virtual"])
def test_a_run_completes(group: Group, tmp_path: Path, clock: str) -> None:
    """There are two cells. In virtual time as many guests run at once as fit."""
    argv = [
        *(sys.executable, "-m", "downpour", "run", "regression", "--receivers", "2"),
        *("--duration", "2", "--clock", clock, "--runs", str(tmp_path)),
    ]
    done = group.run(argv, 1500)
    assert done.returncode in (0, 3), done.stdout + done.stderr  # 3: a busy machine's verdict
    assert group.killed == 0
    assert (tmp_path / "regression/latest/report/index.html").exists()
