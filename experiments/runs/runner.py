# SPDX-License-Identifier: Apache-2.0
"""Run an experiment: check everything first, then run the cells in their own processes, then write
the report. Whatever happens, no part of a cell's network remains, and complete cells are kept."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.contracts import INVALID
from common.places import BUILD, ROOT, RUNS
from common.shell import NetworkError, die_with_parent, termination_as_interrupt
from experiments.cells.captures import NO_CAPTURES, Captures
from experiments.cells.run_directory import FAILED, RunDirectory, write_json, write_text
from experiments.design.selection import Order, ordered
from experiments.design.spec import AnySpec, is_topology_file
from experiments.runs import digests, estimates, manifest
from experiments.runs.cell_process import Clock, NativeClock, sample_of
from experiments.runs.preparation import (
    Planned,
    RunError,
    check_disk,
    check_machine,
    check_queues,
    plan,
)
from experiments.runs.progress import Reporter
from experiments.runs.records import Manifest
from experiments.runs.resume import run_of, take_over
from experiments.runs.sweep import (
    CellResult,
    Outcome,
    Sweep,
    resumed,
)
from experiments.runs.until_decided import (
    Until,
    UntilDecided,
    first_of,
    judge_of,
    repeat_by_repeat,
)

__all__ = [
    "CellResult",
    "NetworkError",
    "Planned",
    "RunError",
    "RunOptions",
    "RunResult",
    "check_disk",
    "check_machine",
    "check_queues",
    "plan",
    "report",
    "run_experiment",
]


@dataclass(frozen=True)
class RunResult:
    """A complete run. `problems`: of failed cells, one for each attempt."""

    path: Path
    cells: tuple[CellResult, ...]
    report_ok: bool
    problems: dict[str, list[str]]

    @property
    def identical(self) -> bool:
        """Return whether every cell delivered all products unchanged."""
        return all(c.identical for c in self.cells)

    @property
    def invalid(self) -> tuple[str, ...]:
        """Return the cells whose verdict is invalid."""
        return tuple(c.cell for c in self.cells if c.verdict == INVALID)

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the cells without a result."""
        there = {c.cell for c in self.cells}
        return tuple(cell for cell in self.problems if cell not in there)


def in_force(run: RunDirectory, cell: str) -> str:
    """Return TCP's congestion control at the hosts of a complete cell."""
    described = json.loads((run.path / "cells" / cell / "cell.json").read_text("utf-8"))
    return str(described.get("parameters", {}).get("tcp_congestion_control", "unknown"))


@dataclass(frozen=True)
class RunOptions:
    """How to run an experiment."""

    runs: Path = RUNS  # where results go
    order: Order = "random"  # of the cells
    resume: bool = False  # take over complete cells of an interrupted run
    keep_work: bool = False
    build: Path = BUILD
    command: Sequence[str] = ()  # for the manifest
    clock: Clock | None = None  # None: native
    captures: Captures = NO_CAPTURES
    include_invalid: bool = False  # in the report's statistics
    topology: Path | None = None  # the experiment's own file, if it is no longer where it was
    until: Until | None = None  # None: every planned cell runs
    only: Sequence[str] | None = ()  # what chose the cells, for the manifest; None: not known


DEFAULTS: Final = RunOptions()
TOPOLOGY_COPY: Final = "topology.yaml"  # of an experiment with its own topology file


