# SPDX-License-Identifier: Apache-2.0
"""The commands that run experiments and report them.

Exit codes: 0 every cell ran and all products were identical (regression: and every metric is within
its band); 1 a cell failed, products differ or a metric is outside; 2 bad usage or input; 3 all ran,
but a verdict is invalid: do not trust the figures; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from common.command_line import (
    EXPERIMENTS,
    PROGRAM,
    Failure,
    command,
    given_arguments,
    group,
    rate_bps,
    run,
    say,
    size_bytes,
    unknown,
    whole,
)
from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from common.places import RUNS
from experiments.design.overrides import Overrides
from experiments.runs.options import (
    RegressionOptions,
    RemoteOptions,
    RepeatOptions,
    ReportOptions,
    RunChoices,
    RunOptions,
    VerifyOptions,
)
from experiments.workers.options import WorkersOptions

if TYPE_CHECKING:
    from experiments.cells.captures import Captures
    from experiments.design.spec import AnySpec
    from experiments.runs.cell_process import Clock
    from experiments.runs.preparation import Planned
    from experiments.runs.runner import RunResult
    from experiments.runs.until_decided import Until

EXIT_CODES: Final = (
    "exit codes: 0 all ran and all products identical; 1 a cell failed, products differ or a "
    "metric is outside its band (regression); 2 bad usage or input; 3 all ran but a verdict is "
    "invalid; 130 interrupted"
)

SHOWN_TRACES: Final = 10  # in a plan: each takes a fifth of a second to generate

app = group("Run experiments and report them.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from common.shell import NetworkError
    from experiments.design.spec import SpecErrors, UsageError
    from experiments.runs.runner import RunError
    from parsers.base.jsonfiles import BadFile

    try:
        yield
    except (BadFile, SpecErrors, UsageError) as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except (RunError, NetworkError) as error:
        raise Failure(f"{PROGRAM}: {error}", EXIT_FAILED) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{PROGRAM}: {os_error_text(error)}", EXIT_FAILED) from error
    except KeyboardInterrupt:
        raise Failure(f"\n{PROGRAM}: interrupted; the network is down", EXIT_INTERRUPTED) from None


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments)


@command(app, "run", told=told, panel=EXPERIMENTS)
def run_command(options: RunOptions) -> int:
    """Run an experiment and print its result."""
    if options.at is None and options.mixed:
        raise Failure("--mixed: found without --at; valid: --at ADDRESS --mixed", EXIT_USAGE)
    if options.at is None:
        return run_experiment(
            options.name,
            options.clock,
            options,
            parts=options.parts or 1,
            machines=options.machine,
        )
    if options.machine:
        raise Failure("--machine: found with --at; valid: one of them", EXIT_USAGE)
    return _run_at(options)


def _run_at(options: RunOptions) -> int:
    """Run an experiment's cells at workers."""
    from experiments.workers.choice import check_options, clock_at

    check_options(options)
    if options.dry_run:
        return run_experiment(options.name, options.clock, options)

    @contextmanager
    def opened(planned: Sequence[Planned]) -> Iterator[Clock]:
        with closing(clock_at(options, planned)) as clock:
            yield clock

    return run_experiment(options.name, options.clock, options, opened)


@command(app, "remote", told=told, panel=EXPERIMENTS)
def remote_command(options: RemoteOptions) -> int:
    """Run an experiment whose hosts are on other machines, reached by ssh."""
    from experiments.runs import real_hosts

    hosts = real_hosts.hosts_of(options)

    @contextmanager
    def opened(planned: Sequence[Planned]) -> Iterator[Clock]:
        yield real_hosts.clock_of(hosts, options, planned)

    return run_experiment(options.name, "native", options, opened)


@command(app, "experiments", told=told, panel=EXPERIMENTS)
def experiments_command() -> int:
    """List the experiments."""
    from experiments.design.spec import bundled, find, load

    for name in bundled():
        print(f"{name:12} {load(find(name)).description}")
    return EXIT_OK


@command(app, "report", told=told, panel=EXPERIMENTS)
def report_command(options: ReportOptions) -> int:
    """Write and print a run's report again, or compare runs."""
    from experiments.cells.run_directory import no_run
    from experiments.runs import runner

    runs = options.runs or []
    if len(runs) > 1 or options.identical or options.json is not None:
        from experiments.runs import compare

        if options.include_invalid:
            text = "--include-invalid: found with a comparison; valid: with the report of one run"
            raise Failure(text, EXIT_USAGE)
        return compare.main(
            runs or [_newest()],
            output=options.output,
            json_file=options.json,
            identical=options.identical,
            full=options.full,
        )
    if options.output is not None:
        text = "--output: found with one run; valid: with several, --identical or --json"
        raise Failure(text, EXIT_USAGE)
    found = runs[0] if runs else _newest()
    if not (found / "cells").is_dir():
        raise Failure(f"{PROGRAM}: {no_run(found, RUNS)}", EXIT_USAGE)
    return runner.report(found, include_invalid=options.include_invalid, full=options.full)


