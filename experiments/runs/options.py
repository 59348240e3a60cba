# SPDX-License-Identifier: Apache-2.0
"""Options that several commands of the experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.places import RUNS
from common.quantities import parse_size_bytes
from experiments.design.spec import UsageError
from experiments.runs import runner
from experiments.runs.cell_process import CellProblem, Clock, NativeClock, VirtualClock
from virtual.guest import STALL_S
from virtual.kernel_build import KernelError, find_kernel


def size_bytes(text: str) -> int:
    """Bytes as a whole number, or with the units of experiment files."""
    try:
        return parse_size_bytes(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found '{text}'; valid: {error}") from None


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found '{text}'; valid: a whole number from 1 on")
    return int(text)


def add_guest_options(parser: argparse.ArgumentParser) -> None:
    """What `clock_of` reads beside `clock`."""
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="guests at once (virtual; default: one per core)"
    )
    parser.add_argument(
        "--limit-s", type=float, metavar="S", help="real time a cell may take (virtual)"
    )
    parser.add_argument(
        "--stall-s", type=float, default=STALL_S, metavar="S",
        help="real time without virtual progress after which a guest is ended (virtual)",
    )  # fmt: skip


def clock_of(
    options: argparse.Namespace, planned: Sequence[runner.Planned], runs: Path = RUNS
) -> Clock:
    """The clock asked for, fit for all that is planned, with results below `runs`. Raises
    UsageError or RunError."""
    if options.clock == "native":
        if options.jobs not in (None, 1):
            raise UsageError(
                f"found --jobs {options.jobs}; valid: 1 with the native clock, because cells that "
                "run at once disturb each other, or --clock virtual"
            )
        return NativeClock()
    try:
        kernel = find_kernel()
    except KernelError as error:
        raise runner.RunError(str(error)) from None
    if kernel is None:
        raise runner.RunError(
            "found no kernel for virtual time; valid: build it with `make virtual-kernel`"
        )
    clock = VirtualClock(
        kernel, jobs=options.jobs, limit_s=options.limit_s, stall_s=options.stall_s
    )
    try:
        clock.fit([(p.cell, p.trace.size_bytes) for p in planned])
    except CellProblem as error:
        raise runner.RunError(str(error)) from None
    if on_disk := [p for p in planned if clock.on_disk(p.cell, p.trace.size_bytes)]:
        runner.check_disk(on_disk, runs)
    return clock
