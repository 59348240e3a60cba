# SPDX-License-Identifier: Apache-2.0
"""`downpour lab measure N FILE.yaml [options]`: run an experiment in the student's work directory.

It is `downpour run` with the student's seed, in virtual time unless asked otherwise, with results
below `runs/` of the work directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from experiments.runs.options import RunChoices
from labs.runs import RUNS
from labs.spec import Lab, find_lab
from labs.workdir import LabError, Work, default_directory, read_work

SEED = "seed"  # the parameter of a lab that decides trace and losses


def begun(number: int, directory: Path | None) -> tuple[Lab, Work]:
    """Return the lab and the student's work directory. Raises LabErrors, or LabError if the lab was
    not started."""
    lab = find_lab(number)
    place = (directory or default_directory(number)).absolute()
    work = read_work(place)
    if work is None:
        valid = f"start the lab first: make lab N={number} (DIR= where it is not {place})"
        raise LabError(f"found no work directory of lab {number} at {place}; valid: {valid}")
    if work.lab != number:
        raise LabError(f"{place} is the work directory of lab {work.lab}; valid: one of {number}")
    return lab, work


def prepare(number: int, directory: Path | None, file: str, options: RunChoices) -> None:
    """Set the student's seed and the work directory's results in `options`, and change to that
    directory.

    Raises LabErrors, LabError.
    """
    lab, work = begun(number, directory)
    if not (work.directory / file).is_file():
        there = ", ".join(sorted(p.name for p in work.directory.glob("*.yaml")))
        raise LabError(f"found no file {file} in {work.directory}; valid: {there}")
    options.runs = work.directory / RUNS
    seed = lab.parameters(work.student).get(SEED)
    if options.seed is None and isinstance(seed, int):
        options.seed = seed
    os.chdir(work.directory)  # trace files are named relative to it
