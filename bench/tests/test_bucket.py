# SPDX-License-Identifier: Apache-2.0
"""The bench of token buckets: what it computes, and that it measures a bucket."""

from __future__ import annotations

import os

import pytest

from bench import bucket
from bench.bucket import Passed, Setting


def test_lateness_follows_from_the_burst_and_what_passed() -> None:
    """51,200 bytes are 409,600 bits; at 480 Mbit/s they last 0.853 ms, whatever the rate."""
    late = Passed(Setting(960, 50, False), (470.0, 480.0, 700.0))
    assert late.late_ms == pytest.approx(0.8533, abs=1e-4)
    assert Passed(Setting(960, 50, False), (955.0, 960.0)).late_ms is None


def test_a_table_has_a_line_for_each_rate() -> None:
    found = [
        Passed(Setting(320, 50, False), (320.2, 319.8)),
        Passed(Setting(960, 100, True), (900.0, 911.0, 950.0)),
    ]
    lines = bucket.table(found).splitlines()
    assert lines[0] == (
        "| rate, Mbit/s | 50 KB | 100 KB | 200 KB | 50 KB, GSO | 100 KB, GSO | 200 KB, GSO |"
    )
    assert lines[2] == "| 320 | 320 |  |  |  |  |  |"
    assert lines[5] == "| 960 |  |  |  |  | 900 to 950 (0.90 ms late) |  |"


def test_a_bucket_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="found no tbf, but .*noqueue"):
        bucket.parse_bytes('[{"kind": "noqueue", "bytes": 1}]')


@pytest.mark.alone
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")
def test_a_slow_bucket_passes_its_rate() -> None:
    """64 Mbit/s with 100 KB: its tokens last 13 ms, more than any machine is late. 4,000 packets of
    1,514 bytes pass in a second; tc counts them whole."""
    (found,) = bucket.measure([Setting(64, 100, False)], 1)
    assert found.mbps[0] == pytest.approx(64, rel=0.1)
