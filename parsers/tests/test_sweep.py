# SPDX-License-Identifier: Apache-2.0
"""Points, lines and claims over cells whose metrics are chosen, not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parsers.base.factors import Scalar
from parsers.base.intervals import ONE_RUN, at_confidence, over_repeats
from parsers.base.metric_units import Value, absent
from parsers.base.moving_block import OverTime
from parsers.measure.claims import ClaimResult, judge
from parsers.measure.metrics import FileSet
from parsers.measure.pieces import Pieces
from parsers.measure.series import Series
from parsers.measure.set_throughput import FileSetMetrics
from parsers.measure.summary import CellMetrics, ReceiverMetrics
from parsers.measure.sweep import (
    Point,
    lines,
    points,
    select,
    shown,
)
from parsers.read.cell_files import Cell, CellTrace, Verdict
from parsers.read.published import Claim


def receiver(host: str, throughput: float) -> ReceiverMetrics:
    none = absent("s", "not asked for")
    value = Value(throughput, "bit/s")
    return ReceiverMetrics(host, "x", 1.0, value, {}, 0, 0, None, none, none, none, None)


def cell(
    protocol: str,
    m: int,
    repeat: int = 0,
    verdict: str = "faithful",
    receivers: Sequence[ReceiverMetrics] = (),
    file_sets_by: dict[int, tuple[FileSetMetrics, ...]] | None = None,
    more: dict[str, Scalar] | None = None,
    **values: Any,
) -> CellMetrics:
    described = Cell(
        cell=f"{protocol}-m{m}-n{repeat + 1}"
        + "".join(f"-{n}{v}" for n, v in (more or {}).items()),
        experiment="x",
        protocol=protocol,
        m=m,
        r_bps=20e6,
        loss=0.01,
        duration_s=60,
        repeat=repeat,
        publisher="p",
        subscribers=("a",),
        nic1="e",
        trace=CellTrace(source="x"),
        insertion_started=0,
        insertion_ended=60,
        cores=1,
        parameters={"f_snd": 5000.0, "RTT_i": [36.0]},
    )
    described.factors.update(more or {})
    return CellMetrics(
        cell=described,
        verdict=Verdict(verdict=verdict),  # type: ignore[arg-type]
        active_s=(0, 60),
        sent=1,
        sent_source="",
        values={
            n: absent("bit/s", "no sar.log") if v is None else Value(v, "bit/s")
            for n, v in values.items()
        },
        file_sets=(),
        file_sets_complete=True,
        receivers=tuple(receivers),
        identical=Value(1.0, ""),
        drops=(),
        drops_known=True,
        series=Series(),
        notices=(),
        problems=(),
        missing=(),
        file_sets_by=file_sets_by or {},
    )


def test_repeats_become_one_point() -> None:
    """12 and 14: mean 13, s = sqrt(2), s / sqrt(2) = 1, t(1) = 12.706."""
    cells = [cell("ldm7", 8, 1, throughput=14.0), cell("ldm7", 8, 0, throughput=12.0)]
    (point,) = points(cells)
    found = point.estimates["throughput"]
    assert found.values == (12.0, 14.0)
    assert found.repeats == (0, 1)
    assert found.mean == 13.0
    assert found.low == pytest.approx(13 - 12.706, abs=1e-3)
    assert point.cells == ("ldm7-m8-n1", "ldm7-m8-n2")
    assert point.factors == {"protocol": "ldm7", "receivers": 8, "rate_bps": 20e6, "loss": 0.01}
    assert point.conditions["f_snd"] == 5000.0
    assert point.conditions["loss_burst_packets"] == 1.0
    assert "rtt_ms" not in point.conditions
    assert (point.fixed["duration_s"], point.fixed["clock"]) == (60, "native")
    assert point.label == "LDM7, m = 8, r = 20 Mbit/s, p = 1 %"


def test_invalid_cells_are_named_and_left_out() -> None:
    cells = [
        cell("ldm7", 8, 0, throughput=12.0),
        cell("ldm7", 8, 1, "invalid", throughput=99.0),
        cell("ldm6", 8, 0, "invalid", throughput=1.0),
    ]
    ldm7, ldm6 = points(cells)
    assert ldm7.estimates["throughput"].mean == 12.0
    assert ldm7.estimates["throughput"].method == ONE_RUN
    assert (ldm7.cells, ldm7.excluded) == (("ldm7-m8-n1",), ("ldm7-m8-n2",))
    assert (ldm6.estimates, ldm6.cells, ldm6.excluded) == ({}, (), ("ldm6-m8-n1",))
    ldm7, ldm6 = points(cells, include_invalid=True)
    assert ldm7.estimates["throughput"].mean == 55.5
    assert (ldm7.excluded, ldm6.cells) == ((), ("ldm6-m8-n1",))


def test_a_missing_value_is_told() -> None:
    cells = [cell("ldm7", 8, n, nic_bandwidth=v) for n, v in enumerate((5.0, None, 7.0))]
    (point,) = points(cells)
    assert point.estimates["nic_bandwidth"].values == (5.0, 7.0)
    assert point.estimates["nic_bandwidth"].repeats == (0, 2)
    assert point.reasons == {"nic_bandwidth": "1 of 3 repeats: no sar.log"}


def test_runs_of_other_length_are_other_points() -> None:
    long = cell("ldm7", 8, throughput=1.0)
    short = cell("ldm7", 8, throughput=2.0)
    object.__setattr__(short.cell, "duration_s", 30.0)
    assert [p.factors["duration_s"] for p in points([long, short])] == [30.0, 60.0]


def test_order_and_lines() -> None:
    cells = [
        cell(protocol, m, 0, throughput=m * (2.0 if protocol == "ldm6" else 1.0))
        for m in (16, 4, 8)
        for protocol in ("ldm6", "ldm7")
    ]
    made = points(cells)
    assert [(p.factors["receivers"], p.factors["protocol"]) for p in made[:3]] == [
        (4, "ldm7"), (4, "ldm6"), (8, "ldm7"),
    ]  # fmt: skip
    found = lines(made, x="receivers", metric="throughput", by=["protocol"], where={"loss": "1%"})
    assert [line.label for line in found] == ["LDM7", "LDM6"]
    assert found[1].x == (4, 8, 16)
    assert [y.mean for y in found[1].y] == [8, 16, 32]
    # A factor that varies and is not named still distinguishes lines.
    assert len(lines(made, x="receivers", metric="throughput")) == 2
    assert lines(made, x="receivers", metric="ffdr") == ()
    assert select(made, {"receivers": {"at_least": 8}, "protocol": "ldm6"})[0].label.startswith(
        "LDM6, m = 8,"
    )


def test_subscribers_and_file_sets_stand_apart() -> None:
    sets = tuple(
        FileSetMetrics(FileSet(i, i, 10**6), Value(float(v), "bit/s"), absent("%", "x"))
        for i, v in enumerate((1, 2, 3, 4, 9))
    )
    hosts = [receiver("uva", 40.0), receiver("uwash", 30.0)]
    made = points([cell("ldm7", 2, 0, "faithful", hosts, {10**6: sets}, throughput=35.0)])
    assert len(made) == 4
    assert [p.estimates["throughput"].mean for p in select(made, {})] == [35.0]
    (uva,) = select(made, {"subscriber": "uva"})
    assert uva.estimates["throughput"].mean == 40.0
    (line,) = lines(made, x="subscriber", metric="throughput", where={"protocol": "ldm7"})
    assert (line.x, [y.mean for y in line.y]) == (("uva", "uwash"), [40.0, 30.0])
    (cut,) = select(made, {"file_set_bytes": "1MB"})
    # Quartiles of 1, 2, 3, 4, 9: 2 and 4.
    assert cut.estimates["throughput_iqr"].mean == 2.0
    assert cut.estimates["throughput_median"].mean == 3.0
    assert cut.estimates["file_sets"].mean == 5
    assert cut.estimates["throughput_iqr"].method.endswith("of 5 values: no interval")


def test_shown() -> None:
    (point,) = points([cell("ldm7", 8, n, throughput=v) for n, v in enumerate((12e6, 14e6))])
    assert shown("throughput", point.estimates["throughput"]) == "13.00 [0.29, 25.71] Mbit/s"
    (point,) = points([cell("ldm7", 8, throughput=12e6)])
    assert shown("throughput", point.estimates["throughput"]) == "12.00 Mbit/s (one run)"


# -- claims -----------------------------------------------------------------------------------
LDM6 = {"protocol": "ldm6"}


def sweep(values: Mapping[tuple[str, int], Sequence[float]]) -> tuple[Point, ...]:
    """Make points of (protocol, m) -> the repeats' values."""
    return points(
        [
            cell(protocol, m, n, nic_bandwidth=v)
            for (protocol, m), repeats in values.items()
            for n, v in enumerate(repeats)
        ]
    )


