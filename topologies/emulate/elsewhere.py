# SPDX-License-Identifier: Apache-2.0
"""What the emulation needs of a host whose programs run on another machine (topologies/remote). Its
namespace here then holds only the end of its links."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from common.shell import NetworkError, NodeCommand, check_all
from topologies.model.network import Network

if TYPE_CHECKING:
    from topologies.emulate.facts import KernelFacts

NOBODY: Mapping[str, Elsewhere] = {}


class Elsewhere(Protocol):
    """A host on another machine."""

    name: str
    facts: dict[str, Any]  # what its machine is; `scheduling`: of its agent

    @property
    def alive(self) -> bool:
        """Return whether the machine can be reached."""

    def share(self, *directories: Path) -> None:
        """Give directories here counterparts there. Raises NetworkError."""

    def put(self, path: Path, *, text: bool = True) -> None:
        """Copy a file there; names of files in a text become those there. Raises NetworkError."""

    def mirror(self, path: Path) -> None:
        """Copy what a file there gets, from now on, to its counterpart here."""

    def forward(self, socket: Path) -> None:
        """Let programs there reach a socket here, at its counterpart. Raises NetworkError."""

    def join(self, network: Network, facts: KernelFacts, pid: int) -> None:
        """Join the host to its place, the namespace of `pid`. Raises NetworkError."""

    def ctcp_window(self, packets: int) -> str:
        """Set the window of its kernel's Circuit TCP; return "" or why that is not possible."""

    def leave(self) -> None:
        """Part the host from its place, before the network ends."""

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdout: object = None,
        stderr: object = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program there. Raises NetworkError."""

    def run(
        self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end. Raises NetworkError."""

    def output(self, argv: Sequence[str], stdin: str = "") -> str:
        """Return what a program prints. Raises NetworkError if it fails."""

    def call(self, name: str, **given: object) -> Any:
        """Return what a function of its agent returns. Raises NetworkError."""


def refuse(elsewhere: Mapping[str, Elsewhere], hosts: Sequence[str], what: str) -> None:
    """Raise NetworkError if one of the hosts is on another machine, for what works only here."""
    if there := [host for host in hosts if host in elsewhere]:
        raise NetworkError(
            f"{what}: found host '{there[0]}' on another machine; valid: a host on this machine"
        )


def ask_all(
    commands: Mapping[str, tuple[Sequence[str], str]],
    pids: Mapping[str, int],
    elsewhere: Mapping[str, Elsewhere],
) -> dict[str, str]:
    """Return the output of each command, as `check_all`. A command in the namespace of a host that
    is elsewhere runs there. Raises NetworkError."""
    machines = {pids[name]: host for name, host in elsewhere.items()}
    found = {}
    for name, (argv, stdin) in commands.items():
        if isinstance(argv, NodeCommand) and argv.pid in machines:
            found[name] = machines[argv.pid].output(argv.argv, stdin)
    return {**found, **check_all({n: c for n, c in commands.items() if n not in found})}
