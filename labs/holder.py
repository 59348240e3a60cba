# SPDX-License-Identifier: Apache-2.0
"""The background process that holds a lab's network: a guest that is stopped while no command runs,
or (native clock) a process of this machine. Clients connect to a Unix socket, once for each
request, which is one line of JSON. Answers are lines of JSON, with `done` or `failed` last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from common.files import Tail, write_json
from common.places import ROOT
from common.shell import NetworkError, die_with_parent, termination_as_interrupt
from labs import agent
from labs.network import lab_network
from labs.spec import Lab
from labs.workdir import LabError, Work, read_work
from topologies.emulate import background_process, lifecycle, marks
from virtual.guest import (
    CHECKOUT,
    EXCHANGE,
    Guest,
    GuestError,
    GuestSpec,
    Share,
    guest_python,
)
from virtual.kernel_build import ensure_kernel

STATE, LOCK, SOCKET = "state.json", "lock", "socket"
NATIVE_EXCHANGE: Final = "downpour-lab-"  # in the state directory: found after a SIGKILL
POLL_S: Final = 0.005
HEARTBEAT_POLL_S: Final = 0.1  # how often a running guest is checked
START_LIMIT_S: Final = 600.0
IDLE_LIMIT_S: Final = 12 * 3600.0
STOP_S: Final = 20.0
STALL_S: Final = 60.0  # real time without progress in a running guest: something spins in it


class Ended(Exception):
    """The network is gone; the text says why."""


class Backend(Protocol):
    """The place where the agent runs."""

    exchange: Path

    def poll(self) -> None:
        """Raise Ended if the network is gone."""

    def pause(self) -> None:
        """Stop the network's clock."""

    def resume(self) -> None:
        """Let the network's clock run."""

    def now_s(self) -> float:
        """Return the network's time, in seconds."""

    def stop(self) -> None:
        """Take the network down."""


def remove_leftovers(state: Path) -> None:
    """Remove what a killed holder left behind. Call it with the lock held."""
    for old in state.glob(f"{NATIVE_EXCHANGE}*"):
        shutil.rmtree(old, ignore_errors=True)


def fill_exchange(exchange: Path, job: agent.Job) -> None:
    """Write the files for the exchange with the agent."""
    (exchange / "job.json").write_text(job.to_json(), encoding="utf-8")
    for name in ("commands", "done"):
        (exchange / name).mkdir()
    for name in ("out", "err", "events"):
        (exchange / name).write_bytes(b"")


class VirtualBackend:
    """A guest. The student's work directory has the same path in it."""

    def __init__(self, lab: Lab, work: Work) -> None:
        inside = CHECKOUT / lab.folder.relative_to(ROOT)
        job = agent.Job(
            inside, work.directory, work.student, lab_network(lab, work.student).to_json(),
            f"lab-{lab.number}", True,
        )  # fmt: skip
        spec = GuestSpec(
            argv=(
                guest_python(), "-m", "labs.agent", str(EXCHANGE)
            ),
            shares=(Share(work.directory, work.directory, writable=True),),
            memory_bytes=lab.spec.memory_mb * 2**20,
            seed=int(work.identity[:8], 16),
            stall_s=STALL_S,
        )  # fmt: skip
        try:
            self._guest = Guest(
                ensure_kernel(), spec, prepare=lambda exchange: fill_exchange(exchange, job)
            )
        except GuestError as error:
            raise Ended(str(error)) from None
        self.exchange = self._guest.exchange

    def poll(self) -> None:
        """Raise Ended if the guest has ended."""
        try:
            code = self._guest.poll()
        except GuestError as error:
            raise Ended(str(error)) from None
        if code is not None:
            errors = (self.exchange / "stderr").read_text(errors="replace").strip()
            raise Ended(f"its guest has ended with code {code}: {errors[-2000:]}")

    def pause(self) -> None:
        """Stop the guest, and with it its clock."""
        self._guest.pause()

    def resume(self) -> None:
        """Let the guest continue."""
        self._guest.resume()

    def now_s(self) -> float:
        """Return the guest's virtual time, in seconds."""
        return self._guest.times.virtual_s

    def stop(self) -> None:
        """End the guest."""
        self._guest.stop()


