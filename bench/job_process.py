# SPDX-License-Identifier: Apache-2.0
"""Start a job's process: here, or as the only command of a guest in virtual time."""

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
from common.places import ROOT
from common.shell import die_with_parent, termination_as_interrupt
from topologies.emulate import lifecycle
from virtual.guest import (
    CHECKOUT,
    EXCHANGE,
    Guest,
    GuestError,
    GuestSpec,
    guest_python,
)
from virtual.kernel_build import Kernel, ensure_kernel

LIMIT_S: Final = 3600.0
STOP_S: Final = 20.0


def main_job(job_file: Path, result_file: Path, build: Path) -> int:
    """Run `python -m bench job` in its own namespace, and remove the namespace at the end."""
    job = job_from(json.loads(job_file.read_text()))
    run_id = lifecycle.new_run_id("bench")
    _go_before_others()
    with termination_as_interrupt(), lifecycle.enter(run_id):
        result = run_job(job, build, Path("/dev/shm") / f"downpour-{run_id}")
    _write(result_file, result)
    return 0


def _go_before_others() -> None:
    """Give this process, its children and its session's scheduling group the highest ordinary
    priority, since the machine may also do other work. All tools get the same priority."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20")


def _write(path: Path, result: dict[str, Any]) -> None:
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(result))
    temporary.rename(path)


def main_guest(job_file: Path, result_file: Path) -> int:
    """Run `python -m bench guest`: do the same in a guest."""
    job = job_from(json.loads(job_file.read_text()))
    with termination_as_interrupt():
        _write(result_file, run_virtual(job, ensure_kernel()))
    return 0


def guest_memory_bytes(job: Job) -> int:
    """Return the memory for the programs and their buffers, and for every receiver's copy of a
    file."""
    files = job.size_bytes * (job.receivers + 2) if job.kind == "file" else 1_000_000_000
    return 1_000_000_000 + 60_000_000 * job.receivers + files


def run_virtual(job: Job, kernel: Kernel) -> dict[str, Any]:
    """Run the same program in a guest, from the same checkout."""

    def prepare(exchange: Path) -> None:
        (exchange / "job.json").write_text(job.key)

    argv = (
        *(guest_python(), "-m", "bench", "job", f"{EXCHANGE}/job.json"),
        *(f"{EXCHANGE}/result.json", f"{CHECKOUT}/build"),
    )
    spec = GuestSpec(
        argv=argv,
        memory_bytes=guest_memory_bytes(job),
        seed=job.seed,
        limit_s=LIMIT_S,
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


class JobProcess:
    """A job in its own process. `stop` ends it with its network or guest."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._directory = tempfile.TemporaryDirectory(prefix="downpour-bench-")
        directory = Path(self._directory.name)
        (directory / "job.json").write_text(job.key)
        self._result = directory / "result.json"
        self._said = directory / "stderr"
        self._began = time.monotonic()
        command = "guest" if job.clock == "virtual" else "job"
        with self._said.open("wb") as err:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "bench", command, str(directory / "job.json")),
                    *(str(self._result), str(ROOT / "build")),
                ],
                cwd=ROOT,
                stderr=err,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )

    def poll(self) -> dict[str, Any] | None:
        """Return the result once there is one."""
        spent_s = time.monotonic() - self._began
        if self._process.poll() is None and spent_s < LIMIT_S:
            return None
        late = self._process.poll() is None
        self._end()
        try:
            if late:
                return {"status": "failed", "reason": f"no end within {LIMIT_S:.0f} s"}
            if not self._result.exists():
                text = self._said.read_text(errors="replace").strip()
                return {"status": "failed", "reason": f"no result; {text[-300:]}"}
            result: dict[str, Any] = json.loads(self._result.read_text())
            return {"real_s": spent_s, **result}
        finally:
            self._directory.cleanup()

    def stop(self) -> None:
        """End the process and remove its directory."""
        self._end()
        self._directory.cleanup()

    def _end(self) -> None:
        """Send SIGTERM, on which the process removes its network; kill it only if it does not
        end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
