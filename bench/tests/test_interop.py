# SPDX-License-Identifier: Apache-2.0
"""Downpour's carousel with the programs of the flute crate, both ways, over a network that loses 5
%."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from bench.job_process import JobProcess
from bench.jobs import cells_of, jobs_of
from bench.tools import BY_NAME, missing, tools_of
from common.places import ROOT

BUILD = ROOT / "build"
CELLS = cells_of("interop", "native")
TOOLS = [tool.name for tool in tools_of("interop")]
LIMIT_S = 120.0

pytestmark = [
    pytest.mark.alone,
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, makes network namespaces"),
]


def test_both_ways_and_both_codes_are_there() -> None:
    assert TOOLS == [
        "fcast-flute-no-code",
        "flute-fcast-no-code",
        "fcast-flute-rs",
        "flute-fcast-rs",
    ]
    (cell,) = CELLS
    assert (cell.loss, cell.receivers) == (0.05, 4)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_receiver_has_the_same_bytes(tool: str) -> None:
    """Wrong bytes fail the job, and so does a receiver without the file."""
    absent = missing(BY_NAME[tool], BUILD)
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}; valid: after make bench-setup")
    (job,) = jobs_of(CELLS, {"interop": [tool]}, 1)
    process = JobProcess(job)
    try:
        end = time.monotonic() + LIMIT_S
        result: dict[str, Any] | None = None
        while (result := process.poll()) is None:
            assert time.monotonic() < end, "no result"
            time.sleep(0.05)
    finally:
        process.stop()
    assert result["status"] == "ok", result
    # There were losses: they cost repairs or another turn.
    assert result["wire_ratio"] > 1.1
