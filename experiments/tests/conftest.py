# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from experiments.design import trace_input
from experiments.design.expansion import CellSpec, expand
from experiments.design.spec import ExperimentSpec, find, load_as
from experiments.runs import manifest, runner, sweep
from experiments.tests.played import Stage, asked_once
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network


@pytest.fixture(scope="session", autouse=True)
def _hours_made_once() -> Iterator[None]:
    """Generating an hour of products takes two seconds, and its seed decides all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_input, "_generated", functools.cache(trace_input._generated))
        yield


@pytest.fixture(scope="session")
def geni5() -> Network:
    return load_topology(find_topology("geni5"), {"receivers": 8})


@pytest.fixture(scope="session")
def cells() -> dict[str, CellSpec]:
    """Return the cells of lossy, by protocol."""
    return {cell.protocol: cell for cell in expand(load_as(ExperimentSpec, find("lossy")))}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    # Versions of programs do not change while tests run, and some take a second to report theirs.
    monkeypatch.setattr(manifest, "_output", lambda argv, cwd=None: asked_once(tuple(argv), cwd))
    monkeypatch.setattr(runner, "NativeClock", lambda: stage)
    monkeypatch.setattr(sweep, "TICK_S", 0.001)
    monkeypatch.setattr(runner, "report", lambda path, **_options: stage.report(path))
    return stage
