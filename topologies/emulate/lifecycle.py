# SPDX-License-Identifier: Apache-2.0
"""Where a run keeps things, and how to find and remove all of them, whatever happened to it.

A run consists of a network namespace `downpour-<run-id>`, a directory /run/downpour/<run-id>, and
processes marked with DOWNPOUR_RUN=<run-id>. With Circuit TCP it also has a congestion control in
the kernel, named after the run. Nothing else on the machine changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from common.places import ROOT
from common.shell import (
    NetworkError,
    check,
    enter_network_namespace,
    interrupts_deferred,
)
from topologies.emulate import ctcp_host, marks
from topologies.emulate.marks import (
    MARK,
    RUN_ID,
    namespace_name,
    namespace_path,
    state_directory,
)

KIND_UP, KIND_EXPERIMENT = "up", "experiment"
STATE_FILE = "state.json"
REMOVALS = 20  # attempts to remove a directory that another process is also removing


def this_owner() -> str:
    """Return the owner that `up` and `down` act for: the checkout, unless DOWNPOUR_OWNER names
    another."""
    return os.environ.get("DOWNPOUR_OWNER") or str(ROOT)


@dataclass(frozen=True)
class RunState:
    """What the run's directory records about its owner, the process that called `enter`."""

    run_id: str
    kind: str
    owner: str  # owner of the `up` network: by default the checkout's path
    owner_pid: int
    owner_start_ticks: int
    started: float  # epoch, seconds
    topology: str
    # The owner has announced the run; another process will enter it.
    announced: bool = False

    @property
    def owner_alive(self) -> bool:
        """Return whether the process that made the run still runs."""
        return marks.start_time_ticks(self.owner_pid) == self.owner_start_ticks


class Run:
    """The run that this process is in. `leave()` returns to the old namespace and removes nothing;
    `purge` removes the run. As a context manager it does both at the end."""

    def __init__(self, run_id: str, home_fd: int) -> None:
        self.run_id = run_id
        self.state_dir = state_directory(run_id)
        self._home_fd = home_fd

    def leave(self) -> None:
        """Leave the run: end the processes with its mark, and remove what it left."""
        if self._home_fd < 0:
            return
        enter_network_namespace(self._home_fd)
        os.close(self._home_fd)
        self._home_fd = -1
        os.environ.pop(MARK, None)
        for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"):
            os.environ.pop(name, None)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        purge(self.run_id)


def new_run_id(prefix: str) -> str:
    """Return an unused run id: `prefix`, a dash and six random hexadecimal digits."""
    return f"{prefix[:30]}-{secrets.token_hex(3)}"


def require_root() -> None:
    """Raise NetworkError unless this process is root."""
    if os.geteuid() != 0:
        raise NetworkError(
            "an emulated network needs root (network namespaces, Open vSwitch); valid: run it with "
            "sudo"
        )


def _check_id(run_id: str) -> None:
    if not RUN_ID.fullmatch(run_id):
        raise NetworkError(
            f"found run id '{run_id}'; valid: up to 40 letters, digits, '.', '_', '-'"
        )


def announce(run_id: str, *, kind: str, topology: str) -> Path:
    """Record that a run is about to start, before any process has its mark; return its directory.

    Until another process enters the run, this process is its owner. Raises NetworkError if the id
    is
    taken.
    """
    _check_id(run_id)
    require_root()
    _make_directory(run_id, kind, topology, announced=True)
    return state_directory(run_id)


def _make_directory(run_id: str, kind: str, topology: str, *, announced: bool = False) -> None:
    """Create the run's directory, which contains its state from the first moment. Raises
    NetworkError."""
    if state_directory(run_id).exists() or namespace_path(run_id).exists():
        raise NetworkError(f"run '{run_id}' already exists (end it with: down)")
    new = marks.STATE_ROOT / f".{os.getpid()}.{run_id}"
    marks.make_directory(new)
    try:
        _write_state(new, run_id, kind, topology, announced=announced)
        new.rename(state_directory(run_id))
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise NetworkError(f"{state_directory(run_id)}: {error.strerror}") from error
        raise


def remove_unfinished() -> None:
    """Remove the directories of runs whose starter was killed before they got their names."""
    with contextlib.suppress(OSError):
        for path in marks.STATE_ROOT.glob(".*"):
            pid = path.name.split(".")[1]
            if pid.isdigit() and marks.start_time_ticks(int(pid)) is None:
                shutil.rmtree(path, ignore_errors=True)
        _remove_empty_roots()


def _remove_empty_roots() -> None:
    for root in (marks.STATE_ROOT, marks.MEMORY_ROOT):
        with contextlib.suppress(OSError):
            root.rmdir()  # fails if there is another run


