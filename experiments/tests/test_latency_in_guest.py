# SPDX-License-Identifier: Apache-2.0
"""Components of latency in virtual time, end to end: wrong clocks, with two by two receivers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT
from experiments.tests.built import IN_GUESTS

pytestmark = [*IN_GUESTS, pytest.mark.slow]

# Two cells of 10 s.
CHOSEN = ("--only", "rate_bps=20Mbps", "--queue-bytes", "200MB")


def complaints(run: Path) -> list[str]:
    """Return what the verdicts of a run's cells do not pass."""
    verdicts = [json.loads(path.read_text()) for path in run.glob("cells/*/verdict.json")]
    checks = [check for verdict in verdicts for check in verdict["checks"]]
    return [f"{c['name']}: {c['text']}" for c in checks if c["status"] in ("warn", "fail")]


def test_the_injected_offset_is_found_in_the_latency() -> None:
    """A receiver's clock that is 5 ms ahead adds 5 ms to each file's latency, and nothing else."""
    runs = ROOT / "runs" / f"latency-{os.getpid()}"
    argv = [sys.executable, "-m", "downpour", "run", "latency", "--clock", "virtual"]
    try:
        done = subprocess.run(
            [*argv, "--runs", str(runs), *CHOSEN],
            cwd=ROOT, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        (run,) = (runs / "latency").glob("2*")
        cells = json.loads((run / "metrics.json").read_text())["cells"]
        assert {c["verdict"] for c in cells.values()} == {"faithful"}, complaints(run)
        found = {
            c["cell"]["factors"]["clock_offset_ms"]: {
                n: one["value"] for n, one in c["values"].items()
            }
            for c in cells.values()
        }
        exact, ahead = found[0.0], found[5.0]
        assert (exact["latency_offset"], ahead["latency_offset"]) == pytest.approx((0, 0.005))
        assert ahead["latency_mean"] - exact["latency_mean"] == pytest.approx(0.005, abs=1e-4)
        for name in ("latency_propagation", "latency_emission", "latency_buffer"):
            assert ahead[name] == pytest.approx(exact[name], abs=1e-4), name
        assert ahead["latency_rest"] == pytest.approx(0, abs=2e-3)
    finally:
        shutil.rmtree(runs, ignore_errors=True)
