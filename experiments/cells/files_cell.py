# SPDX-License-Identifier: Apache-2.0
"""The base of cells whose products are files that programs other than ldmd carry: a replay's
network, rates, losses and monitoring."""

from __future__ import annotations

import time
from collections.abc import Sequence

from experiments.cells.background_traffic import UNTIL_STOPPED_S, Background, BackgroundError
from experiments.cells.cell_base import CellError, Step
from experiments.cells.job import REPLAYING
from experiments.cells.replay_cell import CellRun
from experiments.cells.rivals import Rival, rivals_of
from experiments.design import layers
from protocols import registry


class FilesRun(CellRun):
    """The cell on a running network."""

    _flows: Background | None = None
    _rivals: Sequence[Rival] = ()

    def steps_with(self, prepare: Step, compare: Step) -> tuple[Step, ...]:
        """Return the steps of the cell, in order: `prepare` just before the replay, `compare` at
        the end."""
        rivals: tuple[Step, ...] = ()
        if self.cell.has_rivals:
            rivals = (("starting the competing traffic", self.start_rivals),)
        return (
            ("probing the links", self.probe_links),
            ("creating the path", self.make_path),
            ("checking the path", self.check_path),
            ("measuring round trips", self.measure),
            ("shaping the sender, injecting loss", self.shape),
            prepare,
            *rivals,
            (REPLAYING, self.replay),
            ("checking the network again", self.look_back),
            compare,
        )

    # -- what competes --------------------------------------------------------------------------
    def start_rivals(self) -> None:
        """Start the competing traffic; it runs until the replay is over."""
        cell = self.cell
        try:
            if cell.background_flows:
                self._flows = Background(
                    self.emulation,
                    self.network,
                    self.subscribers,
                    cell.background_flows,
                    cell.rivals.tcp,
                )
                self._flows.start(self.logs, UNTIL_STOPPED_S)
            self._rivals = rivals_of(self)
            for rival in self._rivals:
                rival.start()
        except BackgroundError as error:
            raise CellError(str(error)) from None
        time.sleep(layers.phase_s(cell.repeat, cell.seed))

    def _stop_rivals(self) -> None:
        if self._flows is not None:
            self._flows.stop()
        for rival in self._rivals:
            rival.stop()

    def replay(self) -> None:
        """Sample, replay and wait; then end the competing traffic."""
        super().replay()
        self._stop_rivals()

    def end_all(self) -> None:
        """End the programs that still run, competing traffic included."""
        self._stop_rivals()
        super().end_all()

    def _expect(self) -> None:
        """Note what the network must show while files are in transit; programs come and go."""
        self.free_what_changes()
        self.expect_of_sender(multicast=registry.get(self.cell.protocol).multicast)
        self.fidelity.asked.free |= {"programs"}

    def _ps(self) -> str:
        sender = self.daemons.get(self.publisher)
        return super()._ps() if sender is not None and sender.poll() is None else ""