class NativeBackend:
    """A process of this machine, as root: time passes while no command runs."""

    def __init__(self, lab: Lab, work: Work, state: Path) -> None:
        lifecycle.require_root()
        self._stack = ExitStack()
        self.exchange = Path(tempfile.mkdtemp(prefix=NATIVE_EXCHANGE, dir=state))
        self._stack.callback(shutil.rmtree, self.exchange, ignore_errors=True)
        self._run_id = lifecycle.new_run_id(f"lab-{lab.number}")
        job = agent.Job(
            lab.folder, work.directory, work.student, lab_network(lab, work.student).to_json(),
            self._run_id, False,
        )  # fmt: skip
        fill_exchange(self.exchange, job)
        owner = f"lab-{lab.number}-{work.identity}"
        with (self.exchange / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labs.agent", str(self.exchange)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "DOWNPOUR_OWNER": owner},
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )

    def poll(self) -> None:
        """Raise Ended if the agent's process has ended."""
        code = self._process.poll()
        if code is not None:
            errors = (self.exchange / "stderr").read_text(errors="replace").strip()
            raise Ended(f"its process has ended with code {code}: {errors[-2000:]}")

    def pause(self) -> None:
        """Do nothing: this machine's time passes."""
        pass

    def resume(self) -> None:
        """Do nothing: see `pause`."""
        pass

    def now_s(self) -> float:
        """Return this machine's monotonic time, in seconds."""
        return time.monotonic()

    def stop(self) -> None:
        """End the agent and remove everything that its network left."""
        if self._process.poll() is None:
            agent.end(self._process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOP_S)
        lifecycle.purge(self._run_id)
        self._stack.close()


def directory_socket(path: Path) -> Callable[[], contextlib.AbstractContextManager[str]]:
    """Return a context that gives a short address of `path`: a socket's address has at most 107
    bytes."""

    @contextmanager
    def address() -> Iterator[str]:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}/{path.name}"
        finally:
            os.close(fd)

    return address


