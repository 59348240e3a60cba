# SPDX-License-Identifier: Apache-2.0
"""Run one cell in its own process: bring the network up, run the cell, take the network down.

`python -m experiments cell JOB.json OUT_DIR` enters the run's network namespace and writes the
cell's directory. Progress goes to stdout, one JSON object per line: {"event": "phase", "text"},
{"event": "progress", ...}, {"event": "done", "verdict", "identical"}, {"event": "error", "text"}.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Final

from common.files import os_error_text
from experiments.cells import elsewhere
from experiments.cells.captures import Capturing
from experiments.cells.carousel_cell import CarouselRun
from experiments.cells.cell_base import (
    CellBase,
    CellError,
    emit,
    phase,
)
from experiments.cells.events import Event
from experiments.cells.job import Job
from experiments.cells.join_leave_cell import JoinLeaveRun
from experiments.cells.layers_cell import LayersRun
from experiments.cells.peer_cell import PeerRun
from experiments.cells.replay_cell import CellRun
from experiments.cells.run_directory import write_json
from experiments.design.expansion import CellSpec
from experiments.design.join_leave_expansion import JoinLeaveCell
from protocols import registry
from protocols.adapter import Feed
from topologies.emulate.elsewhere import Elsewhere
from topologies.emulate.emulation import NetworkError, open_emulation
from topologies.emulate.lifecycle import enter
from topologies.model.network import Network

# The class of a cell whose protocol needs its own kind of path.
OWN_RUNS: Final[Mapping[str, type[CellRun]]] = {"m2c": LayersRun}
# The class of any other cell with one feed, by how its protocol learns of products.
RUNS: Final[Mapping[Feed, type[CellRun]]] = {
    "ldm": CellRun,
    "carousel": CarouselRun,
    "stdin": PeerRun,
    "batch": PeerRun,
}


def _kind_of(cell: CellSpec) -> type[CellBase]:
    if isinstance(cell, JoinLeaveCell):
        return JoinLeaveRun
    return OWN_RUNS.get(cell.protocol) or RUNS[registry.get(cell.protocol).feed]


def run_cell(job: Job, out: Path) -> Event:
    """Run the cell in this process, which must have one thread. Return its last event."""
    network = Network.from_json(job.network.read_text())
    if job.hosts is not None or job.parts is not None:
        phase("connecting to the hosts")
    with elsewhere.connected(job, out) as hosts:
        return _run_on(job, network, hosts, out)


def _run_on(job: Job, network: Network, hosts: Mapping[str, Elsewhere], out: Path) -> Event:
    phase("bringing the network up")
    with (
        enter(job.run_id, topology=network.name) as entered,
        open_emulation(
            network,
            entered.state_dir,
            progress=phase,
            seed=job.cell.seed,
            queues=job.cell.guarantee == "queues",
            elsewhere=hosts,
        ) as emulation,
    ):
        run = _kind_of(job.cell)(job, network, emulation, out)
        capturing = Capturing(job.captures, emulation, out)
        try:
            capturing.start()
            for text, step in run.steps:
                phase(text)
                step()
        except (CellError, NetworkError):
            # The counters may show why.
            with contextlib.suppress(Exception):
                write_json(out / "counters-error.json", emulation.counters())
            raise
        finally:
            run.end_all()
            capturing.stop()
            run.save_description(entered.state_dir)
        verdict, identical = run.finish()
        # A cell whose verdict judges missing products does not report them as well.
        lacking = identical and not run.drained
        return {"event": "done", "verdict": verdict, "identical": identical, "lacking": lacking}


def main(job_path: Path, out: Path, errors: IO[str]) -> int:
    """Return 0 if the cell ran (whatever its verdict), 1 if it could not."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # takes the network down on the way out

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    try:
        job = Job.from_json(job_path.read_text())
    except OSError as error:
        print(f"experiments: {os_error_text(error)}", file=errors)
        return 1
    try:
        done = run_cell(job, out)
    except (CellError, NetworkError) as error:
        emit({"event": "error", "text": str(error)})
        return 1
    except Exception as error:
        import traceback

        known = os_error_text(error) if isinstance(error, OSError) else str(error)
        emit({"event": "error", "text": f"{type(error).__name__}: {known}"})
        with contextlib.suppress(OSError):  # the cause may be a full disk
            traceback.print_exc(file=errors)
        return 1
    emit(done)
    return 0
