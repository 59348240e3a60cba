# SPDX-License-Identifier: Apache-2.0
"""Starting a job's process: here, or as the only command of a guest in virtual time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.jobs import Job, job_from
from bench.run import run_job
from topologies import lifecycle
from topologies.shell import termination_as_interrupt
from virtual.guest import CHECKOUT, EXCHANGE, ROOT, Guest, GuestError, GuestSpec
from virtual.kernel_build import Kernel

NATIVE_LIMIT_S: Final = 1800.0
GUEST_LIMIT_S: Final = 3600.0
STOP_S: Final = 20.0


def main(job_file: Path, result_file: Path, build: Path) -> int:
    """`python -m bench job`: in a namespace of its own, which is removed at the end."""
    job = job_from(json.loads(job_file.read_text()))
    run_id = lifecycle.new_run_id("bench")
    with termination_as_interrupt(), lifecycle.enter(run_id):
        result = run_job(job, build, Path("/dev/shm") / f"downpour-{run_id}")
    temporary = result_file.with_suffix(".partial")
    temporary.write_text(json.dumps(result))
    temporary.rename(result_file)
    return 0


def guest_memory_bytes(job: Job) -> int:
    """Programs and their buffers, and every receiver's copy of a file."""
    files = job.size_bytes * (job.receivers + 2) if job.kind == "file" else 1_000_000_000
    return 1_000_000_000 + 60_000_000 * job.receivers + files


def run_virtual(job: Job, kernel: Kernel) -> dict[str, Any]:
    """In a guest: the same program, from the same checkout."""

    def prepare(exchange: Path) -> None:
        (exchange / "job.json").write_text(job.key)

    argv = (
        *(f"{CHECKOUT}/.venv/bin/python", "-m", "bench", "job", f"{EXCHANGE}/job.json"),
        *(f"{EXCHANGE}/result.json", f"{CHECKOUT}/build"),
    )
    spec = GuestSpec(
        argv=argv,
        memory_bytes=guest_memory_bytes(job),
        seed=job.seed,
        limit_s=GUEST_LIMIT_S,
    )
    try:
        with Guest(kernel, spec, prepare=prepare) as guest:
            guest.wait()
            times = guest.times
            path = guest.exchange / "result.json"
            if not path.exists():
                said = (guest.exchange / "stderr").read_text(errors="replace").strip()
                return {"status": "failed", "reason": f"no result; {said[-300:]}"}
            result: dict[str, Any] = json.loads(path.read_text())
    except GuestError as error:
        return {"status": "failed", "reason": str(error)}
    return {**result, "virtual_s": times.virtual_s, "real_s": times.real_s}


def run_native(job: Job) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="downpour-bench-") as name:
        directory = Path(name)
        (directory / "job.json").write_text(job.key)
        began = time.monotonic()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bench", "job"),
                *(str(directory / "job.json"), str(directory / "result.json")),
                str(ROOT / "build"),
            ],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=NATIVE_LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"status": "failed", "reason": f"no end within {NATIVE_LIMIT_S:.0f} s"}
        finally:
            end(process)
        path = directory / "result.json"
        if not path.exists():
            text = said.decode("utf-8", "replace").strip()
            return {"status": "failed", "reason": f"no result; {text[-300:]}"}
        result: dict[str, Any] = json.loads(path.read_text())
        return {**result, "real_s": time.monotonic() - began}


def end(process: subprocess.Popen[bytes]) -> None:
    """The job removes its network at SIGTERM; only one that does not is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
