# SPDX-License-Identifier: Apache-2.0
"""The components of latency (DRFSM21 eq. 7), compared with numbers computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.latency_parts import (
    FILE_BYTES,
    LatencyParts,
    Parts,
    at_receiver,
    by_receiver,
    file_bytes,
    parts_of,
    values_of,
    waits,
)
from parsers.measure.run_files import load_cell
from parsers.measure.summary import CellMetrics, summarize
from parsers.measure.sweep import subscriber_values
from parsers.read.cell_files import Cell
from parsers.read.ldm_log import Product, SenderStats
from parsers.read.published import Figure
from parsers.report import latency
from parsers.report.drawing import Plot, style
from parsers.tests.synthetic import write_synthetic_run

FIGURE = Figure.model_validate({"name": "eq7", "title": "T", "kind": "latency"})
RATE_BPS = 8_000_000  # a byte takes a microsecond
START_US = 1_000_000_000


def product(created_us: int, size_bytes: int) -> Product:
    return Product(size_bytes, START_US + created_us, "NGRID", 0, f"NGRID.{created_us}")


# One block: 1448 + 54 bytes of headers = 1502 us. Two blocks, 1 ms later: 3004 us, after waiting
# 502 us. The last file comes when the queue is empty: 101 + 54 = 155 us.
FILES = (product(0, 1448), product(1000, 2896), product(9000, 101))


def stats(products: int, datagrams: int, datagram_bytes: int) -> SenderStats:
    return SenderStats(0, "mldm", 1, products, datagrams, datagram_bytes, 4, 0, 0, 0, 0, 0, 0)


def test_files_wait_for_those_before_them() -> None:
    found = waits(FILES, RATE_BPS, 0.0)
    assert [seconds for p in FILES for seconds in found[p]] == pytest.approx(
        [*(0.0, 1502e-6), *(502e-6, 3004e-6), *(0.0, 155e-6)]
    )
    assert waits((), RATE_BPS, 0.0) == {}


def test_the_components_are_the_measured_latency() -> None:
    """10 ms of propagation, and a clock that is 5 ms ahead. The second file's repair took 20 ms
    more; the third file came 30 us sooner than it should."""
    queued = waits(FILES, RATE_BPS, 0.0)
    arrivals = (
        Arrival(START_US + 1502 + 10_000 + 5_000, "fmtp", 0.0, 0),
        Arrival(START_US + 1000 + 502 + 3004 + 10_000 + 5_000 + 20_000, "fmtp", 0.0, 1),
        Arrival(START_US + 9000 + 155 + 10_000 + 5_000 - 30, "fmtp", 0.0, 0),
    )
    found = [
        parts_of(file, arrival, queued[file], 0.010, 0.005)
        for file, arrival in zip(FILES, arrivals, strict=True)
    ]
    assert [(p.repair_s, p.rest_s) for p in found] == [
        (0.0, pytest.approx(0.0, abs=1e-12)),
        (pytest.approx(0.020), 0.0),
        (0.0, pytest.approx(-30e-6)),
    ]
    for file, arrival, parts in zip(FILES, arrivals, found, strict=True):
        assert parts.total_s == pytest.approx(arrival.latency_s(file), abs=1e-12)
    mean = at_receiver(found)
    assert mean is not None
    assert mean.files == 3
    assert mean.mean.buffer_s == pytest.approx(502e-6 / 3)
    assert mean.mean.total_s == pytest.approx((16_502 + 39_506 - 1000 + 1000 + 15_125 - 1000) / 3e6)
    assert mean.rest_most_s == pytest.approx(-30e-6)
    assert mean.repair_least_s == 0.0


def test_what_a_file_takes_beside_its_blocks_is_the_senders_own_count() -> None:
    """Blocks as frames: 1502 + 3004 + 155. Four datagrams with data, and BOP and EOP of each file:
    88 + 12 bytes, 42 for each datagram's headers below FMTP."""
    data = 1448 + 2896 + 101 + 4 * 12
    sent = Sent(FILES, "", stats=stats(3, 10, data + 3 * 100))
    assert file_bytes(sent) == pytest.approx(100 + 2 * 42)
    assert file_bytes(Sent(FILES, "")) == FILE_BYTES
    assert file_bytes(Sent(FILES[:2], "", stats=stats(3, 10, data))) == FILE_BYTES


def cell(**changes: Any) -> Cell:
    values: dict[str, Any] = {
        "protocol": "ldm7",
        "parameters": {"r_mc": RATE_BPS},
        "rtt_ms": {"a": 20.0, "b": 40.0},
        "clock_offset_ms": {"b": -3.0},
        "ldm6_subscribers": (),
    }
    return Cell.model_construct(**values | changes)


