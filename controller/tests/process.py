# SPDX-License-Identifier: Apache-2.0
"""Starts the controller as a process, for the tests.

DOWNPOUR_CONTROLLER_PYTHON names another interpreter, for example of an environment with Ryu.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("DOWNPOUR_CONTROLLER_PYTHON", sys.executable)

HANG_S = 120.0


def start(arguments: Sequence[str], prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, PYTHON, "-m", "controller", *arguments],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_app(
    arguments: Sequence[str], directory: Path, prefix: Sequence[str] = (), also: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start the same controller as an app of the framework's launcher, beside the apps `also`.
    Pairs of `arguments` become the lines of its configuration, which is written into
    `directory`."""
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    host, _, port = pairs.pop("--of-listen").rpartition(":")
    lines = ["[DEFAULT]", "enable_debugger = true"]
    lines += [f"ofp_listen_host = {host}", f"ofp_tcp_listen_port = {port}", "[downpour]"]
    lines += [f"{name.strip('-').replace('-', '_')} = {value}" for name, value in pairs.items()]
    config = directory / "path-service.conf"
    config.write_text("\n".join(lines) + "\n")
    return start(
        ["manager", "--config-file", str(config), "controller/manager_app.py", *also], prefix
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = HANG_S) -> None:
    """Wait for a condition. A machine under load may take long; a hang fails the test."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)
