# SPDX-License-Identifier: Apache-2.0
"""Use a controller in another container, in which the network's state directory is mounted at the
same path (docker-compose.yml).

The network asks for a controller with a file. One container may run the controllers of all domains,
or each domain has its own (`controller-{domain}`). `python -m controller attend` there starts the
requested controllers, and starts them again after its own restart. Northbound REST is a Unix socket
in the shared directory.

OpenFlow is TCP over the network between the containers. The switches, in the run's network
namespace, connect to its loopback address. From there, socat forwards each connection over a Unix
socket into the container's namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.contracts import ENDED_SUFFIX, REQUEST_SUFFIX, attendant_name
from common.shell import NetworkError
from topologies.emulate import marks
from topologies.emulate.processes import (
    CONTROLLER_START_TIMEOUT_S,
    Controller,
    end_process,
    start_bridge,
    tell_to_stop,
)

# Where the controllers run: for example controller or, with one container for each domain,
# controller-{domain}. Unset: in this container.
HOST_VARIABLE: Final = "DOWNPOUR_CONTROLLER_HOST"
DOMAIN_PLACE: Final = "{domain}"
HOME_NAMESPACE: Final = Path("/proc/1/ns/net")  # of the container, or of the machine


def attendant_file(root: Path, domain: str = "") -> Path:
    """Return the file that `attend` (of the domain, or of all) writes; its owner is the user that
    runs the controllers."""
    return root / attendant_name(domain)


def make_controller(
    domain: str, port: int, state_dir: Path, *, role: str = "", options: Sequence[str] = ()
) -> Controller:
    """Return a controller in this container, or in the one that HOST_VARIABLE names."""
    host = os.environ.get(HOST_VARIABLE)
    if host:
        return RemoteController(host, domain, port, state_dir, role=role, options=options)
    return Controller(domain, port, state_dir, role=role, options=options)


class RemoteController(Controller):
    """A controller in another container. It writes to its own directory, which belongs to the user
    that runs `attend`."""

    def __init__(
        self,
        host: str,
        domain: str,
        port: int,
        state_dir: Path,
        *,
        role: str = "",
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(domain, port, state_dir, role=role, options=options)
        self.host = host.replace(DOMAIN_PLACE, domain)
        self._attendant = (
            domain if DOMAIN_PLACE in host else ""
        )  # "": one attendant for all domains
        self._run_directory = state_dir
        self._own = state_dir / self.name
        self.socket = self._own / "rest.sock"
        self.log = self._own / f"{self.name}.log"
        self._request = state_dir / f"{self.name}{REQUEST_SUFFIX}"
        self._ended = self._own / f"{self.name}{ENDED_SUFFIX}"
        self._between = state_dir / f"{self.name}.of.sock"  # the two namespaces
        self._socats: list[subprocess.Popen[bytes]] = []

    @property
    def store(self) -> Path:
        """Return the file of its paths."""
        return self._run_directory / f"controller-{self.domain}" / "store.sqlite"

    def start(self, network_file: Path) -> None:
        """Ask the other container to start it. Raises NetworkError."""
        attendant = attendant_file(marks.STATE_ROOT, self._attendant)
        deadline = time.monotonic() + CONTROLLER_START_TIMEOUT_S
        while not attendant.exists():
            if time.monotonic() > deadline:
                option = f" --domain {self._attendant}" if self._attendant else ""
                raise NetworkError(
                    f"{HOST_VARIABLE}={self.host}: no process attends {marks.STATE_ROOT}; "
                    f"valid: run there `python -m controller attend {marks.STATE_ROOT}{option}`"
                )
            time.sleep(0.1)
        owner = attendant.stat()
        self._own.mkdir(exist_ok=True)
        os.chown(self._own, owner.st_uid, owner.st_gid)
        self._ended.unlink(missing_ok=True)
        arguments = self.arguments(network_file, f"0.0.0.0:{self.port}")
        temporary = self._request.with_suffix(".tmp")
        request = {"arguments": arguments, "attendant": self._attendant}
        temporary.write_text(json.dumps(request), encoding="utf-8")
        temporary.rename(self._request)
        if not self._socats:
            self._socats = start_bridge(
                self.port,
                f"{self.host}:{self.port}",
                HOME_NAMESPACE,
                self._between,
                self._run_directory / f"{self.name}.socat.log",
            )

    @property
    def alive(self) -> bool:
        """Return whether it was requested and is not known to have ended. It may be restarting."""
        return self._request.exists() and not self._ended.exists()

    @property
    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs, or if it never did."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads(self._ended.read_text(encoding="utf-8"))["code"])
        return None

    @property
    def pid(self) -> int | None:
        """Return None: the process is in another container."""
        return None

    def kill(self) -> None:
        """Raise NetworkError: the process is in another container."""
        raise NetworkError(f"the controller of {self.domain} runs at {self.host}: kill it there")

    def tell_to_stop(self) -> None:
        """Ask the other container to end it; do not wait."""
        self._request.unlink(missing_ok=True)
        for socat in self._socats:
            tell_to_stop(socat)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self.tell_to_stop()
        for socat in self._socats:
            end_process(socat)
        self._socats.clear()
