# SPDX-License-Identifier: Apache-2.0
"""A cell whose file layered multicast sends (protocol m2c): a carousel's cell, whose path has a
group for each channel. Receivers join channels by IGMP."""

from __future__ import annotations

from pathlib import Path

from controller.api.path_client import PathClient, PathClientError, endpoints_of
from experiments.cells import path_entries
from experiments.cells.carousel_cell import CarouselRun
from experiments.cells.cell_base import CellError
from experiments.cells.run_directory import write_json
from experiments.design import layers


class LayersRun(CarouselRun):
    """The cell on a running network."""

    def make_path(self) -> None:
        """Make the path with its channels, to every segment."""
        root, leaves = endpoints_of(self.network)
        channels = layers.channels_of(self.network.multicast_group, self.cell.layers)
        name, rate_bps = self.feed.name, self.feed.r_vn_bps
        try:
            with PathClient(self.emulation.controller_socket) as service:
                service.create_path(name, root, rate_bps, channels=channels)
                for segment in sorted(self._segments()):
                    service.add_leaf(name, leaves[segment])
        except PathClientError as error:
            raise CellError(f"the path service refused the path: {error}") from None

    def send_argv(self, file: Path) -> list[str]:
        """Return the sender's command line."""
        return layers.send_argv(self.cell.layers, self.setup, file, fec=self.cell.carousel.fec)

    def receive_argv(self, receiver: int, directory: Path) -> list[str]:
        """Return a receiver's command line."""
        return layers.receive_argv(self.cell.layers, self.setup, receiver, directory)

    def _expect(self) -> None:
        """Note what the network must show: channels come and go with their receivers."""
        super()._expect()
        self.fidelity.asked.paths = path_entries.CHANNELS

    def _insert_and_wait(self) -> None:
        """Send, and keep what the path service counted of each channel."""
        super()._insert_and_wait()
        try:
            with PathClient(self.emulation.controller_socket) as service:
                write_json(self.out / "channels.json", service.counters(self.feed.name))
        except PathClientError as error:
            raise CellError(f"the path service does not report its counters: {error}") from None
