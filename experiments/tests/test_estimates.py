# SPDX-License-Identifier: Apache-2.0
"""How long a sweep will take, estimated from the times of earlier runs."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.cells.run_directory import write_json
from experiments.design import trace_input
from experiments.design.expansion import CellSpec, expand
from experiments.design.parameters import Factors
from experiments.design.spec import (
    ExperimentSpec,
    find,
    load_as,
)
from experiments.design.trace_input import Hours, ReplayTrace
from experiments.runs import estimates, preparation
from experiments.runs.cell_process import NativeClock
from experiments.runs.preparation import Planned
from experiments.runs.records import Machine
from parsers.read.trace import Trace, TraceProduct
from topologies.model.network import Network

MACHINE: Machine = {"cpu": "x", "cores": 2}
TRACE = ReplayTrace("trace.txt", "t", "1 20150615000000.000\n", 1, 1000, 1000)


def planned(cell: CellSpec, network: Network) -> Planned:
    return Planned(cell, network, TRACE)


def earlier(runs: Path, stamp: str, measured: list[CellSpec], seconds: float, **other: Any) -> None:
    folder = runs / "lossy" / stamp
    folder.mkdir(parents=True)
    write_json(
        folder / "manifest.json",
        {
            "clock": "native",
            "machine": MACHINE,
            "cells": [cell.to_dict() for cell in measured],
            "traces": {str(cell.seed): {"bytes": 1000} for cell in measured},
            "cell_seconds": {cell.cell: seconds for cell in measured},
            **other,
        },
    )


def test_without_earlier_runs_the_formula_counts(
    tmp_path: Path, cells: dict[str, CellSpec], geni5: Network
) -> None:
    found = estimates.read(tmp_path, NativeClock(), MACHINE)
    assert found.of(planned(cells["ldm7"], geni5)) == 77.5  # 5 + 0.5 x 9 + 60 + 8
    assert found.basis.startswith("by formula")


def test_earlier_cells_scale_the_formula(
    tmp_path: Path, cells: dict[str, CellSpec], geni5: Network
) -> None:
    """They took twice as long as the formula says, so it takes twice as long now, with another
    duration."""
    earlier(tmp_path, "20260101T000000Z", [cells["ldm7"]], 155.0)
    found = estimates.read(tmp_path, NativeClock(), MACHINE)
    longer = dataclasses.replace(cells["ldm7"], duration_s=600.0, cell="ldm7-m9-r20-p1")
    assert found.of(planned(longer, geni5)) == pytest.approx(2 * 617.5)
    assert found.basis == "from 1 cell of 1 run on this machine (lossy/20260101T000000Z)"
    # There is no measurement of LDM6.
    assert found.of(planned(cells["ldm6"], geni5)) == 77.5


def test_the_same_cell_counts_more_than_its_kind(
    tmp_path: Path, cells: dict[str, CellSpec], geni5: Network
) -> None:
    other = dataclasses.replace(cells["ldm7"], cell="ldm7-m8-r60-p0")
    for number in range(3):
        earlier(tmp_path, f"20260101T00000{number}Z", [other], 155.0)
    earlier(tmp_path, "20260101T000009Z", [cells["ldm7"]], 77.5)
    found = estimates.read(tmp_path, NativeClock(), MACHINE)
    assert found.of(planned(cells["ldm7"], geni5)) == 77.5
    assert found.of(planned(dataclasses.replace(other, cell="new"), geni5)) == 155.0  # the median


def test_phases_of_earlier_cells_are_learnt(
    tmp_path: Path, cells: dict[str, CellSpec], geni5: Network
) -> None:
    for number, replay_s in enumerate((40.0, 50.0, 90.0)):
        stamp = f"20260101T00000{number}Z"
        earlier(tmp_path, stamp, [cells["ldm7"]], 100.0)
        folder = tmp_path / "lossy" / stamp / "cells" / cells["ldm7"].cell
        folder.mkdir(parents=True)
        phases = [{"text": "links", "real_s": 20.0}, {"text": "replaying", "real_s": replay_s}]
        write_json(folder / "run.json", {"real_s": 100.0, "phases": phases})
    found = estimates.read(tmp_path, NativeClock(), MACHINE)
    item = planned(cells["ldm7"], geni5)
    assert found.rest_of(item) == {"links": 0.8, "replaying": 0.5}  # the median
    longer = dataclasses.replace(cells["ldm7"], duration_s=600.0)
    assert found.rest_of(planned(longer, geni5)) == {}
    assert found.rest_of(planned(cells["ldm6"], geni5)) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"machine": {"cpu": "y", "cores": 2}},
        {"clock": "virtual"},
        {"cells": [{"cell": "of an older version"}]},
        {"cell_seconds": None},
    ],
)
def test_what_says_nothing_of_this_machine_counts_for_nothing(
    tmp_path: Path, cells: dict[str, CellSpec], geni5: Network, other: dict[str, Any]
) -> None:
    earlier(tmp_path, "20260101T000000Z", [cells["ldm7"]], 155.0, **other)
    (tmp_path / "lossy/broken").mkdir()
    (tmp_path / "lossy/broken/manifest.json").write_text("{")
    found = estimates.read(tmp_path, NativeClock(), MACHINE)
    assert found.of(planned(cells["ldm7"], geni5)) == 77.5


@pytest.mark.slow
def test_a_thousand_cells_are_planned_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are planned from few traces and networks, each made once."""
    made: list[int] = []

    def counted(trace: str, duration_s: float, seed: int) -> Hours:
        assert (trace, duration_s) == ("model", 3600.0)
        made.append(seed)
        products = Trace("", (TraceProduct(100, 0),), ())
        return Hours(products, trace_input.file_of(seed), f"seed {seed}", 3600.0)

    monkeypatch.setattr(trace_input, "read", counted)
    block = Factors.model_validate(
        {
            **{"protocol": ["ldm7", "ldm6"], "receivers": [1, 2, 4, 8, 24]},
            **{"rate_bps": [f"{r}Mbps" for r in range(10, 60, 5)], "loss": [0, "1%"]},
        }
    )
    spec = load_as(ExperimentSpec, find("lossy"))
    spec = spec.model_copy(update={"factors": (block,), "repeats": 5, "duration_s": 3600.0})
    began = time.process_time()
    found = preparation.plan(spec)
    digests = {item.digest("virtual") for item in found}
    assert time.process_time() - began < 60  # 3 s, on a machine that is twenty times slower
    assert len(found) == len(expand(spec)) == len(digests) == 1000
    assert made == [2053, 2054, 2055, 2056, 2057]
    assert len({id(item.network) for item in found}) == 5
