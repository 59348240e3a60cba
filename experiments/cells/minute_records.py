# SPDX-License-Identifier: Apache-2.0
"""The DRFSM paper's monitor (3.1): rtstats at each server sends records over LDM on the control
network to a monitor, whose pqact writes them into the cell: a subscriber's minutes to
`monitor/minutes.txt`, the rate of the publisher's path to `monitor/paths.txt`.

The monitor is the network's host with `role: monitor`. Where there is none (`--sample minutes`), it
runs at the control network's router. `downpour monitor import` reads its output.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from common.places import program
from experiments.design import configs
from protocols import ldm
from topologies.emulate.emulation import Emulation
from topologies.emulate.processes import end_process, tell_to_stop
from topologies.model.network import Network

NAME: Final = "monitor"
FILE: Final = "minutes.txt"  # in the cell's folder `monitor`
PATHS: Final = "paths.txt"  # beside it
QUEUE_BYTES: Final = 10_000_000
QUEUE_SLOTS: Final = 20_000
END_S: Final = 20.0
POLL_S: Final = 0.1
ACCEPTED: Final = 'ACCEPT EXP "rtstats-" ".*"\n'
RECORDED: Final = (
    f"EXP\t^ldm7-rtstats-[12]/\tFILE\t-flush\t{FILE}\n"
    f"EXP\t^ldm7-rtstats-path/\tFILE\t-flush\t{PATHS}\n"
)

Processes = dict[str, "subprocess.Popen[bytes]"]


class MonitorError(Exception):
    """The monitor does not run; the text says why."""


def rtstats_argv(build: Path, queue: Path, host: str, log: Path, server: str) -> list[str]:
    """Return the command of a server's rtstats. It begins with the minute in which it starts:
    its log may have products already."""
    own = log.with_name(f"{host}.rtstats.log")
    return [
        str(program("rtstats", build)),
        *["-q", str(queue), "-H", host, "-o", "1", "--ldmd-log", str(log), "-l", str(own)],
        *["-h", server, "-P", str(configs.LDM_PORT)],
    ]


class MinuteRecords:
    """The monitor's programs. `queues`, `logs`, `work`: folders of the cell."""

    def __init__(
        self, emulation: Emulation, network: Network, build: Path, queues: Path, out: Path
    ) -> None:
        self._emulation, self._network, self._build = emulation, network, build
        self._queues, self._out, self._logs = queues, out, out / "logs"
        self._node = (network.monitor or network.routers[0]).name
        self._own: Processes = {}
        self._senders: Processes = {}

    def start(self, work: Path) -> None:
        """Start the monitor's server and decoder. Raises MonitorError."""
        queue, folder = self._queues / f"{NAME}.pq", self._out / NAME
        folder.mkdir()
        made = subprocess.run(
            ldm.pqcreate_argv(self._build, queue, QUEUE_BYTES, QUEUE_SLOTS),
            capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode != 0:
            raise MonitorError(f"its queue: {made.stderr.strip()}")
        server, actions = work / f"{NAME}.ldmd.conf", work / f"{NAME}.pqact.conf"
        server.write_text(ACCEPTED, encoding="utf-8")
        actions.write_text(RECORDED, encoding="utf-8")
        log = self._logs / f"{NAME}.ldmd.log"
        argv = ldm.ldmd_argv(self._build, queue, "0.0.0.0", configs.LDM_PORT, log, server)
        self._own[NAME] = self._popen(self._node, argv, "ldmd")
        argv = [
            str(program("pqact", self._build)),
            *["-q", str(queue), "-f", "EXP", "-d", str(folder)],
            *["-l", str(self._logs / f"{NAME}.pqact.log")],
            str(actions),
        ]
        self._own["pqact"] = self._popen(self._node, argv, "pqact")

    def _popen(
        self, node: str, argv: list[str], name: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self._logs / f"{NAME}.{node}.{name}.stderr").open("ab") as errors:
            return self._emulation.popen(
                node, argv, stdout=errors, stderr=errors, env=dict(environment or {})
            )

    def follow(self, host: str, log: Path, environment: Mapping[str, str]) -> None:
        """Start rtstats at a server, with the server's clock."""
        monitor = self._network.monitor
        server = monitor.nic2.ip if monitor is not None else self._network.host(host).gateway2
        argv = rtstats_argv(self._build, self._queues / f"{host}.pq", host, log, server)
        self._senders[host] = self._popen(host, argv, "rtstats", environment)

    def check(self) -> None:
        """Raise MonitorError if one of its programs has ended."""
        for name, process in {**self._own, **self._senders}.items():
            if process.poll() is not None:
                raise MonitorError(f"{name} ended with {process.returncode}")

    def finish(self) -> None:
        """End rtstats, which sends its last records, and wait until they are in the files."""
        for process in self._senders.values():
            tell_to_stop(process)
        for process in self._senders.values():  # a second SIGTERM would interrupt it
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        files = [self._out / NAME / name for name in (FILE, PATHS)]
        size, since = -1, time.monotonic()
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline and time.monotonic() < since + 2:
            now = sum(file.stat().st_size for file in files if file.is_file())
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(POLL_S)
        self.stop()

    def stop(self) -> None:
        """End everything."""
        for process in {**self._senders, **dict(reversed(self._own.items()))}.values():
            end_process(process, grace_s=END_S)
