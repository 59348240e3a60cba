# SPDX-License-Identifier: Apache-2.0
"""Protocols that send files, in virtual time, end to end: faithful, and nothing missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from common.places import BUILD, ROOT
from experiments.tests.built import IN_GUESTS
from protocols import registry
from protocols.adapter import lacking

pytestmark = [*IN_GUESTS, pytest.mark.slow]

CHOSEN = ("--only", "loss=1%", "--receivers", "3", "--duration", "5")


def values_of(protocol: str) -> dict[str, Any]:
    """Run a cell; return its metrics."""
    runs = ROOT / "runs" / f"peers-{os.getpid()}"
    argv = [sys.executable, "-m", "downpour", "run", "peers", "--clock", "virtual"]
    argv += ["--runs", str(runs), "--only", f"protocol={protocol}", *CHOSEN]
    argv += ["--only", "tcp=cubic"] if protocol == "tcp" else []
    try:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "FAITHFUL" in done.stdout
        found = json.loads((runs / "peers/latest/metrics.json").read_text())
        (cell,) = found["cells"].values()
        return {name: one["value"] for name, one in cell["values"].items()}
    finally:
        shutil.rmtree(runs, ignore_errors=True)


@pytest.mark.parametrize("protocol", ["fmtp", "tcp", "norm"])
def test_a_stream_of_products_arrives(protocol: str) -> None:
    """Multicast sends each byte about once, unicast three times to three receivers, plus headers of
    4 to 9 %; 1 % of loss and small products' own packets cost the rest."""
    if (text := lacking(registry.get(protocol), BUILD)) is not None:
        pytest.skip(text)
    values = values_of(protocol)
    assert values["loss_measured"] > 0
    assert 0 < values["latency_p50"] <= values["latency_p99"]
    copies = 3 if protocol == "tcp" else 1
    assert copies * 1.03 < values["wire_per_delivered"] < copies * 1.4
    assert (values["products_missing"], values["products_identical"]) == (0, 1)
