# SPDX-License-Identifier: Apache-2.0
"""A guest has what this machine's kernel may lack (netem, the kernel's Open vSwitch, 802.1Q). The
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


LOOK = """
import os, time
from topologies.emulate import census
from topologies.watch import inventory
for look in (lambda: inventory.read(os.getpid()), lambda: census.programs({"here": os.getpid()})):
    look()
    began = time.monotonic_ns()
    look()
    print(time.monotonic_ns() - began)
"""


@pytest.mark.emulated
def test_who_looks_at_a_node_takes_no_time_from_the_others(kernel: Kernel, tmp_path: Path) -> None:
    """In a guest, a system call that fails takes 1 us from every program. `open` asks whether each
    of 150 files is a terminal: for each node of a network, that made every timer 0.25 ms late."""
    out = tmp_path / "out"
    with out.open("wb") as stream:
        spec = GuestSpec(argv=(sys.executable, "-c", LOOK))
        code, _times = run_guest(kernel, spec, stdout=stream, stderr=stream)
    text = out.read_text()
    assert code == 0, text
    assert all(int(taken_ns) < 20_000 for taken_ns in text.split()), text
