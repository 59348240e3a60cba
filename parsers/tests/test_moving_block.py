# SPDX-License-Identifier: Apache-2.0
"""The bootstrap over time compared with hand calculations, theory and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from parsers.base import moving_block
from parsers.base.intervals import difference, of_run, over_repeats, ratio
from parsers.base.moving_block import OverTime, block_length, interval_of


def made(top: list[float], bottom: list[float] | None = None) -> OverTime:
    tops = np.array(top, dtype=float)[:, None]
    return OverTime(tops, np.ones_like(tops) if bottom is None else np.array(bottom)[:, None])


def autoregressive(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    values = rng.normal(size=n)
    values[0] /= np.sqrt(1 - share**2)
    for i in range(1, n):
        values[i] += share * values[i - 1]
    return values


def test_the_value_is_the_mean_of_the_columns_ratios() -> None:
    """(8 + 16) / (1 + 2) = 8 and (6 + 0) / (2 + 1) = 2: mean 5; for the first piece 8 and 3."""
    data = OverTime(np.array([[8.0, 6.0], [16.0, 0.0]]), np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert data.value() == 5
    assert data.value(1) == 5.5
    assert OverTime(data.top, np.zeros((2, 2))).value() is None


def test_what_never_changes_has_no_width() -> None:
    found = interval_of(made([3.0] * 40))
    assert found is not None
    assert (found.low, found.high, found.block) == (3.0, 3.0, 1)


def test_too_few_or_too_short() -> None:
    assert interval_of(made([1.0, 2.0] * 4)) is None
    assert interval_of(OverTime(np.ones((40, 1)), np.ones((40, 1)), long_enough=False)) is None


def test_block_length_of_a_first_order_process() -> None:
    """Politis and White: b = (1.5 (g / s)^2 n)^(1/3), where, if each value contains a share a of
    the one before, g / s = 2 a / (1 - a^2). With a = 0.5, n = 20,000: g / s = 4/3, b = 53,333^(1/3)
    = 37.6."""
    lengths = [
        block_length(autoregressive(np.random.default_rng(seed), 20_000, 0.5)) for seed in range(5)
    ]
    assert 30 <= float(np.mean(lengths)) <= 46
    white = [block_length(np.random.default_rng(seed).normal(size=400)) for seed in range(9)]
    assert float(np.mean(white)) <= 4


def test_two_runs_of_one_trace_draw_the_same_blocks() -> None:
    """b has half of a's latency in every piece: the ratio is 2 whatever is drawn, although each
    varies by a factor of 20."""
    bottom = list(np.random.default_rng(3).uniform(1, 20, 60))
    slow = of_run(1.0, 0, made([10.0] * 60, bottom))
    fast = of_run(2.0, 0, made([20.0] * 60, bottom))
    assert slow.high / slow.low > 1.2
    found = ratio(fast, slow)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    assert found.method.startswith("paired moving-block bootstrap over time, 60 pieces")
    step = difference(fast, slow)
    assert 0 < step.low < step.mean < step.high


def test_other_repeats_or_other_pieces_are_not_paired() -> None:
    a, b = of_run(2.0, 0, made([2.0] * 20)), of_run(1.0, 1, made([1.0] * 20))
    assert not difference(a, b).has_interval
    assert moving_block.interval_of_ratio(made([1.0] * 20), made([1.0] * 21)) is None
    repeats = over_repeats([1.0, 2.0], [0, 1])
    assert not difference(a, repeats).has_interval  # one repeat in common


@pytest.mark.long
@pytest.mark.slow
def test_blocks_cover_the_mean_of_what_depends_on_the_past() -> None:
    """400 values, each with a share of 0.7 of the one before. Drawn singly they would cover the
    mean in about 60 % of the draws (their variance is 5.7 times as large as it would be: z =
    0.82)."""
    rng = np.random.default_rng(11)
    blocks = single = 0
    for _ in range(300):
        values = autoregressive(rng, 400, 0.7)
        found = interval_of(made(list(values)))
        assert found is not None
        blocks += found.low <= 0 <= found.high
        half = 1.96 * float(values.std()) / 20
        single += abs(float(values.mean())) <= half
    assert blocks >= 0.86 * 300
    assert single <= 0.68 * 300
