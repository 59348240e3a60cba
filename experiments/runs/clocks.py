# SPDX-License-Identifier: Apache-2.0
"""The clock that a command line asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.places import RUNS
from experiments.design.spec import UsageError
from experiments.runs import runner
from experiments.runs.cell_process import CellProblem, Clock, NativeClock, VirtualClock
from experiments.runs.options import GuestOptions, RunChoices
from experiments.runs.together import unsuitable, unsuitable_options
from virtual.kernel_build import Kernel, KernelError, find_kernel
from virtual.parts.machines import address_of

# A plan starts no guest, so the kernel need not be built yet.
_NOT_BUILT: Final = Kernel(Path("not-built"), "not built yet", "", seccomp=False)


def needs_root() -> str:
    """Return why this user cannot use the native clock; "" for root."""
    if os.geteuid() == 0:
        return ""
    return (
        f"found user id {os.geteuid()}; valid: root, or virtual time: add --clock virtual "
        "(make: CLOCK=virtual)"
    )


def clock_of(
    name: str,
    options: GuestOptions,
    planned: Sequence[runner.Planned],
    runs: Path = RUNS,
    *,
    plan_only: bool = False,
    parts: int = 1,
    machines: Sequence[str] = (),
) -> Clock:
    """Return the requested clock, suitable for all that is planned, with results below `runs`.

    Raises UsageError or RunError. `plan_only`: nothing will run, so a kernel may be missing.
    """
    _check_machines(machines, options, parts)
    if name == "native":
        if parts > 1:
            raise UsageError(f"found --parts {parts}; valid: 1 with the native clock")
        if options.jobs not in (None, 1):
            raise UsageError(
                f"found --jobs {options.jobs}; valid: 1 with the native clock, because cells that "
                "run at once disturb each other, or --clock virtual"
            )
        if not plan_only and (problem := needs_root()):
            raise UsageError(problem)
        return NativeClock()
    try:
        kernel = find_kernel()
    except KernelError as error:
        raise runner.RunError(str(error)) from None
    if kernel is None and plan_only:
        kernel = _NOT_BUILT
    if kernel is None:
        raise runner.RunError(
            "found no kernel for virtual time; valid: build it with `downpour virtual kernel` "
            "(make: virtual-kernel)"
        )
    clock = VirtualClock(
        kernel,
        jobs=options.jobs,
        limit_s=options.limit_s,
        stall_s=options.stall_s,
        parts=parts,
        machines=machines,
    )
    try:
        clock.fit([(p.cell, p.trace.size_bytes) for p in planned])
    except CellProblem as error:
        raise runner.RunError(str(error)) from None
    on_disk = [p for p in planned if clock.on_disk(p.cell, p.trace.size_bytes)]
    if parts > 1:
        _check_parts(options, planned, on_disk)
    if on_disk:
        runner.check_disk(on_disk, runs)
    return clock


def _check_machines(machines: Sequence[str], options: GuestOptions, parts: int) -> None:
    """Check the machines of a cell's parts. Raises UsageError."""
    try:
        for machine in machines:
            address_of(machine)
    except ValueError as error:
        raise UsageError(f"--machine: {error}") from None
    if machines and parts < 2:
        raise UsageError("--machine: found --parts 1; valid: --parts 2 or more")
    if machines and options.jobs not in (None, 1):
        raise UsageError(f"--machine: found --jobs {options.jobs}; valid: 1")


def _check_parts(
    options: GuestOptions, planned: Sequence[runner.Planned], on_disk: Sequence[runner.Planned]
) -> None:
    """Check that the cells suit several parts. Raises UsageError."""
    wrong = [pair for one in planned for pair in unsuitable(one, ctcp=True)]
    wrong += unsuitable_options(options) if isinstance(options, RunChoices) else []
    wrong += [(f"queues on disk ({one.cell.cell})", "queues in memory") for one in on_disk]
    for found, valid in wrong:
        raise UsageError(f"--parts: found {found}; valid: {valid}")
