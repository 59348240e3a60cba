# SPDX-License-Identifier: Apache-2.0
"""Cells side by side, in SYNTHETIC runs (see synthetic.py): what is the same, and what is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from parsers.base.metric_units import Value, absent
from parsers.measure.run_files import load_cell
from parsers.measure.side_by_side import (
    Column,
    clocks_of,
    compare,
    conditions_of,
    deliveries_of,
    difference_of,
    numbers_of,
    repeats_of,
    spread_of,
)
from parsers.measure.summary import summarize
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

MBPS = "bit/s"


def column(directory: Path, cell: SyntheticCell, name: str, **files: str) -> Column:
    """`files`: the digests to give it."""
    run = write_synthetic_run(directory / name, cell)
    data = load_cell(run / "cells" / cell.name)
    return Column(name, f"x/{name}", summarize(data), deliveries_of(data), files)


def test_spread() -> None:
    """Mean of 10, 12 and 11: 11; 2 / 11 = 0.1818."""
    found = spread_of([Value(10.0, MBPS), Value(12.0, MBPS), Value(11.0, MBPS)])
    assert (found.low, found.high, found.spread, found.same) == (10.0, 12.0, 2.0, False)
    assert found.relative == pytest.approx(2 / 11)


def test_the_last_digit_counts() -> None:
    one, next_one = 3.207e6, 3.2070000000000005e6
    assert one != next_one
    assert not spread_of([Value(one, MBPS), Value(next_one, MBPS)]).same
    # A note says how to read a value; it is not part of the value.
    assert spread_of([Value(one, MBPS), Value(one, MBPS, note="mean")]).same


def test_what_is_not_there_is_not_a_number() -> None:
    nothing = absent("%", "virtual time")
    assert spread_of([nothing, nothing]).same
    assert spread_of([nothing, nothing]).low is None
    mixed = spread_of([nothing, Value(4.0, "%")])
    assert (mixed.low, mixed.high, mixed.same) == (4.0, 4.0, False)
    assert not spread_of([nothing, absent("%", "no log")]).same
    assert spread_of([Value(-1.0, "s"), Value(1.0, "s")]).relative is None  # of a mean of 0


def test_differences_between_clocks() -> None:
    """Native mean 11, virtual 13: +2, 2 / 11."""
    native = [Value(10.0, MBPS), Value(12.0, MBPS)]
    found = difference_of(native, [Value(13.0, MBPS)])
    assert (found.native.value, found.difference) == (11.0, 2.0)
    assert found.relative == pytest.approx(2 / 11)
    assert (found.native_low, found.native_high) == (10.0, 12.0)
    without = difference_of(native, [absent(MBPS, "virtual time")])
    assert (without.difference, without.relative) == (None, None)
    assert without.virtual.reason == "virtual time"
    one_missing = difference_of([native[0], absent(MBPS, "no log")], [Value(13.0, MBPS)])
    assert (one_missing.native.reason, one_missing.difference) == ("no log", None)


def test_round_trips(tmp_path: Path) -> None:
    """Two receivers at 36 and 41 ms, each measured 0.5 ms above that."""
    found = numbers_of(column(tmp_path, SyntheticCell("ldm7"), "A").metrics)
    assert found["rtt"].value == pytest.approx(0.039)
    assert found["rtt_error"].value == pytest.approx(0.0005)


def test_deliveries_are_counted_from_the_first_creation(tmp_path: Path) -> None:
    """Products come every 0.5 s; receiver 1 gets each 0.1 s, receiver 2 0.2 s after its
    creation."""
    found = column(tmp_path, SyntheticCell("ldm7"), "A").deliveries
    assert set(found) == {"r1", "r2"}
    third = found["r2"][2]
    assert (third.created_us, third.arrived_us, third.latency_us) == (1_000_000, 1_200_000, 200_000)
    assert (third.product[0], third.how, third.delay_s) == ("NAME.000002", "fmtp", 0.15)
    assert [d.retrans for d in found["r1"][:11]] == [2, *(9 * [0]), 2]


@pytest.mark.parametrize("protocol", ["ldm7", "ldm6"])
def test_the_same_run_again_is_identical(tmp_path: Path, protocol: str) -> None:
    cell = SyntheticCell(protocol)
    found = repeats_of([column(tmp_path, cell, n, log="d") for n in "ABC"])
    assert found.identical
    assert (found.different_metrics, found.files_same, found.files_different) == ((), 1, ())


def test_one_microsecond_is_a_difference(tmp_path: Path) -> None:
    cells = (SyntheticCell("ldm7"), SyntheticCell("ldm7", late_us=1))
    found = repeats_of([column(tmp_path, c, n) for c, n in zip(cells, "AB", strict=True)])
    assert not found.identical
    assert {"latency_p50", "throughput", "fmtp_delay_p50"} <= set(found.different_metrics)
    assert not {"ffdr", "mplr", "loss_measured"} & set(found.different_metrics)
    for receiver in found.receivers:
        assert (receiver.times, receiver.latencies, receiver.identical) == (False,) * 3
        assert (receiver.products, receiver.order, receiver.how, receiver.retrans) == (True,) * 4
        assert receiver.time_differs_s == receiver.latency_differs_s == 1e-6


def test_another_way_is_a_difference(tmp_path: Path) -> None:
    """Product 10 reaches receiver 1 by the backstop, 1 s later and without its 2 repeated blocks;
    by then, products 11 and 12 are there."""
    cells = (SyntheticCell("ldm7"), SyntheticCell("ldm7", backstop_index=10))
    found = repeats_of([column(tmp_path, c, n) for c, n in zip(cells, "AB", strict=True)])
    first, second = found.receivers
    assert second.identical
    assert (first.products, first.order, first.how, first.retrans) == (True, False, False, False)
    assert (first.retrans_differ, first.latency_differs_s) == (1, 1.0)


def test_another_set_of_products_is_a_difference(tmp_path: Path) -> None:
    columns = [column(tmp_path, SyntheticCell("ldm6"), n) for n in "AB"]
    rest = {h: d[:-1] for h, d in columns[1].deliveries.items()}
    found = repeats_of([columns[0], dataclasses.replace(columns[1], deliveries=rest)])
    assert [(r.products, r.order, r.times) for r in found.receivers] == [(False, False, True)] * 2
    none = repeats_of([columns[0], dataclasses.replace(columns[1], deliveries={})])
    assert [r.missing for r in none.receivers] == ["B", "B"]
    assert not none.identical


def test_files_are_the_same_only_where_all_have_them(tmp_path: Path) -> None:
    cell = SyntheticCell("ldm7")
    found = repeats_of(
        [column(tmp_path, cell, "A", x="1", y="2"), column(tmp_path, cell, "B", x="1")]
    )
    assert (found.files_same, found.files_different) == (1, ("y",))
    assert found.identical  # the figures are


def test_cells_meet_under_their_conditions(tmp_path: Path) -> None:
    """Two native repeats and a virtual cell of LDM7; LDM6 has no partner."""
    columns = [
        column(tmp_path, SyntheticCell("ldm7", repeat=0), "A1"),
        column(tmp_path, SyntheticCell("ldm7", repeat=1), "A2"),
        column(tmp_path, SyntheticCell("ldm6"), "A"),
        column(tmp_path, SyntheticCell("ldm7", clock="virtual", late_us=50), "B"),
        column(tmp_path, SyntheticCell("ldm7", duration_s=21), "C"),
    ]
    ldm7, ldm6, longer = compare(columns)
    assert [c.name for c in ldm7.columns] == ["A1", "A2", "B"]
    assert [(r.clock, len(r.columns)) for r in ldm7.repeats] == [("native", 2)]
    assert ldm7.clocks is not None
    assert [c.name for c in ldm7.clocks.virtual] == ["B"]
    # 0.10 and 0.20 s became 50 us longer: so did the median, 0.15 s.
    assert ldm7.clocks.metrics["latency_p50"].difference == pytest.approx(50e-6)
    assert ldm7.clocks.metrics["cpu"].difference is None
    assert (ldm6.is_one, longer.is_one, ldm7.is_one) == (True, True, False)
    assert conditions_of(columns[2].cell).label == (
        "LDM6, m = 2, r = 20 Mbit/s, p = 1 %, 20 s"
    )  # fmt: skip


def test_inputs_that_differ_are_told(tmp_path: Path) -> None:
    one = column(tmp_path, SyntheticCell("ldm7"), "A")
    other = dataclasses.replace(
        column(tmp_path, SyntheticCell("ldm7", clock="virtual"), "B"),
        facts={"datapath": "kernel"},
    )
    (found,) = compare([dataclasses.replace(one, facts={"datapath": "user"}), other])
    assert found.different_inputs == {"datapath": ("user", "kernel")}
    assert found.clocks is not None
    assert found.clocks.different_inputs == ("datapath",)
    assert repeats_of([one, dataclasses.replace(one, facts={"cores": 1})]).different_inputs == (
        "cores",
    )
    (same,) = compare([one, dataclasses.replace(one, name="C")])
    assert same.different_inputs == {}


def test_the_worst_verdict_of_each_clock(tmp_path: Path) -> None:
    native = [
        column(tmp_path, SyntheticCell("ldm7", verdict=v), v) for v in ("faithful", "invalid")
    ]
    virtual = [column(tmp_path, SyntheticCell("ldm7", clock="virtual"), "B")]
    found = clocks_of(native, virtual)
    assert (found.native_verdict, found.virtual_verdict) == ("invalid", "faithful")
