# SPDX-License-Identifier: Apache-2.0
"""`downpour workers`: a Dask scheduler with workers on this machine, or workers that join one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK
from common.machine import memory_free_bytes
from common.places import ROOT
from common.shell import termination_as_interrupt
from experiments.design.spec import UsageError
from experiments.runs.preparation import RunError
from experiments.workers import environment
from experiments.workers.address import DaskAddress, parse
from experiments.workers.options import LOOPBACK, WorkersOptions
from virtual.cores import available_cores

START_S: Final = 60.0
STOP_S: Final = 40.0  # cells take their guests down
WORKER_MEMORY_SHARE: Final = 0.9
WORKERS_PER_CORE: Final = 4  # a worker computes all the time; more only take memory


def _check() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise UsageError(
            "found no package distributed; valid: install it with `.venv/bin/pip install "
            "'downpour[workers]'` (make: make workers)"
        )


def scheduler_command(host: str, port: int) -> list[str]:
    """Return the command of a scheduler."""
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    return [*module, "--host", host, "--port", str(port), "--no-dashboard", "--no-show"]


def worker_command(url: str, name: str, memory_bytes: int, place: Path) -> list[str]:
    """Return the command of a worker that takes one cell at a time. It runs without Dask's nanny: a
    worker that ends stays down, and its starter reports it."""
    return [
        *(sys.executable, "-m", "distributed.cli.dask_worker", url),
        *("--nthreads", "1", "--nworkers", "1", "--name", name, "--no-dashboard", "--no-nanny"),
        *("--memory-limit", "0", "--local-directory", str(place)),
        *("--resources", f"core=1 memory={memory_bytes}"),
    ]


def serve(options: WorkersOptions) -> int:
    """Run a scheduler and workers until Ctrl-C. Return an exit code.

    Raises UsageError, RunError."""
    _check()
    try:
        with termination_as_interrupt():
            return _serve(options)
    except KeyboardInterrupt:
        print("the workers have ended")
        return EXIT_OK


def worker_count(asked: int | None, cores: int) -> int:
    """Return how many workers to start. Raises UsageError."""
    most = WORKERS_PER_CORE * cores
    if asked is not None and asked > most:
        raise UsageError(
            f"--count: found {asked}; valid: at most {most}, {WORKERS_PER_CORE} for each core"
        )
    return cores if asked is None else asked


def _serve(options: WorkersOptions) -> int:
    join, host, port = options.join, options.host, options.port
    count = worker_count(options.count, len(available_cores()))
    if join is not None and not isinstance(parse(join, "--join"), DaskAddress):
        raise UsageError(f"--join: found '{join}'; valid: tcp://HOST:PORT, tls://HOST:PORT")
    made_of = environment.describe()
    if made_of["kernel"] == environment.NO_KERNEL:
        raise RunError(
            "found no kernel for virtual time; valid: build it with `downpour virtual kernel` "
            "(make: virtual-kernel)"
        )
    url = join or f"tcp://{host}:{port}"
    memory = int(memory_free_bytes() * WORKER_MEMORY_SHARE / count)
    with tempfile.TemporaryDirectory(prefix="downpour-workers-") as name, _stopped() as started:
        place = Path(name)
        if join is None:
            _start(started, scheduler_command(host, port), place / "scheduler.log")
            _await_port(host, port, started[0], place / "scheduler.log")
        for number in range(count):
            label = f"{socket.gethostname()}-{os.getpid()}-{number}"
            argv = worker_command(url, label, memory, place)
            _start(started, argv, place / f"worker-{number}.log")
        print(f"{counted(count, 'worker')} of {memory / 1e9:.1f} GB at {url}", flush=True)
        print(f"environment {environment.digest(made_of)}: commit {made_of['commit'][:12]}")
        if join is None:
            print(f"run cells there: downpour run lossy --clock virtual --at {url}", flush=True)
            if host != LOOPBACK:
                print("Anyone who reaches this port can run programs as this user.", flush=True)
        return _wait(started, place)


def _start(started: list[subprocess.Popen[bytes]], argv: Sequence[str], log: Path) -> None:
    with log.open("wb") as stream:
        started.append(
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=ROOT,
                start_new_session=True,
            )
        )


def _await_port(host: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-3:])
    raise RunError(f"the scheduler did not start at {host}:{port}: {said}")


def _wait(started: Sequence[subprocess.Popen[bytes]], place: Path) -> int:
    told: set[int] = set()
    while True:
        time.sleep(0.5)
        ended = {p.pid: p for p in started if p.poll() is not None}
        for pid in ended.keys() - told:
            print(f"process {pid} ended with {ended[pid].returncode}", file=sys.stderr, flush=True)
            told.add(pid)
        if len(ended) == len(started):
            for log in sorted(place.glob("*.log")):
                print(log.read_text(errors="replace")[-500:], file=sys.stderr)
            return EXIT_FAILED


@contextlib.contextmanager
def _stopped() -> Iterator[list[subprocess.Popen[bytes]]]:
    """End what was started, workers before their scheduler."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        held = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in reversed(started):
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in reversed(started):
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        signal.signal(signal.SIGINT, held)