def claim(kind: str, **more: Any) -> Claim:
    over = (
        {} if "against" in more and kind in ("equal", "ratio", "above") else {"over": "receivers"}
    )
    raw = {"metric": "nic_bandwidth", "text": "so", "source": "x", "kind": kind, **over, **more}
    return Claim.model_validate(raw)


def one(asked: Claim, made: Sequence[Point]) -> ClaimResult:
    (found,) = judge([asked], made)
    return found


def test_linear_held_with_its_numbers() -> None:
    """y = 14.5 m Mbit/s in both repeats, one of which is 1 Mbit/s higher throughout."""
    made = sweep({("ldm6", m): (14.5e6 * m, 14.5e6 * m + 1e6) for m in (4, 8, 16, 24)})
    found = one(claim("linear", where=LDM6), made)
    assert found.verdict == "held"
    assert found.numbers == (
        "slope 14.5 [14.5, 14.5] Mbit/s per m, intercept 0.50 Mbit/s, R² 1.0000;"
        " m = 4 to 24, 4 points, 2 repeats"
    )


def test_linear_not_held_where_it_bends_or_falls() -> None:
    bent = sweep({("ldm6", m): (2.0**m,) for m in (4, 8, 12, 16, 20)})
    found = one(claim("linear", where=LDM6), bent)
    # Its slope's interval also includes 0: the straight line is no good description.
    assert found.verdict == "not decidable"
    bent = sweep({("ldm6", m): (m**2.0, m**2.0 + 1) for m in (1, 8, 16, 24)})
    found = one(claim("linear", where=LDM6), bent)
    assert found.verdict == "not held"
    assert "R² is below 0.98" in found.reason
    falling = sweep({("ldm6", m): (100.0 - m,) for m in (4, 8, 16)})
    assert one(claim("linear", where=LDM6), falling).verdict == "not held"


