# SPDX-License-Identifier: Apache-2.0
"""What may be captured, and how the request reaches the cell's process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import cli
from experiments.cells.captures import NO_CAPTURES, Captures, problems
from experiments.cells.job import Job
from experiments.design.expansion import expand
from experiments.design.spec import (
    ExperimentSpec,
    bundled,
    find,
    load,
)
from experiments.design.trace_input import TraceInfo
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

SMALL = load_topology(find_topology("geni5"), {"receivers": 4})
LARGE = load_topology(find_topology("geni5"), {"receivers": 8})


def test_links_must_be_in_some_cell() -> None:
    """osf2 exists in the larger network only; a link's ends may be named in either order."""
    assert problems(Captures(("osf2:tor-osf", "newy:tor-umass")), [SMALL, LARGE]) == []
    assert problems(NO_CAPTURES, []) == []
    (wrong,) = problems(Captures(("core-chi:frgp",)), [LARGE, SMALL])
    assert wrong.startswith("--capture: found 'core-chi:frgp'; valid (or with the ends")
    assert "osf2:tor-osf" in wrong
    (wrong,) = problems(Captures(("newy:chic",), limit_bytes=5), [SMALL])
    assert wrong == "--capture-bytes: found 5; valid: 3000000 or more"


def test_a_job_carries_what_to_capture(tmp_path: Path) -> None:
    assert "lossy" in bundled()
    spec = load(find("lossy"))
    assert isinstance(spec, ExperimentSpec)
    cell = expand(spec)[0]
    captures = Captures(("newy:chic", "chic:newy"), 4_000_000, 128)
    place = tmp_path / "x"
    trace = TraceInfo(source="t", products=1, bytes=1)
    job = Job(cell, "x-1", place, place, trace, place, place, False, "d", captures)
    assert Job.from_json(job.to_json()) == job
    assert json.loads(job.to_json())["captures"]["snap_bytes"] == 128


def test_the_command_line_names_the_valid_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "lossy", "--dry-run", "--capture", "nope"]) == 2
    assert "--capture: found 'nope'; valid" in capsys.readouterr().err
