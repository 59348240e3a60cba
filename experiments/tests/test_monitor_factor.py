# SPDX-License-Identifier: Apache-2.0
"""A cell with or without a monitor, by an experiment's factor or by --monitor, and what it records
besides what is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cells.captures import Captures
from experiments.cells.job import Job
from experiments.design.expansion import CellSpec, expand
from experiments.design.spec import (
    ExperimentSpec,
    SpecErrors,
    UsageError,
    at_level,
    find,
    load_as,
)
from experiments.design.spec_options import override

COST = at_level(load_as(ExperimentSpec, find("monitor-cost")), "quick")
TEXT = find("monitor-cost").read_text(encoding="utf-8")
NOWHERE = Path("/nowhere")


def job(cell: CellSpec, *samples: str) -> Job:
    trace = {"source": "model"}
    captures = Captures(samples=samples)
    job = Job(cell, "x", NOWHERE, NOWHERE, trace, NOWHERE, NOWHERE, False, "", captures)  # type: ignore[arg-type]
    return Job.from_json(job.to_json())


def test_the_experiment_has_each_cell_with_a_monitor_and_without() -> None:
    found = {(cell.m, cell.conditions.monitor): cell.cell for cell in expand(COST)}
    assert found == {
        (8, "off"): "ldm7-m8-r20-p1-monitor-off",
        (8, "on"): "ldm7-m8-r20-p1-monitor-on",
        (24, "off"): "ldm7-m24-r20-p1-monitor-off",
        (24, "on"): "ldm7-m24-r20-p1-monitor-on",
    }


def test_records_are_sent_before_its_replay_ends() -> None:
    """rtstats sends each minute's record up to 30 s after the minute."""
    assert COST.duration_s >= 90


def test_a_monitored_cell_records_counters_and_minutes_beside_what_is_asked() -> None:
    without, watched = (job(cell, "pidstat") for cell in expand(COST)[:2])
    assert without.cell.conditions.monitor == "off"
    assert without.samples == {"pidstat"}
    assert watched.samples == {"pidstat", "counters", "minutes"}


def test_the_option_gives_each_cell_a_monitor() -> None:
    lossy = at_level(load_as(ExperimentSpec, find("lossy")), "quick")
    assert {c.conditions.monitor for c in expand(override(lossy, {"monitor": False}))} == {"off"}
    both = expand(override(lossy, {"monitor": True, "queue_bytes": 2_000_000}))
    assert {(c.conditions.monitor, c.q_snd_bytes) for c in both} == {("on", 2_000_000)}
    # Their names stay the same: the monitor is none of their factors.
    assert [c.cell for c in both] == [c.cell for c in expand(lossy)]


def test_only_a_monitored_cell_states_it() -> None:
    assert [c.conditions.to_dict() for c in expand(COST)[:2]] == [{}, {"monitor": "on"}]


def test_the_option_is_refused_where_cells_vary_it() -> None:
    with pytest.raises(UsageError, match="--monitor: found 'factor monitor'; valid: without it"):
        override(COST, {"monitor": True})


def test_another_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(TEXT.replace("monitor: [off, on]", "monitor: [true]"), encoding="utf-8")
    with pytest.raises(SpecErrors, match="factors.monitor") as caught:
        load_as(ExperimentSpec, path)
    assert "'off'" in str(caught.value) or "off" in str(caught.value)
