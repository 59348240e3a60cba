# SPDX-License-Identifier: Apache-2.0
"""What this machine's kernel may lack (netem, the kernel's Open vSwitch, 802.1Q), a guest has: the
network's tests run there, so that both paths are tested wherever a guest runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from virtual.guest import GuestSpec, run_guest
from virtual.kernel_build import Kernel


@pytest.mark.emulated
def test_network_over_the_kernels_own_netem_and_switch(kernel: Kernel, tmp_path: Path) -> None:
    argv = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "topologies/tests/test_emulation.py",
    )
    out = tmp_path / "out"
    with out.open("wb") as stream:
        code, _times = run_guest(kernel, GuestSpec(argv=argv), stdout=stream, stderr=stream)
    text = out.read_text()
    assert code == 0, text
    assert re.search(r"\d+ passed", text), text
    assert "no netem" not in text, text
