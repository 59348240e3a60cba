# SPDX-License-Identifier: Apache-2.0
"""Two machines for tests: processes with their own network and /tmp, and a cable between them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from common.places import ROOT
from common.shell import die_with_parent

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 7080
HOLD = (
    "mount --make-rprivate / && mount -t tmpfs tmpfs /tmp && ip link set lo up && echo && exec cat"
)


@dataclass(frozen=True)
class Machine:
    """A machine. `pid`: of the process that holds it."""

    pid: int
    address: str

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program of this project's Python there."""
        return subprocess.Popen(
            ["nsenter", f"--target={self.pid}", "--net", "--mount", f"--wd={ROOT}", "--"]
            + [sys.executable, "-m", "downpour", *argv],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent(),
        )


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Yield two machines. They vanish with the processes that run there."""
    with ExitStack() as stack:
        found = []
        for address in ADDRESSES:
            holder = stack.enter_context(
                subprocess.Popen(
                    ["unshare", "--net", "--mount", "sh", "-c", HOLD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=die_with_parent(),
                )
            )
            stack.callback(holder.kill)
            assert holder.stdout is not None
            assert holder.stdout.readline() == "\n"
            found.append(Machine(holder.pid, address))
        a, b = found
        subprocess.run(
            ["nsenter", f"--target={a.pid}", "--net", "ip", "link", "add", "cable", "type", "veth"]
            + ["peer", "name", "cable", "netns", str(b.pid)],
            check=True,
        )
        for one in found:
            enter = ["nsenter", f"--target={one.pid}", "--net", "ip"]
            subprocess.run(
                [*enter, "address", "add", f"{one.address}/24", "dev", "cable"], check=True
            )
            subprocess.run([*enter, "link", "set", "cable", "up"], check=True)
        yield a, b
