# SPDX-License-Identifier: Apache-2.0
"""The trace as a figure (DRFSM21 Fig. 10): when each file was created, and how large it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.measure.run_files import load_cell
from parsers.measure.series import arrivals
from parsers.measure.summary import summarize
from parsers.read.ldm_log import Product
from parsers.read.published import Figure
from parsers.report.arrivals import draw, summary
from parsers.report.drawing import Plot, style
from parsers.tests.synthetic import GAP_S, SIZE_BYTES, write_synthetic_run

FIGURE = Figure.model_validate(
    {"name": "fig10", "title": "The trace", "kind": "arrivals", "where": {"protocol": "ldm7"}}
)


def product(created_us: int, size_bytes: int) -> Product:
    return Product(size_bytes, created_us, "NGRID", 0, f"NGRID.{created_us}")


def test_files_are_in_the_order_of_their_creation() -> None:
    files = [product(12_500_000, 7), product(10_000_000, 300)]
    assert arrivals(files, 10.0) == ((0.0, 300), (2.5, 7))


def test_the_summary_has_the_lower_median() -> None:
    files = ((0.0, 1_000), (0.1, 4_000_000), (0.2, 39_000), (0.3, 96_000))
    assert summary(files) == "4 files, 4.1 MB; median 39.0 kB, largest 4.000 MB"


@pytest.mark.slow
def test_every_file_of_the_cell_is_drawn(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "lossy" / "20261121T020000Z")
    cells = [summarize(load_cell(path)) for path in sorted((run / "cells").iterdir())]
    files = next(c for c in cells if c.cell.protocol == "ldm7").series.arrivals
    assert files[1] == (GAP_S, SIZE_BYTES)
    with style():
        found = draw(FIGURE, cells)
    assert isinstance(found, Plot)
    assert f"{len(files)} files" in found.alt


def test_without_a_cell_the_reason_is_said() -> None:
    assert draw(FIGURE, []) == "no valid cell at the levels it asks for has a trace"
