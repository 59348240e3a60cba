# SPDX-License-Identifier: Apache-2.0
"""A generated hour resembles the papers' by statistics that can fail, and that do for other
hours."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from experiments.design import trace_input, trace_model
from experiments.design.paced_hour import (
    LARGE_BPS,
    beyond,
    generate_paced_hour,
    of_arrivals,
    paced_check,
)
from experiments.design.spec import find, load
from experiments.design.trace_model import Arrival
from experiments.runs.preparation import plan

SEEDS = (2053, 7, 2099, *range(1, 18))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_is_like_the_real_hour(seed: int) -> None:
    hour = generate_paced_hour(seed)
    assert len(hour) == trace_model.PRODUCTS
    assert hour == sorted(hour, key=lambda a: a.time_ms)
    assert hour[-1].time_ms <= 3_600_000
    assert beyond(of_arrivals(hour)) == []


@pytest.mark.slow
def test_one_seed_and_the_same_again() -> None:
    hour = generate_paced_hour(18)  # the constants were not fitted to it
    assert beyond(of_arrivals(hour)) == []
    assert hour == generate_paced_hour(18)
    assert hour != generate_paced_hour(19)
    rows = {row.name: row for row in paced_check(hour)}
    assert rows["rate at 60 s, highest"].published == 26.68


@pytest.mark.slow
def test_the_source_has_a_ceiling() -> None:
    """Minutes do not exceed the source's rate by more than a small product's burst."""
    found = {row.name: row.model for row in paced_check(generate_paced_hour(18))}
    assert found["rate at 60 s, highest"] < 1.3 * LARGE_BPS / 1e6
    assert max(trace_model.minute_rates_mbps(trace_model.generate_hour(18))) > 1.3 * LARGE_BPS / 1e6


@pytest.mark.slow
def test_other_hours_fail() -> None:
    """The same products in another order, at equal distances, and without the ceiling."""
    hour = generate_paced_hour(18)
    sizes = [a.size_bytes for a in hour]
    random.Random(1).shuffle(sizes)
    shuffled = [Arrival(s, a.time_ms) for s, a in zip(sizes, hour, strict=True)]
    assert len(beyond(of_arrivals(shuffled))) >= 3
    even = [dataclasses.replace(a, time_ms=i * 127 + i % 2) for i, a in enumerate(hour)]
    assert len(beyond(of_arrivals(even))) >= 5
    unpaced = [beyond(of_arrivals(trace_model.generate_hour(seed))) for seed in (18, 2053, 7)]
    assert all(unpaced), unpaced


def test_a_trace_is_named_and_checked() -> None:
    made = trace_input.prepare("paced", 30.0, 5)
    assert made.source == "paced NGRID model, seed 5"
    assert [row.name for row in made.model_check][-1] == "throughput of a queue at 100 Mbit/s"
    assert made.sha256 == trace_input.prepare("paced", 30.0, 5).sha256
    assert made.sha256 != trace_input.prepare("model", 30.0, 5).sha256


@pytest.mark.slow
def test_trace_and_loss_have_seeds_of_their_own(tmp_path: Path) -> None:
    """With `trace_seed` all repeats replay one trace, and lose different packets."""
    text = find("regression").read_text().replace("repeats: 1", "repeats: 3")
    for line, traces in (("", 3), ("trace_seed: 9\n", 1)):
        path = tmp_path / "own.yaml"
        path.write_text(text + line)
        planned = plan(load(path))
        assert {p.cell.seed for p in planned} == {2053, 2054, 2055}
        assert len({p.trace.sha256 for p in planned}) == traces
        assert not any(p.borrowed for p in planned)
    assert {p.trace.source for p in planned} == {"NGRID model, seed 9"}
