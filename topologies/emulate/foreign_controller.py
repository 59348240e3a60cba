# SPDX-License-Identifier: Apache-2.0
"""Give the switches of all controller domains to an external controller at `tcp:HOST:PORT`. The
path service is off.

The switches are in a network namespace of the run. They connect to its loopback address, and two
socats carry each connection over a Unix socket to the namespace where the controller has its
address.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.findings import MISSING, OK, Finding
from common.shell import NetworkError, check
from topologies.emulate.processes import CONTROLLER_CONNECT_TIMEOUT_S, Bridges

VALID: Final = "tcp:HOST:PORT, tcp:[IPv6]:PORT"
ANSWER_S: Final = 3.0
LOOK_S: Final = 0.1
OPENFLOW_13: Final = 4
HELLO: Final = struct.Struct("!BBHI")  # version, type, length, transaction
HELLO_TYPE: Final = 0
_ADDRESS: Final = re.compile(r"tcp:(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class ControllerAddress:
    """The address of a controller. `host`: an IPv6 address has no brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ControllerAddress:
        """Read `tcp:HOST:PORT`. Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ValueError(f"found '{text}'; valid: {VALID}")
        return cls(found["host"].strip("[]"), int(found["port"]))

    def __str__(self) -> str:
        return f"tcp:{self.bracketed}:{self.port}"

    @property
    def bracketed(self) -> str:
        """Return the host; an IPv6 address is in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True)
class Foreign:
    """An external controller, and the network namespace where it has its address."""

    address: ControllerAddress
    home: Path

    @classmethod
    def from_here(cls, address: ControllerAddress) -> Foreign:
        """Return the controller at `address` as seen from this process's namespace, which stays
        open until the process ends."""
        return cls(address, home_of_here())


def home_of_here() -> Path:
    """Return this process's network namespace as a file, which stays open until it ends."""
    held = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    return Path(f"/proc/{os.getpid()}/fd/{held}")


def version_of(address: ControllerAddress) -> int:
    """Return the highest OpenFlow version that a controller offers to a switch with OpenFlow 1.3.
    Raises NetworkError if it does not answer or does not speak OpenFlow."""
    try:
        with socket.create_connection((address.host, address.port), ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(HELLO.pack(OPENFLOW_13, HELLO_TYPE, HELLO.size, 1))
            answer = b""
            while len(answer) < HELLO.size and (more := connection.recv(HELLO.size - len(answer))):
                answer += more
    except OSError as error:
        reason = error.strerror or str(error)
        raise NetworkError(f"found {address}, which does not answer: {reason}") from None
    if len(answer) == HELLO.size:
        version, kind, length, _ = HELLO.unpack(answer)
        if kind == HELLO_TYPE and length >= HELLO.size and version > 0:
            return int(version)
    raise NetworkError(
        f"found {address}, which answers {answer!r}; valid: a controller that speaks OpenFlow"
    )


def check_answers(address: ControllerAddress) -> None:
    """Check that a controller at `address` speaks OpenFlow 1.3. Raises NetworkError."""
    if (version := version_of(address)) < OPENFLOW_13:
        raise NetworkError(
            f"found {address}, which offers OpenFlow version code {version}; "
            f"valid: {OPENFLOW_13} (OpenFlow 1.3) or higher"
        )


def finding(address: ControllerAddress) -> Finding:
    """Return what the doctor says about a controller."""
    try:
        check_answers(address)
    except NetworkError as error:
        return Finding(MISSING, "OpenFlow controller", str(error))
    return Finding(OK, "OpenFlow controller", f"{address} answers with OpenFlow 1.3")


class ForeignController(Bridges):
    """The connection from a run's switches to the controller. `port`: where they connect in their
    namespace."""

    def __init__(self, foreign: Foreign, port: int, state_dir: Path) -> None:
        super().__init__(foreign.home, state_dir / "foreign-controller.log")
        self.address, self.port = foreign.address, port
        self._between = state_dir / "foreign-controller.sock"  # the two namespaces

    def start(self) -> None:
        """Start both socats. Raises NetworkError."""
        there = f"{self.address.bracketed}:{self.address.port}"
        self.carry(self.port, there, self._between)

    def wait_connected(self, switches: set[str]) -> None:
        """Wait until the controller has accepted all `switches`. Raises NetworkError."""
        deadline = time.monotonic() + CONTROLLER_CONNECT_TIMEOUT_S
        while missing := {name for name in switches if not _is_connected(name)}:
            if time.monotonic() > deadline or not self.alive:
                said = self._log.read_text(encoding="utf-8", errors="replace")[-400:]
                raise NetworkError(
                    f"{self.address} has no connection from {', '.join(sorted(missing))}: "
                    f"{said or 'it ends them, or does not speak OpenFlow 1.3'}"
                )
            time.sleep(LOOK_S)


def _is_connected(switch: str) -> bool:
    """Return whether the switch and its controller have agreed on a version."""
    return check(["ovs-vsctl", "get", "Controller", switch, "is_connected"]).strip() == "true"
