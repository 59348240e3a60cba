# SPDX-License-Identifier: Apache-2.0
"""controller/examples/multicast.py under the framework's launcher and Open vSwitch."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.tests import process
from controller.tests.ovs_bench import MULTICAST, NEEDS_OPEN_VSWITCH
from controller.tests.sample import MAC_1
from controller.tests.switches import Bridge, PatchPort, Switches

pytestmark = [*NEEDS_OPEN_VSWITCH, pytest.mark.slow]
EXAMPLE = "controller/examples/multicast.py"
PORT = 16663


def test_the_example_is_forty_lines_that_a_lesson_can_show() -> None:
    lines = (process.CHECKOUT / EXAMPLE).read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith("#")]) <= 40


@contextmanager
def switches(directory: Path) -> Iterator[Switches]:
    """s1 with its root at port 1 and leaves at 2 and 3: patches to s2 and s3, which flood."""
    made = Switches(directory, "example")
    try:
        made.open_switches(
            (
                Bridge("s1", 1, 1, (f"tcp:127.0.0.1:{PORT}",)),
                Bridge("s2", 2, 9, ()),
                Bridge("s3", 3, 9, ()),
            ),
            (
                PatchPort("s1", "s1-p2", 2, "s2-p1"),
                PatchPort("s2", "s2-p1", 1, "s1-p2"),
                PatchPort("s1", "s1-p3", 3, "s3-p1"),
                PatchPort("s3", "s3-p1", 1, "s1-p3"),
            ),
        )
        for name in ("s2", "s3"):
            made.ofctl("add-flow", name, "actions=normal")
        yield made
    finally:
        made.close_switches()


def test_frames_are_replicated_and_translated() -> None:
    with tempfile.TemporaryDirectory(prefix="example-") as name, switches(Path(name)) as made:
        launcher = process.start(
            ["manager", "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(PORT),
             EXAMPLE],
            made.inside,
        )  # fmt: skip
        try:
            process.wait_until("the example's flow", lambda: _has_flow(made, launcher), 60)
            made.expect([("s2", 102), ("s3", 103)], "s1", MULTICAST, MAC_1, 101)
            assert made.deliver("s1", MULTICAST, MAC_1, 999) == []
            meters = " ".join(made.dump("meters", "s1"))
            assert "type=drop rate=20000 burst_size=1000" in meters
        finally:
            process.end(launcher)


def _has_flow(made: Switches, launcher: subprocess.Popen[str]) -> bool:
    assert launcher.poll() is None, launcher.communicate()
    return any("group:1" in line for line in made.dump("flows", "s1"))
