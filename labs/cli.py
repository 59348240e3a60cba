# SPDX-License-Identifier: Apache-2.0
"""The commands of labs for a class.

Exit codes: 0 success, or all checks passed; 1 a check failed; 2 nothing to check, or bad usage or
input; 130 interrupted. `run` returns the exit code of the command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from common.command_line import Failure, command, group, run, whole
from common.counting import counted
from common.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from common.terminal import columns, is_ascii_only, to_ascii
from experiments.runs.options import NativeOrVirtual, RunChoices

if TYPE_CHECKING:
    from labs.spec import Lab
    from labs.workdir import Work

app = group("Labs for a class.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from common.shell import termination_as_interrupt
    from labs.checking import CheckProblem
    from labs.session import SessionError
    from labs.spec import LabErrors
    from labs.workdir import LabError
    from virtual.kernel_build import KernelError

    try:
        with termination_as_interrupt():
            yield
    except LabErrors as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except (LabError, SessionError, CheckProblem, KernelError) as error:
        raise Failure(f"lab: {error}", EXIT_USAGE) from error
    except KeyboardInterrupt:
        raise Failure("\nlab: interrupted", EXIT_INTERRUPTED) from None


classes = group("A class, for its instructor.")


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments, "downpour lab")


@dataclass(kw_only=True)
class LabOptions:
    """The lab, and where its files are."""

    number: Annotated[
        int, typer.Argument(parser=whole, metavar="N", help="The lab's number (see: lab list).")
    ]
    dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work directory (default: ~/downpour-labs/N)."),
    ] = None


@command(app, "list", told=told)
def list_command() -> int:
    """List the labs."""
    from labs.spec import all_labs

    for lab in all_labs():
        spec = lab.spec
        print(
            f"{lab.number:2}  {spec.title} ({spec.kind}, "
            f"{spec.minutes} min, {counted(lab.points, 'point')})"
        )
    return EXIT_OK


def _directory(options: LabOptions) -> Path:
    from labs.workdir import default_directory

    given = options.dir
    return (given if given is not None else default_directory(options.number)).absolute()


def _work(lab: Lab, options: LabOptions) -> Work:
    """Return the work directory of a lab that was started. Raises LabError."""
    from labs.workdir import LabError, read_work

    directory = _directory(options)
    work = read_work(directory)
    if work is None or work.lab != lab.number:
        raise LabError(
            f"found no lab {lab.number} in {directory}; valid: start it first "
            f"(make lab N={lab.number})"
        )
    return work


@dataclass(kw_only=True)
class StartOptions(LabOptions):
    """The options of `lab start`."""

    student: Annotated[
        str | None, typer.Option(metavar="NAME", help="Your name or number (default: your login).")
    ] = None
    clock: Annotated[
        NativeOrVirtual, typer.Option(help="native: on this machine's kernel, as root.")
    ] = "virtual"


@command(app, "start", told=told)
def start_command(options: StartOptions) -> int:
    """Create the start state; bring up the network of a network lab."""
    from labs import session
    from labs.spec import as_words, find_lab
    from labs.workdir import open_work
    from virtual.kernel_build import ensure_kernel

    lab = find_lab(options.number)
    work, new = open_work(lab, _directory(options), options.student)
    print(f"lab {lab.number}: {lab.spec.title}")
    print(f"your files: {work.directory} ({'new' if new else 'as you left them'})")
    print(f"student: {work.student}; your own values (parameters.yaml):")
    for name, value in as_words(lab.parameters(work.student)).items():
        print(f"  {name} = {value}   {' '.join(lab.spec.parameters[name].text.split())}")
    print(f"handout: {lab.handout}")
    if lab.spec.kind == "network":
        if options.clock == "virtual":
            ensure_kernel()  # here, where the student sees its progress
        session.start(lab, work, options.clock, _say)
        print(f"next: make lab-shell N={lab.number}")
    print(f"check: make lab-check N={lab.number}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


@command(app, "shell", told=told)
def shell_command(options: LabOptions) -> int:
    """Open a prompt in the lab's network; its time passes only while a command runs."""
    from labs import session
    from labs.shell import shell
    from labs.spec import find_lab

    lab = find_lab(options.number)
    return shell(lab, session.connect(lab, _work(lab, options)))


@dataclass(kw_only=True)
class RunOptions(LabOptions):
    """The options of `lab run`."""

    host: Annotated[str | None, typer.Option(metavar="HOST", help="Run it in this host.")] = None
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND...")] = None


@command(app, "run", told=told)
def run_command(options: RunOptions) -> int:
    """Run one command in the lab's network (after --)."""
    from labs import session
    from labs.spec import find_lab
    from labs.workdir import LabError

    lab = find_lab(options.number)
    words = options.words
    if not words:
        raise LabError("found no command; valid: downpour lab run N -- COMMAND ...")
    line = session.line_of(words, options.host)
    connection = session.connect(lab, _work(lab, options))
    return connection.run(line, sys.stdout.buffer, sys.stderr.buffer)


@dataclass(kw_only=True)
class CheckOptions(LabOptions):
    """The options of `lab check`."""

    only: Annotated[
        str | None,
        typer.Option(metavar="CHECK", help="One check; no result file is written."),
    ] = None


