# SPDX-License-Identifier: Apache-2.0
"""What may be repeated, and whether the results are the same. The runs are synthetic: nothing is
run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main as command
from experiments.design.selection import ordered
from experiments.design.spec import (
    LEVEL_NAMES,
    UsageError,
    at_level,
    bundled,
    find,
    load,
)
from experiments.runs import clocks, manifest, repeat, runner
from experiments.runs.cell_process import NativeClock
from experiments.runs.options import RepeatOptions
from experiments.runs.repeat import (
    main,
    plan,
    read,
    refusals,
)
from experiments.runs.runner import plan as plan_run
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

ROOT = Path(__file__).parents[2]


def described(name: str = "regression") -> dict[str, Any]:
    """Return the manifest that a run of a bundled experiment would get."""
    spec = at_level(load(find(name)), None)
    planned = plan_run(spec, None)
    made = manifest.build(
        spec,
        planned,
        root=ROOT,
        started=0.0,
        command=["x"],
        order="random",
        names_in_order=[p.cell.cell for p in ordered(planned, "random", spec.base_seed)],
    )
    raw: dict[str, Any] = json.loads(json.dumps(made | NativeClock().describe()))
    return raw


@pytest.fixture(scope="module")
def regression() -> dict[str, Any]:
    return described()


@pytest.fixture
def run(tmp_path: Path, regression: dict[str, Any]) -> Path:
    (tmp_path / "cells").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps(regression))
    return tmp_path


def changed(run: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = run / "manifest.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    return run


@pytest.mark.parametrize("name", bundled())
def test_every_experiment_is_known_from_its_manifest(name: str, tmp_path: Path) -> None:
    file = load(find(name))
    for level in LEVEL_NAMES if file.levels is not None else (None,):
        spec = at_level(file, level)
        raw = {"spec": spec.model_dump(mode="json"), "cells": [], "traces": {}, "order": "random"}
        (tmp_path / "manifest.json").write_text(json.dumps({**raw, "programs": {}}))
        assert read(tmp_path).spec == spec


@pytest.mark.slow
def test_the_same_is_planned(run: Path) -> None:
    original = read(run)
    planned = plan(original)
    assert [p.cell.cell for p in planned] == ["ldm7-m8-r20-p1", "ldm6-m8-r20-p1"]
    assert refusals(original, planned) == []


def test_only_the_cells_of_the_run(run: Path) -> None:
    original = read(changed(run, lambda raw: raw["cells"].pop(0)))
    assert [p.cell.cell for p in plan(original)] == ["ldm6-m8-r20-p1"]


def test_another_trace_is_refused(run: Path) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["traces"]["2053"]["sha256"] = "0" * 64

    original = read(changed(run, change))
    (problem,) = refusals(original, plan(original))
    assert problem.startswith(f"trace of seed 2053: SHA-256 was {'0' * 64}, is ")


def test_other_parameters_are_refused(run: Path) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["cells"][1]["f_snd"] = 10.0

    original = read(changed(run, change))
    assert refusals(original, plan(original)) == ["ldm6-m8-r20-p1: f_snd was 10.0, is 5000.0"]


def test_another_network_is_refused(run: Path) -> None:
    original = read(run)
    planned = plan(original)
    cell = run / "cells/ldm7-m8-r20-p1"
    cell.mkdir()
    network = json.loads(planned[0].network.to_json())
    (cell / "network.json").write_text(json.dumps(network))
    assert refusals(original, planned) == []
    network["links"][0]["forward"]["delay_ms"] = 99.0
    (cell / "network.json").write_text(json.dumps(network))
    (problem,) = refusals(original, planned)
    assert problem.startswith("ldm7-m8-r20-p1: the topology 'geni5' now makes another network")


def test_a_trace_file_that_is_gone_is_taken_from_the_run(tmp_path: Path, run: Path) -> None:
    copy = run / "trace.txt"
    copy.write_text("1000 20150615000000.000\n2000 20150615000001.000\n")

    def change(raw: dict[str, Any]) -> None:
        raw["spec"]["trace"] = str(tmp_path / "gone.txt")
        raw["traces"]["2053"]["file"] = "trace.txt"

    planned = plan(read(changed(run, change)))
    assert planned[0].trace.text == copy.read_text()


def test_other_programs_are_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything runs; with --other-programs, reported afterwards."""

    def change(raw: dict[str, Any]) -> None:
        raw["programs"]["tc"] = "tc utility, iproute2-1.0"

    monkeypatch.setattr(runner, "run_experiment", lambda *_, **__: pytest.fail("it ran"))
    monkeypatch.setattr(repeat, "evaluate", lambda _: None)
    monkeypatch.setattr(clocks, "needs_root", lambda: "")
    with pytest.raises(UsageError) as caught:
        main(RepeatOptions(run=changed(run, change)))
    assert "tc was tc utility, iproute2-1.0, is " in str(caught.value)
    assert "--other-programs continues anyway" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not JSON .*; valid: the manifest of a run"),
        ("[]", "found list; valid: the manifest of a run"),
        ('{"spec": {}}', "found no 'cells'; valid: the manifest of a run"),
        (
            '{"spec": {"name": "x"}, "cells": [], "traces": {}, "order": "file", "programs": {}}',
            "valid: an experiment as this version knows it",
        ),
    ],
)
def test_unusable_manifests(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match=expected):
        read(tmp_path)
    with pytest.raises(UsageError, match="found no run in .*; valid: a run"):
        read(tmp_path / "none")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("cells", {"a": 1}, "cells: Input should be a valid list; found {'a': 1}"),
        ("cells", ["x"], "cells.0: Input should be"),
        ("cells", [{"m": 1}], "cells.0.cell: Field required; found {'m': 1}"),
        ("traces", {"2053": 1}, "traces.2053: Input should be"),
        ("order", ["x"], "order: Input should be 'random' or 'file'"),
        ("programs", "tc", "programs: Input should be a valid dictionary"),
        ("git", "f00", "git: Input should be a valid dictionary"),
        ("python", {"version": "3"}, "python.packages: Field required"),
        ("environment", {"distribution": "x"}, "environment.c_library: Field required"),
        ("environment", [1], "environment: Input should be"),
        ("machine", "x", "machine: Input should be a valid dictionary"),
        ("virtual_kernel", 7, "virtual_kernel: Input should be a valid dictionary"),
    ],
)
def test_malformed_blocks_of_a_manifest(run: Path, key: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(changed(run, lambda raw: raw.update({key: value})))
    text = str(caught.value)
    assert text.startswith(f"{run}/manifest.json: {expected}")
    assert text.endswith("; valid: the manifest of a run that can be repeated")


# -- what came out ----------------------------------------------------------------------------
def made(
    tmp_path: Path, name: str, regression: dict[str, Any], *cells: SyntheticCell, **more: Any
) -> Path:
    directory = write_synthetic_run(tmp_path / name, *cells)
    (directory / "manifest.json").write_text(json.dumps({**regression, **more}))
    return directory


def repeats(*, late_us: tuple[int, ...] = (0, 0, 0), clock: str = "virtual") -> list[SyntheticCell]:
    """Return three repeats, 20 ms apart; arrivals of repeat n come late_us[n] later."""
    return [
        SyntheticCell("ldm7", repeat=n, clock=clock, late_us=20_000 * n + late)
        for n, late in enumerate(late_us)
    ]


@pytest.mark.slow
def test_virtual_time_is_the_same_to_the_digit(
    tmp_path: Path, regression: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    then = made(tmp_path, "then", regression, *repeats(), clock="virtual")
    now = made(tmp_path, "now", regression, *repeats(), clock="virtual")
    assert main(RepeatOptions(run=then, against=now)) == 0
    assert "REPRODUCED to the last digit" in capsys.readouterr().out
    other = made(tmp_path, "other", regression, *repeats(late_us=(0, 0, 1)), clock="virtual")
    assert main(RepeatOptions(run=then, against=other)) == 1
    text = capsys.readouterr().out
    assert "NOT REPRODUCED" in text
    assert "ldm7-m2-r20-p1-n3: " in text
    assert "ldm7-m2-r20-p1-n1: " not in text


@pytest.mark.slow
def test_other_software_is_judged_by_the_error_bars(
    tmp_path: Path, regression: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    then = made(tmp_path, "then", regression, *repeats(), clock="virtual")
    other = {**regression["git"], "commit": "f" * 40}
    late = (300, -200, -50)  # us: about as much too late as too early
    now = made(tmp_path, "now", regression, *repeats(late_us=late), clock="virtual", git=other)
    assert main(RepeatOptions(run=then, against=now)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "REPRODUCED within the error bars" in text
    assert f"commit was {regression['git']['commit']}, is {'f' * 40}" in text
    late = (5000, 5010, 5020)  # us: always
    now = made(tmp_path, "late", regression, *repeats(late_us=late), clock="virtual", git=other)
    assert main(RepeatOptions(run=then, against=now)) == 1
    assert "NOT REPRODUCED" in capsys.readouterr().out


def test_one_native_run_each_decides_nothing(
    tmp_path: Path, regression: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    then, now = (made(tmp_path, n, regression, SyntheticCell("ldm7")) for n in ("then", "now"))
    assert main(RepeatOptions(run=then, against=now)) == 1
    assert "NOT DECIDABLE" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cell.json", "counters-end.json", "network.json"])
def test_a_damaged_run_is_a_message(
    tmp_path: Path, regression: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    then, now = (made(tmp_path, n, regression, SyntheticCell("ldm7")) for n in ("then", "now"))
    (file,) = now.glob(f"cells/*/{name}")
    file.write_text("{")
    for one, other in ((then, now), (now, then)):
        assert command(["repeat", str(one), "--against", str(other)]) == 2
        found = capsys.readouterr()
        assert found.out == "" and found.err.startswith(f"{file}: ")
