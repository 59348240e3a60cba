# SPDX-License-Identifier: Apache-2.0
"""One round trip for all, losses in bursts, competing flows and the path's guarantee together in
one cell in virtual time: each does what was asked, and the verdict sees it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.places import ROOT
from experiments.tests.built import IN_GUESTS

pytestmark = IN_GUESTS

EXPERIMENT = """
name: {name}
description: all mechanisms at once
topology: bottleneck
factors: {{ protocol: [ldm7], receivers: [2], rate_bps: [20Mbps], loss: [2%] }}
parameters:
  f_snd: 5000
  f_rcv: 20
  b_mc: 60MB
  b_uc: 60MB
  b_rcv: 60MB
  q_snd: 100MB
  n_snd: 1000
  rtt_ms: 10
  loss_burst_packets: 4
  background_flows: 3
  guarantee: queues
base_seed: 7
trace: {trace}
duration_s: 4
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the run's directory. 40 files of 100 kB in 4 s: 8 Mbit/s, 2,800 datagrams."""
    folder = tmp_path_factory.mktemp("mechanisms")
    name = f"mechanisms-{os.getpid()}"
    trace = folder / "trace.txt"
    trace.write_text("".join(f"100000 201506150000{n // 10:02d}.{n % 10}00\n" for n in range(40)))
    path = folder / "mechanisms.yaml"
    path.write_text(EXPERIMENT.format(name=name, trace=trace))
    argv = [sys.executable, "-m", "downpour", "run", str(path), "--clock", "virtual"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)
    try:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield ROOT / "runs" / name / "latest"
    finally:
        shutil.rmtree(ROOT / "runs" / name, ignore_errors=True)


def test_each_does_what_was_asked(run: Path) -> None:
    (cell,) = (run / "cells").iterdir()
    verdict = json.loads((cell / "verdict.json").read_text())
    checks: dict[str, Any] = {check["name"]: check for check in verdict["checks"]}
    assert verdict["verdict"] == "faithful", [
        c for c in verdict["checks"] if c["status"] in ("warn", "fail")
    ]
    assert checks["round-trip times"]["asked"] == 10
    assert abs(checks["round-trip times"]["found"] - 10) < 0.1
    assert checks["bursts of losses"]["asked"] == 4
    assert checks["injected loss"]["found"] > 0
    # Its own queue: the flows fill the link, and the path loses nothing there.
    values = json.loads((run / "metrics.json").read_text())["cells"][cell.name]["values"]
    goodput_bps = values["background_goodput"]["value"]
    assert 60e6 < goodput_bps < 100e6
    assert values["ffdr"]["value"] == 100
    stations = json.loads((cell / "losses.json").read_text())
    assert all(row["shaped"] == row["arrived"] > 0 for row in stations.values()), stations
    assert values["retransmitted_blocks"]["value"] > 0
    assert (cell / "loss/east1.rules").read_text().startswith("*filter\n")
    assert json.loads((cell / "logs/iperf3.east1.json").read_text())["end"]