@command(app, "regression", told=told, panel=EXPERIMENTS)
def regression_command(options: RegressionOptions) -> int:
    """Check a run's metrics against their accepted bands."""
    from experiments.bounds import regression

    return regression.main(options)


@command(app, "repeat", told=told, panel=EXPERIMENTS)
def repeat_command(options: RepeatOptions) -> int:
    """Run a run again from its manifest, and compare."""
    from experiments.runs import repeat

    return repeat.main(options)


@command(app, "verify", told=told, panel=EXPERIMENTS)
def verify_command(options: VerifyOptions) -> int:
    """Check a run's files, and its metrics against its logs."""
    from experiments.runs import verify

    return verify.main(options)


@command(app, "workers", told=told, panel=EXPERIMENTS)
def workers_command(options: WorkersOptions) -> int:
    """Start workers that run cells for `run --at`, on this machine."""
    from experiments.workers import local

    return local.serve(options)


@dataclass(kw_only=True)
class RateForOptions:
    """Options of `rate-for`."""

    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A file with lines 'SIZE YYYYMMDDhhmmss.mmm', a log of notifyme, or a generated "
            "hour: model, paced, model:conduit, model:nexrad2, model:nexrad3, model:ngrid-2020.",
        ),
    ]
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="Maximum latency of a file, e.g. 5s.")
    ] = None
    buffer: Annotated[
        int | None,
        typer.Option(parser=size_bytes, metavar="SIZE", help="Maximum queue, e.g. 300MB."),
    ] = None
    rate: Annotated[
        int | None,
        typer.Option(
            parser=rate_bps,
            metavar="RATE",
            help="Compute latency and queue at this rate, e.g. 20Mbps.",
        ),
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Packet loss, e.g. 1%: also compute what FMTP delivers."
        ),
    ] = None
    f_snd: Annotated[
        float,
        typer.Option(
            "--f-snd", metavar="FACTOR", help="Timeout factor of MPUP16 equation 1, with --loss."
        ),
    ] = 5000.0
    rtt: Annotated[
        str,
        typer.Option(
            metavar="TIMES", help="Round-trip times of the receivers, with --loss, e.g. 36ms,90ms."
        ),
    ] = "36ms,41ms,50ms,90ms"
    seed: Annotated[int, typer.Option(parser=whole, metavar="N", help="Seed of the model.")] = 1


@command(app, "rate-for", told=told, panel=EXPERIMENTS)
def rate_for_command(options: RateForOptions) -> int:
    """Compute the rate and buffer that a stream of files needs."""
    from experiments.design.rate_report import Asked, report

    asked = Asked(
        latency=options.latency,
        buffer_bytes=options.buffer,
        rate_bps=options.rate,
        loss=options.loss,
        f_snd=options.f_snd,
        round_trips=options.rtt,
    )
    print(report(options.trace, options.seed, asked), end="")
    return EXIT_OK


@dataclass(kw_only=True)
class CleanOptions:
    """Options of `clean`."""

    all: Annotated[bool, typer.Option("--all", help="Also remove all results.")] = False


@command(app, "clean", told=told, panel=EXPERIMENTS)
def clean_command(options: CleanOptions) -> int:
    """Remove leftovers of interrupted and failed runs."""
    from experiments.cells.run_directory import partial_runs, remove_partial, remove_results

    removed = 0
    for experiment in sorted(p for p in RUNS.glob("*") if p.is_dir()):
        for partial in partial_runs(experiment.parent, experiment.name):
            remove_partial(partial)
            removed += 1
        if options.all and remove_results(experiment):
            removed += 1
    print(f"removed {counted(removed, 'directory', 'directories')}")
    return EXIT_OK


