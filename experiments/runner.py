# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: checks everything first, then cell by cell in processes of their own, then
the report. Whatever happens, nothing of a cell's network is left."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from experiments import manifest, queue_place, trace_input
from experiments.cell import Job
from experiments.configs import LDMD
from experiments.plan import (
    CellSpec,
    disk_needed_bytes,
    expand,
    seconds_estimated,
    seconds_limit,
)
from experiments.progress import Reporter
from experiments.rundir import RunDirectory, take_over, write_json, write_text
from experiments.spec import ExperimentSpec
from experiments.trace_input import ReplayTrace
from topologies.lifecycle import new_run_id, purge
from topologies.load import find as find_topology
from topologies.load import load as load_topology
from topologies.model import Network
from topologies.shell import LabError, die_with_parent

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = ROOT / "runs"
BUILD: Final = ROOT / "build"
PROGRAMS: Final = (
    LDMD,
    "ldm7/pqcreate",
    "ldm7/pqinsert",
    "ldm7/pqcat",
    "topologies/wire/wire-relay",
)
STOP_S: Final = 20.0  # for a cell's process to take its network down
TICK_S: Final = 1.0


class RunError(Exception):
    """The run cannot start or go on; the text is one clear message."""


@dataclass(frozen=True)
class Planned:
    """A cell with all it needs, checked."""

    cell: CellSpec
    network: Network
    trace: ReplayTrace

    @property
    def digest(self) -> str:
        return self.cell.digest(self.trace.text + self.network.to_json())

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


def plan(spec: ExperimentSpec) -> tuple[Planned, ...]:
    """Expands the experiment with its traces and networks. Raises SpecErrors or TopologyErrors."""
    traces: dict[int, ReplayTrace] = {}
    networks: dict[int, Network] = {}
    planned = []
    for cell in expand(spec):
        if cell.seed not in traces:
            traces[cell.seed] = trace_input.prepare(spec.trace, spec.duration_s, cell.seed)
        if cell.m not in networks:
            path = find_topology(spec.topology)
            networks[cell.m] = load_topology(path, {"receivers": cell.m})
        planned.append(Planned(cell, networks[cell.m], traces[cell.seed]))
    return tuple(planned)


def check_machine(planned: Sequence[Planned], runs: Path, build: Path = BUILD) -> None:
    """Root, programs, disk. Raises RunError."""
    if os.geteuid() != 0:
        raise RunError(
            f"found user id {os.geteuid()}; valid: root, which making network namespaces needs "
            "(sudo make experiment-NAME)"
        )
    missing = [name for name in PROGRAMS if not os.access(build / name, os.X_OK)]
    if missing:
        raise RunError(
            f"found no program {', '.join(missing)} in {build}; valid: build them with `make build`"
        )
    check_queues(planned)
    check_disk(planned, runs)


