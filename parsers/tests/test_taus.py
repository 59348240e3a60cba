# SPDX-License-Identifier: Apache-2.0
"""DRFSM21's metrics per interval tau and subscriber, and their figure (Fig. 8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from parsers.measure.deliveries import Arrival
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from parsers.measure.taus import interval_s, per_tau
from parsers.read.ldm_log import Product
from parsers.read.published import TAU_METRICS, Figure
from parsers.report import subscribers
from parsers.report.drawing import Plot, style
from parsers.tests.synthetic import write_synthetic_run


def product(number: int, size_bytes: int) -> Product:
    return Product(size_bytes, number, "NGRID", number, f"NGRID.{number:06d}")


def fmtp(at_s: float, delay_s: float, retrans: int = 0) -> Arrival:
    return Arrival(round(at_s * 1e6), "fmtp", delay_s, retrans)


def figure(metric: str) -> Figure:
    whole = {"name": "fig8", "title": "T", "kind": "subscribers", "metric": metric}
    return Figure.model_validate(whole)


def test_each_interval_has_the_files_that_arrived_in_it() -> None:
    """1 MB in 0.1 s is 80 Mbit/s; the second minute has a repaired file and one by LDM6, the third
    none."""
    arrivals = {
        product(1, 1_000_000): fmtp(1000.0, 0.1),
        product(2, 1_000_000): fmtp(1059.9, 0.1),
        product(3, 1_448_000): fmtp(1060.0, 0.2, retrans=10),
        product(4, 552_000): Arrival(1_061_000_000, "backstop"),
        product(5, 1_000_000): fmtp(1180.0, 1.0),
    }
    first, second, last = per_tau(arrivals, 1000.0, 60.0)
    assert [tau.end_s for tau in (first, second, last)] == [60.0, 120.0, 240.0]
    assert first.fmtp.throughput_fmtp.value == pytest.approx(80e6)
    assert (first.fmtp.ffdr_count.value, first.fmtp.mplr.value) == (100.0, 0.0)
    assert second.fmtp.throughput_fmtp.value == pytest.approx(57.92e6)
    assert second.fmtp.ffdr_count.value == pytest.approx(50.0)
    assert second.fmtp.ffdr_size.value == pytest.approx(72.4)
    assert second.fmtp.mplr.value == pytest.approx(1.0)
    assert second.fmtp.throughput_mc.value is None
    assert last.fmtp.throughput_fmtp.value == pytest.approx(8e6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", TAU_METRICS)
def test_the_figure_has_a_line_for_each_subscriber(tmp_path: Path, metric: str) -> None:
    run = write_synthetic_run(tmp_path / "lossy" / "20261121T020000Z")
    cells = [summarize(load_cell(path)) for path in sorted((run / "cells").iterdir())]
    (cell,) = (c for c in cells if c.cell.protocol == "ldm7")
    with style():
        found = subscribers.draw(figure(metric), cells)
    if not any(subscribers.points(taus, metric) for taus in cell.series.per_tau.values()):
        assert "no valid cell" in str(found)
        return
    assert isinstance(found, Plot)
    for host, taus in cell.series.per_tau.items():
        if subscribers.points(taus, metric):
            assert f"{host}: " in str(found)
    assert set(cell.series.per_tau) == set(cell.cell.subscribers)


def test_without_files_by_fmtp_there_is_no_figure(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "lossy" / "20261121T020000Z")
    cells = [summarize(load_cell(path)) for path in sorted((run / "cells").iterdir())]
    ldm6 = [c for c in cells if c.cell.protocol == "ldm6"]
    assert "no valid cell" in str(subscribers.draw(figure("throughput_fmtp"), ldm6))


@pytest.mark.parametrize("changes", [{"metric": "latency_p50"}, {}, {"x": "loss"}])
def test_mistakes_in_the_figure(changes: dict[str, str]) -> None:
    whole = {"name": "f", "title": "T", "kind": "subscribers", **changes}
    with pytest.raises(ValidationError, match="kind subscribers"):
        Figure.model_validate(whole)


def test_intervals() -> None:
    assert [interval_s(s) for s in (3600, 30, 5)] == [60, 2, 1]
