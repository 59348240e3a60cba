# SPDX-License-Identifier: Apache-2.0
"""What a Dask worker does: it runs a cell's program as its child and forwards its events."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.files import Tail, tail
from common.places import ROOT
from experiments.workers import parcel
from experiments.workers.parcel import Parcel

if TYPE_CHECKING:
    from distributed import Worker

TICK_S: Final = 0.5
STOP_S: Final = 30.0  # for a cell to take its guest down
NOT_WANTED: Final = ("cancelled", "released", "forgotten", "resumed")


def made_of() -> dict[str, str]:
    """Describe this worker's environment."""
    from experiments.workers import environment

    return environment.describe()


def run_parcel(raw: Mapping[str, Any], topic: str) -> dict[str, Any]:
    """Run a cell to its end. `ended`: the text of ended.json; `files`: the cell's, as a tar;
    `lines`: all that it reported; `attempt`: which start of the cell this was."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    place = Path(tempfile.mkdtemp(prefix="downpour-cell-", dir=worker.local_directory))
    try:
        Parcel.from_dict(raw).unpack(place)
        return _run(worker, key, place, topic)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(worker: Worker, key: Any, place: Path, topic: str) -> dict[str, Any]:
    attempt, lines = uuid.uuid4().hex, list[str]()
    argv = [sys.executable, "-m", "experiments", "worker-cell", str(place)]
    with (place / "stderr").open("wb") as errors:
        # It ends with its standard input, which ends with this process.
        cell = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        events = Tail(place / "events.0.jsonl")
        while True:
            code = cell.poll()
            if new := events.lines():
                told = [line.decode("utf-8", "replace") for line in new]
                worker.log_event(topic, {"attempt": attempt, "first": len(lines), "lines": told})
                lines += told
            if code is not None:
                break
            if _not_wanted(worker, key):
                raise RuntimeError("no run waits for this cell any longer")
            time.sleep(TICK_S)
    finally:
        _end(cell)
    if not (place / parcel.ENDED).exists():
        said = tail(place / "stderr")
        raise RuntimeError(f"the cell's program ended with {cell.returncode}: {said}")
    return {
        "ended": (place / parcel.ENDED).read_text(),
        "files": parcel.pack(place / "out"),
        "lines": lines,
        "attempt": attempt,
    }


def _not_wanted(worker: Worker, key: Any) -> bool:
    state = worker.state.tasks.get(key)
    return state is None or state.state in NOT_WANTED


def _end(cell: subprocess.Popen[bytes]) -> None:
    assert cell.stdin is not None
    with contextlib.suppress(OSError):
        cell.stdin.close()
    if cell.poll() is None:
        cell.terminate()
        try:
            cell.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            cell.kill()
            cell.wait()
