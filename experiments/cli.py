# SPDX-License-Identifier: Apache-2.0
"""Command line of the experiments.

Exit codes: 0 every cell ran and all products were identical (regression: and every metric is within
its band); 1 a cell failed, products differ or a metric is outside; 2 bad usage or input; 3 all ran,
but a verdict is invalid: the figures are not to be trusted; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID, EXIT_OK, EXIT_USAGE
from common.places import BUILD, RUNS
from experiments.cells.captures import Captures
from experiments.cells.captures import problems as capture_problems
from experiments.cells.run_directory import (
    FAILED,
    PARTIAL,
    latest_run,
    partial_runs,
    remove_partial,
)
from experiments.design.selection import ORDERS, ordered
from experiments.design.spec import (
    AnySpec,
    SpecErrors,
    UsageError,
    at_level,
    bundled,
    find,
    level_of,
    load,
    override,
)
from experiments.runs import estimates, plan_text, runner
from experiments.runs.manifest import machine
from experiments.runs.options import (
    add_guest_options,
    clock_of,
    count,
    size_bytes,
)
from experiments.runs.progress import make_reporter
from topologies.watch.capture import DEFAULT_LIMIT_BYTES

EXIT_CODES: Final = (
    "exit codes: 0 all ran and all products identical; 1 a cell failed, products differ or a "
    "metric is outside its band (regression); 2 bad usage or input; 3 all ran but a verdict is "
    "invalid; 130 interrupted"
)


def _overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an experiment (see list) or a .yaml file")
    parser.add_argument(
        "--level", metavar="LEVEL", help="quick (minutes; the default) or paper (as the papers')"
    )
    parser.add_argument("--repeats", type=count, metavar="N", help="runs of each cell")
    parser.add_argument("--duration", type=float, metavar="S", help="seconds of the trace")
    parser.add_argument("--receivers", type=int, metavar="M", help="number of receivers")
    parser.add_argument("--trace", metavar="FILE", help="lines 'SIZE YYYYMMDDhhmmss.mmm', or model")
    parser.add_argument("--seed", type=int, metavar="N", help="base seed")
    parser.add_argument(
        "--queue-bytes",
        type=size_bytes,
        metavar="N",
        help="sender's product queue (5GB in the paper)",
    )


def _capture_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--capture", action="append", default=[], metavar="LINK",
        help="capture this link while cells run (a:b: at a's end, b:a: at b's), into the cell's "
        "captures/LINK.pcapng; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--capture-bytes", type=size_bytes, default=DEFAULT_LIMIT_BYTES, metavar="N",
        help="size of a capture at most: the latest frames (default: 64MB)",
    )  # fmt: skip
    parser.add_argument(
        "--snap-bytes", type=size_bytes, default=0, metavar="N",
        help="of each frame that is captured (default: all)",
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Runs experiments on the emulated network and reports them.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an experiment and print its report")
    _overrides(run)
    run.add_argument(
        "--only", action="append", default=[], metavar="EXPR",
        help="cells with these levels (receivers=8,16; repeat=1), or whose name has this regular "
        "expression; may be given several times: all must hold",
    )  # fmt: skip
    run.add_argument("--dry-run", action="store_true", help="show the plan and end")
    run.add_argument(
        "--order", choices=ORDERS, default=ORDERS[0],
        help="of the cells: random (by the base seed; the default), or as in the file",
    )  # fmt: skip
    run.add_argument(
        "--include-invalid", action="store_true",
        help="the report's means also count cells whose verdict is invalid",
    )  # fmt: skip
    run.add_argument("--resume", action="store_true", help="use cells of interrupted runs")
    run.add_argument(
        "--build", type=Path, default=BUILD, metavar="DIR", help="where the C programs are"
    )
    run.add_argument(
        "--runs", type=Path, default=RUNS, metavar="DIR",
        help="where results go (default: runs/ of the checkout)",
    )  # fmt: skip
    run.add_argument("--keep-work", action="store_true", help="keep the product queues")
    _capture_options(run)
    run.add_argument(
        "--clock",
        choices=("native", "virtual"),
        default="native",
        help="virtual: in guests whose clock jumps from event to event; no root, no kernel modules",
    )
    add_guest_options(run)
    commands.add_parser("list", help="the experiments there are")
    report = commands.add_parser(
        "report", help="write and print a run's report again, or that of several runs side by side"
    )
    report.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="default: the newest")
    report.add_argument(
        "--include-invalid",
        action="store_true",
        help="cells with an invalid verdict are taken into means, figures and claims (one run)",
    )
    report.add_argument(
        "--identical",
        action="store_true",
        help="exit 1 unless all repeats, of one run or of several, are identical to the last digit",
    )
    report.add_argument(
        "--output", type=Path, metavar="DIR",
        help="where the comparison of runs is written (default: runs/compared/RUN--RUN)",
    )  # fmt: skip
    report.add_argument(
        "--json", type=Path, metavar="FILE", help="the comparison's figures with all digits"
    )
    commands.add_parser("repeat", help="run a run again from its manifest, and compare")
    commands.add_parser("verify", help="check a run's files, and its metrics against its logs")
    commands.add_parser("regression", help="a run held against the accepted bands of its metrics")
    clean = commands.add_parser("clean", help="remove what interrupted and failed runs left")
    clean.add_argument("--all", action="store_true", help="all results, too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["verify"]:
        from experiments.runs import verify

        return verify.main(argv[1:])
    try:
        if argv[:1] == ["repeat"]:
            from experiments.runs import repeat

            return repeat.main(argv[1:])
        if argv[:1] == ["regression"]:
            from experiments.bounds import regression

            return regression.main(argv[1:])
        options = _parser().parse_args(argv)
        if options.command == "list":
            return _list()
        if options.command == "report":
            return _report(options)
        if options.command == "clean":
            return _clean(options.all)
        return _run(options, argv)
    except (SpecErrors, UsageError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except (runner.RunError, runner.NetworkError) as error:
        print(f"experiments: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"experiments: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("\nexperiments: interrupted; the network is down", file=sys.stderr)
        return EXIT_INTERRUPTED


def _spec(options: argparse.Namespace) -> tuple[AnySpec, str | None]:
    """The experiment as it is to be run, and at which level."""
    given: dict[str, Any] = {
        "duration_s": options.duration,
        "receivers": options.receivers,
        "repeats": options.repeats,
        "trace": options.trace,
        "seed": options.seed,
        "queue_bytes": options.queue_bytes,
    }
    spec = load(find(options.name))
    return override(at_level(spec, options.level), given), level_of(spec, options.level)


def _list() -> int:
    for name in bundled():
        print(f"{name:12} {load(find(name)).description}")
    return EXIT_OK


def _run(options: argparse.Namespace, argv: Sequence[str]) -> int:
    spec, level = _spec(options)
    planned = runner.plan(spec, level, options.only)
    captures = Captures(tuple(options.capture), options.capture_bytes, options.snap_bytes)
    if wrong := capture_problems(captures, (p.network for p in planned)):
        raise UsageError("\n".join(wrong))
    runs: Path = options.runs.resolve()
    clock = clock_of(options, planned, runs)
    known = estimates.read(runs, clock, machine())
    lines = plan_text.summary(
        spec, planned, known, order=options.order, clock=clock.name, jobs=clock.jobs
    )
    if options.dry_run:
        in_order = ordered(planned, options.order, spec.base_seed)
        print("\n".join([*lines[:-1], *plan_text.cell_lines(in_order, known), lines[-1]]))
        runner.check_queues(planned)
        if clock.name == "native":
            runner.check_disk(planned, runs)
        return EXIT_OK
    runner.check_machine(planned, runs, options.build, clock.name)
    print("\n".join(lines), flush=True)
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
            command=["experiments", *argv],
            clock=clock,
            captures=captures,
            include_invalid=options.include_invalid,
        ),
    )
    text = result.path / "report/report.txt"
    if text.exists():
        print(text.read_text(), end="")
        print(
            f"Results: {_shown(result.path)}, report: {_shown(result.path / 'report/index.html')}"
        )
    else:
        print(f"Results: {_shown(result.path)}")
    return _judge(result)


def _judge(result: runner.RunResult) -> int:
    """The exit code, and on stderr why it is not 0."""
    code = EXIT_OK
    for name in result.invalid:
        _shout(f"{name}: verdict INVALID: its figures are not to be trusted")
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
    checks = json.loads(path.read_text())["checks"]
    return [f"{c['name']}: {c['text']}" for c in checks if c["status"] == "fail"]


def _shout(text: str) -> None:
    print(f"*** {text}", file=sys.stderr)


def _shown(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _report(options: argparse.Namespace) -> int:
    runs: list[Path] = options.runs
    if len(runs) > 1 or options.identical or options.json is not None:
        from experiments.runs import compare

        return compare.main(
            runs or [_newest()],
            output=options.output,
            json_file=options.json,
            identical=options.identical,
        )
    run = runs[0] if runs else _newest()
    if not (run / "cells").is_dir():
        raise runner.RunError(f"found {run}; valid: a run directory, runs/EXPERIMENT/STAMP")
    return runner.report(run, include_invalid=options.include_invalid)


def _newest() -> Path:
    run = latest_run(RUNS)
    if run is None:
        raise runner.RunError("found no run; valid: `make experiment-lossy` first")
    return run


def _clean(everything: bool) -> int:
    """What interrupted runs left; with --all every result, too."""
    removed = 0
    for experiment in sorted(p for p in RUNS.glob("*") if p.is_dir()):
        for partial in partial_runs(experiment.parent, experiment.name):
            remove_partial(partial)
            removed += 1
        if everything and not any(experiment.glob(f".*{PARTIAL}")):  # none is being made
            shutil.rmtree(experiment)
            removed += 1
    print(f"removed {removed} directories")
    return EXIT_OK
