# SPDX-License-Identifier: Apache-2.0
"""An experiment file with its own topology and trace beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.places import EXPERIMENTS, ROOT, TOPOLOGIES
from experiments.design.spec import AnySpec, SpecErrors, at_level, is_topology_file, load
from experiments.runs import manifest
from experiments.runs.cell_process import NativeClock
from experiments.runs.repeat import plan as plan_again
from experiments.runs.repeat import read, refusals
from experiments.runs.runner import TOPOLOGY_COPY, plan

TRACE = "1000 20150615000000.000\n2000 20150615000001.000\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Write own/own.yaml with own/three.yaml and own/traces/two.txt; the quick level uses the
    model."""
    folder = tmp_path / "own"
    (folder / "traces").mkdir(parents=True)
    (folder / "three.yaml").write_text((TOPOLOGIES / "geni5.yaml").read_text())
    (folder / "traces/two.txt").write_text(TRACE)
    text = (EXPERIMENTS / "regression.yaml").read_text()
    text = text.replace("topology: geni5", "topology: three.yaml")
    path = folder / "own.yaml"
    path.write_text(text.replace("trace: model", "trace: traces/two.txt"))
    return path


@pytest.mark.parametrize("where", ["elsewhere", "own"])
def test_paths_are_relative_to_the_experiment_file(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / where).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / where)
    spec = load(Path(own.name) if where == "own" else Path("../own") / own.name)
    assert is_topology_file(spec.topology)
    monkeypatch.chdir("/")
    planned = plan(at_level(spec, None))
    assert planned[0].trace.text == TRACE
    assert len(planned[0].network.subscribers) == 8


def test_paths_of_levels_are_relative_too(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = "levels:\n  quick: {trace: traces/two.txt}\n  paper: {trace: model}\n"
    text = own.read_text().replace("trace: traces/two.txt", "trace: model")
    own.write_text(text + levels)
    monkeypatch.chdir("/")
    spec = load(own)
    assert at_level(spec, "quick").trace == str(own.parent / "traces/two.txt")
    assert at_level(spec, "paper").trace == spec.trace == "model"


def test_bundled_names_win(own: Path) -> None:
    own.write_text(own.read_text().replace("three.yaml", "geni5"))
    (own.parent / "geni5").write_text("not a topology")
    assert load(own).topology == "geni5"


def test_a_file_that_is_not_there_is_named_with_its_folder(own: Path) -> None:
    (own.parent / "three.yaml").unlink()
    with pytest.raises(SpecErrors, match=rf"{own.parent}/three.yaml:1: found no readable file"):
        plan(load(own))


def _run(folder: Path, spec: AnySpec) -> Path:
    """Make a run directory as `run_experiment` begins it."""
    planned = plan(spec)
    made = manifest.build(
        spec, planned, root=ROOT, started=0.0, command=["x"], order="file",
        names_in_order=[p.cell.cell for p in planned],
    )  # fmt: skip
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({**made, **NativeClock().describe()}))
    (folder / TOPOLOGY_COPY).write_text(Path(spec.topology).read_text())
    (folder / "trace.txt").write_text(planned[0].trace.text)
    return folder


@pytest.mark.parametrize("gone", [False, True])
def test_the_manifest_is_enough_to_repeat(own: Path, tmp_path: Path, gone: bool) -> None:
    spec = at_level(load(own), None)
    before = plan(spec)
    original = read(_run(tmp_path / "run", spec))
    if gone:
        (own.parent / "three.yaml").unlink()
        (own.parent / "traces/two.txt").unlink()
    again = plan_again(original)
    assert refusals(original, again) == []
    assert [p.cell for p in again] == [p.cell for p in before]
    assert [p.network.to_json() for p in again] == [p.network.to_json() for p in before]
