# SPDX-License-Identifier: Apache-2.0
"""An Open vSwitch of a run's own: its database, daemon, sockets and logs are in one directory.

The environment variables OVS_RUNDIR, OVS_DBDIR and OVS_LOGDIR name the directory to Open vSwitch's
own tools, and so to Mininet.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from common import looking
from common.shell import NetworkError, check, die_with_parent

SCHEMAS = (
    Path("/usr/share/openvswitch/vswitch.ovsschema"),
    Path("/usr/local/share/openvswitch/vswitch.ovsschema"),
)
DAEMON_DIRECTORIES = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/openvswitch-switch")
START_TIMEOUT_S = 20.0
CONFIGURE_TIMEOUT_S = 120.0
POLL_S = 0.05
# A real switch forwards frames however busy the hosts' processors are. A kernel switch would run
# before all processes; a userspace switch competes with them.
SWITCH_NICE = -10
MOST_PERIOD_MS = 60_000


def daemon(name: str) -> str:
    """Return the path of an Open vSwitch daemon (they are not on every user's PATH)."""
    for directory in (*os.environ.get("PATH", "").split(":"), *DAEMON_DIRECTORIES):
        path = Path(directory) / name
        if directory and os.access(path, os.X_OK):
            return str(path)
    raise NetworkError(
        f"{name}: not found on this machine (Debian: apt install openvswitch-switch)"
    )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def seldom() -> list[str]:
    """Return settings for a switch that is rarely observed, so that its threads wake up rarely."""
    period_ms = min(MOST_PERIOD_MS, round(1000 * looking.every_s(0.0)))
    if not period_ms:
        return []
    options = ("max-idle", "max-revalidator", "stats-update-interval")
    return ["--", "set", "Open_vSwitch", ".", *(f"other_config:{o}={period_ms}" for o in options)]


class OpenVSwitch:
    """Started by `start()`; `stop()` ends both daemons."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which Open vSwitch's tools find this instance, and do not wait
        for it forever."""
        where = str(self.directory)
        timeout = f"{CONFIGURE_TIMEOUT_S:.0f}"
        return {
            "OVS_RUNDIR": where,
            "OVS_DBDIR": where,
            "OVS_LOGDIR": where,
            "OVS_CTL_TIMEOUT": timeout,
        }

    @property
    def database_socket(self) -> Path:
        """Return the socket of the switch database."""
        return self.directory / "db.sock"

    def start(self) -> None:
        """Start both daemons in this process's network namespace and point this process's
        environment at them. Raises NetworkError if they do not come up."""
        self.directory.mkdir(parents=True, exist_ok=True)
        os.environ.update(self.environment)
        schema = next((p for p in SCHEMAS if p.exists()), None)
        if schema is None:
            raise NetworkError(f"{SCHEMAS[0]}: not found (Debian: apt install openvswitch-switch)")
        database = self.directory / "conf.db"
        check(["ovsdb-tool", "create", str(database), str(schema)])
        remote = self.database_socket
        self._spawn("ovsdb-server", f"--remote=punix:{remote}", str(database))
        self._wait_for(remote)
        check(["ovs-vsctl", "--no-wait", "--timeout=10", "init", *seldom()])
        self._spawn("ovs-vswitchd", f"unix:{remote}", nice=SWITCH_NICE)

    def _spawn(self, name: str, *arguments: str, nice: int = 0) -> None:
        log = self.directory / f"{name}.log"
        pidfile = self.directory / f"{name}.pid"
        argv = [daemon(name), *arguments, f"--log-file={log}", f"--pidfile={pidfile}"]
        if nice:
            argv = ["nice", "-n", str(nice), *argv]
        self._daemons.append(
            subprocess.Popen(
                [*argv, "-vconsole:off"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        )

    def _wait_for(self, path: Path) -> None:
        """Wait until a server listens at `path`: the file may exist too early."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(path):
            if self._daemons[-1].poll() is not None or time.monotonic() > deadline:
                raise NetworkError(f"Open vSwitch did not start: {self.log_tail()}")
            time.sleep(0.01)

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of the daemons' logs, for an error text."""
        text = ""
        for path in sorted(self.directory.glob("ovs*.log")):
            with contextlib.suppress(OSError):
                tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
                text += "\n".join((f"{path.name}:", *tail, ""))
        return text or "no log"

    def configure(self, command: str) -> str:
        """Run a shell command that the switch daemon has to carry out; return its output. Raises
        NetworkError if it fails, or if a daemon ends meanwhile: ovs-vsctl would wait
        forever."""
        pipe = subprocess.PIPE
        ends = time.monotonic() + CONFIGURE_TIMEOUT_S
        with subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        out, complaint = process.communicate(timeout=POLL_S)
                        break
                    if not self.alive:
                        raise NetworkError(f"Open vSwitch has ended: {self.log_tail()}")
                    if time.monotonic() > ends:
                        raise NetworkError(f"ovs-vsctl: no answer in {CONFIGURE_TIMEOUT_S:.0f} s")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise NetworkError(f"ovs-vsctl: {complaint.strip()[-1000:]}")
        return out

    @property
    def alive(self) -> bool:
        """Return whether both daemons run."""
        return bool(self._daemons) and all(d.poll() is None for d in self._daemons)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the processes of both daemons."""
        return tuple(d.pid for d in self._daemons)

    @property
    def datapath_pid(self) -> int:
        """Return the switch daemon's process; in userspace it is the datapath too."""
        return self._daemons[-1].pid

    def stop(self) -> None:
        """Stop the switch daemon first: it writes to the database."""
        for process in reversed(self._daemons):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._daemons.clear()
