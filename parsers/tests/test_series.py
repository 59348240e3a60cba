# SPDX-License-Identifier: Apache-2.0
"""Time series of a cell, and logs with impossible times."""

from __future__ import annotations

import time

import pytest

from parsers.measure.metrics import RateSample
from parsers.measure.series import MOST_S, input_series, per_minute
from parsers.read.ldm_log import Product

CENTURIES_S = 300 * 365 * 86_400.0


def samples(count: int) -> list[RateSample]:
    """Return one sample a second, the nth with rate n."""
    return [RateSample(n + 1.0, 1.0, float(n)) for n in range(count)]


def test_minutes_that_samples_cover() -> None:
    """Means of 0..59, 60..119 and, where the time ends during the third minute, 120..149."""
    assert per_minute(samples(150), 0.0, 150.0) == ((60.0, 29.5), (120.0, 89.5), (150.0, 134.5))
    assert per_minute(samples(150), 0.0, 300.0) == ((60.0, 29.5), (120.0, 89.5))
    assert per_minute([], 0.0, 300.0) == ()


@pytest.mark.slow
def test_a_log_of_another_century_takes_neither_time_nor_memory() -> None:
    began = time.process_time()
    assert len(per_minute(samples(150), 0.0, CENTURIES_S)) == 2
    late = [*samples(150), RateSample(CENTURIES_S, 1.0, 5.0)]
    assert len(per_minute(late, 0.0, CENTURIES_S)) == 2
    product = Product(100, 0, "NGRID", 0, "a")
    found = input_series([product], 0.0, CENTURIES_S)
    assert len(found) == MOST_S + 1 and found[0] == (1.0, 800.0)
    assert time.process_time() - began < 10
