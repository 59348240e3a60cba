# SPDX-License-Identifier: Apache-2.0
"""Cells at the workers of a Dask scheduler. Results come back over the scheduler's connections, so
workers need no shared directory."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from experiments.cells.events import Event
from experiments.cells.job import Job
from experiments.design.expansion import CellSpec
from experiments.design.spec import UsageError
from experiments.runs.cell_process import CellProblem
from experiments.runs.records import ClockRecord
from experiments.runs.runner import RunError
from experiments.workers import dask_task, environment, parcel
from experiments.workers.address import DaskAddress
from experiments.workers.parcel import Ended, Parcel, ParcelError, Terms
from experiments.workers.remote import Told, Workers, estimate_s, memory_bytes
from virtual.guest import Times

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_S: Final = 20.0
WAITING: Final = "waiting for a worker"
RESOURCES: Final = ("core", "memory")  # that `downpour workers` declares; a cell takes one core


class DaskProcess:
    """A cell at a worker."""

    def __init__(self, future: Future, workers: Workers, out: Path, close: Any) -> None:
        self._future, self._workers, self._out, self._close = future, workers, out, close
        self.told: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._so_far = Told()
        self._code: int | None = None

    @property
    def times(self) -> Times | None:
        """Return the guest's times."""
        return self._so_far.times

    @property
    def code(self) -> int | None:
        """Return the exit code once the cell has ended and all events were given; else None."""
        return self._code

    def poll(self) -> list[Event]:
        """Return the events that are new. Raises CellProblem."""
        events: list[Event] = []
        with contextlib.suppress(Empty):
            while True:
                part = self.told.get_nowait()
                events += self._so_far.events(part["attempt"], part["first"], part["lines"])
        if not self._future.done():
            return events or (self._so_far.waits(WAITING) if not self._so_far.times.real_s else [])
        if self._code is None:
            events += self._take()
        return events

    def _take(self) -> list[Event]:
        try:
            result = self._future.result()
            ended = Ended.from_text(result["ended"])
            parcel.unpack(result["files"], self._out)
        except (ParcelError, OSError) as error:
            raise CellProblem(str(error)) from None
        except Exception as error:  # whatever went wrong at the worker, or with it
            raise CellProblem(f"{type(error).__name__}: {error}") from None
        events = self._so_far.events(result["attempt"], 0, result["lines"])
        self._workers.check(ended, self._out)
        self._code = ended.code
        return events

    def stop(self) -> None:
        """End the cell and remove all it made. Idempotent."""
        if not self._future.done():
            self._future.cancel()
        self._future.release()
        self._close()


class DaskClock:
    """The workers of a Dask scheduler, one cell for each `core` that they declare."""

    name = "virtual"

    def __init__(
        self,
        address: DaskAddress,
        *,
        jobs: int | None,
        terms: Terms,
        mixed: bool,
    ) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError(
                f"--at: found {address}, but no package distributed; valid: install it with "
                "`.venv/bin/pip install 'downpour[workers]'` (make: make workers)"
            ) from None
        try:
            self._client: Client = Client(address.url, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise RunError(f"--at: {address} does not answer ({error})") from None
        self._terms = terms
        try:
            infos = self._client.scheduler_info(n_workers=-1)["workers"]
            self._declared = _declared(infos)
            cores = _cores(infos, self._declared)
            known = self._known(mixed=mixed)
        except BaseException:
            self.close()
            raise
        self._workers = Workers(address, mixed=mixed, known=known)
        self.jobs = cores if jobs is None else jobs

    def _known(self, *, mixed: bool) -> dict[str, str]:
        """Return the workers' environment. Raises RunError if they differ."""
        made_of = dict(self._client.run(dask_task.made_of))
        (first, one), *others = made_of.items()
        one = dict[str, str](one)
        for worker, other in others:
            if (differs := environment.difference(one, other)) and not mixed:
                raise RunError(
                    f"workers {first} ({environment.digest(one)}) and {worker} "
                    f"({environment.digest(other)}) differ: {differs}; valid: the "
                    "same checkout, kernel and packages everywhere, or --mixed"
                )
        return one

    def start(self, job: Job, out: Path) -> DaskProcess:
        """Start a cell that writes to `out`. Raises CellProblem."""
        topic = f"downpour-{uuid.uuid4().hex}"
        needed = memory_bytes(job.cell, int(job.trace_info["bytes"]))
        amounts = {"core": 1.0, "memory": float(needed)}
        terms = Terms(
            self._terms.limit_s,
            self._terms.stall_s,
            memory_bytes=needed if "memory" in self._declared else None,
            environment=self._workers.demanded,
        )
        future = self._client.submit(
            dask_task.run_parcel,
            Parcel.of(job, terms).to_dict(),
            topic,
            key=f"{job.cell.cell}-{topic}",
            pure=False,
            resources={name: amounts[name] for name in self._declared},
        )

        def close() -> None:
            with contextlib.suppress(ValueError):
                self._client.unsubscribe_topic(topic)

        process = DaskProcess(future, self._workers, out, close)
        self._client.subscribe_topic(topic, lambda event: process.told.put(event[1]))
        return process

    def estimate_s(self, cell: CellSpec, trace_bytes: int) -> float:
        """Return the seconds of real time that a cell takes, by formula."""
        return estimate_s(cell, trace_bytes)

    def turns(self) -> None:
        """Return None: cells wait in the engine's own queue, not for turns."""

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""
        return self._workers.describe()

    def close(self) -> None:
        """Leave the scheduler; cells that still run there for this run end."""
        self._client.close()


def _declared(infos: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return which of RESOURCES all workers declare; the others are not requested."""
    return tuple(n for n in RESOURCES if infos and all(n in i["resources"] for i in infos.values()))


def _cores(infos: Mapping[str, Mapping[str, Any]], declared: tuple[str, ...]) -> int:
    """Return how many cells run at once. Raises RunError if there is no worker."""
    if not infos:
        raise RunError(
            "--at: the scheduler has no worker; valid: start some with `downpour workers --join`"
        )
    if "core" in declared:
        return int(sum(info["resources"]["core"] for info in infos.values()))
    return sum(int(info["nthreads"]) for info in infos.values())
