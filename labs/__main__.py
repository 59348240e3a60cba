# SPDX-License-Identifier: Apache-2.0
"""`python -m labs`: labs for a class.

Exit codes: 0 well, or all checks passed; 1 a check failed; 2 nothing to check, or bad usage or
input; 130 interrupted. `run` gives the exit code of the command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.shell import termination_as_interrupt
from labs import checking, results, session
from labs.checking import CheckProblem
from labs.session import SessionError
from labs.shell import shell
from labs.spec import Lab, LabErrors, all_labs, as_words, find_lab
from labs.workdir import LabError, Work, default_directory, open_work, read_work, reset_files
from virtual.kernel_build import KernelError, ensure_kernel

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m labs", description="Labs for a class.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("list", help="the labs there are")

    def of_lab(name: str, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("number", type=int, metavar="N", help="the lab's number")
        verb.add_argument("--dir", type=Path, help="work directory (~/downpour-labs/N)")
        return verb

    start = of_lab("start", "make the start state; network labs: bring the network up")
    start.add_argument("--student", help="your name or number (default: your login)")
    start.add_argument(
        "--clock", choices=("virtual", "native"), default="virtual",
        help="native: on this machine's kernel, as root",
    )  # fmt: skip
    of_lab("shell", "a prompt in the lab's network")
    run = of_lab("run", "one command in the lab's network")
    run.add_argument("--host", help="in this host")
    run.add_argument("command", nargs="*", metavar="-- COMMAND")
    check = of_lab("check", "run the checks, write result-N.json")
    check.add_argument("--only", metavar="CHECK", help="one check; no result file is written")
    of_lab("reset", "the start state again; your files are kept aside")
    of_lab("stop", "end the lab's network; your files stay")
    verbs.add_parser("status", help="the labs that are up")
    verbs.add_parser("measure", help="run an experiment of a measuring lab's work directory")
    verbs.add_parser("case", help="the same, with something done behind its back (lab 8)")

    grade = verbs.add_parser("grade", help="a class's result files to CSV")
    grade.add_argument("folder", type=Path)
    grade.add_argument("-o", "--output", type=Path, metavar="FILE.csv", help="default: print it")
    grade.add_argument("--key", type=Path, metavar="FILE", help="the key the labs were run with")
    handouts = verbs.add_parser("handouts", help="each handout as one HTML page")
    handouts.add_argument("directory", type=Path, metavar="DIR")
    handouts.add_argument("--solutions", action="store_true", help="the instructor's notes, too")

    hold = verbs.add_parser("_hold")
    hold.add_argument("number", type=int)
    hold.add_argument("state", type=Path)
    hold.add_argument("work", type=Path)
    hold.add_argument("clock")
    hold.add_argument("report_fd", type=int)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] in (["measure"], ["case"]):  # their further options are experiments'
        from labs import cases, measure

        return measure.main(argv[1:]) if argv[0] == "measure" else cases.main(argv[1:])
    # What follows `--` is a command of the lab's, whatever it looks like.
    at = argv.index("--") if "--" in argv else len(argv)
    options = parser().parse_args(argv[:at])
    if options.verb == "run":
        options.command += argv[at + 1 :]
    try:
        with termination_as_interrupt():
            return VERBS[options.verb](options)
    except LabErrors as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except (LabError, SessionError, CheckProblem, KernelError) as error:
        print(f"labs {options.verb}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("\nlabs: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _list(_options: argparse.Namespace) -> int:
    for lab in all_labs():
        spec = lab.spec
        print(
            f"{lab.number:2}  {spec.title} ({spec.kind}, {spec.minutes} min, {lab.points} points)"
        )
    return 0


def _directory(options: argparse.Namespace) -> Path:
    given: Path | None = options.dir
    return (given if given is not None else default_directory(options.number)).absolute()


def _work(lab: Lab, options: argparse.Namespace) -> Work:
    """The work directory of a lab that was started. LabError."""
    directory = _directory(options)
    work = read_work(directory)
    if work is None or work.lab != lab.number:
        raise LabError(
            f"found no lab {lab.number} in {directory}; valid: start it first "
            f"(make lab N={lab.number})"
        )
    return work


def _start(options: argparse.Namespace) -> int:
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
            ensure_kernel()  # here, where it can be seen how far it is
        session.start(lab, work, options.clock, _say)
        print(f"next: make lab-shell N={lab.number}")
    print(f"check: make lab-check N={lab.number}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _shell(options: argparse.Namespace) -> int:
    lab = find_lab(options.number)
    return shell(lab, session.connect(lab, _work(lab, options)))


def _run(options: argparse.Namespace) -> int:
    lab = find_lab(options.number)
    words = options.command
    if not words:
        raise LabError("found no command; valid: python -m labs run N -- COMMAND ...")
    line = session.line_of(words, options.host)
    connection = session.connect(lab, _work(lab, options))
    return connection.run(line, sys.stdout.buffer, sys.stderr.buffer)


def _check(options: argparse.Namespace) -> int:
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
    print(checking.as_text(found), end="")
    if options.only is None:
        path = results.write_result(lab, work, found, clock, _key())
        print(f"written: {path}")
    return checking.exit_code(found)


def _key() -> bytes | None:
    named = os.environ.get(results.KEY_VARIABLE)
    return results.read_key(Path(named)) if named else None


def _progress(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def _reset(options: argparse.Namespace) -> int:
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


def _stop(options: argparse.Namespace) -> int:
    lab = find_lab(options.number)
    stopped = session.stop(lab, _work(lab, options)) is not None
    print(f"lab {lab.number}: {'ended' if stopped else 'was not up'}")
    return 0


def _status(_options: argparse.Namespace) -> int:
    lines = session.status()
    print("\n".join(lines) if lines else "no lab is up")
    return 0


def _grade(options: argparse.Namespace) -> int:
    from labs import grade

    key = results.read_key(options.key) if options.key is not None else None
    return grade.grade(options.folder, options.output, key, sys.stdout)


def _handouts(options: argparse.Namespace) -> int:
    from labs import handouts

    for path in handouts.write_all(options.directory, solutions=options.solutions):
        print(path)
    return 0


def _hold(options: argparse.Namespace) -> int:
    from labs import holder

    lab = find_lab(options.number)
    return holder.hold(lab, options.state, options.work, options.clock, options.report_fd)


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list,
    "start": _start,
    "shell": _shell,
    "run": _run,
    "check": _check,
    "reset": _reset,
    "stop": _stop,
    "status": _status,
    "grade": _grade,
    "handouts": _handouts,
    "_hold": _hold,
}


if __name__ == "__main__":
    sys.exit(main())
