# SPDX-License-Identifier: Apache-2.0
"""The program that a worker runs: one cell of an unpacked parcel, in a guest, to its end.

`python -m experiments worker-cell DIRECTORY` writes the cell's events into
DIRECTORY/events.N.jsonl (N: the attempt; an engine may start a job again) and, last, ended.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Final

from common.files import os_error_text
from common.places import BUILD
from experiments.runs.cell_process import CellProblem, CellProcess, VirtualClock
from experiments.workers import environment, parcel
from experiments.workers.parcel import Ended
from virtual.kernel_build import KernelError, find_kernel

TICK_S: Final = 0.2
LEASE_S: Final = 300.0  # without a sign of life from the runner
TIMES_S: Final = 2.0  # between two reports of the guest's times


class RunnerGone(Exception):
    """The run no longer waits for this cell."""


def main(place: Path) -> int:
    """Run the cell of a parcel. Return 0 if it ran, whatever its verdict."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    made_of = environment.describe()
    try:
        terms = parcel.terms_in(place)
        out = place / "out" if terms.out is None else Path(terms.out)
        _empty(out)
        ended = _run(place, out, terms, made_of)
    except (CellProblem, KernelError) as error:
        ended = Ended(1, str(error), platform.node(), made_of)
    except RunnerGone:
        return 1
    except OSError as error:
        ended = Ended(1, os_error_text(error), platform.node(), made_of)
    ended.write(place)
    return ended.code


def _empty(out: Path) -> None:
    """Remove what an interrupted attempt left."""
    out.mkdir(exist_ok=True)
    for path in out.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    (out / "logs").mkdir()


def _run(place: Path, out: Path, terms: parcel.Terms, made_of: dict[str, str]) -> Ended:
    host = platform.node()
    if terms.environment is not None:
        differs = environment.difference(terms.environment, made_of)
        if differs:
            raise CellProblem(
                f"worker {host} differs from the first worker ({differs}); valid: "
                "the same checkout, kernel and packages everywhere, or --mixed"
            )
    kernel = find_kernel()
    if kernel is None:
        raise CellProblem(
            f"worker {host} has no kernel for virtual time; valid: run `downpour virtual kernel` "
            "there"
        )
    job = parcel.job_in(place, BUILD)
    clock = VirtualClock(kernel, jobs=1, limit_s=terms.limit_s, stall_s=terms.stall_s)
    clock.fit([(job.cell, int(job.trace_info["bytes"]))], terms.memory_bytes)
    number = sum(1 for _ in place.glob("events.*.jsonl"))
    process = clock.start(job, out)
    try:
        with (place / f"events.{number}.jsonl").open("w", buffering=1) as events:
            _follow(process, events, _watch(terms))
    finally:
        process.stop()
        shutil.rmtree(job.work, ignore_errors=True)
    assert process.code is not None
    return Ended(process.code, "", host, made_of, parcel.sums(out))


def _follow(process: CellProcess, events: IO[str], check_runner: Callable[[], None]) -> None:
    """Record what the cell reports until it has ended."""
    told = 0.0
    while process.code is None:
        time.sleep(TICK_S)
        check_runner()
        for event in process.poll():
            events.write(json.dumps(event) + "\n")
        now = time.monotonic()
        if process.times is not None and now - told >= TIMES_S:
            told = now
            events.write(json.dumps(dataclasses.asdict(process.times)) + "\n")


def _watch(terms: parcel.Terms) -> Callable[[], None]:
    """Return a function that raises RunnerGone once the run no longer waits for the cell."""
    if terms.lease is None:
        return _watch_input
    lease, seen, since = Path(terms.lease), -1.0, time.monotonic()

    def check() -> None:
        nonlocal seen, since
        renewed = 0.0
        with contextlib.suppress(OSError):
            renewed = lease.stat().st_mtime
        now = time.monotonic()
        if (
            renewed != seen
        ):  # any change counts: the file system's clock may differ from this machine's
            seen, since = renewed, now
        elif now - since > LEASE_S:
            raise RunnerGone

    return check


def _watch_input() -> None:
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0)
    if readable and not os.read(sys.stdin.fileno(), 64):
        raise RunnerGone
