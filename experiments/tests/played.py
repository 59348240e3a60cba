# SPDX-License-Identifier: Apache-2.0
"""A clock whose cells are only functions, and ways in which they end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.cells.job import Job
from experiments.cells.run_directory import (
    write_json,
)
from experiments.design.expansion import CellSpec
from experiments.design.spec import (
    ExperimentSpec,
    find,
    load_as,
)
from experiments.design.spec_options import override
from experiments.runs import (
    manifest,
    runner,
)
from experiments.runs.cell_process import CellProblem
from experiments.runs.progress import PlainReporter
from virtual.turns import Turns

Play = Callable[[Job, Path], Iterator[dict[str, Any]]]


def spec(tmp_path: Path) -> ExperimentSpec:
    trace = tmp_path / "trace.txt"
    trace.write_text("100 20150615000000.009\n200 20150615000001.008\n")
    return override(load_as(ExperimentSpec, find("lossy")), {"trace": str(trace), "receivers": 2})


def good(job: Job, out: Path) -> Iterator[dict[str, Any]]:
    yield {"event": "phase", "text": "replaying"}
    yield {
        **{"event": "progress", "elapsed_s": 1.0, "inserted": 1, "products": 2, "delivered": 0},
        "draining": False,
    }
    write_json(out / "cell.json", {"digest": job.digest})
    checks = [{"name": "products identical", "status": "pass"}]
    write_json(out / "verdict.json", {"verdict": "faithful", "checks": checks})
    yield {"event": "done", "verdict": "faithful", "identical": True}


class Played:
    """Stands for a cell's process: only a function, one event per poll."""

    times = None

    def __init__(self, stage: Stage, job: Job, out: Path) -> None:
        self._stage, self._events = stage, stage.play(job, out)
        self._done = False
        self.code: int | None = None
        (out / "logs/cell.stderr").write_text("Traceback\nthe reason\n")

    def poll(self) -> list[dict[str, Any]]:
        for event in self._events:
            self._done = self._done or event["event"] == "done"
            return [event]
        self.code = 0 if self._done else 1
        return []

    def stop(self) -> None:
        self._stage.running.discard(self)
        self._stage.stopped += 1


class Stage:
    """A clock that replaces each cell by a function; counts what was stopped."""

    name = "played"

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.machine: Path | None = None  # its directory of turns
        self.play: Play = good
        self.played: list[str] = []
        self.stopped = 0
        self.running: set[Played] = set()
        self.most_at_once = 0
        self.report: Callable[[Path], int] = lambda _path: 0

    def turns(self) -> Turns | None:
        return Turns(self.machine) if self.machine is not None else None

    def start(self, job: Job, out: Path) -> Played:
        assert job.trace.exists()
        assert job.network.exists()
        self.job = job
        self.played.append(job.cell.cell)
        played = Played(self, job, out)
        self.running.add(played)
        self.most_at_once = max(self.most_at_once, len(self.running))
        return played

    def estimate_s(self, _cell: CellSpec, trace_bytes: int) -> float:
        assert trace_bytes == 300
        return 10.0

    def describe(self) -> dict[str, Any]:
        return {"clock": self.name}


@functools.cache
def asked_once(argv: tuple[str, ...], cwd: Path | None) -> str | None:
    return OUTPUT(argv, cwd)


OUTPUT = manifest._output


Prepared = tuple[ExperimentSpec, tuple[runner.Planned, ...]]


def prepared(tmp_path: Path) -> Prepared:
    given = spec(tmp_path)
    return given, runner.plan(given)


def run(tmp_path: Path, what: Prepared | None = None, **options: Any) -> runner.RunResult:
    given, planned = what or prepared(tmp_path)
    chosen = runner.RunOptions(**{"runs": tmp_path / "runs", "order": "file", **options})
    return runner.run_experiment(given, planned, PlainReporter(), chosen)


def says_error(_job: Job, out: Path) -> Iterator[dict[str, Any]]:
    (out / "captures").mkdir()
    (out / "captures/core.pcapng").write_bytes(b"pcap")
    yield {"event": "error", "text": "umass: tc: no"}


def stalls(_job: Job, _out: Path) -> Iterator[dict[str, Any]]:
    yield {"event": "phase", "text": "replaying"}
    raise CellProblem("no virtual time passed for 120 s")


def dies(_job: Job, _out: Path) -> Iterator[dict[str, Any]]:
    yield {"event": "phase", "text": "bringing the network up"}


def cannot_start(_job: Job, _out: Path) -> Iterator[dict[str, Any]]:
    raise CellProblem("no memory for a guest")


WAYS = [
    (says_error, "umass: tc: no"),
    (stalls, "no virtual time passed for 120 s"),
    (dies, "its process ended with 1: Traceback\nthe reason"),
    (cannot_start, "no memory for a guest"),
]


def sometimes(way: Play, protocol: str, times: int) -> Play:
    """Play cells of the protocol this way so many times, everything else well."""
    left = [times]

    def play(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        if job.cell.protocol == protocol and left[0] > 0:
            left[0] -= 1
            return way(job, out)
        return good(job, out)

    return play


def judged_as(*verdicts: str) -> Play:
    """Play cells that end with these verdicts, one after the other."""
    left = list(verdicts)

    def play(job: Job, out: Path) -> Iterator[dict[str, Any]]:
        verdict = left.pop(0)
        write_json(out / "cell.json", {"digest": job.digest})
        write_json(out / "verdict.json", {"verdict": verdict, "checks": []})
        yield {"event": "done", "verdict": verdict, "identical": True}

    return play
