# SPDX-License-Identifier: Apache-2.0
"""`downpour capture LINK`: captures a link of a network that is up, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from common.shell import NetworkError
from topologies.emulate import lifecycle, marks, up_down
from topologies.emulate.emulation_state import pids_of
from topologies.watch.capture import (
    Capture,
    Captured,
    await_listening,
    tap_of,
)


def capture(
    run_id: str | None,
    link: str,
    directory: Path,
    seconds: float | None,
    limit_bytes: int,
    snap_bytes: int,
    say: Callable[[str], None],
) -> Captured:
    """Capture until `seconds` have passed, Ctrl-C, SIGTERM, or the network's end. Raises
    NetworkError."""
    lifecycle.require_root()
    candidates = up_down.own_networks() if run_id is None else [run_id]
    network = up_down.network_of(candidates[0]) if candidates else None
    if network is None:
        raise NetworkError("no network is up (start one with: up)")
    chosen = candidates[0]
    pids = pids_of(chosen)
    tap = tap_of(network, link)

    def start(node: str, argv: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        space = f"/proc/{pids[node]}/ns/net" if node in pids else str(marks.namespace_path(chosen))
        return subprocess.Popen(
            ["nsenter", f"--net={space}", "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # With the run's mark, the capture ends with the network, however the network ends.
            env={**os.environ, "LC_ALL": "C", marks.MARK: chosen},
            start_new_session=True,
        )

    running = Capture(tap, directory, start, limit_bytes, snap_bytes)
    ended: list[int] = []
    old = {n: signal.signal(n, lambda n, _: ended.append(n)) for n in _ENDING}
    try:
        await_listening([running])
        until = "Ctrl-C" if seconds is None else f"{seconds:g} s have passed"
        say(f"{chosen}: capturing {tap.interface} of {tap.at} until {until}")
        deadline = None if seconds is None else time.monotonic() + seconds
        while not ended and running.alive and (deadline is None or time.monotonic() < deadline):
            time.sleep(0.05)
    finally:
        running.tell_to_stop()
        captured = running.finish()
        for number, handler in old.items():
            signal.signal(number, handler)
    return captured


_ENDING = (signal.SIGINT, signal.SIGTERM)
