# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: checks everything first, then cell by cell in processes of their own, then
the report. Whatever happens, nothing of a cell's network is left."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from experiments import burst_loss, manifest, queue_place, trace_input
from experiments.cell_process import CellProblem, CellProcess, Clock, NativeClock
from experiments.configs import LDMD
from experiments.fidelity import HOSTLAG
from experiments.job import Job
from experiments.join_leave import plan as join_leave
from experiments.networks import Networks, with_rtt
from experiments.plan import (
    CellSpec,
    disk_needed_bytes,
    expand,
)
from experiments.progress import Reporter
from experiments.rundir import RunDirectory, take_over, write_json, write_text
from experiments.spec import AnySpec, JoinLeaveSpec
from experiments.trace_input import ReplayTrace
from topologies.handoff_loss import with_handoff_loss
from topologies.load import find as find_topology
from topologies.load import load as load_topology
from topologies.model import Network
from topologies.shell import LabError, termination_as_interrupt
from virtual.guest import Times

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = ROOT / "runs"
BUILD: Final = ROOT / "build"
PROGRAMS: Final = (
    LDMD,
    "ldm7/pqcreate",
    "ldm7/pqinsert",
    "ldm7/pqcat",
    "topologies/wire/wire-relay",
    HOSTLAG,
)
TICK_S: Final = 0.2


class RunError(Exception):
    """The run cannot start or go on; the text is one clear message."""


@dataclass(frozen=True)
class Planned:
    """A cell with all it needs, checked."""

    cell: CellSpec
    network: Network
    trace: ReplayTrace

    def digest(self, clock: str) -> str:
        """Of all that decides what the cell does, the clock included."""
        return self.cell.digest(self.trace.text + self.network.to_json() + clock)

    def estimate_s(self, clock: Clock) -> float:
        return clock.estimate_s(self.cell, self.trace.size_bytes)

    @property
    def disk_bytes(self) -> int:
        return disk_needed_bytes(self.cell, self.trace.size_bytes)


INVALID: Final = "invalid"


@dataclass(frozen=True)
class CellResult:
    cell: str
    verdict: str
    identical: bool
    resumed: bool = False
    runs: int = 1  # more than one: the verdicts of the others were invalid, see set-aside/


@dataclass(frozen=True)
class RunResult:
    path: Path
    cells: tuple[CellResult, ...]
    report_ok: bool

    @property
    def identical(self) -> bool:
        return all(c.identical for c in self.cells)

    @property
    def invalid(self) -> tuple[str, ...]:
        return tuple(c.cell for c in self.cells if c.verdict == INVALID)


def plan(spec: AnySpec, level: str | None = None) -> tuple[Planned, ...]:
    """Expands the experiment, which is at `level`, with its traces and networks. Raises SpecErrors,
    TopologyErrors or UsageError."""
    if isinstance(spec, JoinLeaveSpec):
        return _plan_join_leave(spec, level)
    traces: dict[int, ReplayTrace] = {}
    networks = Networks()
    planned = []
    cells = expand(spec, level)
    burst_loss.check(cells)
    for cell in cells:
        if cell.seed not in traces:
            traces[cell.seed] = trace_input.prepare(spec.trace, spec.duration_s, cell.seed)
        planned.append(Planned(cell, networks.of(cell), traces[cell.seed]))
    return tuple(planned)


def _plan_join_leave(spec: JoinLeaveSpec, level: str | None) -> tuple[Planned, ...]:
    network = load_topology(find_topology(spec.topology), {"lanes": len(spec.feeds)})
    subscribers = [host.name for host in network.subscribers]
    network = with_rtt(network, spec.parameters.rtt_ms)
    cells = join_leave.expand(spec, subscribers, level)
    network = with_handoff_loss(network, spec.parameters.handoff_loss)
    return tuple(Planned(cell, network, join_leave.prepare(spec, cell)) for cell in cells)


def check_machine(
    planned: Sequence[Planned], runs: Path, build: Path = BUILD, clock: str = "native"
) -> None:
    """Root (not needed in virtual time), programs, disk. Raises RunError."""
    if clock == "native" and os.geteuid() != 0:
        raise RunError(
            f"found user id {os.geteuid()}; valid: root, which making network namespaces needs "
            "(sudo make experiment-NAME), or virtual time, which needs no rights (CLOCK=virtual)"
        )
    missing = [name for name in PROGRAMS if not os.access(build / name, os.X_OK)]
    if missing:
        raise RunError(
            f"found no program {', '.join(missing)} in {build}; valid: build them with `make build`"
        )
    check_queues(planned)
    if clock == "native":
        check_disk(planned, runs)


