# SPDX-License-Identifier: Apache-2.0
"""A running cell: start it, follow it, end it, and complete it in the run's directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.cells.captures import Captures
from experiments.cells.events import Event, Phase
from experiments.cells.job import Job
from experiments.cells.run_directory import RunDirectory, write_json, write_text
from experiments.runs import digests, manifest
from experiments.runs.cell_process import CellProblem, CellProcess, Clock, sample_of
from experiments.runs.preparation import Planned
from experiments.runs.records import FORMAT, RunRecord
from virtual.cores import at_place
from virtual.guest import Times
from virtual.turns import Turn


@dataclass(frozen=True)
class Finished:
    """A cell that ran. `seconds`: real time from its start to its end."""

    verdict: str
    identical: bool
    seconds: float
    lacking: bool = False  # a protocol that may miss products did


@dataclass(frozen=True)
class Failed:
    """A cell that could not run; `problem` says why."""

    problem: str
    seconds: float


class RunningCell:
    """`step` advances the cell without waiting; `stop` ends it and cleans up. `described`: what
    else its run.json says."""

    def __init__(
        self,
        planned: Planned,
        run: RunDirectory,
        clock: Clock,
        *,
        keep_work: bool,
        build: Path,
        captures: Captures,
        described: Mapping[str, object],
        turn: Turn,
    ) -> None:
        self.planned, self._run, self._keep_work = planned, run, keep_work
        self._described, self._turn = described, turn
        self._build, self._code = build, manifest.code(build)
        self._begin = time.monotonic()
        self._started = time.time()
        cell = planned.cell
        self.name = cell.cell
        self._out = run.partial_cell(cell.cell)
        self._errors = self._out / "logs/cell.stderr"
        self._errors.parent.mkdir()
        self._work = run.work / cell.cell
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        write_text(self._work / "network.json", planned.network.to_json())
        trace_path = run.path / planned.trace.file
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
            digest=planned.digest(sample_of(clock)),
            captures=captures,
        )
        self._phases: list[Phase] = []  # for estimates of later runs
        self._done: Event | None = None
        self._problem = ""
        self._process: CellProcess | None = None
        try:
            with at_place(turn.place):
                self._process = clock.start(job, self._out)
        except CellProblem as error:
            self._problem = str(error)

    @property
    def times(self) -> Times | None:
        """Return the guest's times; None: the cell runs natively."""
        return self._process.times if self._process is not None else None

    def step(self, report: Callable[[Event], None]) -> Finished | Failed | None:
        """Report what is new; return the result once the cell has ended. The files of a failed cell
        are then in the run's folder of failed cells."""
        if self._process is None:
            return self._fail(1)
        try:
            events = self._process.poll()
        except CellProblem as error:
            self._problem = self._problem or str(error)
            return self._fail(1)
        for event in events:
            if event["event"] == "done":
                self._done = event
            elif event["event"] == "error":
                self._problem = str(event["text"])
            else:
                if event["event"] == "phase":
                    begin_s = round(time.monotonic() - self._begin, 3)
                    self._phases.append({"text": event["text"], "real_s": begin_s})
                report(event)
        code = self._process.code
        if code is None:
            return None
        if self._done is None or code != 0:
            return self._fail(code)
        self.stop()
        if self._errors.exists() and self._errors.stat().st_size == 0:
            self._errors.unlink()
        seconds = time.monotonic() - self._begin
        found: RunRecord = {
            "format": FORMAT,
            "started": self._started,
            "ended": self._started + seconds,
            "real_s": round(seconds, 3),
            "phases": self._phases,
            "code": self._code,
        }
        if (code_now := manifest.code(self._build)) != self._code:
            found["code_after"] = code_now
        write_json(self._out / "run.json", {**found, **self._described})
        digests.write_cell(self._out)
        self._run.complete_cell(self.name)
        done = self._done
        lacking = bool(done.get("lacking", False))
        return Finished(str(done["verdict"]), bool(done["identical"]), seconds, lacking)

    def _fail(self, code: int) -> Failed:
        self.stop()
        problem = self._problem
        if not problem:
            text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
            problem = f"its process ended with {code}: " + "\n".join(text.strip().splitlines()[-5:])
        kept = self._run.keep_failed(self.name)
        # A path in the problem's text must exist when the user reads it: after the run.
        last = self._run.final / kept.relative_to(self._run.path)
        problem = problem.replace(str(self._out), str(last))
        write_text(kept / "problem.txt", problem + "\n")
        return Failed(problem, time.monotonic() - self._begin)

    def stop(self) -> None:
        """End the cell and clean up. Idempotent."""
        if self._process is not None:
            self._process.stop()
        self._turn.end()
        if not self._keep_work:
            shutil.rmtree(self._work, ignore_errors=True)
