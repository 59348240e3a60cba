# SPDX-License-Identifier: Apache-2.0
"""Find and end the processes of a run, and only those: processes with DOWNPOUR_RUN=<run-id> in
their environment, and processes in the run's named network namespace."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

MARK = "DOWNPOUR_RUN"
NAMESPACE_PREFIX = "downpour-"
NAMESPACE_DIRECTORY = Path("/run/netns")
STATE_ROOT = Path("/run/downpour")
MEMORY_ROOT = Path("/dev/shm/downpour")  # a run's large files that should not be on disk
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def namespace_name(run_id: str) -> str:
    """Return the name of a run's network namespace."""
    return NAMESPACE_PREFIX + run_id


def namespace_path(run_id: str) -> Path:
    """Return the file of a run's network namespace."""
    return NAMESPACE_DIRECTORY / namespace_name(run_id)


def state_directory(run_id: str) -> Path:
    """Return the directory of a run's state, sockets and logs."""
    return STATE_ROOT / run_id


def memory_directory(run_id: str) -> Path:
    """Return the run's directory in memory, created when needed and removed with the run."""
    return MEMORY_ROOT / run_id


def make_directory(path: Path) -> None:
    """Create a run's directory, even while another run removes the root of both."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.mkdir(exist_ok=True)
            return


def run_of_environment(environ: bytes) -> str | None:
    """Return the run id in the text of /proc/PID/environ; None without a (valid) mark."""
    prefix = MARK.encode() + b"="
    for variable in environ.split(b"\0"):
        if variable.startswith(prefix):
            value = variable[len(prefix) :].decode("ascii", "replace")
            return value if RUN_ID.fullmatch(value) else None
    return None


def _place(directory: Path) -> tuple[int, int]:
    found = directory.stat()
    return found.st_dev, found.st_ino


def marked_processes() -> dict[int, str]:
    """Return the run id by process id, for all marked processes of the machine.

    Processes of a container are visible here, but its /run is not. Its runs belong to it.
    """
    found: dict[int, str] = {}
    here = _place(Path("/run"))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            run_id = run_of_environment((entry / "environ").read_bytes())
            if run_id is not None and _place(entry / "root/run") == here:
                found[int(entry.name)] = run_id
    return found


def processes_in_namespace(run_id: str) -> set[int]:
    """Return the processes in the run's named network namespace."""
    try:
        inode = namespace_path(run_id).stat().st_ino
    except OSError:
        return set()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inode:
                    found.add(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    """Return the parent's process id; 0 if there is none, or it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def start_time_ticks(pid: int) -> int | None:
    """Return when the process started (field 22 of proc(5) stat); None if it is gone or a zombie.
    The id and the start time together identify a process forever."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def ourselves() -> set[int]:
    """Return this process and its ancestors, which must never be ended."""
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        pid = parent_of(pid)
    return pids


def processes_of(run_id: str) -> set[int]:
    """Return all processes of the run, without this one and its ancestors. Zombies do not count."""
    pids = {pid for pid, owner in marked_processes().items() if owner == run_id}
    pids |= processes_in_namespace(run_id)
    return {pid for pid in pids - ourselves() if start_time_ticks(pid) is not None}


def has_processes(run_id: str) -> bool:
    """Return whether a process has the run's mark or is in its namespace."""
    return bool(processes_of(run_id))


def end_processes(run_id: str, *, grace_s: float = 0.0, limit_s: float = 10.0) -> set[int]:
    """End all processes of the run: SIGTERM, `grace_s` of grace (0: none), then SIGKILL.

    Return those still alive after `limit_s` (none, unless the kernel holds one).
    """
    if grace_s > 0:
        _signal(processes_of(run_id), signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while processes_of(run_id) and time.monotonic() < deadline:
            time.sleep(0.02)
    deadline = time.monotonic() + limit_s
    while True:
        # A process may fork meanwhile: repeat until nothing is left.
        left = processes_of(run_id)
        if not left or time.monotonic() > deadline:
            return left
        _signal(left, signal.SIGKILL)
        time.sleep(0.01)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
