# SPDX-License-Identifier: Apache-2.0
"""The controller's Open vSwitch tests with the kernel's datapath, in a guest whose kernel has it.

On the machine itself they run with the userspace datapath, which every machine has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "controller/tests/test_openvswitch.py",
    "controller/tests/test_failures.py::test_killed_and_restarted_controller_loses_no_frame",
)


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
def test_kernel_datapath() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "downpour", "virtual", "run", "--limit-s", "900", "--"),
            *("/usr/bin/env", "DOWNPOUR_TEST_DATAPATH=system"),
            *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *TESTS),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed(, \d+ warnings?)? in ", done.stdout, re.MULTILINE), done.stdout
    assert "lost [0, 0, 0], doubled [0, 0, 0]" in done.stdout