# -- a run ------------------------------------------------------------------------------------
def _spec(name: str, options: RunChoices) -> tuple[AnySpec, str | None]:
    """Return the experiment to run, and its level."""
    from experiments.design.spec import at_level, find, level_of, load
    from experiments.design.spec_options import override

    given: Overrides = {
        "duration_s": options.duration,
        "receivers": options.receivers,
        "repeats": options.repeats,
        "trace": options.trace,
        "seed": options.seed,
        "queue_bytes": options.queue_bytes,
        "monitor": options.monitor,
    }
    spec = load(find(name))
    chosen = at_level(spec, options.level)
    if options.until_decided:
        given["repeats"] = _most_repeats(chosen, options)
    return override(chosen, given), level_of(spec, options.level)


def _most_repeats(spec: AnySpec, options: RunChoices) -> int:
    """Return how many repeats --until-decided may run. Raises UsageError."""
    from experiments.design.spec import UsageError
    from experiments.runs.until_decided import LEAST_REPEATS, MOST_REPEATS

    if not spec.claims:
        raise UsageError(
            f"--until-decided: found {spec.name}, which has no claims; valid: an experiment with a "
            "block claims"
        )
    most = MOST_REPEATS if options.repeats is None else options.repeats
    if most < LEAST_REPEATS:
        valid = f"{LEAST_REPEATS} or more with --until-decided"
        raise UsageError(f"--repeats: found '{most}'; valid: {valid}")
    return max(most, spec.repeats) if options.repeats is None else most


Opened = Callable[["Sequence[Planned]"], "AbstractContextManager[Clock]"]


def run_experiment(
    name: str,
    clock_name: str,
    options: RunChoices,
    elsewhere: Opened | None = None,
    *,
    parts: int = 1,
    machines: Sequence[str] = (),
) -> int:
    """Run the experiment, or show its plan. Return the exit code. `elsewhere`: opens the clock of
    cells at workers. `parts`: guests of a cell, at most; `machines`: where those after the first
    are.

    Raises SpecErrors, UsageError, RunError, NetworkError, OSError.
    """
    from experiments.runs.clocks import clock_of

    _check_runs(options.runs)
    spec, level = _spec(name, options)
    planned = _plan(name, spec, level, options)
    if elsewhere is not None:
        with elsewhere(planned) as clock:
            return _run_planned(name, spec, planned, clock, options, local=False)
    runs = options.runs.resolve()
    clock = clock_of(
        clock_name,
        options,
        planned,
        runs,
        plan_only=options.dry_run,
        parts=parts,
        machines=machines,
    )
    return _run_planned(name, spec, planned, clock, options, local=True)


