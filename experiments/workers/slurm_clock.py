# SPDX-License-Identifier: Apache-2.0
"""Cells as jobs of a Slurm partition. The cells that start within one tick become one job array.
Parcels and results are in the run's directory. The nodes must see it, and this checkout, under the
same paths as this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from common.files import Tail, tail, write_text
from common.places import ROOT
from experiments.cells.events import Event
from experiments.cells.job import Job
from experiments.design.expansion import CellSpec
from experiments.runs.cell_process import CellProblem
from experiments.runs.preparation import RunError
from experiments.runs.records import ClockRecord
from experiments.workers import parcel
from experiments.workers.address import SlurmAddress
from experiments.workers.parcel import Ended, Parcel, ParcelError, Terms
from experiments.workers.remote import Told, Workers, estimate_s, memory_bytes
from virtual.guest import Times

LOOK_S: Final = 3.0  # between two queries of Slurm's queue
RENEW_S: Final = 30.0
GONE_S: Final = 60.0  # after a job disappears from Slurm's queue, before its cell counts as lost
COMMAND_S: Final = 60.0
PROGRAMS: Final = ("sbatch", "squeue", "scancel", "sinfo")
# The variables by which Slurm's commands find their cluster; a job's others concern only itself.
CLUSTER: Final = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def environment_of(mine: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Slurm's commands: `mine`, without what a surrounding job set."""
    return {k: v for k, v in mine.items() if k in CLUSTER or not k.startswith("SLURM_")}


def _slurm(*argv: str) -> str:
    """Return what a command of Slurm prints. Raises CellProblem."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            env=environment_of(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CellProblem(f"{argv[0]}: {error}") from None
    if done.returncode != 0:
        raise CellProblem(f"{argv[0]}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class State:
    """What squeue says about a task. `state`: PENDING, RUNNING ...; `reason`: why the task
    waits."""

    state: str
    reason: str


def parse_queue(text: str) -> dict[str, State]:
    """Return task (JOB_INDEX) -> state, from lines `JOB|INDEX|STATE|REASON`."""
    found = {}
    for line in text.splitlines():
        parts = line.split("|", 3)
        if len(parts) == 4:
            job, index, state, reason = (part.strip() for part in parts)
            found[f"{job}_{index}"] = State(state, reason)
    return found


def script(name: str, partition: str, places: Sequence[Path], memory: int, where: Path) -> str:
    """Return the batch script of an array with a task for each place. `memory`: bytes of a task."""
    words = [sys.executable, "-m", "experiments", "worker-cell"]
    cases = "\n".join(f"{n}) place={shlex.quote(str(p))} ;;" for n, p in enumerate(places))
    return f"""#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --partition={partition}
#SBATCH --array=0-{len(places) - 1}
#SBATCH --ntasks=1 --cpus-per-task=1
#SBATCH --mem={-(-memory // 1_000_000)}M
#SBATCH --requeue
#SBATCH --output={str(where).replace("%", "%%")}/task-%a.out
case $SLURM_ARRAY_TASK_ID in
{cases}
esac
cd {shlex.quote(str(ROOT))} && exec {shlex.join(words)} "$place" </dev/null
"""


class SlurmProcess:
    """A cell as a task of a job array."""

    def __init__(self, clock: SlurmClock, place: Path, out: Path, memory: int) -> None:
        self._clock, self.place, self._out, self.memory = clock, place, out, memory
        self.task = ""  # JOB_INDEX, once it is submitted
        self.problem = ""  # why it could not be submitted
        self._told, self._tails = Told(), dict[str, Tail]()
        self._lines: dict[str, int] = {}
        self._code: int | None = None
        self._gone_since: float | None = None

    @property
    def times(self) -> Times | None:
        """Return the guest's times."""
        return self._told.times

    @property
    def code(self) -> int | None:
        """Return the exit code once the cell has ended and all events were given; else None."""
        return self._code

    def poll(self) -> list[Event]:
        """Return the events that are new. Raises CellProblem."""
        self._clock.attend()
        if self.problem:
            raise CellProblem(self.problem)
        ended = self._ended()
        events = self._read()
        if ended is not None:
            self._clock.workers.check(ended, self._out)
            self._code = ended.code
            return events
        return events + self._look()

    def _ended(self) -> Ended | None:
        try:
            return Ended.from_text((self.place / parcel.ENDED).read_text())
        except OSError:
            return None
        except ParcelError as error:
            raise CellProblem(str(error)) from None

    def _read(self) -> list[Event]:
        events: list[Event] = []
        for path in sorted(self.place.glob("events.*.jsonl"))[-1:]:
            first = self._lines.get(path.name, 0)
            lines = self._tails.setdefault(path.name, Tail(path)).lines()
            told = [line.decode("utf-8", "replace") for line in lines]
            events += self._told.events(path.name, first, told)
            self._lines[path.name] = first + len(lines)
        return events

    def _look(self) -> list[Event]:
        """Check what Slurm says while there is no result."""
        state = self._clock.state_of(self.task)
        if state is not None:
            self._gone_since = None
            if state.state == "PENDING":
                why = f" ({state.reason})" if state.reason not in ("", "None") else ""
                return self._told.waits(f"waiting for Slurm{why}")
            return []
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since > GONE_S:
            index = self.task.rpartition("_")[2]
            said = tail(self.place.parent / f"task-{index}.out")
            raise CellProblem(f"Slurm's job {self.task} ended without a result: {said}")
        return []

    def stop(self) -> None:
        """End the cell and remove all it made. Idempotent."""
        self._clock.forget(self)
        if self.task and self._code is None:
            with contextlib.suppress(CellProblem):
                _slurm("scancel", self.task)
        self._code = self._code if self._code is not None else 1