def test_too_few_points() -> None:
    found = one(claim("linear", where=LDM6), sweep({("ldm6", 4): (1.0,), ("ldm6", 8): (2.0,)}))
    assert (found.verdict, found.reason) == ("not decidable", "2 of at least 3 points")


def test_nothing_measured() -> None:
    made = sweep({("ldm7", 4): (1.0,)})
    assert one(claim("linear", where=LDM6), made).reason == "no cell was run under these conditions"
    made = points([cell("ldm6", 4, 0, "invalid", nic_bandwidth=1.0)])
    found = one(claim("linear", where=LDM6), made)
    assert (found.verdict, found.reason) == (
        "not decidable",
        "the verdict of ldm6-m4-n1 is invalid",
    )
    made = points([cell("ldm6", 4, 0, nic_bandwidth=None)])
    assert one(claim("linear", where=LDM6), made).reason == "no sar.log"


def test_flat() -> None:
    level = sweep({("ldm7", m): (21.0 + 0.01 * m, 21.2 + 0.01 * m) for m in (4, 8, 16, 24)})
    found = one(claim("flat", where={"protocol": "ldm7"}), level)
    assert found.verdict == "held"
    # slope 0.01 over 20 receivers: 0.2 of the mean 21.23
    assert "change over the range +0.9 [+0.9, +0.9] %" in found.numbers
    steep = sweep({("ldm7", m): (10.0 + m, 10.1 + m) for m in (4, 8, 16, 24)})
    found = one(claim("flat", where={"protocol": "ldm7"}), steep)
    assert (found.verdict, found.reason) == ("not held", "it changes by more than 10 %")
    hump = sweep({("ldm7", m): (v, v + 0.1) for m, v in ((4, 10.0), (8, 15.0), (12, 10.0))})
    found = one(claim("flat", where={"protocol": "ldm7"}), hump)
    assert (found.verdict, found.reason) == ("not held", "two points differ by more than 10 %")
    noisy = sweep({("ldm7", m): (10.0, 10.0 + (m - 8) / 4) for m in (4, 8, 12)})
    assert one(claim("flat", where={"protocol": "ldm7"}), noisy).verdict == "not decidable"
    same = sweep({("ldm7", m): (100.0,) for m in (4, 8, 12)})
    found = one(claim("flat", where={"protocol": "ldm7"}), same)
    assert (found.verdict, found.reason) == ("held", "within 10 %")
    assert "+0.0 [+0.0, +0.0] %" in found.numbers
    two = sweep({("ldm7", m): (10.0,) for m in (4, 8)})
    found = one(claim("flat", where={"protocol": "ldm7"}), two)
    assert (found.verdict, found.reason) == ("not decidable", "two points of one run each")


