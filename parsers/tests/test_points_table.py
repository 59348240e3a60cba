# SPDX-License-Identifier: Apache-2.0
"""The rows of a run's main table, for points that are written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parsers.base.factors import Scalar
from parsers.base.intervals import over_repeats
from parsers.measure.sweep import Point
from parsers.report.brief import TABLE_ROWS, Brief, render_brief
from parsers.report.points_table import PEER_METRICS, TRANSFER_METRICS, metrics_of, points_tables

PROTOCOLS = ("ldm7", "ldm6", "fmtp", "norm", "uftp", "aeron")
LOSSES = (0.05, 0.0, 0.01)


def point(factors: Mapping[str, Scalar], p50_s: float, wire: float) -> Point:
    estimates = {
        "latency_p50": over_repeats([p50_s]),
        "wire_per_delivered": over_repeats([wire]),
        "products_missing": over_repeats([261.0]),
    }
    return Point(factors, estimates, ("cell",))


def grid(losses: Sequence[float] = LOSSES) -> list[Point]:
    """Return a point for each protocol and loss: 100, 101, ... ms without loss."""
    return [
        point({"protocol": name, "loss": loss}, 0.1 + n / 1000 + 10 * loss, 1.0456 + loss)
        for loss in losses
        for n, name in enumerate(PROTOCOLS)
    ]


def test_each_point_has_a_row_where_all_fit() -> None:
    (table,) = points_tables(grid((0.0, 0.01)), PEER_METRICS)
    assert table.header[0] == "At"
    assert len(table.rows) == 12
    assert table.rows[0] == ("LDM7, p = 0 %", "100.0", "1.046", "261")


def test_levels_share_a_row_where_points_are_too_many() -> None:
    points = grid()
    assert len(points) > TABLE_ROWS
    (table,) = points_tables(points, PEER_METRICS)
    assert table.header == ("p = 0, 1, 5 %", "Lat. p50, ms", "wire", "missing")
    assert [row[0] for row in table.rows] == sorted(name.upper() for name in PROTOCOLS)
    rows = {row[0]: row for row in table.rows}
    assert rows["LDM7"] == ("LDM7", "100 200 600", "1.05 1.06 1.10", "261 261 261")


def test_every_row_of_many_points_is_printed() -> None:
    brief = Brief(
        title="peers", verdict="faithful", result=("All came.",),
        tables=tuple(points_tables(grid(), PEER_METRICS)),
    )  # fmt: skip
    text = render_brief(brief, "page")
    assert "more in the page" not in text
    assert all(any(line.startswith(p.upper()) for line in text.splitlines()) for p in PROTOCOLS)


def test_a_point_without_a_value_keeps_its_place() -> None:
    points = [p for p in grid() if p.factors != {"protocol": "uftp", "loss": 0.01}]
    (table,) = points_tables(points, PEER_METRICS)
    rows = {row[0]: row for row in table.rows}
    assert rows["UFTP"][1:] == ("104 - 604", "1.05 - 1.10", "261 - 261")


def test_points_stay_apart_where_no_factor_folds_them() -> None:
    points = [point({"receivers": m, "protocol": f"p{m}"}, 0.1, 1.0) for m in range(1, 21)]
    (table,) = points_tables(points, PEER_METRICS)
    assert len(table.rows) == 20


def test_transfers_of_a_file_are_shown_by_its_metrics() -> None:
    estimates = {"transfer_time": over_repeats([41.0]), "gput": over_repeats([780_500.0])}
    found = Point({"protocol": "m2c", "receivers": 1}, estimates, ("cell",))
    other = point({"protocol": "tcp", "receivers": 1}, 0.1, 1.0)
    assert metrics_of([other], peers=True) == PEER_METRICS
    assert metrics_of([other, found], peers=True) == TRANSFER_METRICS
    (table,) = points_tables([found], TRANSFER_METRICS)
    assert table.header[1:] == ("time, s", "gput, kbit/s")
    assert table.rows[0][1:] == ("41.0", "780")
