# SPDX-License-Identifier: Apache-2.0
"""Either the switches are configured or the error says why not: ovs-vsctl alone would wait
forever."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.shell import NetworkError
from topologies.emulate.openvswitch import OpenVSwitch


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[OpenVSwitch, subprocess.Popen[bytes]]]:
    """Run one whose daemon is a program that the test may end."""
    ovs = OpenVSwitch(tmp_path)
    (tmp_path / "ovs-vswitchd.log").write_text("what it said last\n")
    with subprocess.Popen(["sleep", "600"]) as daemon:
        ovs._daemons.append(daemon)
        yield ovs, daemon
        daemon.kill()


def test_an_answer_comes_back(running: tuple[OpenVSwitch, subprocess.Popen[bytes]]) -> None:
    ovs, _ = running
    assert ovs.configure("echo one && echo two") == "one\ntwo\n"


def test_a_complaint_is_told(running: tuple[OpenVSwitch, subprocess.Popen[bytes]]) -> None:
    ovs, _ = running
    with pytest.raises(NetworkError, match="no bridge named s9"):
        ovs.configure("echo no bridge named s9 >&2; exit 1")


def test_a_switch_that_ends_ends_the_wait(
    running: tuple[OpenVSwitch, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    ovs, daemon = running
    began = time.monotonic()
    with pytest.raises(NetworkError, match="Open vSwitch has ended(.|\n)*what it said last"):
        ovs.configure(f"echo $$ > {tmp_path}/pid; kill {daemon.pid}; sleep 600; true")
    assert time.monotonic() - began < 60
    waiting = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{waiting}").exists(), "who waited is left"
