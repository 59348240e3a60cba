# SPDX-License-Identifier: Apache-2.0
"""`downpour regression [NAME]`: a run held against the accepted bands of its metrics.

Exit codes: 0 every metric is within its band; 1 one is not, or the run failed; 2 bad usage or
input; 3 only verdicts are outside, and other programs used this machine's processors. Files for CI
systems are written completely or not at all.
"""

from __future__ import annotations

import datetime
import difflib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from common.command_line import PROGRAM, given_arguments
from common.exit_codes import EXIT_FAILED, EXIT_INVALID, EXIT_OK
from common.places import ROOT, RUNS
from experiments.bounds import bands
from experiments.bounds.bands_report import (
    Outcome,
    junit,
    markdown,
    table,
)
from experiments.cells.run_directory import FAILED, no_run, write_text
from experiments.design.spec import (
    UsageError,
    at_level,
    find,
    load,
)
from experiments.design.spec_options import override
from experiments.runs import runner
from experiments.runs.clocks import clock_of
from experiments.runs.options import RegressionOptions
from experiments.runs.progress import make_reporter
from experiments.verdict.cpu_load import Load, shares
from experiments.verdict.in_flight import DELAYS, EARLY
from virtual.kernel_build import KernelError, find_kernel

METRICS: Final = "metrics.json"
FAILED_LOGS: Final = "logs of failed cells"
# Checks of the verdict that fail when other programs use the processors. Not among them: the
# processor time of one of the run's processes, settings, counts and contents.
LATE: Final = frozenset(
    {
        *("CPU", "CPU steal", "run queue", "scheduling lag"),
        *("delay lateness, median", "delay lateness, 1 %", "order of packets", DELAYS),
    }
)
# Share of all processors. Measured on two: others took 0 to 2 % when quiet, 11 to 16 % where a
# hypervisor shared the processors, 47 to 87 % beside builds; the run itself took 13 to 37 %.
OTHERS_SHARE: Final = 0.10
OWN_SHARE: Final = 0.60


def main(options: RegressionOptions) -> int:
    """Run the command. Raises UsageError, SpecErrors, OSError, which `cli.main` reports."""
    path = options.bands if options.bands is not None else bands.path_of(options.name)
    file = bands.load(path)
    proposal: Path | None = options.update_bands
    if proposal is not None and (proposal.exists() or proposal.resolve() == path.resolve()):
        raise UsageError(
            f"--update-bands: found {proposal}, which exists; valid: a new file, to review "
            "before it replaces the current bands"
        )
    _check_usage(options, path, file.experiment)
    started = datetime.datetime.now(datetime.UTC)
    began = time.monotonic()
    failed: Mapping[str, str] = {}
    try:
        run = options.run if options.run is not None else _make(options)
        failed = _failed(run)
        if failed and not (run / METRICS).exists():  # no cell has a result, for these reasons
            outcome = Outcome(options.name, facts=_places(run, path), failed=failed)
        else:
            found = bands.judge(file.bands, _metrics(run))
            outcome = Outcome(options.name, tuple(found), facts=_facts(run, path), failed=failed)
    except (runner.RunError, runner.NetworkError) as error:
        facts = {"bands": _shown(path)}
        outcome = Outcome(options.name, problem=str(error), facts=facts, failed=failed)
    stamp = started.isoformat(timespec="seconds").removesuffix("+00:00")
    outcome = replace(outcome, started=stamp, took_s=time.monotonic() - began)
    _tell(outcome, options)
    if proposal is not None and not outcome.problem:
        if why := undecided(run, failed):
            valid = "a run whose cells all ended with a valid verdict"
            print(f"*** --update-bands: found {why}; valid: {valid}", file=sys.stderr)
        else:
            _propose(proposal, path, file.bands, outcome, options.tolerance)
    if outcome.ok:
        return EXIT_OK
    reasons = [] if outcome.problem or outcome.failed else taken_by_others(run, outcome)
    if reasons:
        print(f"NOT DECIDED, this machine was too busy: {'; '.join(reasons)}")
    return EXIT_INVALID if reasons else EXIT_FAILED


