# SPDX-License-Identifier: Apache-2.0
"""Failures and guarantees hold in a guest: the kernel's Open vSwitch with its own queues, delays by
netem, and a clock that the machine's load does not change."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from virtual.guest import GuestSpec, run_guest
from virtual.kernel_build import Kernel

# The failures for which a delay matters; `make path-figures CLOCK=virtual` runs all of them.
RUNS = (("test_failures.py", "link"), ("test_guarantees.py", ""))


@pytest.mark.emulated
@pytest.mark.parametrize(("name", "only"), RUNS)
def test_in_a_guest(name: str, only: str, tmp_path: Path, kernel: Kernel) -> None:
    argv = (
        *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"),
        *(f"tests/path_service/{name}", "-k", only),
    )
    out = tmp_path / "out"
    with out.open("wb") as stream:
        code, times = run_guest(kernel, GuestSpec(argv=argv), stdout=stream, stderr=stream)
    text = out.read_text()
    print(text)
    print(f"{times.virtual_s:.1f} s of virtual time in {times.real_s:.1f} s")
    assert code == 0, text
    assert re.search(r"\d+ passed", text) and "skipped" not in text, text