def hold(lab: Lab, state: Path, work_directory: Path, clock: str, report_fd: int) -> int:
    """Run the background process. Report its progress on `report_fd` (lines of JSON)."""

    report = background_process.reporter(report_fd)
    try:
        with termination_as_interrupt(), ExitStack() as stack:
            lock = stack.enter_context((state / LOCK).open("ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                report(background_process.FAILED, f"lab {lab.number} is already up")
                return 1
            work = read_work(work_directory)
            if work is None:
                report(
                    background_process.FAILED, f"{work_directory}: found no work directory of a lab"
                )
                return 1
            remove_leftovers(state)
            backend: Backend = (
                VirtualBackend(lab, work) if clock == "virtual" else NativeBackend(lab, work, state)
            )
            stack.callback(backend.stop)
            holder = Holder(lab, work, clock, state, backend)
            stack.callback(holder.close)
            holder.wait_ready(lambda text: report(background_process.PROGRESS, text))
            report(background_process.READY, "")
            os.close(report_fd)
            holder.serve()
    except KeyboardInterrupt:
        return 0
    except Exception as error:  # whatever it is, the student sees it
        report(background_process.FAILED, str(error))
        print(f"lab {lab.number}: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, (Ended, LabError, NetworkError)):
            raise
        return 1
    return 0


class Holder:
    """Serves clients. `state`: the directory in which clients look for it."""

    def __init__(self, lab: Lab, work: Work, clock: str, state: Path, backend: Backend) -> None:
        self._lab, self._work, self._clock = lab, work, clock
        self._state, self._backend = state, backend
        exchange = backend.exchange
        self._tails = {name: Tail(exchange / name) for name in ("out", "err", "events")}
        self._number = 0
        self._zero_s = 0.0
        (state / SOCKET).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with directory_socket(state / SOCKET)() as address:
            self._listener.bind(address)
        (state / SOCKET).chmod(0o600)
        self._listener.listen(8)

    def close(self) -> None:
        """Close the socket and remove the files that lead to it."""
        self._listener.close()
        for name in (SOCKET, STATE):
            (self._state / name).unlink(missing_ok=True)

    def _new_events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._tails["events"].lines()]

    def wait_ready(self, progress: Callable[[str], None]) -> None:
        """Wait until the agent has built the network. Raises Ended, LabError."""
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            for event in self._new_events():
                if event["event"] == "ready":
                    self._backend.pause()
                    self._zero_s = self._backend.now_s()
                    self._say_where()
                    return
                if event["event"] == "failed":
                    raise LabError(str(event["text"]))
                progress(str(event["text"]))
            self._backend.poll()
            if time.monotonic() > deadline:
                raise LabError(f"the network was not up after {START_LIMIT_S:.0f} s")
            time.sleep(POLL_S)

    def _say_where(self) -> None:
        pid = os.getpid()
        write_json(
            self._state / STATE,
            {
                "lab": self._lab.number,
                "work": str(self._work.directory),
                "student": self._work.student,
                "clock": self._clock,
                "exchange": str(self._backend.exchange),
                "pid": pid,
                "start_ticks": marks.start_time_ticks(pid),
                "started": time.time(),
            },
        )

    def serve(self) -> None:
        """Serve commands until none arrives for IDLE_LIMIT_S. Raises Ended."""
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                if not selector.select(IDLE_LIMIT_S):
                    return
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):  # an error here: the client is gone
                self._request(connection)

    def _request(self, connection: socket.socket) -> None:
        connection.settimeout(10.0)
        request = _read_line(connection)
        if request is None:
            return
        kind = request.get("kind")
        if kind == "hello":
            _send(connection, {"done": True, "clock": self._clock, "now_s": self._now()})
        elif kind in ("run", "check"):
            self._command(connection, request)
        else:
            _send(connection, {"failed": f"found request '{kind}'; valid: hello, run, check"})

    def _now(self) -> float:
        return self._backend.now_s() - self._zero_s

    def _command(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Let time pass until the command has ended."""
        self._number += 1
        commands = self._backend.exchange / "commands"
        write_json(commands / f"{self._number}.json", request)
        done = self._backend.exchange / f"done/{self._number}.json"
        client = _Client(connection)
        interrupts = 0
        self._backend.resume()
        looked = time.monotonic()
        try:
            while not done.exists():
                self._pass_on(client)
                self._refuse_others()
                if client.interrupts() > interrupts:
                    interrupts += 1
                    (commands / f"{self._number}.interrupt{interrupts}").touch()
                if time.monotonic() - looked > HEARTBEAT_POLL_S:
                    looked = time.monotonic()
                    self._backend.poll()
                time.sleep(POLL_S)
        except Ended as error:
            client.send({"failed": f"the lab has ended: {error}"})
            raise
        self._backend.pause()
        self._pass_on(client)
        answer = json.loads(done.read_text(encoding="utf-8"))
        client.send({"done": True, "now_s": self._now(), "clock": self._clock, **answer})

    def _pass_on(self, client: _Client) -> None:
        for name in ("out", "err"):
            data = self._tails[name].read()
            if data:
                client.send({name: data.decode("latin-1")})
        for event in self._new_events():
            client.send({"progress": event.get("text", "")})

    def _refuse_others(self) -> None:
        """Refuse a client that connects while a command runs."""
        self._listener.settimeout(0)
        try:
            other, _ = self._listener.accept()
        except BlockingIOError:
            return
        finally:
            self._listener.settimeout(None)
        with other, contextlib.suppress(OSError):
            other.settimeout(1.0)
            _read_line(other)  # otherwise unread data would reset the connection
            _send(other, {"failed": "another command runs in this lab; wait, or end it (Ctrl-C)"})


class _Client:
    """Serves the client that waits for a command. If it is gone, ends the command as Ctrl-C
    does."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._interrupts = 0
        self._gone = False
        connection.setblocking(False)

    def interrupts(self) -> int:
        if not self._gone:
            try:
                data = self._connection.recv(4096)
                self._interrupts += data.count(b"\n") if data else 0
                if not data:
                    self._leave()
            except BlockingIOError:
                pass
            except OSError:
                self._leave()
        return self._interrupts

    def _leave(self) -> None:
        self._gone = True
        self._interrupts += 1

    def send(self, value: dict[str, Any]) -> None:
        if self._gone:
            return
        try:
            self._connection.setblocking(True)
            self._connection.settimeout(30.0)
            _send(self._connection, value)
            self._connection.setblocking(False)
        except OSError:
            self._leave()


def _send(connection: socket.socket, value: dict[str, Any]) -> None:
    connection.sendall((json.dumps(value) + "\n").encode())


def _read_line(connection: socket.socket) -> dict[str, Any] | None:
    """Return a request; None if there is none."""
    data = b""
    try:
        while not data.endswith(b"\n"):
            part = connection.recv(65536)
            if not part:
                return None
            data += part
        value = json.loads(data)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
