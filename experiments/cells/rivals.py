# SPDX-License-Identifier: Apache-2.0
"""Competitors of a cell's path besides long TCP flows: another session of layered multicast, or
many short TCP connections. They use the second lane, as `background_traffic` explains."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from common.files import tail
from common.places import ROOT
from experiments.cells.background_traffic import BackgroundError, make_path
from experiments.design import layers
from experiments.design.carousel import content
from experiments.design.expansion import CellSpec
from experiments.design.networks import BACKGROUND_LANE
from protocols.adapter import Setup, Station
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network

FILE_BYTES: Final = 20_000_000  # of the other session, repeated
START_S: Final = 20.0  # before the replay, so that the session has found its rate
LISTEN_S: Final = 30.0
END_S: Final = 15.0
SHORT_PORT: Final = 5300
SESSION_LOG: Final = "rival.m2c-recv.log"
SHORT_LOG: Final = "short-flows.log"


class Place(Protocol):
    """What a rival needs of the cell that it competes with."""

    cell: CellSpec
    network: Network
    emulation: Emulation
    subscribers: list[str]
    logs: Path
    work: Path
    queues: Path

    @property
    def build(self) -> Path:
        """Return where the C programs are."""
        ...


class Rival:
    """Programs on the second lane, from `start` to `stop`."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it. Raises BackgroundError, NetworkError."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what still runs, in reverse order of starting. Idempotent."""
        for process in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
            if process.poll() is None:
                process.kill()
                process.wait()

    def popen(self, host: str, argv: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        """Start a program; its output goes to a log."""
        path = self.place.logs / log
        with path.open("ab") as text:
            process = self.place.emulation.popen(host, argv, stdout=text, stderr=text)
        self._running.append(process)
        return process

    def address(self, host: str) -> str:
        """Return a host's address on the second lane."""
        return self.place.network.host(host).path_nic(BACKGROUND_LANE).ip

    @property
    def publisher(self) -> str:
        """Return the host that sends."""
        return self.place.network.publisher.name


class Session(Rival):
    """Another session of layered multicast with one receiver, which stays."""

    def start(self) -> None:
        """Start sender and receiver, and let the receiver find its rate."""
        place, cell = self.place, self.place.cell
        host = place.subscribers[0]
        group = layers.rival_group(place.network.multicast_group)
        channels = layers.channels_of(group, cell.layers)
        make_path(place.emulation, place.network, [host], channels)
        work = place.queues / "rival"
        work.mkdir()
        file = work / "file"
        with file.open("wb") as stream:
            stream.writelines(content(cell.seed + 1, FILE_BYTES))
        setup = Setup(
            build=place.build,
            work=work,
            sender=Station(self.address(self.publisher), ""),
            receivers=(Station(self.address(host), ""),),
            group=group,
            port=layers.RIVAL_PORT,
            rate_bps=cell.shaped_bps,
            file_bytes=FILE_BYTES,
        )
        send = layers.send_argv(
            cell.layers, setup, file, fec=cell.carousel.fec, tsi=layers.RIVAL_TSI
        )
        self.popen(self.publisher, send, "rival.m2c-send.log")
        self.popen(host, layers.listen_argv(cell.layers, setup, 0), SESSION_LOG)
        time.sleep(START_S)
        for process in self._running:
            if process.poll() is not None:
                said = tail(place.logs / SESSION_LOG)
                raise BackgroundError(f"the competing session ended:\n{said}")


class ShortFlows(Rival):
    """TCP connections that carry a few bytes each, from the publisher to the first subscriber."""

    def start(self) -> None:
        """Start the server, and the client that connects as planned."""
        place, cell = self.place, self.place.cell
        host = place.subscribers[0]
        if not cell.background_flows:
            make_path(place.emulation, place.network, [host])
        seconds = cell.duration_s + cell.drain_timeout_s
        plan = layers.short_flows(cell.rivals.short_flows_per_min, seconds, cell.seed)
        file = place.work / "short-flows.json"
        file.write_text(json.dumps(plan))
        argv = [sys.executable, str(ROOT / "experiments/cells/short_flows.py")]
        where = [self.address(self.publisher), str(SHORT_PORT)]
        self.popen(self.publisher, [*argv, "serve", *where], "short-flows-server.log")
        listening, deadline = ":".join(where), time.monotonic() + LISTEN_S
        while listening not in place.emulation.run(self.publisher, ["ss", "-Hltn"]).stdout:
            if time.monotonic() > deadline:
                raise BackgroundError("the server of short flows did not start")
            time.sleep(0.05)
        self.popen(host, [*argv, "fetch", *where, str(file)], SHORT_LOG)


def rivals_of(place: Place) -> tuple[Rival, ...]:
    """Return the competitors besides long TCP flows."""
    rivals = place.cell.rivals
    return (
        *([Session(place)] if rivals.sessions else []),
        *([ShortFlows(place)] if rivals.short_flows_per_min else []),
    )
