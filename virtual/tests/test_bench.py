# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.design.spec import ExperimentSpec, load, load_as
from virtual import bench, cli


def counters(a: int, b: int, publisher: int) -> dict[str, Any]:
    packets = {"x/x-eth1": a, "y/y-eth1": b, "y/y-eth2": 7 * b, "p/p-eth1": publisher}
    return {"interfaces": {name: {"rx_packets": n} for name, n in packets.items()}}


def write_cell(directory: Path, phases: list[dict[str, Any]]) -> None:
    hosts = [{"name": n, "nic1": {"interface": f"{n}-eth1"}} for n in ("p", "x", "y")]
    for name, value in {
        "cell": {"protocol": "ldm7", "m": 2, "r_bps": 20_000_000, "subscribers": ["x", "y"]},
        "network": {"hosts": hosts},
        "virtual": {"real_s": 31.5, "phases": phases},
        "counters-start": counters(10, 20, 1),
        "counters-end": counters(1010, 3020, 99),
    }.items():
        (directory / f"{name}.json").write_text(json.dumps(value))


def phase(text: str, real_s: float, virtual_s: float) -> dict[str, Any]:
    return {"text": text, "real_s": real_s, "virtual_s": virtual_s}


def test_a_cell_is_read_from_its_files(tmp_path: Path) -> None:
    write_cell(
        tmp_path,
        [
            phase("bringing the network up", 1.0, 11.0),
            phase("replaying the trace", 9.0, 14.0),
            phase("ending the LDM servers", 29.0, 44.0),
        ],
    )
    row = bench.read_cell(tmp_path)
    # 1000 packets at x and 3000 at y; NIC2 and the publisher do not count. 20 s real, 30 s virtual.
    assert row == bench.Row("ldm7", 2, 20_000_000, 4000, 9.0, 20.0, 30.0, 31.5)
    assert row.packets_per_real_s == 200
    assert row.virtual_per_real == 1.5
    head, line = bench.table([row]).splitlines()
    assert head.split()[:3] == ["protocol", "m", "r"]
    assert line.split() == ["ldm7", "2", "20", "4000", "20.00", "200", "1.50", "9.00", "31.50"]


def test_a_cell_without_a_replay_is_an_error(tmp_path: Path) -> None:
    write_cell(tmp_path, [phase("bringing the network up", 1.0, 11.0)])
    with pytest.raises(bench.BenchError, match="found phases bringing the network up; valid: 're"):
        bench.read_cell(tmp_path)
    with pytest.raises(bench.BenchError, match="cell.json"):
        bench.read_cell(tmp_path / "nowhere")


def test_the_experiment_is_one_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(
        bench.experiment_text(
            bench.EXPERIMENT.read_text(),
            protocols=["ldm7"],
            receivers=[1, 24],
            rates_bps=[20_000_000, 40_000_000],
            duration_s=12.5,
            repeats=3,
        )  # fmt: skip
    )
    spec = load_as(ExperimentSpec, path)
    assert (spec.name, spec.duration_s, spec.repeats) == (bench.NAME, 12.5, 3)
    (factors,) = spec.factors
    assert factors.protocol == ("ldm7",)
    assert factors.receivers == (1, 24)
    assert factors.rate_bps == (20_000_000, 40_000_000)
    assert factors.loss == (0.01,)
    assert spec.parameters == load(bench.EXPERIMENT).parameters


@pytest.mark.parametrize("words", [["--receivers", "1,x"], ["--rates-mbps", "0"]])
def test_bad_numbers_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words]) == 2
    assert f"found '{words[1]}'; valid: whole numbers" in capsys.readouterr().err
