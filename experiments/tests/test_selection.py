# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from experiments.design.expansion import CellSpec, expand
from experiments.design.parameters import Factors
from experiments.design.selection import ordered, select
from experiments.design.spec import (
    ExperimentSpec,
    UsageError,
    find,
    load_as,
)


@pytest.fixture(scope="module")
def sweep() -> tuple[CellSpec, ...]:
    """Return 2 protocols x m = 4, 8 x r = 20, 60 Mbit/s x p = 0, 1 % x 3 repeats: 48 cells."""
    block = Factors.model_validate(
        {
            **{"protocol": ["ldm7", "ldm6"], "receivers": [4, 8]},
            **{"rate_bps": ["20Mbps", "60Mbps"], "loss": [0, "1%"]},
        }
    )
    spec = load_as(ExperimentSpec, find("lossy"))
    return expand(spec.model_copy(update={"factors": (block,), "repeats": 3}))


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 48),
        (["receivers=8"], 24),
        (["receivers=4,8"], 48),
        (["protocol=ldm7", "loss=1%"], 12),
        (["loss=0.01", "rate_bps=20Mbps", "repeat=2"], 4),
        (["rate_bps=20000000"], 24),
        (["^ldm6-m8-.*-p1-n3$"], 2),
        (["n1$", "protocol=ldm6"], 8),
    ],
)
def test_only(sweep: tuple[CellSpec, ...], only: list[str], count: int) -> None:
    found = select(sweep, only)
    assert len(found) == count
    assert found == [cell for cell in sweep if cell in found]  # in their order


def test_nothing_left(sweep: tuple[CellSpec, ...]) -> None:
    with pytest.raises(UsageError, match="--only: found 'm8', which no cell matches"):
        select(sweep, ["receivers=4", "m8"])


def test_orders(sweep: tuple[CellSpec, ...]) -> None:
    assert ordered(sweep, "file", 1) == list(sweep)
    first, again, other = (ordered(sweep, "random", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(c.cell for c in first) == sorted(c.cell for c in sweep)
    # Protocols no longer alternate: of 47 pairs of neighbours about 24 differ by chance.
    pairs = sum(a.protocol != b.protocol for a, b in zip(first, first[1:], strict=False))
    assert 10 < pairs < 38
