# SPDX-License-Identifier: Apache-2.0
"""The launcher's option `--queues`: which driver sets the queues of the switch ports."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller.paths.queues import QueueDriver, QueueError
from controller.switches.queue_ovsdb import QueueOvsdb
from controller.switches.queue_tc import QueueTc
from topologies.model.network import Network

VALID: Final = "none, tc:FILE (a list of outlets), or ovsdb:ADDRESS, e.g. ovsdb:unix:/run/db.sock"


def driver_of(option: str, network: Network) -> QueueDriver | None:
    """Return the driver that the option names; None: no queues. Raises QueueError."""
    kind, _, rest = option.partition(":")
    if option == "none":
        return None
    if kind == "tc" and rest:
        return QueueTc(Path(rest))
    if kind == "ovsdb" and rest:
        return QueueOvsdb(network, rest)
    raise QueueError(f"--queues '{option}'; valid: {VALID}")
