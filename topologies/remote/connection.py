# SPDX-License-Identifier: Apache-2.0
"""Call an agent's functions over ssh."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from common.files import tail
from common.shell import NetworkError, check, die_with_parent, enter_network_namespace
from topologies.remote.inventory import RemoteHost

SILENT_S: Final = 60.0  # without a byte of an answer, besides what the call itself may take
END_S: Final = 10.0  # for an agent to end everything after its input ended
OPTIONS: Final = (
    *("-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
AGENT: Final = "experiments.cells.host_agent"


def ssh_argv(host: RemoteHost, options: Sequence[str] = ()) -> list[str]:
    """Return the ssh command to the host's machine, up to the machine's name."""
    argv = ["ssh", *OPTIONS, *options]
    argv += ["-p", str(host.port)] if host.port else []
    argv += ["-i", host.key] if host.key else []
    argv += [*shlex.split(host.ssh_arguments)]
    return [*argv, f"{host.user}@{host.address}" if host.user else host.address]


def agent_command(host: RemoteHost) -> str:
    """Return the shell command that starts the agent on the host's machine."""
    start = f"cd {shlex.quote(host.root)} && exec .venv/bin/python -B -m {AGENT}"
    return start if host.user in ("", "root") else f"exec sudo -n sh -c {shlex.quote(start)}"


class Connection:
    """One agent. Threads may share it."""

    def __init__(self, host: RemoteHost, log: Path) -> None:
        """Start the agent, from the namespace that this process is in. `log`: gets its complaints,
        and those of ssh."""
        self.host, self._log = host, log
        self._lock = threading.Lock()
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with log.open("ab") as errors:
            self._ssh = subprocess.Popen(
                [*ssh_argv(host), agent_command(host)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    @property
    def alive(self) -> bool:
        """Return whether the connection still stands."""
        return self._ssh.poll() is None

    def call(self, name: str, **given: object) -> Any:
        """Return what the agent's function returns. Raises NetworkError."""
        assert self._ssh.stdin is not None
        asked = json.dumps({"call": name, "with": given}) + "\n"
        with self._lock:
            try:
                self._ssh.stdin.write(asked.encode())
                self._ssh.stdin.flush()
                line = self._answer(SILENT_S + float(str(given.get("timeout_s", 0))))
            except TimeoutError as error:
                self._ssh.kill()  # else the next call would take this one's answer
                self._ssh.wait()
                raise NetworkError(
                    f"{self.host.name} ({self.host.address}): no answer to '{name}' within {error}"
                ) from None
            except (OSError, ValueError):
                line = b""
        if not line:
            raise NetworkError(f"{self.host.name}: {self.complaint()}")
        try:
            answer = json.loads(line)
            said = None if "is" in answer else str(answer["error"])
        except (ValueError, LookupError, TypeError):
            said = f"found {line[:60]!r}; valid: the agent's answers (a shell there may print more)"
        if said is not None:
            raise NetworkError(f"{self.host.name} ({self.host.address}): {said}")
        return answer["is"]

    def _answer(self, silent_s: float) -> bytes:
        """Return the next line; b"" at the end. Raises TimeoutError, with the time, and OSError."""
        assert self._ssh.stdout is not None
        fd, line = self._ssh.stdout.fileno(), bytearray()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not line.endswith(b"\n"):
            if not poll.poll(silent_s * 1000):
                raise TimeoutError(f"{silent_s:g} s")
            if not (more := os.read(fd, 1 << 16)):
                return b""
            line += more
        return bytes(line)

    def complaint(self) -> str:
        """Return why the connection is lost."""
        said = tail(self._log, 3).strip() or "ssh gave no reason"
        return f"lost the connection to {self.host.address}: {said}"

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Move this thread into the namespace where the connection began."""
        inside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter_network_namespace(self.home)
            try:
                yield
            finally:
                enter_network_namespace(inside)
        finally:
            os.close(inside)

    def check_at_home(self, argv: Sequence[str]) -> str:
        """Run a tool in that namespace and return its output. Raises NetworkError."""
        with self.at_home():
            return check(argv)

    def forward(self, there: str, here: Path) -> subprocess.Popen[bytes]:
        """Start ssh so that programs there reach the socket `here` at `there`."""
        options = ["-N", "-o", "ExitOnForwardFailure=yes", "-R", f"{there}:{here}"]
        with self.at_home(), self._log.open("ab") as errors:
            return subprocess.Popen(
                ssh_argv(self.host, options),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def close(self) -> None:
        """End the agent, which ends everything there. Idempotent."""
        if self._ssh.poll() is None:
            assert self._ssh.stdin is not None
            try:
                self._ssh.stdin.close()
                self._ssh.wait(timeout=END_S)
            except (OSError, subprocess.TimeoutExpired):
                self._ssh.kill()
                self._ssh.wait()
        if self.home >= 0:
            os.close(self.home)
            self.home = -1