def _check_runs(runs: Path) -> None:
    """Refuse a place for results where no directory is or can be made. Raises UsageError."""
    from experiments.design.spec import UsageError

    there = next(p for p in (runs.absolute(), *runs.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise UsageError(f"--runs: found {there}, which is no directory; valid: a directory")


def _plan(name: str, spec: AnySpec, level: str | None, options: RunChoices) -> tuple[Planned, ...]:
    """Return the planned cells. Raises as `plan`, with the line of a wrong value in the file."""
    from experiments.design.expansion import traces_by_label
    from experiments.design.file_lines import with_lines
    from experiments.design.spec import GENERATED, UsageError, find, valid_traces
    from experiments.runs import runner

    try:
        traces = traces_by_label(spec).values() if options.trace is None else ()
        for trace in traces:
            if trace not in GENERATED and not Path(trace).exists():
                valid = valid_traces(Path(trace).name)
                raise UsageError(f"trace: found '{trace}', which is no file; valid: {valid}")
        return runner.plan(spec, level, options.only, SHOWN_TRACES if options.dry_run else None)
    except UsageError as error:
        given = {
            "duration_s": options.duration,
            "receivers": options.receivers,
            "trace": options.trace,
            "q_snd": options.queue_bytes,
        }
        set_here = {key for key, value in given.items() if value is not None}
        raise UsageError(with_lines(str(error), find(name), level, set_here)) from None


def _run_planned(
    name: str,
    spec: AnySpec,
    planned: Sequence[Planned],
    clock: Clock,
    options: RunChoices,
    *,
    local: bool,
) -> int:
    """Run the planned cells by a clock, or show the plan. Return the exit code."""
    from experiments.design.selection import ordered
    from experiments.runs import estimates, plan_summary, runner
    from experiments.runs.cell_process import VirtualClock
    from experiments.runs.manifest import machine
    from experiments.runs.progress import make_reporter
    from experiments.runs.until_decided import first_of

    captures = _captures(options, planned)
    runs = options.runs.resolve()
    known = estimates.read(runs, clock, machine())
    until = _until(name, options)
    first = planned if until is None else first_of(planned, until)
    lines = plan_summary.summary(
        spec, first, known, order=options.order, clock=clock.name, jobs=clock.jobs
    )
    if isinstance(clock, VirtualClock) and clock.parts > 1:
        lines.append(plan_summary.parts_line(first, clock.parts))
    if until is not None:
        lines.append(plan_summary.until_line(until, spec.repeats))
    if options.dry_run:
        in_order = ordered(first, options.order, spec.base_seed)
        print("\n".join([*lines[:-1], *plan_summary.cell_lines(in_order, known), lines[-1]]))
        runner.check_queues(planned)
        if clock.name == "native":
            runner.check_disk(planned, runs)
        return EXIT_OK
    if local:
        runner.check_machine(planned, runs, options.build, clock.name)
    say("\n".join(lines))
    result = runner.run_experiment(
        spec,
        planned,
        make_reporter(),
        runner.RunOptions(
            runs=runs,
            order=options.order,
            resume=options.resume,
            keep_work=options.keep_work,
            build=options.build.resolve(),
            command=[PROGRAM, *given_arguments()],
            clock=clock,
            captures=captures,
            include_invalid=options.include_invalid,
            until=until,
            only=options.only,
        ),
    )
    code = _judge(result)
    _conclude(result.path)
    return code


def _captures(options: RunChoices, planned: Sequence[Planned]) -> Captures:
    """Return what to capture and sample. Raises UsageError."""
    from experiments.cells.captures import Captures, problems
    from experiments.cells.sysstat import SAMPLES
    from experiments.design.spec import UsageError

    samples = tuple(dict.fromkeys(options.sample))
    if wrong_samples := [name for name in options.sample if name not in SAMPLES]:
        raise UsageError(f"--sample: {unknown('sample', wrong_samples[0], SAMPLES)}")
    captures = Captures(tuple(options.capture), options.capture_bytes, options.snap_bytes, samples)
    if wrong := problems(captures, (p.network for p in planned)):
        raise UsageError("\n".join(wrong))
    return captures


def _until(name: str, options: RunChoices) -> Until | None:
    """Return when a run that adds repeats ends; None for a run that does not."""
    from experiments.design.spec import UsageError, at_level, find, load
    from experiments.runs.until_decided import BUDGET_S, Until

    if not options.until_decided:
        if options.budget is not None:
            raise UsageError("--budget: found a time without --until-decided; valid: both")
        return None
    budget_s = BUDGET_S if options.budget is None else options.budget
    return Until(budget_s, at_level(load(find(name)), options.level).repeats)


def _conclude(run: Path) -> None:
    """Print what the run found, after everything else."""
    from parsers.report.brief import BRIEF_FILE, Brief, shown_brief

    file = run / "report" / BRIEF_FILE
    if not file.is_file():
        print(f"Results: {_shown(run)}")
        return
    brief = Brief.model_validate_json(file.read_text(encoding="utf-8"))
    page = str(_shown(run / "report/index.html"))
    hint = f"The whole report: {PROGRAM} report --full {_shown(run)}"
    print(shown_brief(brief, page, hint), end="")


def _judge(result: RunResult) -> int:
    """Return the exit code, and say on stderr why it is not 0."""
    from experiments.cells.run_directory import FAILED

    code = EXIT_OK
    for name in result.invalid:
        _shout(f"{name}: verdict INVALID: do not trust its figures")
        for line in _failed_checks(result.path / "cells" / name / "verdict.json"):
            _shout(f"  {line}")
        code = EXIT_INVALID
    if result.cells and not result.report_ok:
        _shout("the report could not be written")
        code = EXIT_FAILED
    for name in result.failed:
        _shout(f"{name}: FAILED: {result.problems[name][-1]}")
        _shout(f"  its logs are in {_shown(result.path / FAILED / name)}")
        code = EXIT_FAILED
    if different := [c.cell for c in result.cells if not c.identical]:
        _shout(f"products differ or are missing in {', '.join(different)}")
        code = EXIT_FAILED
    return code


def _failed_checks(path: Path) -> list[str]:
    checks = json.loads(path.read_text(encoding="utf-8"))["checks"]
    return [f"{c['name']}: {c['text']}" for c in checks if c["status"] == "fail"]


def _shout(text: str) -> None:
    print(f"*** {text}", file=sys.stderr)


def _shown(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _newest() -> Path:
    from experiments.cells.run_directory import latest_run
    from experiments.design.spec import UsageError

    found = latest_run(RUNS)
    if found is None:
        raise UsageError("found no run; valid: `make experiment-lossy` first")
    return found
