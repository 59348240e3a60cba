# SPDX-License-Identifier: Apache-2.0
"""A carousel's cell in virtual time, end to end: faithful, and the same when repeated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from common.places import ROOT
from experiments.tests.built import IN_GUESTS

pytestmark = [*IN_GUESTS, pytest.mark.slow]

CHOSEN = ("--only", "file_bytes=65000", "--only", "loss=10%", "--receivers", "4", "--repeats", "1")


def test_a_carousel_is_faithful_and_the_same_again() -> None:
    runs = ROOT / "runs" / f"carousel-{os.getpid()}"
    argv = [sys.executable, "-m", "downpour"]
    try:
        for _ in range(2):
            done = subprocess.run(
                [*argv, "run", "fcast-small", "--clock", "virtual", "--runs", str(runs), *CHOSEN],
                cwd=ROOT, capture_output=True, text=True, timeout=500,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert "FAITHFUL" in done.stdout
            time.sleep(1)  # a run is named after the second of its start
        first, second = sorted((runs / "fcast-small").glob("2*"))
        (cell,) = json.loads((first / "metrics.json").read_text())["cells"].values()
        values = {name: one["value"] for name, one in cell["values"].items()}
        assert values["products_identical"] == 1
        assert 1.0 <= values["listening_time"] < 2.0
        assert values["symbols_needed"] >= 1.0
        assert values["loss_measured"] > 0
        argv += ["report", "--identical", str(first), str(second)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(runs, ignore_errors=True)