def test_flat_allows_for_choosing_the_extremes() -> None:
    """Differences of 1.8, 2 and 2.2: 2 +- 4.30 x 0.115 = 1.5 to 2.5 for one pair (Student's t,
    2 degrees), 2 +- 7.65 x 0.115 = 1.1 to 2.9 for the extremes of 3 points, and 2 +- 14.1 x 0.115 =
    0.4 to 3.6 for those of 5, which are 10 pairs."""
    values = {4: (10.0,) * 3, 8: (11.8, 12.0, 12.2), 12: (10.0,) * 3}
    few = one(
        claim("flat", where={"protocol": "ldm7"}),
        sweep({("ldm7", m): v for m, v in values.items()}),
    )
    assert (few.verdict, few.reason) == ("not held", "two points differ by more than 10 %")
    values |= {2: (10.0,) * 3, 14: (10.0,) * 3}
    many = one(
        claim("flat", where={"protocol": "ldm7"}),
        sweep({("ldm7", m): v for m, v in values.items()}),
    )
    assert many.verdict == "not decidable"


def test_flat_compares_the_repeats_that_all_levels_have() -> None:
    """A budget ended after two of three cells of the second repeat, whose window is ten times as
    busy: the first is level."""
    made = sweep({("ldm7", 4): (10, 100), ("ldm7", 8): (10.01,), ("ldm7", 12): (10.02, 100.2)})
    found = one(claim("flat", where={"protocol": "ldm7"}, at_most=0.02), made)
    assert found.verdict == "held"
    assert "change over the range +0.2 [+0.2, +0.2] %" in found.numbers
    rising = sweep({("ldm7", m): v for m, v in ((4, (1, 90)), (8, (2,)), (12, (3, 92)))})
    found = one(claim("linear", where={"protocol": "ldm7"}), rising)
    assert (found.verdict, "R² 1.0000" in found.numbers) == ("held", True)


def test_increases_by_the_paired_steps() -> None:
    """The seeds differ a hundredfold, the steps hardly: only pairing shows them."""
    made = sweep({("ldm6", m): (m, 101 * m + 1, 10_000 * m) for m in (4, 8, 12)})
    found = one(claim("increases", where=LDM6), made)
    assert (found.verdict, found.reason) == (
        "held",
        "it rises at 2 of 2 steps, by its interval at 2",
    )
    assert one(claim("decreases", where=LDM6), made).verdict == "not held"
    made = sweep({("ldm6", 4): (1, 2, 3), ("ldm6", 8): (2, 1, 4)})
    found = one(claim("increases", where=LDM6), made)
    assert found.verdict == "not decidable"
    assert found.reason == "it rises at 1 of 1 steps, by its interval at 0"


