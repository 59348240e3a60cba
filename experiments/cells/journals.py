# SPDX-License-Identifier: Apache-2.0
"""What the kernel reports of changes: here, and where a cell's other hosts are."""

from __future__ import annotations

from common import looking
from common.shell import NetworkError
from topologies.emulate.emulation import Emulation
from topologies.watch.flights import LOOK_S
from topologies.watch.journal import Change


class Journals:
    """The journal here, and one at each host elsewhere. Its agent keeps that and names the time of
    a change by the clock there: in virtual time the one here; of another machine, the verdict
    limits the offset."""

    def __init__(self, emulation: Emulation) -> None:
        """Record from now on. Raises NetworkError."""
        self._here = emulation.journal()
        self._elsewhere = emulation.elsewhere
        self.missed = 0  # how often a kernel had to drop changes; known at the end
        self.failed: list[str] = []  # why hosts gave no journal
        for name, host in self._elsewhere.items():
            host.call("record", node=name, interval_s=looking.every_s(LOOK_S))

    def look(self) -> None:
        """Read what the kernel here reported since the last call."""
        self._here.look()

    def close(self) -> list[Change]:
        """Stop; return the first changes of each journal."""
        changes = list(self._here.close())
        self.missed = self._here.missed
        for host in self._elsewhere.values():
            try:
                seen = host.call("recorded")
            except NetworkError as error:
                self.failed.append(str(error))
                continue
            changes += [Change(**change) for change in seen["changes"]]
            self.missed += seen["missed"]
        return sorted(changes, key=lambda change: change.at_s)
