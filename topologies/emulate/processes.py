# SPDX-License-Identifier: Apache-2.0
"""Start, stop and query the programs that a network needs besides Open vSwitch: wire-relay and
the controller."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypedDict

from common.places import ROOT, absent_programs, program
from common.shell import NetworkError, die_with_parent, in_node
from topologies.model.wire_plan import RelayReady, WirePlan, relay_configuration
from topologies.watch.counters import Record

RELAY_START_TIMEOUT_S = 60.0  # as the controller's
RELAY_REPORT_TIMEOUT_S = 2.0
CONTROLLER_START_TIMEOUT_S = 60.0  # took more than 20 on two cores beside a compiler
CONTROLLER_CONNECT_TIMEOUT_S = 15.0


def relay_program() -> Path:
    """Return the file of the built wire-relay."""
    return program("wire-relay")


class RelayReport(TypedDict):
    """The content of wire-relay's statistics file."""

    sequence: int
    lines: dict[str, Record]  # "link/direction" -> counters


class Relay:
    """wire-relay in the namespace `wire`."""

    def __init__(self, state_dir: Path, *, program: Path | None = None) -> None:
        self._program = program or relay_program()
        self._configuration = state_dir / "relay.conf"
        self._ready = state_dir / "relay-ready.json"
        self._stats = state_dir / "relay-stats.json"
        self._log = state_dir / "relay.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_after = 0

    def start(self, wire_pid: int, wire: WirePlan, *, seed: int = 1) -> RelayReady:
        """Start it, and wait until all lines are ready; return the configuration that it
        accepted."""
        if not self._program.exists():
            raise NetworkError(
                absent_programs(["wire-relay"]) or f"found no program {self._program}"
            )
        text = relay_configuration(wire, ready=self._ready, stats=self._stats, seed=seed)
        self._configuration.write_text(text, encoding="utf-8")
        argv = in_node(wire_pid, [str(self._program), str(self._configuration)])
        with self._log.open("wb") as log:
            self._process = start_process(argv, log)
        deadline = time.monotonic() + RELAY_START_TIMEOUT_S
        while not self._ready.exists():
            if (code := self._process.poll()) is not None:
                raise NetworkError(
                    f"wire-relay did not start (exit code {code}): {self.complaint()}"
                )
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"wire-relay did not start within {RELAY_START_TIMEOUT_S:.0f} s: "
                    f"{self.complaint() or 'it said nothing'}"
                )
            time.sleep(0.01)
        ready: RelayReady = json.loads(self._ready.read_text(encoding="utf-8"))
        return ready

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pids(self) -> set[int]:
        """Return its process id, if it was started."""
        return {self._process.pid} if self._process is not None else set()

    def complaint(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
        return ""

    def _read(self) -> RelayReport:
        try:
            found: RelayReport = json.loads(self._stats.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"sequence": 0, "lines": {}}
        return found

    def ask_report(self) -> None:
        """Ask for a new report; `report()` waits for it."""
        if not self.alive:
            raise NetworkError(f"wire-relay has ended: {self.complaint()}")
        assert self._process is not None
        self._asked_after = int(self._read()["sequence"])
        self._process.send_signal(signal.SIGUSR1)

    def report(self) -> dict[str, Record]:
        """Return the statistics by "link/direction", no older than the last `ask_report()`."""
        deadline = time.monotonic() + RELAY_REPORT_TIMEOUT_S
        while True:
            found = self._read()
            if int(found["sequence"]) > self._asked_after:
                return dict(found["lines"])
            if time.monotonic() > deadline:
                raise NetworkError("wire-relay: no statistics")
            time.sleep(0.005)

    def tell_to_stop(self) -> None:
        """Ask it to end (SIGTERM); do not wait."""
        tell_to_stop(self._process)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        end_process(self._process)


class Controller:
    """`python -m controller` for one domain, in this process's namespace. `role` distinguishes the
    instances of a domain ("" is the first); `options` are added to the command line."""

    def __init__(
        self,
        domain: str,
        port: int,
        state_dir: Path,
        *,
        role: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.name = f"controller-{domain}{'-' if role else ''}{role}"
        self.domain = domain
        self.port = port
        self.options = tuple(options)
        self.socket = state_dir / f"{self.name}.sock"
        self.log = state_dir / f"{self.name}.log"
        self._state_dir = state_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        """Return the file that keeps paths over a restart. A domain's instances share it."""
        return self._state_dir / f"controller-{self.domain}.sqlite"

    def arguments(self, network_file: Path, listen: str) -> list[str]:
        """Return the options of `python -m controller`."""
        return [
            *("--network", str(network_file), "--domain", self.domain, "--of-listen", listen),
            *("--rest-socket", str(self.socket), "--log", str(self.log)),
            *("--store", str(self.store), *self.options),
        ]

    def start(self, network_file: Path) -> None:
        """Start it, also after it ended: the logs are continued."""
        listen = f"127.0.0.1:{self.port}"
        argv = [sys.executable, "-m", "controller", *self.arguments(network_file, listen)]
        with self.log.with_suffix(".stderr").open("ab") as complaints:
            self._process = start_process(argv, complaints, cwd=ROOT)

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 8) -> str:
        """Return the last lines of its logs, for an error text."""
        tail: list[str] = []
        for path in (self.log, self.log.with_suffix(".stderr")):
            with contextlib.suppress(OSError):
                tail += path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join(tail) or "no log"

    def _switches(self) -> Mapping[str, bool] | None:
        """Return switch -> connected; None while the controller does not answer."""
        try:
            found = get_json(self.socket, "/v1/health")
            switches: Mapping[str, bool] = found["switches"]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return None
        return switches

    def _answers(self) -> bool:
        """Return whether it answers, with any HTTP status: a standby's says that it is one."""
        try:
            get_json(self.socket, "/v1/health")
        except ValueError:
            return True
        except (OSError, http.client.HTTPException):
            return False
        return True

    def wait_listening(self) -> None:
        """Wait until it answers. Raises NetworkError with the end of the log."""
        deadline = time.monotonic() + CONTROLLER_START_TIMEOUT_S
        while not self._answers():
            self._give_up_after(deadline, f"does not answer at {self.socket}")
            time.sleep(0.05)

    def wait_connected(
        self, names: set[str], timeout_s: float = CONTROLLER_CONNECT_TIMEOUT_S
    ) -> None:
        """Wait until all switches are connected. Raises NetworkError with the end of the log."""
        deadline = time.monotonic() + timeout_s
        while True:
            switches = self._switches() or {}
            missing = sorted(n for n in names if not switches.get(n))
            if not missing:
                return
            self._give_up_after(deadline, f"has no connection from {', '.join(missing)}")
            time.sleep(0.05)

    def _give_up_after(self, deadline: float, what: str) -> None:
        if not self.alive:
            raise NetworkError(
                f"the controller of {self.domain} ended (exit code {self.exit_code}): "
                f"{self.log_tail()}"
            )
        if time.monotonic() > deadline:
            raise NetworkError(f"the controller of {self.domain} {what}: {self.log_tail()}")

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs, or if it never did."""
        return self._process.returncode if self._process is not None else None

    @property
    def pid(self) -> int | None:
        """Return its process id while it runs, else None."""
        return self._process.pid if self._process is not None and self.alive else None

    def tell_to_stop(self) -> None:
        """Ask it to end (SIGTERM); do not wait."""
        tell_to_stop(self._process)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        end_process(self._process)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get_json(path: Path, target: str, *, timeout_s: float = 2.0) -> Any:
    """GET over a Unix socket. Raises OSError, HTTPException or ValueError without a valid
    answer."""
    connection = _UnixConnection(path, timeout_s)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ValueError(f"{target}: HTTP status {response.status}")
        return json.loads(body)
    finally:
        connection.close()


def start_process(
    argv: Sequence[str], log: IO[bytes], *, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in its own session. Its output goes to `log`, and it ends with this
    process."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent(),
    )


def start_bridge(
    port: int, there: str, home: Path, between: Path, log_file: Path
) -> list[subprocess.Popen[bytes]]:
    """Carry connections to a port of this namespace's loopback address to `there` (HOST:PORT) in
    the network namespace `home`, by two socats and the Unix socket `between`. Raises NetworkError
    without socat."""
    if shutil.which("socat") is None:
        raise NetworkError("socat: not found on this machine (Debian: apt install socat)")
    enter = ["nsenter", f"--net={home}", "--"]
    # nodelay: else a message's second part waits 40 ms until the far end acknowledges the first.
    here = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,nodelay"
    with log_file.open("ab") as log:
        return [
            start_process(
                [*enter, "socat", f"UNIX-LISTEN:{between},fork", f"TCP:{there},nodelay"], log
            ),
            start_process(["socat", here, f"UNIX-CONNECT:{between}"], log),
        ]


def tell_to_stop(process: subprocess.Popen[bytes] | None) -> None:
    """Ask a process to end (SIGTERM); do not wait."""
    if process is not None and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


def end_process(process: subprocess.Popen[bytes] | None, *, grace_s: float = 3.0) -> None:
    """End a process: SIGTERM, then SIGKILL after `grace_s`."""
    if process is None:
        return
    tell_to_stop(process)
    try:
        process.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Bridges:
    """Connections that socats carry between network namespaces, as `start_bridge` does."""

    def __init__(self, home: Path, log: Path) -> None:
        self._home, self._log = home, log
        self._socats: list[subprocess.Popen[bytes]] = []

    def carry(self, port: int, there: str, between: Path) -> None:
        """Start one bridge more. Raises NetworkError."""
        self._socats += start_bridge(port, there, self._home, between, self._log)

    @property
    def alive(self) -> bool:
        """Return whether all socats run; the far end may not."""
        return all(socat.poll() is None for socat in self._socats)

    def tell_to_stop(self) -> None:
        """Ask the connections, not the far end, to end; do not wait."""
        for socat in self._socats:
            tell_to_stop(socat)

    def stop(self) -> None:
        """End the connections and wait until they have ended."""
        for socat in self._socats:
            end_process(socat)
        self._socats.clear()
