# SPDX-License-Identifier: Apache-2.0
"""The outlook's terms, fit and intervals, compared with values from other methods."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bench import outlook
from bench.outlook import Sample

PRINTED = "receivers=64 product_bytes=1530000 sent_bytes=2556650 requests=686 acks=640 missing=0\n"


def samples(repair: outlook.Repair, a: float, b: float) -> list[Sample]:
    return [
        Sample(repair, m, p, a + b * outlook.term(repair, m, p), 10.0 * m)
        for m in outlook.RECEIVERS
        for p in outlook.LOSSES
    ]


def test_largest_loss_is_that_of_all_outcomes() -> None:
    """With two receivers and three blocks, each of the 64 outcomes has its probability."""
    p = 0.3
    expected = 0.0
    for lost in itertools.product((0, 1), repeat=6):
        worst = max(sum(lost[:3]), sum(lost[3:]))
        expected += worst * p ** sum(lost) * (1 - p) ** (6 - sum(lost))
    assert outlook.largest_loss(2, p, 3) == pytest.approx(expected)
    assert outlook.largest_loss(1, 0.01, 106) == pytest.approx(1.06)


def test_a_line_is_found_and_foretold() -> None:
    found = outlook.fit(samples("unicast", 1.02, 1.01))
    assert [found.a, found.b] == pytest.approx([1.02, 1.01])
    cost, low, high = found.predict(outlook.term("unicast", 10_000, 0.01))
    assert cost == pytest.approx(1.02 + 101)
    assert low == pytest.approx(high)


def test_intervals_hold_nineteen_of_twenty_further_points() -> None:
    """Costs with normal errors of 2 %: 300 further points at m = 1,000."""
    dice = np.random.default_rng(7)
    inside = 0
    for _ in range(300):
        near = [s for s in samples("parity", 1.0, 1.1) if s.receivers < outlook.HELD_OUT]
        noisy = [replace(s, cost=s.cost * (1 + 0.02 * dice.standard_normal())) for s in near]
        x = outlook.term("parity", 1000, 0.05)
        _, low, high = outlook.fit(noisy).predict(x)
        inside += low <= (1.0 + 1.1 * x) * (1 + 0.02 * dice.standard_normal()) <= high
    assert 270 <= inside <= 297  # 285 expected, standard deviation 3.8


def test_what_a_simulation_printed() -> None:
    """1,326 messages in the 0.995 s that 1.53 MB take at 12.3 Mbit/s."""
    found = outlook.sample_of("unicast", 0.01, PRINTED)
    assert found.cost == pytest.approx(1.67101, abs=1e-5)
    assert found.messages_per_s == pytest.approx(1332.5, abs=0.1)
    for bad in ("", "receivers=64", PRINTED.replace("1530000", "0"), "receivers=x"):
        with pytest.raises(ValueError, match="valid: what outlook prints"):
            outlook.sample_of("unicast", 0.01, bad)


def test_most_receivers_within_a_bound() -> None:
    """1 + 0.01 m is at most 2.5 for up to 150 receivers."""
    found = outlook.fit(samples("unicast", 1.0, 1.0))
    assert outlook.most_receivers(found, "unicast", 0.01, 2.505) == 150
    assert outlook.most_receivers(found, "unicast", 0.01, 0.5) == 0


def test_tables_have_a_row_for_each_condition() -> None:
    every = [s for r in outlook.REPAIRS for s in samples(r, 1.0, 1.0)]
    text = outlook.tables(every)
    assert text.count("| parity | 5 % |") == 3
    assert "| unicast | 1 % | 1.640 | 11 [11, 11] | 11 | 101 [101, 101] |" in text


def test_too_few_samples() -> None:
    with pytest.raises(ValueError, match="found 2 samples; valid: 3 or more"):
        outlook.fit(samples("unicast", 1, 1)[:2])
