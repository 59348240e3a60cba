# SPDX-License-Identifier: Apache-2.0
"""What a process that holds something in the background reports to its starter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from topologies.emulate import background_process


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('echo \'["ready", ""]\' >&$0', None),
        ('echo \'["progress", "half"]\' >&$0; echo \'["failed", "no room"]\' >&$0', "no room"),
        ("echo broken >&2; exit 1", "broken"),
        ("exit 3", "its process ended without a message (exit code 3)"),
        ("kill -9 $$", "its process ended without a message (SIGKILL)"),
    ],
)
def test_why_it_is_not_ready(tmp_path: Path, script: str, why: str | None) -> None:
    def end(process: subprocess.Popen[bytes]) -> None:
        process.wait()

    said: list[str] = []
    argv = ["bash", "-c", script]
    log = tmp_path / "log"
    assert background_process.start(argv, said.append, end, log=log, cwd=tmp_path) == why
    assert said == (["half"] if why == "no room" else [])
