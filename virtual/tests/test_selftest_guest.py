# SPDX-License-Identifier: Apache-2.0
"""The whole self-test in a guest: every timer and shaper of virtual time against theory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from virtual import cli
from virtual.kernel_build import Kernel
from virtual.selftest import parts
from virtual.selftest.inside import TIMERS
from virtual.selftest.pair import UDP
from virtual.tests.busy_cores import busy_cores

# At least as many rows as there are now: a test that silently vanished has not passed.
LEAST_ROWS = 68


PARTS_ROWS = 11


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
def test_a_link_between_guests_is_exact_in_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["selftest", "--parts", "--json", str(tmp_path / "found.json")])
    shown = capsys.readouterr()
    assert code == 0, f"{shown.out} {shown.err}"
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["rows"]) == PARTS_ROWS
    assert found["windows"] > 2000  # at least 60 s of virtual time, in windows of 17.8 ms


@pytest.mark.emulated
@pytest.mark.slow
def test_arrivals_between_guests_do_not_depend_on_what_else_runs(kernel: Kernel) -> None:
    """Both guests' digests are over every arrival, in nanoseconds."""
    alone = parts.run(kernel, at_once=True)
    with busy_cores():
        beside = parts.run(kernel, at_once=True)
        beside_in_turn = parts.run(kernel, at_once=False)
    assert len(set(alone.digests)) == 2
    assert beside.digests == alone.digests
    assert beside_in_turn.digests == alone.digests
    assert beside.lines == beside_in_turn.lines == alone.lines


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
def test_virtual_time_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert TIMERS.exists() and UDP.exists(), "the probes are not built: `make build`"
    code = cli.main(["selftest", "--json", str(tmp_path / "found.json")])
    shown = capsys.readouterr()
    assert (tmp_path / "found.json").exists(), shown.err
    found = json.loads((tmp_path / "found.json").read_text())
    off = [
        f"{row['test']}: {row['measured']} {row['unit']}" for row in found["rows"] if not row["ok"]
    ]
    assert code == 0, f"{off} {shown.err}"
    assert found["clock"] == "virtual"
    assert len(found["rows"]) >= LEAST_ROWS
    assert re.search(r"^(\d+) of \1 tests within tolerance", shown.out, re.MULTILINE)
