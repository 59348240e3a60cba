# SPDX-License-Identifier: Apache-2.0
"""Run programs in the nodes of a running network, in this process or in another one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from topologies.emulate.emulation_state import pids_of
from topologies.emulate.node_programs import NodePrograms, Output


class Nodes(Protocol):
    """What `Emulation` and `NodePrograms` offer."""

    def popen(
        self, host: str, argv: Sequence[str], *, stdout: Output = None, stderr: Output = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in a node. Raises NetworkError if there is no such node."""

    def run(
        self, host: str, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a node to its end. Raises NetworkError if it fails (with `check`) or
        hangs."""


def nodes_of(run_id: str) -> Nodes:
    """Return the nodes of a network that another process holds."""
    return NodePrograms(run_id, lambda: pids_of(run_id))