def test_steps_to_0_are_judged_by_the_sign_test() -> None:
    """Seeds differ a hundredfold, so that Student's t shows nothing; all six fall: p = 2 / 2^6."""
    lost = (1.0, 2.0, 3.0, 4.0, 5.0, 900.0)
    asked = claim("decreases", where=LDM6)
    found = one(asked, sweep({("ldm6", 4): lost, ("ldm6", 8): (0.0,) * 6}))
    assert found.verdict == "held"
    assert found.reason.endswith("by its interval at 0, by the sign test at 1")
    assert one(claim("increases", where=LDM6), sweep({
        ("ldm6", 4): lost, ("ldm6", 8): (0.0,) * 6,
    })).verdict == "not held"  # fmt: skip
    five = one(asked, sweep({("ldm6", 4): lost[1:], ("ldm6", 8): (0.0,) * 5}))
    assert five.verdict == "not decidable"
    assert five.decides.startswith("about 6 repeats would (5 here)")
    with at_confidence(0.99):  # 2 / 2^7 is above 0.01, 2 / 2^8 below
        six = one(asked, sweep({("ldm6", 4): lost, ("ldm6", 8): (0.0,) * 6}))
    assert six.decides.startswith("about 8 repeats would (6 here)")
    tied = one(asked, sweep({("ldm6", 4): (*lost[1:], 0.0), ("ldm6", 8): (0.0,) * 6}))
    assert tied.verdict == "not decidable"
    above = claim("above", where={"protocol": "ldm7"}, against={"protocol": "ldm6"})
    made = {("ldm7", 8): lost, ("ldm6", 8): (0.0,) * 6}
    assert one(above, sweep(made)).verdict == "held"
    with at_confidence(0.99):
        assert one(above, sweep(made)).verdict == "not decidable"


def test_a_ratios_values_are_of_the_repeats_that_both_have() -> None:
    """Of 1, 3 and 98 the counterpart has 1 and 3: 2 against 4, ratio 0.5; not 34 against 4."""
    asked = claim(
        "ratio", where={"protocol": "ldm7"}, against={"protocol": "ldm6"}, at_least=0.1, at_most=1
    )
    found = one(asked, sweep({("ldm7", 8): (1e6, 3e6, 98e6), ("ldm6", 8): (2e6, 6e6)}))
    assert found.numbers.startswith("2.00 [")
    assert " against 4.00 [" in found.numbers
    assert "ratio 0.5 [0.5, 0.5]" in found.numbers


def test_tied_repeats_are_counted() -> None:
    asked = claim(
        "above", where={"protocol": "ldm7"}, against={"protocol": "ldm6"}, compared_by="sign"
    )
    found = one(
        asked, sweep({("ldm7", 8): (2.0, 3.0, 5.0, 5.0), ("ldm6", 8): (1.0, 1.0, 5.0, 5.0)})
    )
    assert found.numbers.endswith("above in 2 of 2 repeats, 2 more tied")


def test_the_shown_ends_of_a_share_stay_within_its_range() -> None:
    """95 and 90 %: 92.5 +- 12.706 x 2.5."""
    ffdr = over_repeats([95.0, 90.0])
    assert ffdr.high == pytest.approx(124.27, abs=0.01)
    assert shown("ffdr", ffdr) == "92.50 [60.73, 100.00] %"
    assert shown("mplr", ffdr).endswith("124.27] %")