def check_queues(planned: Sequence[Planned]) -> None:
    for item in planned:
        cell, largest = item.cell, item.trace.largest_bytes
        for whose, size in (("sender", cell.q_snd_bytes), ("receiver", cell.q_rcv_bytes)):
            if 0 < size < 2 * largest:
                raise RunError(
                    f"found a {whose} queue of {size} bytes; valid: at least "
                    f"{2 * largest}, twice the largest product of the trace ({largest} bytes)"
                )


def check_disk(planned: Sequence[Planned], runs: Path) -> None:
    """The largest cell must fit, unless its queues lie in memory; cells run one after the other and
    remove their queues."""
    place = runs
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    largest = max(planned, key=lambda p: p.disk_bytes)
    needed = largest.disk_bytes
    if queue_place.memory_free_bytes() >= needed:
        return
    if needed > free:
        raise RunError(
            f"found {free / 1e9:.2f} GB free in {place}; valid: {needed / 1e9:.2f} GB for the "
            f"product queues of {largest.cell.cell} (sender {largest.cell.q_snd_bytes / 1e9:.2f} "
            "GB). Lower it with QUEUE_BYTES= (--queue-bytes), DURATION= or RECEIVERS="
        )


class RunningCell:
    """A cell on its way: `step` moves it on without waiting, `stop` ends and cleans up."""

    def __init__(
        self,
        planned: Planned,
        run: RunDirectory,
        clock: Clock,
        *,
        keep_work: bool,
        build: Path,
    ) -> None:
        self.planned, self._run, self._keep_work = planned, run, keep_work
        cell = planned.cell
        self.name = cell.cell
        self._out = run.partial_cell(cell.cell)
        self._errors = self._out / "logs/cell.stderr"
        self._errors.parent.mkdir()
        self._work = run.work / cell.cell
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        write_text(self._work / "network.json", planned.network.to_json())
        trace_path = run.path / f"trace-{cell.seed}.txt"
        if not trace_path.exists():
            write_text(trace_path, planned.trace.text)
        job = Job(
            cell=cell,
            run_id=f"x-{cell.protocol}-m{cell.m}",
            network=self._work / "network.json",
            trace=trace_path,
            trace_info=planned.trace.to_dict(),
            build=build,
            work=self._work,
            keep_work=keep_work,
            digest=planned.digest(clock.name),
        )
        self._done: dict[str, Any] | None = None
        self._problem = ""
        self._process: CellProcess | None = None
        try:
            self._process = clock.start(job, self._out)
        except CellProblem as error:
            self._problem = str(error)

    @property
    def times(self) -> Times | None:
        return self._process.times if self._process is not None else None

    def step(self, report: Callable[[dict[str, Any]], None]) -> CellResult | None:
        """Reports what is new; the result once the cell has ended. Raises RunError with what went
        wrong; its logs are then kept aside."""
        if self._process is None:
            self._fail(1)
        assert self._process is not None
        try:
            events = self._process.poll()
        except CellProblem as error:
            self._problem = self._problem or str(error)
            self.stop()
            self._fail(1)
        for event in events:
            if event["event"] == "done":
                self._done = event
            elif event["event"] == "error":
                self._problem = str(event["text"])
            else:
                report(event)
        code = self._process.code
        if code is None:
            return None
        self.stop()
        if self._done is None or code != 0:
            self._fail(code)
        assert self._done is not None
        if self._errors.exists() and self._errors.stat().st_size == 0:
            self._errors.unlink()
        self._run.complete_cell(self.name)
        return CellResult(self.name, str(self._done["verdict"]), bool(self._done["identical"]))

    def _fail(self, code: int) -> NoReturn:
        problem = self._problem
        if not problem:
            text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
            problem = f"its process ended with {code}: " + "\n".join(text.strip().splitlines()[-5:])
        kept = keep_logs(self._out, self._run)
        raise RunError(f"{self.name}: {problem}\nIts logs are in {kept}")

    def stop(self) -> None:
        """Idempotent."""
        if self._process is not None:
            self._process.stop()
        if not self._keep_work:
            shutil.rmtree(self._work, ignore_errors=True)


def in_force(run: RunDirectory, cell: str) -> str:
    """TCP's congestion control at the hosts of a complete cell."""
    described: dict[str, Any] = json.loads((run.path / "cells" / cell / "cell.json").read_text())
    return str(described.get("parameters", {}).get("tcp_congestion_control", "unknown"))


def keep_logs(out: Path, run: RunDirectory) -> Path:
    """Moves the files of a failed cell out of the run, to where the user may look at them."""
    target = run.parent / f"failed-{out.name.strip('.').removesuffix('.partial')}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(out, target)
    return target


