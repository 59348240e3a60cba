# SPDX-License-Identifier: Apache-2.0
"""Two receivers, both protocols, on the emulated network: a whole experiment, and what it leaves
behind when it is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from common.places import ROOT
from experiments.runs import verify
from experiments.runs.options import VerifyOptions
from experiments.tests.built import NEEDS_PROGRAMS
from topologies.emulate import marks

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    NEEDS_PROGRAMS,
]

# 60 products over 9 s: 59 of 40 kB and one of 4 MB: 6.36 MB, 5.1 Mbit/s.
PRODUCTS = 60
FILES = (
    *("cell.json", "network.json", "facts.json", "links.json", "paths.json", "shaping.json"),
    *("counters-start.json", "counters-end.json", "verdict.json"),
    *("logs/pqinsert.log", "logs/umass.ldmd.log", "logs/wsu1.ldmd.log", "logs/controller-al2s.log"),
    *("logs/sar.log", "logs/ps.log", "logs/cpu.log"),
    *("links-end.json", "shaping-end.json", "link-probes.json", "queues.json", "host-lag.json"),
    *("load.json", "losses.json"),
)
SIZES = [4_000_000 if i == 30 else 40_000 for i in range(PRODUCTS)]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an experiment file: m = 2, 2 % loss, 10 s, small queues."""
    directory = tmp_path_factory.mktemp("emulated")
    trace = directory / "trace.txt"
    trace.write_text(
        "".join(
            f"{size} 201506150000{i * 150 // 1000:02d}.{i * 150 % 1000:03d}\n"
            for i, size in enumerate(SIZES)
        )
    )
    text = (ROOT / "experiments/catalogue/lossy.yaml").read_text()
    for old, new in (
        ("name: lossy", f"name: emulated-{os.getpid()}"),
        ("receivers: [8]", "receivers: [2]"),
        ("loss: [1%]", "loss: [2%]"),
        ("q_snd: 5GB", "q_snd: 64MB"),
        ("trace: model", f"trace: {trace}"),
        ("duration_s: 60", "duration_s: 10"),
    ):
        assert old in text
        text = text.replace(old, new)
    path = directory / "emulated.yaml"
    path.write_text(text)
    return path


def run_directory(experiment: Path) -> Path:
    return ROOT / "runs" / f"emulated-{os.getpid()}" if experiment.exists() else experiment


def traces() -> dict[str, Any]:
    """Return what a run could leave on the machine. Other runs of this machine do not matter: all
    but marked processes are compared by name."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return {
        "namespaces": sorted(p.name for p in Path("/run/netns").glob("downpour-x-ldm*-m2-*")),
        "states": sorted(p.name for p in Path("/run/downpour").glob("x-ldm*-m2-*")),
        "processes": sorted(
            run for run in marks.marked_processes().values() if "-m2-" in run and run[:2] == "x-"
        ),
        "links": sorted(line.split(": ")[1] for line in links.splitlines()),
        "rules": [line for line in rules.splitlines() if line.startswith("-A")],
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
    }


def start(experiment: Path, *options: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "downpour", "run", str(experiment), *options]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


@pytest.fixture(scope="module")
def finished(experiment: Path) -> Any:
    """Return (run directory, exit code, stdout, stderr, machine before, machine after)."""
    before = traces()
    process = start(experiment)
    out, err = process.communicate(timeout=280)
    after = traces()
    yield run_directory(experiment) / "latest", process.returncode, out, err, before, after
    shutil.rmtree(run_directory(experiment), ignore_errors=True)


def cell_of(finished: Any, protocol: str) -> Path:
    path: Path = finished[0]
    return path / "cells" / f"{protocol}-m2-r20-p2"


def test_it_ends_well(finished: Any) -> None:
    """Exit code 3 is an invalid verdict: on a busy machine that is the right answer."""
    _, code, out, err, _, _ = finished
    assert code in (0, 3), out + err
    assert "LDM7" in out
    if code == 3:
        assert "verdict INVALID" in err


@pytest.mark.parametrize("protocol", ["ldm7", "ldm6"])
def test_all_products_are_identical(finished: Any, protocol: str) -> None:
    products = cell_of(finished, protocol) / "products"
    published = sorted((products / "umass.txt").read_text().splitlines())
    assert len(published) == PRODUCTS
    assert sorted(int(line.split()[1]) for line in published) == sorted(SIZES)
    for host in ("wsu1", "sl1"):
        assert sorted((products / f"{host}.txt").read_text().splitlines()) == published


@pytest.mark.parametrize("protocol", ["ldm7", "ldm6"])
def test_every_file_of_the_contract_is_there(finished: Any, protocol: str) -> None:
    cell = cell_of(finished, protocol)
    for name in FILES:
        assert (cell / name).stat().st_size > 0, name
    shaping = json.loads((cell / "shaping.json").read_text())
    assert shaping["settings"]
    assert all(s["ok"] for s in shaping["settings"])
    assert json.loads((cell / "paths.json").read_text())[0]["state"] == "up"
    verdict = json.loads((cell / "verdict.json").read_text())
    assert verdict["verdict"] in ("faithful", "degraded", "invalid")
    assert len(verdict["checks"]) >= 14


def metric(finished: Any, protocol: str, name: str) -> float:
    raw = json.loads((finished[0] / "metrics.json").read_text())
    value: float = raw["cells"][f"{protocol}-m2-r20-p2"]["values"][name]["value"]
    return value


def test_losses_were_repaired(finished: Any) -> None:
    """2 % of about 4400 datagrams at each of two receivers."""
    assert metric(finished, "ldm7", "retransmitted_blocks") > 20
    assert metric(finished, "ldm7", "ffdr") > 90


def test_multicast_saves_bandwidth(finished: Any) -> None:
    """Two receivers: LDM6 sends everything twice, LDM7 once and some of it again."""
    ldm7 = metric(finished, "ldm7", "bandwidth_over_offered")
    ldm6 = metric(finished, "ldm6", "bandwidth_over_offered")
    assert ldm6 > 1.7
    assert ldm7 < 1.6
    assert ldm6 > 1.25 * ldm7


def test_it_is_verified(finished: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its files alone give the verdicts that the cells wrote, and the metrics."""
    code = verify.main(VerifyOptions(run=finished[0].resolve(), quiet=True))
    text = capsys.readouterr().out
    assert code == 0, text
    assert "not judged again" not in text


def test_the_machine_is_as_before(finished: Any) -> None:
    before, after = finished[4:6]
    assert after == before
    assert not list((finished[0]).glob("work"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_half_way(experiment: Path, number: signal.Signals) -> None:
    """Ctrl-C, or a terminated or killed runner: no network is left, and no run counts."""
    before = traces()
    runs = run_directory(experiment)
    complete = {p.name for p in runs.glob("[0-9]*")}
    process = start(experiment)
    assert process.stdout is not None
    for line in process.stdout:
        if "replaying" in line:
            break
    else:
        pytest.fail(f"no replay: {process.communicate()}")
    assert traces()["namespaces"] != before["namespaces"]
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130), err
    # A killed runner cannot clean up: its cell notices and cleans up.
    deadline = time.monotonic() + 40
    while traces() != before and time.monotonic() < deadline:
        time.sleep(0.5)
    assert traces() == before
    assert {p.name for p in runs.glob("[0-9]*")} == complete
    if number is not signal.SIGKILL:
        assert not list(runs.glob(".*.partial"))
        assert "interrupted" in err
    for partial in runs.glob(".*.partial"):
        shutil.rmtree(partial)
