# SPDX-License-Identifier: Apache-2.0
"""The path service over ONOS: switches connect to ONOS, and the controllers of all domains tell it
what they need by REST.

As with an external controller, switches and controllers are in a network namespace of the run. They
connect to its loopback address, from where socats carry the connections to the namespace where ONOS
has its address.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.findings import MISSING, OK, Finding
from common.onos import OPENFLOW_PORT, PORT, OnosAddress, OnosError, Rest, version
from common.shell import NetworkError
from topologies.emulate.foreign_controller import ControllerAddress, check_answers, home_of_here
from topologies.emulate.processes import Bridges
from topologies.emulate.remote_controllers import HOST_VARIABLE

HERE: Final = OnosAddress("127.0.0.1", PORT)  # in the run's namespace


@dataclass(frozen=True)
class Onos:
    """ONOS, and the network namespace where it has its address."""

    address: OnosAddress
    home: Path

    @classmethod
    def from_here(cls, address: OnosAddress) -> Onos:
        """Return the ONOS at `address` as seen from this process's namespace, which stays open
        until the process ends."""
        return cls(address, home_of_here())


def openflow_of(address: OnosAddress) -> ControllerAddress:
    """Return where switches connect to ONOS."""
    return ControllerAddress(address.host, OPENFLOW_PORT)


def check_onos(address: OnosAddress) -> str:
    """Check that ONOS answers by REST and by OpenFlow 1.3; return its version. Raises
    NetworkError."""
    try:
        found = version(Rest(address))
    except OnosError as error:
        raise NetworkError(str(error)) from None
    check_answers(openflow_of(address))
    return found


def onos_finding(address: OnosAddress) -> Finding:
    """Return what the doctor says about ONOS."""
    try:
        found = check_onos(address)
    except NetworkError as error:
        return Finding(MISSING, "ONOS", str(error))
    return Finding(OK, "ONOS", f"{address} is ONOS {found}; it answers with OpenFlow 1.3")


class OnosBridges(Bridges):
    """The connections from a run's switches and controllers to ONOS. `port`: where switches connect
    in their namespace."""

    def __init__(self, onos: Onos, port: int, state_dir: Path) -> None:
        super().__init__(onos.home, state_dir / "onos.log")
        self.address, self.port, self._state_dir = onos.address, port, state_dir

    @property
    def option(self) -> list[str]:
        """Return the controllers' option: in another container, they reach ONOS itself."""
        return ["--onos", str(self.address if os.environ.get(HOST_VARIABLE) else HERE)]

    def start(self) -> None:
        """Start the socats. Raises NetworkError."""
        there = openflow_of(self.address)
        pairs = (
            (self.port, f"{there.bracketed}:{there.port}", "onos-openflow.sock"),
            (HERE.port, f"{there.bracketed}:{self.address.port}", "onos-rest.sock"),
        )
        for port, target, between in pairs:
            self.carry(port, target, self._state_dir / between)