def test_above_in_most_repeats_by_the_sign_test() -> None:
    """Six of six: p = 2 / 2^6 = 0.031, though ratios from 1.01 to 100 have a wide t interval."""
    asked = claim(
        "above", where={"protocol": "ldm7"}, against={"protocol": "ldm6"}, compared_by="sign"
    )
    theirs = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    ours = (1.01, 2.02, 3.03, 4.04, 5.05, 600.0)
    found = one(asked, sweep({("ldm7", 8): ours, ("ldm6", 8): theirs}))
    assert (found.verdict, found.reason) == ("held", "above by the sign test")
    assert found.numbers.endswith("above in 6 of 6 repeats")
    by_ratio = asked.model_copy(update={"compared_by": "ratio"})
    assert one(by_ratio, sweep({("ldm7", 8): ours, ("ldm6", 8): theirs})).verdict == "not decidable"
    assert one(asked, sweep({("ldm7", 8): theirs, ("ldm6", 8): ours})).verdict == "not held"
    five = one(asked, sweep({("ldm7", 8): ours[:5], ("ldm6", 8): theirs[:5]}))
    assert five.decides.startswith("about 6 repeats would (5 here)")
    split = one(asked, sweep({("ldm7", 8): (*ours[:5], 5.0), ("ldm6", 8): theirs}))
    assert split.decides.startswith("about 17 repeats would (6 here)")
    three = one(asked, sweep({("ldm7", 8): (0.5, 3.0, 4.0), ("ldm6", 8): theirs[:3]}))
    assert three.decides.startswith("about 6 repeats would (3 here)")


def test_one_run_each_is_judged_by_its_trend() -> None:
    rising = {("ldm6", m): (float(m),) for m in (4, 8, 12, 16, 20)}
    found = one(claim("increases", where=LDM6), sweep(rising))
    assert found.verdict == "held"
    assert "Kendall's trend test, p = 0.0167" in found.reason
    assert one(claim("decreases", where=LDM6), sweep(rising)).verdict == "not held"
    few = {("ldm6", m): (float(m),) for m in (4, 8, 12)}
    assert one(claim("increases", where=LDM6), sweep(few)).verdict == "not decidable"


def test_equal() -> None:
    asked = claim("equal", where={"protocol": "ldm7"}, against={"protocol": "ldm6"})
    made = sweep({("ldm7", 8): (10, 20, 30), ("ldm6", 8): (10.1, 20.0, 30.1)})
    found = one(asked, made)
    assert found.verdict == "held"
    assert "paired t over 3 repeats of equal seed" in found.reason
    made = sweep({("ldm7", 8): (10, 20, 30), ("ldm6", 8): (20, 30, 40.1)})
    assert one(asked, made).verdict == "not held"
    made = sweep({("ldm7", 8): (10, 20, 30), ("ldm6", 8): (14, 17, 30)})
    assert one(asked, made).verdict == "not decidable"
    made = sweep({("ldm7", 8): (10,), ("ldm6", 8): (10,)})
    found = one(asked, made)
    assert found.verdict == "not decidable"
    assert found.reason == f"{ONE_RUN}; by the values alone it would hold (within ±10 %)"


def test_equal_to_nothing() -> None:
    asked = claim("equal", where={"protocol": "ldm7"}, against={"protocol": "ldm6"})
    none = sweep({("ldm7", 8): (0, 0), ("ldm6", 8): (0, 0)})
    assert one(asked, none).verdict == "held"
    some = one(asked, sweep({("ldm7", 8): (0, 1), ("ldm6", 8): (0, 0)}))
    assert (some.verdict, some.reason) == ("not decidable", "no relative difference to 0")


def test_parts_are_told_apart_by_what_varies() -> None:
    asked = claim("above", where={"protocol": "ldm7"}, against={"protocol": "ldm6"})
    pairs = {(p, m): (1.0, 1.1) for p in ("ldm7", "ldm6") for m in (4, 8)}
    assert [part.label for part in one(asked, sweep(pairs)).parts] == ["m = 4", "m = 8"]


