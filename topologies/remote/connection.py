# SPDX-License-Identifier: Apache-2.0
"""Call an agent's functions over ssh."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.files import tail
from common.shell import check, die_with_parent, enter_network_namespace
from topologies.remote.channel import Channel
from topologies.remote.inventory import RemoteHost

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


class Connection(Channel):
    """One agent. Threads may share it."""

    def __init__(self, host: RemoteHost, log: Path) -> None:
        """Start the agent, from the namespace that this process is in. `log`: gets its complaints,
        and those of ssh."""
        super().__init__(host.name, host.address)
        self.host, self._log = host, log
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

    def _send(self, data: bytes) -> None:
        assert self._ssh.stdin is not None
        self._ssh.stdin.write(data)
        self._ssh.stdin.flush()

    def _fd(self) -> int:
        assert self._ssh.stdout is not None
        return self._ssh.stdout.fileno()

    def _drop(self) -> None:
        self._ssh.kill()
        self._ssh.wait()

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