def receiver(latencies_us: tuple[int, ...]) -> Receiver:
    arrivals = {
        p: Arrival(p.created_us + us, "fmtp", 0.0)
        for p, us in zip(FILES, latencies_us, strict=True)
    }
    return Receiver(arrivals, 0, 0, None)


def test_each_receiver_has_its_distance_and_its_clock() -> None:
    sent = Sent(FILES, "", stats=stats(3, 4, 1448 + 2896 + 101 + 4 * 12))
    near = receiver((1502 + 10_000, 502 + 3004 + 10_000, 155 + 10_000))
    far = receiver((1502 + 17_000, 502 + 3004 + 17_000, 155 + 17_000))
    found = by_receiver(cell(), sent, {"a": near, "b": far})
    assert isinstance(found, dict)
    assert found["b"].mean.offset_s == pytest.approx(-0.003)
    for parts in found.values():
        assert parts.rest_most_s == pytest.approx(0.0, abs=1e-9)
    values = values_of(found)
    assert values["latency_propagation"].value == pytest.approx(0.015)
    assert values["latency_offset"].value == pytest.approx(-0.0015)


@pytest.mark.parametrize(
    ("changes", "order", "reason"),
    [
        ({"protocol": "ldm6"}, FILES, "LDM7 only"),
        ({"parameters": {}}, FILES, "r_mc"),
        ({}, (), "no Multicasted line"),
        ({"ldm6_subscribers": ("a",)}, FILES, "no file came by FMTP"),
    ],
)
def test_why_the_components_are_not_known(
    changes: dict[str, object], order: tuple[Product, ...], reason: str
) -> None:
    sent = Sent(order, "", "" if order else "no Multicasted line")
    found = by_receiver(cell(**changes), sent, {"a": receiver((1, 2, 3))})
    assert reason in str(found)
    assert {v.reason for v in values_of(found).values()} == {found}


# -- in the report ------------------------------------------------------------------------------
def cell_with(tmp_path: Path, parts: LatencyParts) -> CellMetrics:
    run = write_synthetic_run(tmp_path / "lossy" / "20261121T020000Z")
    found = [summarize(load_cell(path)) for path in sorted((run / "cells").iterdir())]
    (ldm7,) = (c for c in found if c.cell.protocol == "ldm7")
    for one in ldm7.receivers:
        object.__setattr__(one, "parts", parts)
    return ldm7


PARTS = LatencyParts(40, Parts(0.018, 0.1, 0.012, 0.03, -0.005, -0.001), -0.002, 0.0)


def test_the_table_has_a_row_for_each_subscriber(tmp_path: Path) -> None:
    section = latency.latency_section([cell_with(tmp_path, PARTS)])
    assert section is not None
    (table,) = section.tables
    values = ("18.000", "100.000", "12.000", "30.000", "-5.000", "-1.000", "154.000", "-2.000")
    assert table.rows == (("r1", "40", *values), ("r2", "40", *values))
    assert latency.latency_section([]) is None


@pytest.mark.slow
def test_the_figure_stacks_what_is_below_zero_by_itself(tmp_path: Path) -> None:
    one = cell_with(tmp_path, PARTS)
    with style():
        found = latency.draw(FIGURE, [one])
    assert isinstance(found, Plot)
    expected = "r1: 154.0 ms, propagation 18.0, emission 100.0, sending buffer 12.0, repair 30.0"
    assert f"{expected}, clock offset -5.0, rest -1.0" in found.alt
    assert "no valid cell" in str(latency.draw(FIGURE, []))


@pytest.mark.slow
def test_the_figure_shows_the_mean_of_the_repeats(tmp_path: Path) -> None:
    longer = LatencyParts(40, Parts(0.018, 0.1, 0.022, 0.05, -0.005, -0.001), -0.002, 0.0)
    with style():
        found = latency.draw(
            FIGURE, [cell_with(tmp_path / "1", PARTS), cell_with(tmp_path / "2", longer)]
        )
    assert isinstance(found, Plot)
    # By hand: buffer (12 + 22) / 2, repair (30 + 50) / 2; all together 154 and 184 ms.
    assert "r1: 169.0 ms, propagation 18.0, emission 100.0, sending buffer 17.0, repair 40.0" in (
        found.alt
    )


def test_a_subscriber_has_the_metrics_of_the_cell(tmp_path: Path) -> None:
    one = cell_with(tmp_path, PARTS)
    values = subscriber_values(one.receivers[0])
    assert values["latency_repair"].value == pytest.approx(0.03)


def test_the_figure_has_no_x() -> None:
    with pytest.raises(ValidationError, match="kind latency: no x: subscribers are"):
        Figure.model_validate({"name": "f", "title": "T", "kind": "latency", "x": "loss"})