def run_experiment(
    spec: AnySpec,
    planned: Sequence[Planned],
    reporter: Reporter,
    options: RunOptions = DEFAULTS,
) -> RunResult:
    """Run the planned cells and write the report. Raises NetworkError, OSError or
    KeyboardInterrupt after cleaning up; complete cells are then kept for `resume`."""
    clock = options.clock if options.clock is not None else NativeClock()
    run = RunDirectory(options.runs, spec.name, datetime.datetime.now(datetime.UTC))
    complete = False
    try:
        with termination_as_interrupt():
            first = planned if options.until is None else first_of(planned, options.until)
            in_order = ordered(first, options.order, spec.base_seed)
            if options.until is not None:
                in_order = repeat_by_repeat(in_order)
            described = _described(spec, first, in_order, clock, options)
            if is_topology_file(spec.topology):
                own = options.topology or Path(spec.topology)
                write_text(run.path / TOPOLOGY_COPY, own.read_text("utf-8"))
            write_json(run.path / "manifest.json", described)
            taken = _taken_over(run, planned, clock, described, reporter) if options.resume else []
            supply = _supply(run, spec, planned, options, reporter)
            sweep = _sweep(run, taken, clock, described, options, reporter)
            sweep.cells([p for p in in_order if p.cell.cell not in taken], supply)
            outcome = sweep.outcome
            if supply is not None:
                described = {**described, **_grown(planned, outcome, in_order, supply, options)}
            # Workers are known once they have completed a cell.
            described = {**described, **clock.describe(), **_ended(run, planned, outcome, taken)}
            if other := by_other_code(run, outcome.results, described):
                described["other_code"] = other
                _tell_changed([cell for cell in other if cell not in taken], reporter)
            write_json(run.path / "manifest.json", described)
            report_ok = _report(run, outcome, reporter, options.include_invalid)
            if not options.keep_work:
                run.remove_work()
            digests.write_run(run.path)
            path = run.complete()
            complete = True
            results = [
                outcome.results[p.cell.cell] for p in planned if p.cell.cell in outcome.results
            ]
            return RunResult(path, tuple(results), report_ok, outcome.problems)
    finally:
        if not complete:
            _tell_abandoned(run, reporter)


def _tell_abandoned(run: RunDirectory, reporter: Reporter) -> None:
    """Clean up after an interruption, and report what is kept."""
    if run.abandon():
        reporter.note(f"complete cells are kept in {run.path}: --resume (RESUME=1) uses them")
    if (run.path / FAILED).is_dir():
        reporter.note(f"logs of failed cells are kept in {run.path / FAILED}")


def _described(
    spec: AnySpec,
    planned: Sequence[Planned],
    in_order: Sequence[Planned],
    clock: Clock,
    options: RunOptions,
) -> Manifest:
    """Return the part of the manifest that is known before the first cell."""
    described = manifest.build(
        spec,
        planned,
        root=ROOT,
        started=time.time(),
        command=options.command,
        order=options.order,
        names_in_order=[p.cell.cell for p in in_order],
        programs_in=options.build,
    )
    if options.only is not None:
        described["only"] = list(options.only)
    return {**described, **clock.describe()}


def _taken_over(
    run: RunDirectory,
    planned: Sequence[Planned],
    clock: Clock,
    described: Manifest,
    reporter: Reporter,
) -> list[str]:
    """Take complete cells over from an interrupted run; return their names."""
    wanted = {p.cell.cell: p.digest(sample_of(clock)) for p in planned}
    taken = take_over(run, run.parent.parent, run.parent.name, wanted)
    _tell_resumed(run, taken, described, reporter)
    return taken


def _sweep(
    run: RunDirectory,
    taken: Sequence[str],
    clock: Clock,
    described: Manifest,
    options: RunOptions,
    reporter: Reporter,
) -> Sweep:
    """Return the sweep that runs the cells that were not taken over."""
    sweep = Sweep(
        run,
        clock,
        reporter,
        estimates=estimates.read(options.runs, clock, described["machine"]),
        described={"git": described["git"], "jobs": clock.jobs},
        keep_work=options.keep_work,
        build=options.build,
        captures=options.captures,
    )
    sweep.outcome.results |= {name: resumed(run, name) for name in taken}
    return sweep


def _supply(
    run: RunDirectory,
    spec: AnySpec,
    planned: Sequence[Planned],
    options: RunOptions,
    reporter: Reporter,
) -> UntilDecided | None:
    """Return the source of further repeats, if they are requested."""
    if options.until is None:
        return None
    return UntilDecided(
        planned,
        options.until,
        judge_of(spec, run.cells),
        order=(options.order, spec.base_seed),
        note=reporter.note,
    )


