# SPDX-License-Identifier: Apache-2.0
"""`downpour lab case N FILE.yaml CASE`: an experiment's first cell, in virtual time, with a hidden
change. Lab 8: a fault (labs/hidden_faults.py); the verdict is removed, since the student is to give
it. Lab 11: a network that loses packets (labs/regional_loss.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.exit_codes import EXIT_OK
from common.places import BUILD
from common.shell import termination_as_interrupt
from experiments.cells.captures import NO_CAPTURES
from experiments.cells.events import Event
from experiments.cells.run_directory import RunDirectory, write_json
from experiments.design.spec import (
    ExperimentSpec,
    load,
)
from experiments.design.spec_options import override
from experiments.runs import digests
from experiments.runs.cell_process import GUEST_OUT, VirtualClock
from experiments.runs.preparation import (
    Planned,
    check_machine,
    plan,
)
from experiments.runs.running_cell import Failed, RunningCell
from labs.hidden_faults import (
    DONE,
    Mischief,
    argv_of,
    mischief,
)
from labs.measure import SEED, begun
from labs.regional_loss import LOSS_SEED, regional_loss, with_regional_loss
from labs.runs import RUNS
from labs.spec import Lab
from labs.workdir import LabError
from virtual.guest import EXCHANGE, guest_python
from virtual.kernel_build import find_kernel

CASE_SEED: Final = "case_seed"  # the lab's parameter that decides the faults
HIDDEN: Final = ("verdict.json", "inventory.json", DONE)  # the inventory names the change
TICK_S: Final = 0.1


def cases_of(lab: Lab, student: str, receivers: Sequence[str]) -> dict[str, Mischief]:
    """Return the fault in each case, for this student."""
    seed = lab.parameters(student)[CASE_SEED]
    assert isinstance(seed, int)
    return mischief(seed, receivers)


def _with_loss(lab: Lab, student: str, planned: Planned) -> Planned:
    """Return the cell with the student's lossy network."""
    seed = lab.parameters(student)[LOSS_SEED]
    assert isinstance(seed, int)
    network = planned.network
    hosts = planned.cell.subscribing([h.name for h in network.subscribers])
    changed = with_regional_loss(network, regional_loss(seed, network, hosts))
    return dataclasses.replace(planned, network=changed)


def _beside(lab: Lab, student: str, planned: Planned, case: str) -> list[str]:
    """Return the program that causes the student's fault; an empty list if the lab has no such
    faults."""
    if CASE_SEED not in lab.spec.parameters:
        return []
    receivers = [h.name for h in planned.network.subscribers]
    found = cases_of(lab, student, receivers)[case]
    return argv_of(found, guest_python(), EXCHANGE / "network.json", GUEST_OUT)


def _hide(place: Path, case: str) -> None:
    """Remove the files that say which fault a cell had. Raises LabError if it had none."""
    if not (place / DONE).exists() or json.loads((place / DONE).read_text())["problem"]:
        raise LabError(f"case {case}: it could not be made: {(place / DONE).read_text()}")
    for name in HIDDEN:
        (place / name).unlink()
    digests.write_cell(place)


def run_case(lab: Lab, student: str, work: Path, file: Path, case: str) -> Path:
    """Run the cell below `work`/runs/case-CASE and return its directory. Raises LabError, RunError,
    SpecErrors, UsageError; KeyboardInterrupt after cleaning up."""
    spec = load(file)
    if not isinstance(spec, ExperimentSpec):
        raise LabError(f"{file}: found an experiment of another kind; valid: one with factors")
    seed = lab.parameters(student).get(SEED)
    planned = plan(override(spec, {"seed": seed if isinstance(seed, int) else None}))[0]
    kernel = find_kernel()
    if kernel is None:
        raise LabError("found no kernel for virtual time; valid: build it: make virtual-kernel")
    check_machine([planned], work / RUNS, BUILD, "virtual")
    if LOSS_SEED in lab.spec.parameters:
        planned = _with_loss(lab, student, planned)
    beside = _beside(lab, student, planned, case)
    clock = VirtualClock(kernel, jobs=1, beside=beside)
    clock.fit([(planned.cell, planned.trace.size_bytes)])
    run = RunDirectory(work / RUNS, f"case-{case}", datetime.datetime.now(datetime.UTC))
    complete = False
    try:
        with termination_as_interrupt():
            cell = RunningCell(
                planned, run, clock,
                keep_work=False, build=BUILD, captures=NO_CAPTURES, described={"case": case},
                turn=clock.turns().wait(print),
            )  # fmt: skip
            try:
                while (ended := cell.step(_tell)) is None:
                    time.sleep(TICK_S)
            finally:
                cell.stop()
        place = run.cells / planned.cell.cell
        if isinstance(ended, Failed):
            raise LabError(f"case {case}: {ended.problem}")
        if beside:
            _hide(place, case)
        write_json(run.path / "manifest.json", {"case": case, "cells": [planned.cell.to_dict()]})
        run.remove_work()
        path = run.complete()
        complete = True
        return path / "cells" / planned.cell.cell
    finally:
        if not complete:
            run.abandon()


def _tell(event: Event) -> None:
    if event["event"] == "phase":
        print(f"  {event['text']}", file=sys.stderr, flush=True)


def main(number: int, directory: Path | None, file: str, case: str) -> int:
    """Run the case. Raises LabErrors, LabError, SpecErrors, UsageError, RunError, NetworkError."""
    lab, work = begun(number, directory)
    if not {CASE_SEED, LOSS_SEED} & lab.spec.parameters.keys():
        raise LabError(
            f"found lab {lab.number}; valid: one with a parameter {CASE_SEED} or {LOSS_SEED}"
        )
    place = run_case(lab, work.student, work.directory, work.directory / file, case)
    without = ", without a verdict," if CASE_SEED in lab.spec.parameters else ""
    print(f"case {case}: its evidence{without} is in {place}")
    return EXIT_OK