def check_queues(planned: Sequence[Planned]) -> None:
    for item in planned:
        cell, largest = item.cell, item.trace.largest_bytes
        if cell.q_snd_bytes < 2 * largest:
            raise RunError(
                f"found a sender queue of {cell.q_snd_bytes} bytes; valid: at least "
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


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: cleaned up, exit code 130."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    old = {n: signal.signal(n, interrupt) for n in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class CellProcess:
    """The process of one cell, watched; `stop` ends it and removes all it made."""

    def __init__(self, job: Path, out: Path, run_id: str, errors: Path) -> None:
        self.run_id = run_id
        self._errors = errors.open("wb")
        argv = [sys.executable, "-m", "experiments", "cell", str(job), str(out)]
        # A session of its own: Ctrl-C reaches this process only, which then ends the cell.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            start_new_session=True,
            # If this process is killed, the cell still takes its network down.
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        self._events: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(line.decode("utf-8", "replace"))
        self._events.put(None)

    def events(self, limit_s: float, tick: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """The cell's events until its end. Raises RunError after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                line = self._events.get(timeout=TICK_S)
            except Empty:
                tick()
                if time.monotonic() > deadline:
                    raise RunError(f"no end within {limit_s:.0f} s") from None
                continue
            if line is None:
                return
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def wait(self) -> int:
        return self._process.wait(timeout=STOP_S)

    def stop(self) -> None:
        """Idempotent. A second Ctrl-C does not cut it short."""
        held = threading.current_thread() is threading.main_thread()
        old = signal.signal(signal.SIGINT, signal.SIG_IGN) if held else None
        try:
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(timeout=STOP_S)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._reader.join(timeout=STOP_S)
            self._errors.close()
            purge(self.run_id)
        finally:
            if held:
                signal.signal(signal.SIGINT, old)


def run_one(
    planned: Planned, run: RunDirectory, reporter: Reporter, *, keep_work: bool, build: Path
) -> CellResult:
    """Runs one cell. Raises RunError with what went wrong; logs stay only in the text."""
    cell = planned.cell
    out = run.partial_cell(cell.cell)
    logs = out / "logs"
    logs.mkdir()
    work = run.work / cell.cell
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_text(work / "network.json", planned.network.to_json())
    trace_path = run.path / f"trace-{cell.seed}.txt"
    if not trace_path.exists():
        write_text(trace_path, planned.trace.text)
    job = Job(
        cell=cell,
        run_id=new_run_id(f"x-{cell.protocol}-m{cell.m}"),
        network=work / "network.json",
        trace=trace_path,
        trace_info=planned.trace.to_dict(),
        build=build,
        work=work,
        keep_work=keep_work,
        digest=planned.digest,
    )
    write_text(work / "job.json", job.to_json())
    done: dict[str, Any] | None = None
    problem = ""
    process: CellProcess | None = None
    try:
        process = CellProcess(work / "job.json", out, job.run_id, logs / "cell.stderr")
        for event in process.events(seconds_limit(cell), reporter.tick):
            if event["event"] == "done":
                done = event
            elif event["event"] == "error":
                problem = str(event["text"])
            else:
                reporter.event(event)
        code = process.wait()
    finally:
        if process is not None:
            process.stop()
        if not keep_work:
            shutil.rmtree(work, ignore_errors=True)
    if done is None or code != 0:
        if not problem:
            last = (logs / "cell.stderr").read_text(errors="replace").strip().splitlines()[-5:]
            problem = f"its process ended with {code}: " + "\n".join(last)
        kept = keep_logs(out, run)
        raise RunError(f"{cell.cell}: {problem}\nIts logs are in {kept}")
    if (logs / "cell.stderr").stat().st_size == 0:
        (logs / "cell.stderr").unlink()
    run.complete_cell(cell.cell)
    return CellResult(cell.cell, str(done["verdict"]), bool(done["identical"]))


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
    spec: ExperimentSpec,
    planned: Sequence[Planned],
    reporter: Reporter,
    *,
    runs: Path = RUNS,
    resume: bool = False,
    keep_work: bool = False,
    build: Path = BUILD,
    command: Sequence[str] = (),
) -> RunResult:
    """Runs all cells and writes the report. Raises RunError, LabError or KeyboardInterrupt after
    cleaning up; complete cells are then kept for `resume`."""
    started = time.time()
    run = RunDirectory(runs, spec.name, datetime.datetime.now(datetime.UTC))
    complete = False
    try:
        with _termination_as_interrupt():
            trace = planned[0].trace.to_dict()
            cells = [p.cell for p in planned]
            described = manifest.build(
                spec, cells, root=ROOT, started=started, trace=trace, command=command
            )
            write_json(run.path / "manifest.json", described)
            taken: list[str] = []
            if resume:
                taken = take_over(run, runs, spec.name, {p.cell.cell: p.digest for p in planned})
            results = _run_cells(planned, taken, run, reporter, keep_work, build)
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
    keep_work: bool,
    build: Path,
) -> list[CellResult]:
    waiting = [p for p in planned if p.cell.cell not in taken]
    results = [_resumed(run, name) for name in taken]
    if taken:
        reporter.note(f"resumed: {', '.join(taken)}")
    with reporter:
        reporter.total(len(waiting), sum(seconds_estimated(p.cell) for p in waiting))
        for number, item in enumerate(waiting, start=1):
            reporter.cell(item.cell.cell, number, seconds_estimated(item.cell))
            result = run_one(item, run, reporter, keep_work=keep_work, build=build)
            if result.verdict == INVALID:
                # Decided by the emulation's evidence alone, not by what was measured.
                reporter.note(f"{result.cell}: verdict: invalid; run once more, this one set aside")
                run.set_aside(result.cell)
                reporter.cell(item.cell.cell, number, seconds_estimated(item.cell))
                again = run_one(item, run, reporter, keep_work=keep_work, build=build)
                result = dataclasses.replace(again, runs=2)
            results.append(result)
            same = "all products identical" if result.identical else "PRODUCTS DIFFER"
            reporter.note(f"{result.cell}: {same}; verdict: {result.verdict}")
    return results


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
