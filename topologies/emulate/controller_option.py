# SPDX-License-Identifier: Apache-2.0
"""The options `--controller` and `--onos` of commands."""

from __future__ import annotations

from typing import Final

from common.command_line import Failure
from common.onos import OnosAddress
from topologies.emulate.foreign_controller import ControllerAddress

ONOS: Final = "onos"


def external_address(
    controller: str | None, onos: str | None
) -> ControllerAddress | OnosAddress | None:
    """Return the address that the options name; None without them. Raises Failure."""
    if (controller == ONOS) != (onos is not None):
        found = "--onos" if onos is not None else f"--controller {ONOS}"
        raise Failure(f"found {found} alone; valid: --controller {ONOS} --onos URL")
    try:
        if onos is not None:
            return OnosAddress.parse(onos)
        return None if controller is None else ControllerAddress.parse(controller)
    except ValueError as error:
        option = "--controller" if onos is None else "--onos"
        more = f", {ONOS}" if onos is None else ""
        raise Failure(f"{option}: {error}{more}") from None
