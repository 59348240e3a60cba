# SPDX-License-Identifier: Apache-2.0
"""A controller's memory, threads and files do not grow with the paths that come and go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.tests.soak import soaking

WARM, CYCLES = (60, 240) if "DOWNPOUR_TEST_LONG" in os.environ else (20, 40)
RSS_KB_PER_CYCLE, STORE_KB_PER_CYCLE = 25, 10
CYCLES_PER_LEFT_OVER = 30  # thread or file

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_nothing_grows(tmp_path: Path) -> None:
    """`make test-all` runs more cycles; `python -m controller.tests.soak 10000` measures for
    longer."""
    with soaking(tmp_path) as soaked:
        for number in range(WARM):
            soaked.cycle(number)
        before = soaked.size()
        for number in range(WARM, WARM + CYCLES):
            soaked.cycle(number)
        after = soaked.size()
    print(f"{CYCLES} cycles: {before} {after}")
    assert after.rss_kb - before.rss_kb < RSS_KB_PER_CYCLE * CYCLES
    assert after.threads <= before.threads + CYCLES // CYCLES_PER_LEFT_OVER
    assert after.files <= before.files + CYCLES // CYCLES_PER_LEFT_OVER
    assert after.store_kb <= before.store_kb + STORE_KB_PER_CYCLE * CYCLES
