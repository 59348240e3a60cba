# SPDX-License-Identifier: Apache-2.0
"""A cell's metrics in pieces add up to its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.measure.pieces import piece_seconds
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run


def test_pieces_add_up_to_the_cells_metrics(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", SyntheticCell("ldm7", 4), SyntheticCell("ldm6", 4))
    for directory in sorted((run / "cells").iterdir()):
        found = summarize(load_cell(directory))
        whole = found.pieces.whole
        assert found.pieces.piece_s == 1.0
        names = {"throughput", "latency_mean"}
        names |= {"ffdr", "throughput_fmtp"} if found.cell.protocol == "ldm7" else set()
        assert set(whole) == names
        for name, data in whole.items():
            assert data.value() == pytest.approx(found.values[name].value)
            assert data.pieces == found.cell.duration_s
        for receiver in found.receivers:
            at = found.pieces.at[receiver.host]["throughput"]
            assert at.value() == pytest.approx(receiver.throughput.value)


def test_an_hour_has_pieces_of_ten_seconds() -> None:
    assert [piece_seconds(s) for s in (20.0, 360.0, 361.0, 3600.0)] == [1.0, 1.0, 2.0, 10.0]
