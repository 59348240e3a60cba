# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from parsers.base.intervals import over_repeats
from parsers.measure.agreement import (
    Agreement,
    agreement,
    changed,
    identity,
    leaves,
)
from parsers.measure.sweep import Point


def point(m: int, **values: Sequence[float]) -> Point:
    return Point(
        {"protocol": "ldm7", "receivers": m},
        {name: over_repeats(v, range(len(v))) for name, v in values.items()},
        ("c",),
    )


def test_the_same_runs_agree() -> None:
    points = [point(8, throughput=[1.0, 2.0, 3.0], ffdr=[99.0, 98.0, 99.5])]
    found = agreement(points, points)
    assert found.verdict == "agree"
    assert len(found.decided) == 2
    assert found.reason.startswith("0 of 2 intervals of the differences do not include 0;")


def test_a_shift_in_every_repeat_is_seen() -> None:
    """A shift by 0.1 with hardly any spread: paired, however much the repeats differ."""
    then = [point(m, throughput=[1.0, 20.0, 300.0], ffdr=[5.0, 6.0, 7.0]) for m in (4, 8)]
    now = [point(m, throughput=[1.1, 20.1, 300.101], ffdr=[5.1, 6.1, 7.101]) for m in (4, 8)]
    found = agreement(then, now)
    assert len(found.outside) == 4
    # P(more than 2 of 4 miss | each 5 %) < 1 % <= P(more than 1): 1 - 0.9860 = 1.4 %.
    assert found.allowed == 2
    assert found.verdict == "differ"


def test_repeats_of_other_seeds_are_not_paired() -> None:
    """The same shift, within the spread of the repeats: only a pair of equal seeds shows it."""
    then = [point(m, throughput=[1.0, 20.0, 300.0]) for m in (4, 8)]
    now = [point(m, throughput=[1.1, 20.1, 300.101]) for m in (4, 8)]
    assert len(agreement(then, now).outside) == 2
    found = agreement(then, now, same_seeds=False)
    assert found.outside == ()
    assert "Welch" in found.compared[0].difference.method
    one = [point(4, throughput=[1.0])]
    assert agreement(one, one, same_seeds=False).verdict == "not decidable"


def test_only_decisive_metrics_count() -> None:
    then, now = [point(8, throughput_sets=[1.0, 1.0])], [point(8, throughput_sets=[2.0, 2.0])]
    found = agreement(then, now)
    assert found.compared[0].covers is False
    assert found.verdict == "not decidable"


def test_one_run_each_is_not_decidable() -> None:
    found = agreement([point(8, throughput=[1.0])], [point(8, throughput=[1.0])])
    assert (found.verdict, found.reason) == (
        "not decidable",
        "one run of each point has no error bar",
    )


def test_what_only_one_has_is_a_difference() -> None:
    then = [point(8, throughput=[1.0, 2.0]), point(16, throughput=[1.0, 2.0])]
    now = [point(8, throughput=[1.0, 2.0], ffdr=[1.0, 2.0])]
    found = agreement(then, now)
    assert found.verdict == "differ"
    assert found.only_then == ("LDM7, m = 16",)
    assert found.only_now == ("ffdr at LDM7, m = 8",)


@pytest.mark.slow
def test_equal_runs_seldom_differ() -> None:
    """Of pairs of runs of 5 repeats at 4 points with 5 independent metrics, at most 1 in 100 is
    said to differ; with a shift by three standard deviations, all are."""
    rng = np.random.default_rng(3)
    names = ("throughput", "ffdr", "nic_bandwidth", "latency_p50", "loss_measured")

    def run(shift: float = 0.0) -> list[Point]:
        return [
            point(m, **{name: list(10 + shift + rng.normal(0, 1, 5)) for name in names})
            for m in range(4)
        ]

    verdicts = [agreement(run(), run()).verdict for _ in range(300)]
    assert set(verdicts) <= {"agree", "differ"}
    assert verdicts.count("differ") <= 8  # 3 expected at most, 3 standard deviations more: 8.2
    assert all(agreement(run(), run(3.0)).verdict == "differ" for _ in range(20))


def test_identity() -> None:
    then = {"a": {"values": {"x": {"value": 0.1}}, "cell": {"started": 1}, "series": [1, 2]}}
    now = {"a": {"values": {"x": {"value": 0.1}}, "cell": {"started": 2}, "series": [1, 2]}}
    (found,) = identity(then, now)
    assert found.identical
    assert found.values == 3
    now["a"]["values"] = {"x": {"value": 0.1 + 1e-17 + 2e-17}}
    (found,) = identity(then, now)
    assert found.different == ("values.x.value",)
    (one, other) = identity({"a": {}}, {"b": {}})
    assert (one.different, other.different) == (("only then",), ("only now",))


def test_leaves_and_changes() -> None:
    assert dict(leaves({"a": [1, {"b": []}], "c": {}})) == {"a[0]": 1, "a[1].b": [], "c": {}}
    assert changed({"tc": "6.1", "ps": "4"}, {"tc": "6.15", "ps": "4", "sar": "12"}) == {
        "tc": ("6.1", "6.15"),
        "sar": (None, "12"),
    }


def test_allowed_by_the_binomial_distribution() -> None:
    """Of 20 intervals: P(X <= 3) = 0.984, P(X <= 4) = 0.9974."""
    equal = [point(m, throughput=[1.0, 2.0]) for m in range(20)]
    found: Agreement = agreement(equal, equal)
    assert found.allowed == 4