def _check_usage(options: RegressionOptions, path: Path, experiment: str) -> None:
    """Refuse what would spoil the result, before the run. `path`: the bands, of `experiment`.
    Raises UsageError, SpecErrors."""
    given = {
        "--junit": options.junit,
        "--summary": options.summary,
        "--update-bands": options.update_bands,
    }
    for option, target in given.items():
        if target is not None:
            _check_writable(option, target)
    run = options.run
    if run is None:
        name = load(find(options.name)).name
        if name != experiment:
            raise UsageError(
                f"--bands: found {path}, bands of {experiment}; valid: bands of {name}"
            )
    elif not run.is_dir():
        raise UsageError(f"--run: {no_run(run, RUNS)}")
    else:
        try:
            found = str(_manifest(run).get("experiment", experiment))
        except runner.RunError:
            return  # the outcome names it
        if found != experiment:
            raise UsageError(f"--run: found {run}, a run of {found}; valid: a run of {experiment}")


def _check_writable(option: str, path: Path) -> None:
    """Raises UsageError."""
    folder = path.absolute().parent
    while not folder.exists():  # it will be made
        folder = folder.parent
    found = ""
    if path.is_dir():
        found = f"{path}, a directory"
    elif not folder.is_dir():
        found = f"{folder}, which is no directory"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        found = f"{path}, and no right to write it"
    if found:
        raise UsageError(f"{option}: found {found}; valid: a file that can be written")


def undecided(run: Path, failed: Iterable[str]) -> str:
    """Return why bands cannot be proposed from a run: cells that failed or have an invalid verdict,
    whatever the bands say about them. Empty if they can. Raises RunError."""
    found = [f"{cell} failed" for cell in sorted(failed)]
    for cell, measured in sorted(_metrics(run)["cells"].items()):
        if measured.get("values", {}).get("verdict_invalid", {}).get("value") == 1:
            found.append(f"the verdict of {cell} is invalid")
    return "; ".join(found)


def taken_by_others(run: Path, outcome: Outcome) -> list[str]:
    """Return a sentence per invalid cell about who took the processors. Return none if a band other
    than the verdict's does not hold, or if a cell is invalid for another reason."""
    reasons = []
    for finding in outcome.offending:
        reason = ""
        if finding.band.name == "verdict_invalid" and finding.found is not None:
            reason = _taken(run / "cells" / finding.cell)
        if not reason:
            return []
        reasons.append(f"{finding.cell}: {reason}")
    return reasons


def _taken(cell: Path) -> str:
    """Return what others took of the processors during a cell. Empty if that does not explain its
    verdict: load cannot fail the check that failed, others took little, or the run took most."""
    try:
        verdict = json.loads((cell / "verdict.json").read_text(encoding="utf-8"))
        failed = {c["name"]: c["text"] for c in verdict["checks"] if c["status"] == "fail"}
        load = Load.from_dict(json.loads((cell / "load.json").read_text(encoding="utf-8")))
        share = shares(load)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return ""
    if not failed or not LATE.issuperset(failed) or EARLY in failed.get(DELAYS, ""):
        return ""
    if share.others < OTHERS_SHARE or share.own > OWN_SHARE:
        return ""
    return (
        f"{share.others:.0%} of the processors were taken by others ({share.stolen:.0%} by the "
        f"hypervisor), {share.own:.0%} by the run; {', '.join(failed)}"
    )