def _grown(
    planned: Sequence[Planned],
    outcome: Outcome,
    first: Sequence[Planned],
    supply: UntilDecided,
    options: RunOptions,
) -> Manifest:
    """Return what the manifest says about the cells that ran, and why no more cells ran."""
    assert options.until is not None
    there = {*outcome.results, *outcome.problems}
    ran = [p for p in planned if p.cell.cell in there]
    in_order = [p.cell.cell for p in first if p.cell.cell in there]
    return {
        "cells": [p.cell.to_dict() for p in ran],
        "cells_in_order": [*in_order, *(n for n in there_in_order(outcome) if n not in in_order)],
        "seeds": sorted({p.cell.seed for p in ran}),
        "traces": manifest.traces_of(ran),
        "until_decided": {
            "budget_s": options.until.budget_s,
            "stopped": supply.stopped,
            "over": supply.is_over,
            "repeats": options.until.repeats,
        },
    }


def there_in_order(outcome: Outcome) -> list[str]:
    """Return the names of the cells that ended, in the order in which they did."""
    return list(dict.fromkeys([*outcome.results, *outcome.problems]))


def _tell_resumed(
    run: RunDirectory, taken: Sequence[str], described: Manifest, reporter: Reporter
) -> None:
    if not taken:
        reporter.note("resumed: found no complete cell of an interrupted run that fits")
        return
    reporter.note(f"resumed: {', '.join(taken)}")
    if other := by_other_code(run, taken, described):
        reporter.note(
            f"*** some of these were run by a different version of the code: {', '.join(other)}"
        )


def _tell_changed(cells: Sequence[str], reporter: Reporter) -> None:
    if cells:
        reporter.note(f"*** the code changed during the run; other code ran {', '.join(cells)}")


def by_other_code(run: RunDirectory, cells: Iterable[str], described: Manifest) -> list[str]:
    """Return the cells that ran other code than the manifest says, wholly or in part."""

    def is_other(cell: str) -> bool:
        record = run_of(run.cells / cell)
        return record.get("code") != described["code"] or "code_after" in record

    return [cell for cell in cells if is_other(cell)]


def _ended(
    run: RunDirectory, planned: Sequence[Planned], outcome: Outcome, taken: Sequence[str]
) -> Manifest:
    """Return what the manifest says once all cells have ended."""
    results = [outcome.results[p.cell.cell] for p in planned if p.cell.cell in outcome.results]
    seconds = {r.cell: run_of(run.cells / r.cell).get("real_s") for r in results}
    return {
        "ended": time.time(),
        "cells_resumed": list(taken),
        "runs": {r.cell: r.runs for r in results},
        "cell_seconds": {cell: s for cell, s in seconds.items() if s is not None},
        "failed": {
            cell: {"reason": outcome.problems[cell][-1], "artefacts": f"{FAILED}/{cell}"}
            for cell in outcome.failed
        },
        "problems": outcome.problems,
        "tcp_congestion_control": {r.cell: in_force(run, r.cell) for r in results},
    }


def _report(run: RunDirectory, outcome: Outcome, reporter: Reporter, include_invalid: bool) -> bool:
    if not outcome.results:
        reporter.note("no cell has a result: there is nothing to report")
        return False
    reporter.note("writing the report")
    return report(run.path, quiet=True, include_invalid=include_invalid) == 0


def report(
    path: Path, *, quiet: bool = False, include_invalid: bool = False, full: bool = False
) -> int:
    """Let the parsers write the report of a run directory; print the result, or all of the report.

    `quiet`: print nothing unless it fails. Return the exit code of `python -m parsers report`.
    """
    argv = [sys.executable, "-m", "parsers", "report", str(path.resolve())]
    argv += ["--include-invalid"] if include_invalid else []
    argv += ["--full"] if full else []
    argv += ["--quiet"] if quiet else []
    done = subprocess.run(
        argv,
        cwd=ROOT,
        capture_output=quiet,
        encoding="utf-8",
        errors="replace",
        check=False,
        preexec_fn=die_with_parent(),
    )
    if done.returncode != 0 and quiet:
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode
