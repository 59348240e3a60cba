# SPDX-License-Identifier: Apache-2.0
"""The generated hour compared with the published statistics of the real one."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.design.trace_model import (
    PRODUCTS,
    Arrival,
    format_trace,
    generate_hour,
    minute_rates_mbps,
    model_check,
    stamp,
)
from parsers.read.trace import parse_trace

SEEDS = (1, 7, 42, 2053, 99_991)


@pytest.fixture(scope="module", params=SEEDS)
def hour(request: pytest.FixtureRequest) -> list[Arrival]:
    return generate_hour(request.param)


@pytest.mark.slow
def test_same_seed_same_hour() -> None:
    assert generate_hour(2053) == generate_hour(2053)
    assert generate_hour(2054) != generate_hour(2053)


def test_sizes_as_published(hour: list[Arrival]) -> None:
    """Median 39 kB, 75 % 96 kB, 90 % 357 kB, 99 % 2.2 MB, largest 53.9 MB, to 1 %."""
    sizes = np.array([a.size_bytes for a in hour])
    assert len(sizes) == PRODUCTS == 28_166
    found = np.quantile(sizes, (0.5, 0.75, 0.9, 0.99, 1.0))
    assert found == pytest.approx([39_080, 96_083, 357_348, 2_212_405, 53_932_143], rel=0.01)


def test_gaps_as_published(hour: list[Arrival]) -> None:
    """Median 8 ms, 75 % 34 ms, 90 % 297 ms, 99 % 1.86 s (MPUP16 V-F), to 1 ms or 1 %."""
    gaps = np.diff([a.time_ms for a in hour])
    found = np.quantile(gaps, (0.5, 0.75, 0.9, 0.99))
    assert found == pytest.approx([8, 34, 297, 1863], rel=0.01, abs=1)
    assert gaps.min() >= 0


def test_mean_rate(hour: list[Arrival]) -> None:
    """12.33 Mbit/s over the hour, to 1 %; the hour is an hour, to 1 %."""
    assert sum(a.size_bytes for a in hour) * 8 / 3600 / 1e6 == pytest.approx(12.33, rel=0.01)
    assert hour[-1].time_ms == pytest.approx(3_600_000, rel=0.01)


def test_burstiness(hour: list[Arrival]) -> None:
    """Per minute the real hour varies from 1.6 to 26.7 Mbit/s with a standard deviation of 7.9.
    Seeds differ: the deviation must be right to a factor of 1.5, quiet minutes below 6 Mbit/s and
    busy ones above 24."""
    rates = minute_rates_mbps(hour)
    assert 7.9 / 1.5 <= rates.std() <= 7.9 * 1.5
    assert rates.min() < 6.0
    assert rates.max() > 24.0


def test_dependence(hour: list[Arrival]) -> None:
    """Large products follow long gaps, and sizes come in runs. The real hour's rank correlations
    are 0.69 (size, gap before) and 0.64, 0.34 (size with the size 1 and 50 later); they must be
    right to 0.15."""
    found = {row.name: row.model for row in model_check(hour)}
    assert found["rank correlation of size and gap before"] == pytest.approx(0.69, abs=0.15)
    assert found["rank autocorrelation of size, lag 1"] == pytest.approx(0.64, abs=0.15)
    assert found["rank autocorrelation of size, lag 50"] == pytest.approx(0.34, abs=0.15)


def test_first_minute_of_the_default_seed() -> None:
    """Check what the comments in lossy.yaml and regression.yaml say."""
    hour = generate_hour(2053)
    first = hour[0].time_ms
    for seconds, products, rate in ((60, 584, 12.0), (20, 309, 10.4)):
        kept = [a for a in hour if a.time_ms < first + seconds * 1000]
        assert len(kept) == products
        assert sum(a.size_bytes for a in kept) * 8 / seconds / 1e6 == pytest.approx(rate, abs=0.05)


def test_rows_for_the_report() -> None:
    arrivals = generate_hour(1)
    rows = [row.to_dict() for row in model_check(arrivals)]
    by_name = {row["statistic"]: row for row in rows}
    assert by_name["gap, 99 % (ms)"]["published"] == 1863
    assert by_name["products (count)"]["difference"] == "+0.0 %"


def test_format_is_the_papers() -> None:
    text = format_trace([Arrival(90_654, 9), Arrival(5, 3_599_999)])
    assert text == "90654 20150615000000.009\n5 20150615005959.999\n"
    assert [p.size_bytes for p in parse_trace(text, "t").products] == [90_654, 5]
    assert stamp(1_434_326_400_000_001) == "20150615000000.000001"
