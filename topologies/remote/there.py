# SPDX-License-Identifier: Apache-2.0
"""A host whose programs run where an agent is: on another machine, or in another part.

A path here names the file's counterpart there. `put` copies a file there, `mirror` keeps a file
here as it grows there.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.shell import NetworkError
from topologies.emulate.build import host_script, nic1_interface, node_problems, parse_node_readback
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Network
from topologies.remote.channel import Channel
from topologies.remote.process import RemoteProcess, descriptor

PING_TIMEOUT_S = 5


@dataclass
class Copy:
    """A file that grows there, and the descriptor here that gets what is new."""

    there: str
    fd: int
    offset: int = 0


class HostThere(ABC):
    """A host elsewhere (topologies/emulate/elsewhere.py), without how it is joined."""

    def __init__(self, name: str, address: str, connection: Channel) -> None:
        """Ask the agent what its machine is. Raises NetworkError."""
        self.name, self.address, self._connection = name, address, connection
        self.facts: dict[str, Any] = connection.call("hello")
        self.scratch = str(self.facts["scratch"])
        self._places: dict[str, str] = {}
        self._copies: list[Copy] = []
        self._copying = threading.Lock()
        self._outputs = 0
        self._closed = False

    # -- places -------------------------------------------------------------------------------
    def share(self, *directories: Path) -> None:
        """Give directories here counterparts there. Raises NetworkError."""
        for directory in directories:
            self._places[str(directory)] = f"{self.scratch}{directory}"
            self._connection.call("write", path=f"{self.scratch}{directory}/", data="")

    def there(self, text: str) -> str:
        """Return a text with the names of files there."""
        for here in sorted(self._places, key=len, reverse=True):
            if here in text and not text.startswith(self.scratch):
                return text.replace(here, self._places[here])
        return text

    def put(self, path: Path, *, text: bool = True) -> None:
        """Copy a file there; names of files in a text become those there. Raises NetworkError."""
        data = path.read_bytes()
        if text:
            lines = data.decode().splitlines(keepends=True)
            data = "".join(self.there(line) for line in lines).encode()
        encoded = base64.b64encode(data).decode()
        self._connection.call("write", path=self.there(str(path)), data=encoded)

    def mirror(self, path: Path) -> None:
        """Copy what a file there gets, from now on, to its counterpart here."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._connection.call("write", path=str(Path(self.there(str(path))).parent) + "/", data="")
        with self._copying:
            self._copies.append(Copy(self.there(str(path)), fd))

    # -- copies -------------------------------------------------------------------------------
    def copy(self) -> None:
        """Copy all that programs have written by now. Raises NetworkError."""
        copy_all(self._copies, self._copying, self._connection)

    def contents(self, path: str) -> bytes:
        """Return the whole of a file there. Raises NetworkError."""
        whole = b""
        while found := self._connection.call("read", files={path: len(whole)}):
            whole += base64.b64decode(found[path])
        return whole

    # -- programs -----------------------------------------------------------------------------
    def call(self, name: str, **given: object) -> Any:
        """Return what the agent's function returns. Raises NetworkError."""
        return self._connection.call(name, **given)

    def run(
        self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Raises NetworkError if it hangs, or is missing."""
        words = [self.there(word) for word in argv]
        code, out, err = self.call("run", argv=words, stdin=stdin, timeout_s=timeout_s)
        return subprocess.CompletedProcess(words, code, out, err)

    def output(self, argv: Sequence[str], stdin: str = "") -> str:
        """Return what a program prints. Raises NetworkError if it fails."""
        done = self.run(argv, stdin=stdin)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise NetworkError(f"{self.name}: {' '.join(argv)[:200]}: {said}")
        return done.stdout

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdout: object = None,
        stderr: object = None,
        env: Mapping[str, str] | None = None,
    ) -> RemoteProcess:
        """Start a program; what it writes is copied to `stdout` and `stderr` here (PIPE:
        `communicate` returns it). Raises NetworkError."""
        self._outputs += 1
        out = err = None
        collected = f"{self.scratch}/output-{self._outputs}" if stdout == subprocess.PIPE else ""
        if collected:
            out = collected
        elif (fd := descriptor(stdout)) is not None:
            out = self._copied(fd, "out")
        if stderr == subprocess.STDOUT or (stderr is stdout and stderr is not None):
            err = out
        elif (fd := descriptor(stderr)) is not None:
            err = self._copied(fd, "err")
        words = [self.there(word) for word in argv]
        variables = {name: self.there(value) for name, value in (env or {}).items()}
        pid = self.call("start", argv=words, env=variables, out=out, err=err)
        return RemoteProcess(self, pid, argv, collected)

    def _copied(self, fd: int, kind: str) -> str:
        path = f"{self.scratch}/output-{self._outputs}.{kind}"
        with self._copying:
            self._copies.append(Copy(path, fd))
        return path

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a program that has ended, after copying all that it wrote."""
        code = self.call("codes").get(str(pid))
        if code is not None:
            self.copy()
        return None if code is None else int(code)

    def send(self, pid: int, number: int) -> None:
        """Send a signal to a program. Raises NetworkError."""
        self.call("signal", pid=pid, number=int(number))

    # -- the host -----------------------------------------------------------------------------
    @property
    def alive(self) -> bool:
        """Return whether the host can be reached."""
        return self._connection.alive

    @abstractmethod
    def join(self, network: Network, facts: KernelFacts, pid: int) -> None:
        """Join the host to its place, the namespace of `pid`. Raises NetworkError."""

    def leave(self) -> None:  # noqa: B027  # most have nothing to do
        """Part the host from its place, before the network ends."""

    def configure(self, network: Network, facts: KernelFacts) -> None:
        """Configure the host's NICs there, as `build` does here. Raises NetworkError."""
        host = network.host(self.name)
        found = parse_node_readback(self.output(["sh", "-s"], host_script(network, host, facts)))
        path = nic1_interface(network, host, facts)
        expected = {host.nic1.interface: ""}
        expected |= {path: f"{host.nic1.ip}/{host.nic1.prefix_len}"}
        expected |= {host.nic2.interface: f"{host.nic2.ip}/{host.nic2.prefix_len}"}
        if problems := node_problems(self.name, found, expected):
            raise NetworkError("; ".join(problems[:5]))

    def answered(self, address: str) -> bool:
        """Return whether `address` answers pings of the host. Raises NetworkError."""
        argv = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", str(PING_TIMEOUT_S), address]
        return self.run(argv).returncode == 0

    def close(self) -> None:
        """Copy what is left, end everything there, and remove it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(NetworkError):
            self.copy()
        for copy in self._copies:
            os.close(copy.fd)
        self._connection.close()


def copy_all(copies: Sequence[Copy], lock: threading.Lock, connection: Channel) -> None:
    """Copy all that programs have written by now. Raises NetworkError."""
    with lock:
        while copies:
            asked = {copy.there: copy.offset for copy in copies}
            found = connection.call("read", files=asked)
            for copy in copies:
                if copy.there in found:
                    data = base64.b64decode(found[copy.there])
                    os.write(copy.fd, data)
                    copy.offset += len(data)
            if not found:
                return
