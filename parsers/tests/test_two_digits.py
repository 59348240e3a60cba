# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from parsers.base.metric_units import two_digits


@pytest.mark.parametrize(
    ("number", "text"),
    [(128.4, "130"), (4.16, "4.2"), (99.7, "100"), (0.000151, "0.00015"), (0.0, "0"), (3, "3")],
)
def test_two_digits_have_no_exponent(number: float, text: str) -> None:
    assert two_digits(number) == text