@command(app, "check", told=told)
def check_command(options: CheckOptions) -> int:
    """Run the checks and write result-N.json.

    Exit code: 0 all passed, 1 some failed, 2 there is nothing to check.
    """
    from labs import checking, results, session
    from labs.spec import find_lab
    from labs.workdir import LabError

    lab = find_lab(options.number)
    try:
        work = _work(lab, options)
        clock = "none"
        if lab.spec.kind == "network":
            connection = session.connect(lab, work)
            clock = connection.clock
            found = connection.check(options.only, _progress)
        else:
            found = checking.run_checks(
                lab, work.directory, work.student, only=options.only, progress=_progress
            )
    except (LabError, session.NotRunning) as error:
        print(f"nothing to check: {error}", file=sys.stderr)
        return checking.EXIT_NOTHING
    report = checking.as_text(found, columns())
    print(to_ascii(report) if is_ascii_only(sys.stdout) else report, end="")
    if options.only is None:
        path = results.write_result(lab, work, found, clock, _key())
        print(f"written: {path}")
    return checking.exit_code(found)


def _key() -> bytes | None:
    from labs import results

    named = os.environ.get(results.KEY_VARIABLE)
    return results.read_key(Path(named)) if named else None


def _progress(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


@command(app, "reset", told=told)
def reset_command(options: LabOptions) -> int:
    """Create the start state again; your files are kept in a subdirectory."""
    from labs import session
    from labs.spec import find_lab
    from labs.workdir import reset_files

    lab = find_lab(options.number)
    work = _work(lab, options)
    aside = reset_files(lab, work)
    if aside is not None:
        print(f"your files are kept in {aside}")
    if lab.spec.kind == "network":
        clock = session.stop(lab, work)
        if clock is not None:
            session.start(lab, work, clock, _say)
    print(f"lab {lab.number} is in its start state")
    return 0


@command(app, "stop", told=told)
def stop_command(options: LabOptions) -> int:
    """End the lab's network; your files stay."""
    from labs import session
    from labs.spec import find_lab

    lab = find_lab(options.number)
    stopped = session.stop(lab, _work(lab, options)) is not None
    print(f"lab {lab.number}: {'ended' if stopped else 'was not up'}")
    return 0


@command(app, "status", told=told)
def status_command() -> int:
    """List the labs that are up."""
    from labs import session

    lines = session.status()
    print("\n".join(lines) if lines else "no lab is up")
    return 0


@dataclass(kw_only=True)
class ClassStatusOptions:
    """The options of `class status`."""

    homes: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Directory with the students' home directories.")
    ] = Path("/home")


@command(classes, "status", told=told)
def class_status_command(options: ClassStatusOptions) -> int:
    """Show each student's labs, scores and running commands (root sees all)."""
    from labs import class_status as found
    from virtual import turns

    width = columns()
    homes = found.homes_in(options.homes)
    print(found.text(found.rows(homes, found.processes(), time.time()), width), end="")
    if (machine := turns.configured()) is not None:
        places, waiting = len(turns.places(machine)), turns.tickets(machine)
        print(found.queue_text(places, waiting, width), end="")
    return EXIT_OK


@dataclass(kw_only=True)
class GradeOptions:
    """The options of `lab grade`."""

    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Directory with result files.")]
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.csv", help="Output file (default: standard output)."
        ),
    ] = None
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key used for the labs.")] = (
        None
    )
    rerun: Annotated[
        bool,
        typer.Option("--rerun", help="Run the checks again from the work directories."),
    ] = False
    receipts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Results of --rerun, signed with the key."),
    ] = None


@command(app, "grade", told=told)
def grade_command(options: GradeOptions) -> int:
    """Collect a class's result files as CSV."""
    from labs import grade, results
    from labs.workdir import LabError

    key = results.read_key(options.key) if options.key is not None else None
    if options.receipts is not None and not (options.rerun and key is not None):
        raise LabError("found --receipts alone; valid: with --rerun and --key FILE")
    if options.receipts is not None and options.receipts.absolute().is_relative_to(
        options.folder.absolute()
    ):
        raise LabError(f"found --receipts {options.receipts}; valid: outside of {options.folder}")
    again = grade.Again(options.receipts) if options.rerun else None
    return grade.grade(options.folder, options.output, key, sys.stdout, again)


@dataclass(kw_only=True)
class HandoutOptions:
    """The options of `lab handouts`."""

    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for the pages.")]
    solutions: Annotated[
        bool, typer.Option("--solutions", help="Also write the instructor's notes.")
    ] = False


@command(app, "handouts", told=told)
def handouts_command(options: HandoutOptions) -> int:
    """Write each handout as one HTML page."""
    from labs import handouts

    for path in handouts.write_all(options.directory, solutions=options.solutions):
        print(path)
    return 0


@dataclass(kw_only=True)
class MeasureOptions(LabOptions, RunChoices):
    """The options of `lab measure`: those of `run`, for a file of the work directory."""

    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An experiment in the work directory.")
    ]
    clock: Annotated[
        NativeOrVirtual, typer.Option(help="native: on this machine's kernel, as root.")
    ] = "virtual"


@command(app, "measure", told=told)
def measure_command(options: MeasureOptions) -> int:
    """Run an experiment of a lab's work directory, with your own seed.

    Exit codes: those of `run`.
    """
    from experiments.cli import run_experiment
    from experiments.cli import told as told_of_experiments
    from labs import measure

    measure.prepare(options.number, options.dir, options.file, options)
    with told_of_experiments():
        return run_experiment(options.file, options.clock, options)
    raise AssertionError("told() swallowed an error")


@dataclass(kw_only=True)
class CaseOptions(LabOptions):
    """The options of `lab case`."""

    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An experiment in the work directory.")
    ]
    case: Annotated[Literal["a", "b", "c"], typer.Argument(metavar="CASE", help="a, b or c.")]


@command(app, "case", told=told)
def case_command(options: CaseOptions) -> int:
    """Run an experiment with a hidden fault (labs 8 and 11)."""
    from experiments.cli import told as told_of_experiments
    from labs import cases

    with told_of_experiments():
        return cases.main(options.number, options.dir, options.file, options.case)
    raise AssertionError("told() swallowed an error")