class Lease:
    """A file by which cells see that the run still waits for them. A thread renews it: between two
    polls, a run may judge its cells for longer than they wait."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def keep(self, path: Path) -> None:
        """Make the file, and renew it until `end`. Raises OSError."""
        path.parent.mkdir(exist_ok=True)
        path.touch()
        self.path = path
        self._thread.start()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            if self.path is not None:
                with contextlib.suppress(OSError):  # it is removed before the clock ends
                    os.utime(self.path)

    def end(self) -> None:
        """Renew it no longer. Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()


class SlurmClock:
    """The nodes of a partition, one core for each cell."""

    name = "virtual"

    def __init__(
        self, address: SlurmAddress, *, jobs: int | None, terms: Terms, mixed: bool
    ) -> None:
        self._partition, self._terms = address.partition, terms
        self.workers = Workers(address, mixed=mixed)
        self._name = f"downpour-{uuid.uuid4().hex[:12]}"
        self._waiting: list[SlurmProcess] = []
        self._queue: dict[str, State] = {}
        self._looked = 0.0
        self._lease = Lease()
        self._arrays = 0
        try:
            cores = self._cores()
        except CellProblem as error:
            raise RunError(f"--at: {error}") from None
        self.jobs = cores if jobs is None else jobs

    def _cores(self) -> int:
        """Return the partition's cores. Raises CellProblem, RunError."""
        shown = _slurm("sinfo", "--noheader", "--format=%R %C")
        found = dict(line.split() for line in shown.splitlines() if " " in line.strip())
        if self._partition not in found:
            valid = ", ".join(sorted(found)) or "none: the cluster has no partition"
            raise RunError(f"--at: found partition '{self._partition}'; valid: {valid}")
        _, _, _, total = found[self._partition].split("/")  # allocated/idle/other/total
        return int(total)

    def start(self, job: Job, out: Path) -> SlurmProcess:
        """Prepare a cell that writes to `out`. The next look submits everything prepared so far
        together. Raises CellProblem."""
        place = job.work / "parcel"
        place.mkdir()
        if self._lease.path is None:
            self._lease.keep((job.work.parent.parent / "lease").resolve())
        needed = memory_bytes(job.cell, int(job.trace_info["bytes"]))
        terms = dataclasses.replace(
            self._terms,
            memory_bytes=needed,
            environment=self.workers.demanded,
            out=str(out.resolve()),
            lease=str(self._lease.path),
        )
        Parcel.of(job, terms).unpack(place)
        process = SlurmProcess(self, place.resolve(), out, needed)
        self._waiting.append(process)
        return process

    def attend(self) -> None:
        """Submit what is prepared, and query the queue when it is time."""
        if self._waiting:
            self._submit()
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            with contextlib.suppress(CellProblem):  # a controller that restarts will answer again
                self._queue = parse_queue(
                    _slurm(
                        *("squeue", "--noheader", "--array", f"--name={self._name}"),
                        "--format=%F|%K|%T|%r",
                    )
                )

    def _submit(self) -> None:
        processes, self._waiting = self._waiting, []
        memory = max(p.memory for p in processes)
        self._arrays += 1
        where = processes[0].place.parent.parent / f"slurm-{self._arrays}"
        where.mkdir(exist_ok=True)
        text = script(self._name, self._partition, [p.place for p in processes], memory, where)
        write_text(where / "array.sh", text)
        problem = job = ""
        try:
            job = _slurm("sbatch", "--parsable", str(where / "array.sh")).strip().partition(";")[0]
        except CellProblem as error:
            problem = str(error)
        for index, process in enumerate(processes):
            process.problem, process.task = problem, f"{job}_{index}" if job else ""
        self._looked = 0.0

    def state_of(self, task: str) -> State | None:
        """Return what the last look at the queue said about a task; None: nothing."""
        return self._queue.get(task)

    def forget(self, process: SlurmProcess) -> None:
        """Do not submit a cell that the run no longer waits for."""
        if process in self._waiting:
            self._waiting.remove(process)

    def estimate_s(self, cell: CellSpec, trace_bytes: int) -> float:
        """Return the seconds of real time that a cell takes, by formula."""
        return estimate_s(cell, trace_bytes)

    def turns(self) -> None:
        """Return None: cells wait in the engine's own queue, not for turns."""

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""
        return self.workers.describe()

    def close(self) -> None:
        """End what is left of this run's jobs."""
        self._lease.end()
        with contextlib.suppress(CellProblem):
            _slurm("scancel", f"--name={self._name}")