def test_ratio_and_above() -> None:
    asked = claim("ratio", where=LDM6, against={"protocol": "ldm7"}, at_least=20)
    made = sweep({("ldm6", 24): (350, 351, 349), ("ldm7", 24): (15, 15, 15)})
    found = one(asked, made)
    assert found.verdict == "held"
    assert "ratio 23.3 [23.2, 23.5]" in found.numbers
    assert one(asked.model_copy(update={"at_least": 25.0}), made).verdict == "not held"
    assert one(asked.model_copy(update={"at_least": 23.4}), made).verdict == "not decidable"
    above = claim("above", where=LDM6, against={"protocol": "ldm7"})
    assert one(above, made).verdict == "held"
    assert "Wilcoxon" not in one(above, made).numbers
    six = sweep({("ldm6", 24): (9, 10, 11, 12, 13, 14), ("ldm7", 24): (1, 3, 5, 7, 9, 11)})
    # All six differences, 8 to 3, are above 0: 2 of 2^6 patterns of signs are as extreme.
    assert one(above, six).numbers.endswith(", Wilcoxon's signed-rank test p = 0.031")
    other = claim("above", where={"protocol": "ldm7"}, against=LDM6)
    assert one(other, made).verdict == "not held"


def test_what_a_ratio_sees_and_what_would_decide_it() -> None:
    """ln(350 / 15), ln(351 / 15), ln(349 / 15) have a standard deviation of 1 / 350 = 0.002857; the
    limit ln(23.4) is 0.002853 away. A distance of one standard deviation needs 10 repeats (G*Power,
    paired, 80 %); three detect 3.264 of them: 0.00933, that is 0.94 %."""
    made = sweep({("ldm6", 24): (350, 351, 349), ("ldm7", 24): (15, 15, 15)})
    asked = claim("ratio", where=LDM6, against={"protocol": "ldm7"}, at_least=23.4)
    found = one(asked, made)
    assert found.decides.startswith("about 10 repeats would (3 here); this run: no more repeats")
    assert [part.sees for part in found.parts] == ["sees a change of 0.94 % or more"]
    assert [dict(at)["protocol"] for at in found.open[0].at] == ["ldm6", "ldm7"]
    (told,) = judge([asked], made, "its budget of 2 h ended")
    assert told.decides == "about 10 repeats would (3 here); this run: its budget of 2 h ended"
    decided = one(asked.model_copy(update={"at_least": 20.0}), made)
    assert (decided.decides, decided.open) == ("", ())
    assert decided.parts[0].sees


@pytest.mark.parametrize(
    ("asked", "values", "said"),
    [
        (claim("linear"), {4: (1,), 8: (2,)}, "3 levels of Receivers m would"),
        (claim("linear"), {4: (3, 1), 8: (1, 4), 12: (2, 3)}, "repeats would"),
        (claim("flat"), {4: (1,), 8: (1,)}, "two or more repeats"),
        (claim("flat"), {4: (9, 11), 8: (11, 9), 12: (10, 13)}, "repeats would"),
        (claim("increases"), {4: (1,), 8: (2,), 12: (3,)}, "two or more repeats"),
        (claim("increases"), {4: (1, 2, 3), 8: (2, 1, 4)}, "repeats would (3 here)"),
        (claim("increases"), {4: (0, 2), 8: (1, 2)}, "repeats would"),
        (claim("increases", where={"loss": 0.5}), {4: (1,)}, "a run that has such cells would"),
    ],
)
def test_every_undecided_claim_says_what_would_decide_it(
    asked: Claim, values: dict[int, tuple[float, ...]], said: str
) -> None:
    found = one(asked, sweep({("ldm6", m): v for m, v in values.items()}))
    assert found.verdict == "not decidable"
    assert said in found.decides


def test_what_a_short_run_lacks_is_told_as_well() -> None:
    """Without file-sets a claim about them is judged by the whole run; its reasons say so."""
    asked = claim("increases", where={"loss": 0.5}).model_copy(update={"metric": "throughput_sets"})
    found = one(asked, sweep({("ldm6", 4): (1.0,)}))
    assert found.reason.endswith("since there is no throughput, mean of sets")
    assert found.decides == "a run that has such cells would"
    asked = claim("increases").model_copy(update={"metric": "throughput_sets"})
    made = points([cell("ldm6", m, n, throughput=m + n) for m in (4, 8) for n in (0, 1)])
    assert one(asked, made).numbers.endswith("; by run throughput")