# -- the run ----------------------------------------------------------------------------------
def _make(options: RegressionOptions) -> Path:
    """Run the experiment. Raises RunError, NetworkError, SpecErrors or UsageError."""
    asked = options.clock
    if asked == "auto":
        try:
            asked = "virtual" if find_kernel() is not None else "native"
        except KernelError as error:
            raise runner.RunError(str(error)) from None
        if asked == "native" and os.geteuid() != 0:
            raise runner.RunError(
                "found no kernel for virtual time, and no root; valid: `make virtual-kernel` "
                "first, or `make regression CLOCK=native`"
            )
    spec = override(at_level(load(find(options.name)), None), {"duration_s": options.duration})
    planned = runner.plan(spec)
    clock = clock_of(asked, options, planned)
    runner.check_machine(planned, RUNS, options.build, clock.name)
    result = runner.run_experiment(
        spec,
        planned,
        make_reporter(),
        runner.RunOptions(
            build=options.build.resolve(),
            command=[PROGRAM, *given_arguments()],
            clock=clock,
        ),
    )
    return result.path


def _metrics(run: Path) -> Mapping[str, Any]:
    """Return the run's metrics. Raises RunError if it has none."""
    path = run / METRICS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise runner.RunError(
            f"found no metrics in {path} ({error}); valid: a run directory with its report "
            "(`downpour report RUN` writes it again)"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("cells"), dict):
        raise runner.RunError(f"found {path} without cells; valid: metrics.json of a run")
    return found


def _manifest(run: Path) -> Mapping[str, Any]:
    """Return the run's manifest; empty: it has none. Raises RunError."""
    path = run / "manifest.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    failed = found.get("failed", {}) if isinstance(found, dict) else None
    if not isinstance(failed, dict) or not all(isinstance(a, dict) for a in failed.values()):
        raise runner.RunError(
            f"found {path} without the reasons of failed cells; valid: manifest.json as a run "
            "writes it"
        )
    return dict(found)


def _failed(run: Path) -> dict[str, str]:
    """Return the cells of a run that have no result, by its manifest, and why. Raises RunError."""
    failed = _manifest(run).get("failed", {})
    return {cell: str(about.get("reason")) for cell, about in failed.items()}


def _facts(run: Path, path: Path) -> dict[str, str]:
    metrics = _metrics(run)
    facts = {"clock": str(metrics.get("clock", "?")), "verdict": str(metrics.get("verdict", "?"))}
    lengths = {f"{bands.number(c['cell']['duration_s'])} s" for c in metrics["cells"].values()}
    facts |= {"length": ", ".join(sorted(lengths))} if lengths else {}
    return facts | _places(run, path)


def _places(run: Path, path: Path) -> dict[str, str]:
    """Return where things are: bands, the run, and what failed cells left."""
    found = {"bands": _shown(path), "run": _shown(run)}
    logs = (run / FAILED).resolve()
    if not logs.is_dir():
        return found
    place = logs.relative_to(ROOT) if logs.is_relative_to(ROOT) else logs
    return {**found, FAILED_LOGS: str(place)}


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(ROOT))
    except ValueError:
        return path.name


# -- what it leaves ---------------------------------------------------------------------------
def _tell(outcome: Outcome, options: RegressionOptions) -> None:
    for name, problem in outcome.errors.items():
        print(f"*** {name}: {problem}", file=sys.stderr)
    if outcome.findings:
        print(table(outcome.findings), end="")
    for finding in outcome.offending:
        print(f"*** {finding}", file=sys.stderr)
    print(outcome.headline)
    if FAILED_LOGS in outcome.facts:
        print(f"Logs of failed cells: {outcome.facts[FAILED_LOGS]} (in CI, keep this directory)")
    if options.junit is not None:
        options.junit.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.junit, junit(outcome))
    if options.summary is not None:
        options.summary.parent.mkdir(parents=True, exist_ok=True)
        with options.summary.open("a", encoding="utf-8") as stream:
            stream.write(markdown(outcome))


def _propose(
    proposal: Path, path: Path, known: Sequence[bands.Band], outcome: Outcome, share: float
) -> None:
    before = path.read_text(encoding="utf-8")
    after = bands.propose(before, known, outcome.findings, share)
    write_text(proposal, after)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), _shown(path), str(proposal), lineterm=""
    )
    print("\n".join(lines) or "the measured values give the current bands")
    print(f"Proposed bands: {proposal}; the current ones, {_shown(path)}, are unchanged")
