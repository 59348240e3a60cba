# SPDX-License-Identifier: Apache-2.0
"""A command leaves nothing, whatever ends it and when. Two checkouts do not disturb each other.

DOWNPOUR_DISTURBANCES=N: rounds of each kind (default 3). DOWNPOUR_SEED=N: another sample.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from common.places import ROOT
from experiments.tests.built import NEEDS_PROGRAMS
from tests.disturbances import KINDS
from virtual.kernel_build import find_kernel

ROUNDS = int(os.environ.get("DOWNPOUR_DISTURBANCES", "3"))
SEED = int(os.environ.get("DOWNPOUR_SEED", "1"))

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: namespaces need root"),
    NEEDS_PROGRAMS,
]


def harness(module: str, *arguments: str) -> dict[str, object]:
    """Run a harness; return its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--seed", str(SEED)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_is_left_whenever_a_command_is_ended(kind: str) -> None:
    if kind in ("virtual", "lab") and find_kernel() is None:
        pytest.skip("SKIPPED: no guest kernel is built (make virtual-kernel)")
    found = harness("tests.disturbances", kind, "--rounds", str(ROUNDS))
    assert found["problems"] == []
    assert found["rounds"] == ROUNDS
    assert found["struck"], "every moment came after the command's end: nothing was tested"


def test_two_checkouts_start_and_stop_side_by_side() -> None:
    found = harness("tests.side_by_side", "--rounds", str(ROUNDS))
    assert found["problems"] == []
    assert found["rounds"] == [ROUNDS, ROUNDS]


def test_ctrl_c_ends_the_harness_with_what_it_found() -> None:
    argv = [sys.executable, "-m", "tests.disturbances", "up", "--rounds", "50"]
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as harness:
        assert harness.stdout is not None
        assert "undisturbed" in harness.stdout.readline()
        os.killpg(harness.pid, signal.SIGINT)  # as a terminal does
        rest, errors = harness.communicate(timeout=120)
    assert harness.returncode == 130
    assert json.loads(rest.splitlines()[-1])["interrupted"]
    assert "Traceback" not in errors
