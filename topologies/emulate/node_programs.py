# SPDX-License-Identifier: Apache-2.0
"""Start programs in the nodes of a running network. All get the run's mark."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from common.shell import NetworkError
from topologies.emulate import marks
from topologies.emulate.elsewhere import NOBODY, Elsewhere

Output = IO[bytes] | IO[str] | int | None


class NodePrograms:
    """Starts programs in the nodes of `pids` (node -> a process of its namespace), or on the
    machines of the hosts that are `elsewhere`."""

    def __init__(
        self,
        run_id: str,
        pids: Callable[[], Mapping[str, int]],
        elsewhere: Mapping[str, Elsewhere] = NOBODY,
    ) -> None:
        self._run_id = run_id
        self._pids = pids
        self._elsewhere = elsewhere
        self.started: set[int] = set()  # here; agents know theirs

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: Output = None,
        stderr: Output = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a host, router or `wire`. It leads its own session, so that Ctrl-C on
        the terminal does not reach it. `env` is added to the environment. Raises NetworkError if
        there is no such node."""
        if host in self._elsewhere:
            if stdin != subprocess.DEVNULL:
                raise NetworkError(f"{host}: found input for {argv[0]}; valid: none elsewhere")
            return self._elsewhere[host].popen(argv, stdout=stdout, stderr=stderr, env=env)
        process = subprocess.Popen(
            self._command(host, argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(env or {}), marks.MARK: self._run_id},
            start_new_session=True,
        )
        self.started.add(process.pid)
        return process

    def tap(self, node: str, argv: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a capture at `node`. Switch ports are in the run's own namespace, as is this
        process."""
        process = subprocess.Popen(
            self._command(node, argv) if node in self._pids() else list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "LC_ALL": "C", marks.MARK: self._run_id},
            start_new_session=True,
        )
        self.started.add(process.pid)
        return process

    def run(
        self, host: str, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a node to its end. Raises NetworkError if it fails (with `check`) or
        hangs."""
        try:
            result = self._run(host, argv, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NetworkError(
                f"{host}: {' '.join(argv)}: no end within {timeout_s:g} s"
            ) from error
        if check and result.returncode != 0:
            complaint = (result.stderr or result.stdout).strip()[-500:]
            raise NetworkError(
                f"{host}: {' '.join(argv)}: exit code {result.returncode}: {complaint}"
            )
        return result

    def _run(
        self, host: str, argv: Sequence[str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        if host in self._elsewhere:
            return self._elsewhere[host].run(argv, timeout_s=timeout_s)
        return subprocess.run(
            self._command(host, argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, marks.MARK: self._run_id},
            check=False,
        )

    def _command(self, host: str, argv: Sequence[str]) -> list[str]:
        pids = self._pids()
        pid = pids.get(host)
        if pid is None:
            raise NetworkError(f"found host '{host}'; valid: {', '.join(pids)}")
        # Mininet's own helper also joins the node's mount namespace, which has the node's /sys.
        return ["mnexec", "-a", str(pid), *argv]
