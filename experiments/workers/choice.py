# SPDX-License-Identifier: Apache-2.0
"""The clock of cells that run at workers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from common.places import BUILD
from experiments.design.spec import UsageError
from experiments.runs.options import RunOptions
from experiments.runs.preparation import Planned, check_queues
from experiments.workers.address import DaskAddress, parse
from experiments.workers.dask_clock import DaskClock
from experiments.workers.parcel import Terms
from experiments.workers.slurm_clock import PROGRAMS, SlurmClock

RemoteClock = DaskClock | SlurmClock


def check_options(options: RunOptions) -> None:
    """Check that the options suit cells at workers. Raises UsageError."""
    assert options.at is not None
    parse(options.at)
    if options.clock != "virtual":
        raise UsageError(
            f"--at: found --clock {options.clock}; valid: --clock virtual, because cells at "
            "workers share their machines"
        )
    for name, given in (
        ("--parts", (options.parts or 1) > 1),
        ("--keep-work", options.keep_work),
        ("--build", options.build.resolve() != BUILD.resolve()),
    ):
        if given:
            raise UsageError(f"--at: found {name}; valid: without it (workers have their own)")


def clock_at(options: RunOptions, planned: Sequence[Planned]) -> RemoteClock:
    """Return the clock of the engine at `options.at`. Call `close`. Raises UsageError, RunError."""
    assert options.at is not None
    check_queues(planned)
    address = parse(options.at)
    terms = Terms(options.limit_s, options.stall_s)
    if isinstance(address, DaskAddress):
        clock: RemoteClock = DaskClock(address, jobs=options.jobs, terms=terms, mixed=options.mixed)
    else:
        absent = [name for name in PROGRAMS if shutil.which(name) is None]
        if absent:
            raise UsageError(
                f"--at: found {address}, but no program {absent[0]}; valid: a machine that submits "
                "to Slurm (Debian: package slurm-client)"
            )
        clock = SlurmClock(address, jobs=options.jobs, terms=terms, mixed=options.mixed)
    clock.jobs = max(1, min(clock.jobs, len(planned)))
    return clock
