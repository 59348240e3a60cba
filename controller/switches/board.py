# SPDX-License-Identifier: Apache-2.0
"""What the controller process needs of its side towards the switches: `Switchboard`, to which they
connect, or ONOS's REST."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from controller.paths.entries import Entries
from controller.paths.messages import Message
from controller.paths.stats import SwitchStats
from controller.switches.installer import Failure
from controller.switches.switchboard import Event, PacketIn


class Board(Protocol):
    """`events` reports to the owner, in order."""

    events: queue.SimpleQueue[Event]
    on_packet_in: PacketIn | None
    on_report: PacketIn | None
    on_event: Callable[[Event], None] | None

    def emit(self, event: Event) -> None:
        """Report an event to the owner."""

    def connected_switches(self) -> list[str]:
        """Return the names of the switches that are connected."""
        ...

    def post(self, switch: str, messages: Sequence[Message]) -> None:
        """Send messages without an answer, if that is possible."""

    def ask(self, switch: str, answered: Callable[[], None]) -> None:
        """Call `answered` when the switch has answered, if it can be asked."""

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> Mapping[str, Failure]:
        """Send the switches their messages; see `Apply`."""
        ...

    def settle(self, switches: Iterable[str]) -> Mapping[str, Failure]:
        """Wait for what `apply` does not wait for; see `Settle`."""
        ...

    def read(self, switches: Iterable[str]) -> Mapping[str, Entries | Failure]:
        """Return which of this controller's entries each switch has; see `Read`."""
        ...

    def stats(self, switches: Iterable[str]) -> Mapping[str, SwitchStats | Failure]:
        """Return the counters of each switch."""
        ...
