# SPDX-License-Identifier: Apache-2.0
"""Blocks of numbers: what was encoded comes back; damage is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.columns import MOST, BlockError, decode, encode, merge

NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40))
def test_any_numbers_come_back(points: list[tuple[int, int]]) -> None:
    times, values = np.array(points, np.int64).T
    found = decode(encode(times, values))
    assert np.array_equal(found[0], times)
    assert np.array_equal(found[1], values)


def test_a_steady_counter_is_small() -> None:
    """An hour of seconds, 3,600 times 16 bytes, becomes less than a byte a sample."""
    times = 1_450_000_000_000_000 + 1_000_000 * np.arange(3600, dtype=np.int64)
    assert len(encode(times, 117 * np.arange(3600, dtype=np.int64))) < 200
    wobbling = times + np.random.default_rng(1).integers(0, 900, 3600)
    assert len(encode(wobbling, np.arange(3600, dtype=np.int64))) < 4 * 3600


def test_how_many_fit() -> None:
    for count in (0, MOST + 1):
        with pytest.raises(BlockError, match="valid: 1 to"):
            encode(np.zeros(count, np.int64), np.zeros(count, np.int64))
    with pytest.raises(BlockError, match="2 times, 1 value"):
        encode(np.zeros(2, np.int64), np.zeros(1, np.int64))


def test_damage_is_refused_or_read() -> None:
    rng = random.Random(3)
    good = encode(np.arange(500, dtype=np.int64) ** 3, np.arange(500, dtype=np.int64))
    refused = 0
    for _ in range(2000):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        try:
            times, values = decode(bytes(bad[: rng.choice((len(bad), rng.randrange(len(bad))))]))
            assert len(times) == len(values) <= MOST
        except BlockError:
            refused += 1
    assert refused > 1000


@pytest.mark.slow
def test_a_bomb_is_refused() -> None:
    """A block that claims to have few numbers, and unpacks to many bytes."""
    import zlib

    good = encode(np.arange(4, dtype=np.int64), np.arange(4, dtype=np.int64))
    head = good[: -len(zlib.compress(bytes(6), 6))]
    with pytest.raises(BlockError, match="found 7 bytes; valid: 6"):
        decode(head + zlib.compress(bytes(50_000_000)))


def test_merged_points_are_in_order_and_the_first_counts() -> None:
    def numbers(*found: int) -> np.ndarray:
        return np.array(found, np.int64)

    times, values = merge(
        [(numbers(1, 3, 5), numbers(10, 30, 50)), (numbers(2, 3, 9), numbers(20, 31, 90))]
    )
    assert times.tolist() == [1, 2, 3, 5, 9]
    assert values.tolist() == [10, 20, 30, 50, 90]
