# SPDX-License-Identifier: Apache-2.0
"""A guest has 802.1Q, which this machine's kernel may lack: vlanutil, LDM7 over a VLAN, and LDM7
over a VLAN that the path service carries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from virtual.guest import GuestSpec, run_guest
from virtual.kernel_build import Kernel

SUBSCRIPTIONS = "tests/path_service/test_subscriptions.py::test_subscriber_makes_its_vlan"


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("program", "arguments", "proof"),
    [
        ("ldm7/site/vlanutil/tests/test_vlanutil.py", ("build/ldm7/vlanutil",), "ok real"),
        ("ldm7/ldmd/tests/vlan.py", ("build/ldm7/ldmd/ldmd", "build/ldm7"), "ok vlan"),
        ("-m", ("pytest", "-q", "-p", "no:cacheprovider", SUBSCRIPTIONS), "1 passed"),
    ],
)
def test_vlan(
    kernel: Kernel, tmp_path: Path, program: str, arguments: tuple[str, ...], proof: str
) -> None:
    out = tmp_path / "out"
    with out.open("wb") as stream:
        spec = GuestSpec(argv=(sys.executable, program, *arguments))
        code, _times = run_guest(kernel, spec, stdout=stream, stderr=stream)
    text = out.read_text()
    assert code == 0, text
    skipped = [line for line in text.splitlines() if "SKIPPED" in line]
    # Without a tag the test needs macvlan, which the guest lacks.
    assert proof in text and all("no macvlan" in line for line in skipped), text
