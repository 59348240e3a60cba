# SPDX-License-Identifier: Apache-2.0
"""What a cell's process decides without a network."""

from __future__ import annotations

import pytest

from experiments.cell import until_whole_second_s


@pytest.mark.parametrize(
    ("now_ns", "rest_s"),
    [
        (1_767_225_611_000_000_001, 0.999999999),
        (1_767_225_611_999_999_999, 1e-9),
        (1_767_225_611_250_000_000, 0.75),
        (1_767_225_611_000_000_000, 1.0),  # never 0: the sleep itself takes time
    ],
)
def test_the_next_whole_second(now_ns: int, rest_s: float) -> None:
    """Also where a floating-point clock could not tell: at today's dates it has steps of 0.2 us."""
    assert until_whole_second_s(now_ns) == rest_s