def run_experiment(
    spec: AnySpec,
    planned: Sequence[Planned],
    reporter: Reporter,
    *,
    runs: Path = RUNS,
    resume: bool = False,
    keep_work: bool = False,
    build: Path = BUILD,
    command: Sequence[str] = (),
    clock: Clock | None = None,
) -> RunResult:
    """Runs all cells and writes the report. Raises RunError, LabError or KeyboardInterrupt after
    cleaning up; complete cells are then kept for `resume`."""
    clock = clock if clock is not None else NativeClock()
    started = time.time()
    run = RunDirectory(runs, spec.name, datetime.datetime.now(datetime.UTC))
    complete = False
    try:
        with termination_as_interrupt():
            trace = planned[0].trace.to_dict()
            cells = [p.cell for p in planned]
            described = manifest.build(
                spec, cells, root=ROOT, started=started, trace=trace, command=command
            )
            described |= clock.describe()
            write_json(run.path / "manifest.json", described)
            taken: list[str] = []
            if resume:
                taken = take_over(
                    run, runs, spec.name, {p.cell.cell: p.digest(clock.name) for p in planned}
                )
            results = _run_cells(planned, taken, run, reporter, clock, keep_work, build)
            described |= {"ended": time.time(), "cells_resumed": taken}
            described["runs"] = {r.cell: r.runs for r in results}
            described["tcp_congestion_control"] = {c.cell: in_force(run, c.cell) for c in cells}
            write_json(run.path / "manifest.json", described)
            reporter.note("writing the report")
            report_ok = report(run.path, quiet=True) == 0
            path = run.complete(keep_work=keep_work)
            complete = True
            return RunResult(path, tuple(results), report_ok)
    finally:
        if not complete and run.abandon():
            reporter.note(f"complete cells are kept in {run.path}: --resume (RESUME=1) uses them")


def _run_cells(
    planned: Sequence[Planned],
    taken: Sequence[str],
    run: RunDirectory,
    reporter: Reporter,
    clock: Clock,
    keep_work: bool,
    build: Path,
) -> list[CellResult]:
    """All cells that are not `taken`, `clock.jobs` of them at once; results in the plan's order."""
    waiting = [p for p in planned if p.cell.cell not in taken]
    results = {name: _resumed(run, name) for name in taken}
    if taken:
        reporter.note(f"resumed: {', '.join(taken)}")
    numbers = {item.cell.cell: n for n, item in enumerate(waiting, start=1)}
    running: dict[str, RunningCell] = {}

    def start(item: Planned) -> None:
        name = item.cell.cell
        reporter.cell(name, numbers[name], item.estimate_s(clock))
        running[name] = RunningCell(item, run, clock, keep_work=keep_work, build=build)

    try:
        with reporter:
            reporter.total(len(waiting), sum(p.estimate_s(clock) for p in waiting), clock.jobs)
            while waiting or running:
                while waiting and len(running) < clock.jobs:
                    start(waiting.pop(0))
                time.sleep(TICK_S)
                for name, cell in list(running.items()):
                    result = cell.step(_reporting(reporter, cell))
                    if result is None:
                        reporter.tick(name, cell.times)
                        continue
                    del running[name]
                    if _settle(result, results, run, reporter):
                        waiting.insert(0, cell.planned)
                    else:
                        reporter.done(name)
    finally:
        for cell in running.values():
            cell.stop()
    return [results[p.cell.cell] for p in planned]


def _reporting(reporter: Reporter, cell: RunningCell) -> Callable[[dict[str, Any]], None]:
    duration_s = cell.planned.cell.duration_s

    def report(event: dict[str, Any]) -> None:
        part = event.get("elapsed_s", 0.0) / duration_s if event["event"] == "progress" else None
        reporter.event(cell.name, event, part, cell.times)

    return report


def _settle(
    result: CellResult, results: dict[str, CellResult], run: RunDirectory, reporter: Reporter
) -> bool:
    """Takes a result down. True: its verdict is invalid for the first time, and it is to be run
    once more. That is decided by the emulation's evidence alone, not by what was measured."""
    before = results.get(result.cell)
    if result.verdict == INVALID and before is None:
        reporter.note(f"{result.cell}: verdict: invalid; run once more, this one set aside")
        run.set_aside(result.cell)
        results[result.cell] = result
        return True
    results[result.cell] = dataclasses.replace(result, runs=1 if before is None else 2)
    same = "all products identical" if result.identical else "PRODUCTS DIFFER"
    reporter.note(f"{result.cell}: {same}; verdict: {result.verdict}")
    return False


def _resumed(run: RunDirectory, name: str) -> CellResult:
    raw = json.loads((run.cells / name / "verdict.json").read_text())
    same = any(c["name"] == "products identical" and c["status"] == "pass" for c in raw["checks"])
    return CellResult(name, raw["verdict"], same, resumed=True)


def report(path: Path, *, quiet: bool = False) -> int:
    """Writes the report of a run directory (parsers' work) and, unless quiet, prints it."""
    argv = [sys.executable, "-m", "parsers", "report", str(path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=quiet, text=True, check=False)
    if done.returncode != 0 and quiet:
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode


__all__ = ["LabError", "RunError", "RunResult", "check_machine", "plan", "report", "run_experiment"]
