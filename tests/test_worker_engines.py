# SPDX-License-Identifier: Apache-2.0
"""This machine, workers of a Dask scheduler, and jobs of Slurm give the same figures, to the last
digit, even when processes are killed during the run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from common.places import ROOT
from experiments.tests.built import IN_GUESTS
from tests import slurm_cluster

pytestmark = IN_GUESTS

DOWNPOUR = [sys.executable, "-B", "-m", "downpour"]
RUN = ["run", "lossy", "--clock", "virtual", "--duration", "5", "--receivers", "2"]
RUN_S = 1500.0


def started(
    arguments: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            [*DOWNPOUR, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )


def ended(process: subprocess.Popen[bytes], log: Path, code: int = 0) -> str:
    found = process.wait(timeout=RUN_S)
    text = log.read_text(errors="replace")
    assert found == code, text
    return text


def await_text(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    deadline = time.monotonic() + RUN_S
    while text not in log.read_text(errors="replace"):
        gone = process.poll() is not None and text not in log.read_text(errors="replace")
        assert not gone and time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.1)


def newest(runs: Path) -> Path:
    return max(p for p in (runs / "lossy").iterdir() if p.name[0].isdigit())


def identical(one: Path, other: Path) -> None:
    done = subprocess.run(
        [*DOWNPOUR, "report", "--identical", str(one), str(other)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("local")
    ended(started([*RUN, "--runs", str(place)], place / "log"), place / "log")
    return newest(place)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def dask_workers(place: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port, log = free_port(), place / "workers.log"
    process = started(["workers", "--count", "2", "--port", str(port), *options], log)
    try:
        await_text(process, log, "run cells there")
        yield f"tcp://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, log.read_text()


def cells_of_workers(parent: int) -> list[int]:
    """Return the process ids of the workers of `downpour workers` whose cell has a guest."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = []
    for child in children:
        below = Path(f"/proc/{child}/task")
        threads = list(below.iterdir()) if below.exists() else []
        if any((t / "children").read_text().split() for t in threads):
            found.append(int(child))
    return found


def test_dask_gives_the_figures_of_this_machine(local_run: Path, tmp_path: Path) -> None:
    with dask_workers(tmp_path) as (address, _):
        log = tmp_path / "run.log"
        ended(started([*RUN, "--at", address, "--runs", str(tmp_path)], log), log)
    found = newest(tmp_path)
    identical(local_run, found)
    workers = json.loads((found / "manifest.json").read_text())["workers"]
    assert workers["hosts"] == [os.uname().nodename]
    assert workers["digest"]


def test_a_worker_that_is_killed_costs_only_time(local_run: Path, tmp_path: Path) -> None:
    with dask_workers(tmp_path) as (address, workers):
        log = tmp_path / "run.log"
        run = started([*RUN, "--at", address, "--runs", str(tmp_path)], log)
        await_text(run, log, "replaying the trace")
        killed = cells_of_workers(workers.pid)[0]
        os.kill(killed, signal.SIGKILL)
        ended(run, log)
    identical(local_run, newest(tmp_path))


def test_a_runner_that_is_killed_leaves_what_is_complete(local_run: Path, tmp_path: Path) -> None:
    with dask_workers(tmp_path) as (address, workers):
        log = tmp_path / "run.log"
        command = [*RUN, "--at", address, "--runs", str(tmp_path)]
        run = started([*command, "--jobs", "1"], log)
        await_text(run, log, "verdict: ")  # of the first cell
        await_text(run, log, "bringing the network up")
        run.kill()
        run.wait()
        again = tmp_path / "again.log"
        text = ended(started([*command, "--resume"], again), again)
        assert "resumed: ldm" in text
        # The abandoned cell ends as well.
        deadline = time.monotonic() + 60
        while cells_of_workers(workers.pid):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    identical(local_run, newest(tmp_path))


def test_what_is_interrupted_ends_at_the_workers(tmp_path: Path) -> None:
    with dask_workers(tmp_path) as (address, workers):
        log = tmp_path / "run.log"
        run = started([*RUN, "--at", address, "--runs", str(tmp_path)], log)
        await_text(run, log, "bringing the network up")
        run.send_signal(signal.SIGINT)
        ended(run, log, 130)
        deadline = time.monotonic() + 60
        while cells_of_workers(workers.pid):
            assert time.monotonic() < deadline
            time.sleep(0.2)


# -- Slurm ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Cluster]:
    if why := slurm_cluster.lacking():
        pytest.skip(f"no Slurm cluster: {why}: NOT tested")
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def at_slurm(runs: Path, *options: str) -> list[str]:
    return [*RUN, "--at", f"slurm:{slurm_cluster.PARTITION}", "--runs", str(runs), *options]


def test_slurm_gives_the_figures_of_this_machine(
    slurm: slurm_cluster.Cluster, local_run: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    ended(started(at_slurm(tmp_path), log, slurm.environment), log)
    identical(local_run, newest(tmp_path))
    # Both cells were one array.
    arrays = slurm.run("scontrol", "show", "job", "--oneliner")
    assert len({w for w in arrays.split() if w.startswith("ArrayJobId=")}) == 1, arrays


def test_a_node_that_fails_costs_only_time(
    slurm: slurm_cluster.Cluster, local_run: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = started(at_slurm(tmp_path), log, slurm.environment)
    await_text(run, log, "replaying the trace")
    slurm.kill_node()
    time.sleep(slurm_cluster.DEAD_S + 5)
    slurm.start_node()
    ended(run, log)
    identical(local_run, newest(tmp_path))


def test_slurm_says_which_partitions_there_are(
    slurm: slurm_cluster.Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = [*RUN, "--at", "slurm:night", "--runs", str(tmp_path)]
    text = ended(started(command, log, slurm.environment), log, 1)
    assert "found partition 'night'; valid: main" in text
