# SPDX-License-Identifier: Apache-2.0
"""`python -m labs measure N FILE.yaml [options]`: an experiment of the student's work directory.

It is `python -m experiments run` with the student's seed, in virtual time unless asked otherwise,
with results below `runs/` of the work directory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import cli
from labs.runs import RUNS
from labs.spec import Lab, LabErrors, find_lab
from labs.workdir import LabError, Work, default_directory, read_work

EXIT_USAGE = 2
SEED = "seed"  # the parameter of a lab that decides trace and losses


def begun(number: int, directory: Path | None) -> tuple[Lab, Work]:
    """The lab and the student's work directory. LabErrors, LabError if it was not started."""
    lab = find_lab(number)
    place = (directory or default_directory(number)).absolute()
    work = read_work(place)
    if work is None:
        valid = f"start the lab first: make lab N={number} (DIR= where it is not {place})"
        raise LabError(f"found no work directory of lab {number} at {place}; valid: {valid}")
    if work.lab != number:
        raise LabError(f"{place} is the work directory of lab {work.lab}; valid: one of {number}")
    return lab, work


def arguments_of(lab: Lab, work: Work, file: str, clock: str, others: Sequence[str]) -> list[str]:
    """What `experiments` is called with, in the work directory."""
    argv = ["run", file, "--clock", clock, "--runs", str(work.directory / RUNS)]
    seed = lab.parameters(work.student).get(SEED)
    if seed is not None and "--seed" not in others:
        argv += ["--seed", str(seed)]
    return [*argv, *others]


def main(arguments: Sequence[str]) -> int:
    """Exit codes: those of `experiments run`."""
    parser = argparse.ArgumentParser(
        prog="python -m labs measure",
        description="Runs an experiment of a lab's work directory, with the student's own seed.",
        epilog=f"further options: those of `experiments run`. {cli.EXIT_CODES}",
        allow_abbrev=False,
    )
    parser.add_argument("number", type=int, metavar="N", help="of the lab")
    parser.add_argument("file", metavar="FILE", help="an experiment in the work directory")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="the work directory")
    parser.add_argument("--clock", choices=("virtual", "native"), default="virtual")
    options, others = parser.parse_known_args(list(arguments))
    try:
        lab, work = begun(options.number, options.dir)
        if not (work.directory / options.file).is_file():
            there = ", ".join(sorted(p.name for p in work.directory.glob("*.yaml")))
            raise LabError(f"found no file {options.file} in {work.directory}; valid: {there}")
    except (LabErrors, LabError) as error:
        print(f"labs: {error}", file=sys.stderr)
        return EXIT_USAGE
    argv = arguments_of(lab, work, options.file, options.clock, others)
    os.chdir(work.directory)  # trace files are named from here
    return cli.main(argv)