def test_one_run_of_one_trace_decides_by_its_time() -> None:
    """Latencies vary twentyfold over an hour's pieces, but LDM7's are half of LDM6's in each."""
    latency = np.random.default_rng(3).uniform(1, 20, 60)[:, None]
    rates = {"ldm7": 2.0, "ldm6": 1.0}
    cells = [
        replace(
            cell(protocol, 8, throughput=rate * 10 * 60 / float(latency.sum())),
            pieces=Pieces(10.0, {"throughput": OverTime(np.full((60, 1), rate * 10), latency)}),
        )
        for protocol, rate in rates.items()
    ]
    asked = claim("ratio", where={"protocol": "ldm7"}, against=LDM6, at_least=1.9, at_most=2.1)
    found = one(asked.model_copy(update={"metric": "throughput"}), points(cells))
    assert found.verdict == "held"
    assert "paired moving-block bootstrap over time, 60 pieces" in found.reason


def test_a_run_ends_earlier_for_the_curve_over_its_length() -> None:
    """Eight pieces of 1 s, sizes 1 to 8 with latencies of 1: means of the first 1, 2, 4, 8."""
    pieces = Pieces(1.0, {"throughput": OverTime(np.arange(1.0, 9)[:, None], np.ones((8, 1)))})
    made = points([replace(cell("ldm7", 8, throughput=4.5), pieces=pieces)], by_length=True)
    (line,) = lines(made, x="first_s", metric="throughput")
    assert line.x == (1.0, 2.0, 4.0, 8.0)
    assert [y.mean for y in line.y] == [1.0, 1.5, 2.5, 4.5]
    assert [p.estimates["throughput"].mean for p in select(made, {})] == [4.5]


def test_one_failing_line_fails_the_claim() -> None:
    cells = [
        cell("ldm6", m, n, more={"f_snd": f}, nic_bandwidth=v * m + n)
        for m in (4, 8, 16)
        for f, v in ((10, 1.0), (20, -1.0))
        for n in (0, 1)
    ]
    found = one(claim("linear"), points(cells))
    assert found.verdict == "not held"
    assert [p.verdict for p in found.parts] == ["held", "not held"]
    assert found.reason == "f_snd = 20: it falls"


def test_without_a_counterpart() -> None:
    asked = claim("equal", where={"protocol": "ldm7"}, against={"protocol": "ldm6"})
    found = one(asked, sweep({("ldm7", 8): (1.0, 2.0)}))
    assert found.verdict == "not decidable"
    assert found.reason.startswith("nothing to compare with at LDM7, m = 8")


def test_two_metrics_of_one_point() -> None:
    made = points([cell("ldm7", 8, n, mplr=2.0 + n / 10, loss_injected=1.0) for n in (0, 1, 2)])
    asked = Claim.model_validate(
        {
            "kind": "above", "metric": "mplr", "against_metric": "loss_injected",
            "text": "MPLR is higher than the injected loss", "source": "DRFSM21 5.3.2",
        }
    )  # fmt: skip
    found = one(asked, made)
    assert found.verdict == "held"
    assert found.numbers.startswith("2.10 [1.85, 2.35] % against 1.000 [1.000, 1.000] %:")


def test_a_growing_ratio() -> None:
    hosts = [[receiver("uva", 40.0 + m), receiver("uwash", 40.0)] for m in (2, 4, 6, 8, 10)]
    cells = [
        cell("ldm7", m, 0, "faithful", h) for m, h in zip((2, 4, 6, 8, 10), hosts, strict=True)
    ]
    asked = Claim.model_validate(
        {
            "kind": "increases", "metric": "throughput", "over": "receivers",
            "where": {"subscriber": "uva"}, "against": {"subscriber": "uwash"},
            "text": "the difference grows", "source": "DRFSM21 5.3.1",
        }
    )  # fmt: skip
    found = one(asked, points(cells))
    assert found.verdict == "held"
    assert found.numbers.startswith("1.05 (one run) → 1.1 (one run)")
