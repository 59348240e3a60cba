# SPDX-License-Identifier: Apache-2.0
"""A controller's memory, threads and files do not grow with the paths that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.tests.soak import soaking

WARM, CYCLES = 60, 240

pytestmark = pytest.mark.slow


def test_nothing_grows(tmp_path: Path) -> None:
    """`python -m controller.tests.soak 10000` measures longer."""
    with soaking(tmp_path) as soaked:
        for number in range(WARM):
            soaked.cycle(number)
        before = soaked.size()
        for number in range(WARM, WARM + CYCLES):
            soaked.cycle(number)
        after = soaked.size()
    print(f"{before} {after}")
    assert after.rss_kb - before.rss_kb < 6000
    assert after.threads <= before.threads + 8
    assert after.files <= before.files + 8
    assert after.store_kb <= before.store_kb + 2500
