# SPDX-License-Identifier: Apache-2.0
"""What cells have in common whose products are files that other programs than ldmd carry: a
replay's network, rates, losses and watching."""

from __future__ import annotations

from experiments.cells.cell_base import Step
from experiments.cells.job import REPLAYING
from experiments.cells.replay_cell import CellRun
from protocols import registry


class FilesRun(CellRun):
    """The cell on a running network."""

    def steps_with(self, prepare: Step, compare: Step) -> tuple[Step, ...]:
        """Return the steps of the cell, in order: `prepare` just before the replay, `compare` at
        the end."""
        return (
            ("probing the links", self.probe_links),
            ("creating the path", self.make_path),
            ("looking at the path", self.check_path),
            ("measuring round trips", self.measure),
            ("shaping the sender, injecting loss", self.shape),
            prepare,
            (REPLAYING, self.replay),
            ("looking at the network again", self.look_back),
            compare,
        )

    def _expect(self) -> None:
        """Say what the network must show while files are on their way; programs come and go."""
        self.expect_of_queues()
        asked, cell = self.fidelity.asked, self.cell
        multicast = registry.get(cell.protocol).multicast
        asked.rate_bps = cell.r_mc_bps + cell.r_uc_bps if multicast else cell.shaped_bps
        asked.groups = {self.network.multicast_group: self.multicast} if multicast else {}
        asked.free |= {"programs"}

    def _ps(self) -> str:
        sender = self.daemons.get(self.publisher)
        return super()._ps() if sender is not None and sender.poll() is None else ""
