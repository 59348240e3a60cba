# SPDX-License-Identifier: Apache-2.0
"""A cell in two guests, end to end: the datagrams lost in one guest are lost, and figures agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.places import ROOT
from experiments.tests.built import IN_GUESTS

pytestmark = [*IN_GUESTS, pytest.mark.slow]

CHOSEN = (
    *("--clock", "virtual", "--only", "protocol=ldm7", "--receivers", "4", "--duration", "5"),
    *("--queue-bytes", "200MB"),
)
COMPARED = ("throughput", "mplr", "latency_p50", "latency_p99", "loss_measured", "ffdr")
SHARE = 0.001
END_S = 5.0  # within a second on an idle machine


@pytest.fixture
def runs() -> Iterator[Path]:
    place = ROOT / "runs" / f"parts-{os.getpid()}"
    yield place
    shutil.rmtree(place, ignore_errors=True)


def start(runs: Path, parts: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "downpour", "run", "lossy", "--runs", str(runs), *CHOSEN]
    return subprocess.Popen(
        [*argv, "--parts", str(parts)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(runs: Path, parts: int) -> Path:
    process = start(runs, parts)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return max((runs / "lossy").glob("2*"), key=lambda path: path.stat().st_mtime)


def metrics(path: Path) -> dict[str, Any]:
    (cell,) = json.loads((path / "metrics.json").read_text())["cells"].values()
    assert cell["verdict"] == "faithful"
    return {name: one["value"] for name, one in cell["values"].items() if one is not None}


def losses(path: Path) -> Any:
    (file,) = path.glob("cells/*/losses.json")
    return json.loads(file.read_text())


def test_two_parts_agree_with_one(runs: Path) -> None:
    one = run(runs / "one", 1)
    two = run(runs / "two", 2)
    assert losses(two) == losses(one)
    alone, cut = metrics(one), metrics(two)
    for name in [n for n in COMPARED if n in alone]:
        assert cut[name] == pytest.approx(alone[name], rel=SHARE), name
    assert json.loads((two / "manifest.json").read_text())["parts"] == 2
    (described,) = two.glob("cells/*/virtual.json")
    assert json.loads(described.read_text())["parts"]["hosts"]


def test_a_killed_guest_ends_the_cell_with_the_reason(runs: Path) -> None:
    process = start(runs, 2)
    assert process.stdout is not None
    said: list[str] = []
    try:
        deadline = time.monotonic() + 200
        guests: list[int] = []
        while len(guests) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            guests = kernels_of(process.pid)
            time.sleep(0.2)
        os.kill(guests[-1], signal.SIGKILL)
        killed = time.monotonic()
        while any(pid in kernels_of(process.pid) for pid in guests):
            assert time.monotonic() - killed < END_S
            time.sleep(0.05)
        for line in process.stdout:  # until the cell is run once more, or the end
            said.append(line)
            if "FAILED" in line:
                break
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert re.search(r"FAILED: part \d: the guest ended without a result", "".join(said)), said


def kernels_of(launcher: int) -> list[int]:
    """Return the kernels of the launcher's guests: grandchildren with a calendar."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"time-travel=ext" in (entry / "cmdline").read_bytes():
                warden = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                stat = Path(f"/proc/{warden}/stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == launcher:
                    found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return sorted(found)