def enter(
    run_id: str, *, kind: str = KIND_EXPERIMENT, topology: str = "", announced: bool = False
) -> Run:
    """Create the run's namespace and directory, and move this process there, marked.

    `announced`: another process has announced the run; this one becomes its owner. Raises
    NetworkError if the id is invalid or taken, without root, or in a process with several threads
    (only the calling one would move).
    """
    _check_id(run_id)
    require_root()
    if threading.active_count() != 1:
        raise NetworkError("only a process with a single thread can enter a run")
    # First the directory with the owner, so that the run can be found from now on.
    if announced:
        try:
            _write_state(state_directory(run_id), run_id, kind, topology)
        except FileNotFoundError:
            raise NetworkError(f"run '{run_id}' was ended while it started") from None
    else:
        _make_directory(run_id, kind, topology)
    home_fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(["ip", "netns", "add", namespace_name(run_id)])
        fd = os.open(namespace_path(run_id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter_network_namespace(fd)
        finally:
            os.close(fd)
        os.environ[MARK] = run_id
        check(["ip", "link", "set", "dev", "lo", "up"])
    except BaseException:
        with contextlib.suppress(OSError):
            enter_network_namespace(home_fd)
        os.close(home_fd)
        os.environ.pop(MARK, None)
        purge(run_id)
        raise
    return Run(run_id, home_fd)


def _write_state(
    directory: Path, run_id: str, kind: str, topology: str, *, announced: bool = False
) -> None:
    pid = os.getpid()
    state = RunState(
        run_id=run_id,
        kind=kind,
        owner=this_owner(),
        owner_pid=pid,
        owner_start_ticks=marks.start_time_ticks(pid) or 0,
        started=time.time(),
        topology=topology,
        announced=announced,
    )
    temporary = directory / f".{STATE_FILE}"
    temporary.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    temporary.rename(directory / STATE_FILE)


def read_state(run_id: str) -> RunState | None:
    """Return the state; None if the directory has none, so that the run is a leftover."""
    try:
        text = (state_directory(run_id) / STATE_FILE).read_text(encoding="utf-8")
        return RunState(**json.loads(text))
    except (OSError, ValueError, TypeError):
        return None


def live_runs() -> tuple[str, ...]:
    """Return the ids of runs that have anything left on this machine: a directory, namespace or
    process."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        found |= {p.name for p in marks.STATE_ROOT.iterdir() if p.is_dir()}
    with contextlib.suppress(OSError):
        found |= {p.name for p in marks.MEMORY_ROOT.iterdir() if p.is_dir()}
    with contextlib.suppress(OSError):
        found |= {
            p.name.removeprefix(marks.NAMESPACE_PREFIX)
            for p in marks.NAMESPACE_DIRECTORY.iterdir()
            if p.name.startswith(marks.NAMESPACE_PREFIX)
        }
    found |= set(marks.marked_processes().values())
    return tuple(sorted(r for r in found if RUN_ID.fullmatch(r)))


def purge(run_id: str) -> None:
    """Remove everything of a run, in any state: processes, namespace, directory.

    Does nothing if nothing is left. Spares this process and its ancestors. A signal that would end
    this process waits until everything is removed. Raises NetworkError, which names what could not
    be removed.
    """
    _check_id(run_id)
    with interrupts_deferred():
        _purge(run_id)


def _purge(run_id: str) -> None:
    problems = []
    left = marks.end_processes(run_id)
    if left:
        problems.append(f"processes {sorted(left)} do not end")
    if complaint := ctcp_host.remove_leftover(run_id):
        problems.append(f"congestion control {ctcp_host.ctcp_name(run_id)}: {complaint}")
    if namespace_path(run_id).exists():
        result = subprocess.run(
            ["ip", "netns", "delete", namespace_name(run_id)],
            capture_output=True,
            text=True,
            check=False,
        )
        # Another process may be removing the run, too, and be faster.
        if result.returncode != 0 and namespace_path(run_id).exists():
            problems.append(f"namespace {namespace_name(run_id)}: {result.stderr.strip()}")
    state_dir = state_directory(run_id)
    _unmount_below(state_dir)
    if complaint := _remove_directory(state_dir):
        problems.append(complaint)
    shutil.rmtree(marks.memory_directory(run_id), ignore_errors=True)
    _remove_empty_roots()
    if problems:
        raise NetworkError(f"run {run_id}: {'; '.join(problems)}")


def _remove_directory(directory: Path) -> str:
    """Remove the directory, even while another process does the same; return why it could not be
    removed, or "" if it is gone."""
    complaint = ""
    for _ in range(REMOVALS):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            complaint = f"{directory}: {error.strerror}"
        if not directory.exists():
            return ""
        time.sleep(0.01)
    return complaint or f"{directory}: something keeps creating it again"


def mounts_below(directory: Path, mountinfo: str) -> list[str]:
    """Return the mount points at or below `directory` in the text of /proc/self/mountinfo,
    innermost first."""
    prefix = f"{directory}/"
    points = [fields[4] for line in mountinfo.splitlines() if len(fields := line.split()) > 4]
    mine = [p for p in points if p == str(directory) or p.startswith(prefix)]
    return sorted(mine, key=len, reverse=True)


def _unmount_below(directory: Path) -> None:
    mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for point in mounts_below(directory, mountinfo):
        subprocess.run(["umount", "-l", point], capture_output=True, check=False)
