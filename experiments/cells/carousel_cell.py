# SPDX-License-Identifier: Apache-2.0
"""A cell whose file a carousel sends (protocol fcast): receivers tune in, download, drop out.

It has a replay's network, rates, losses and monitoring; fcast-send and fcast-recv replace ldmd."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from common.files import tail
from experiments.cells import disk_throttle
from experiments.cells.cell_base import PROGRESS_S, CellError, Step, progress
from experiments.cells.disk_throttle import DiskError, Throttle
from experiments.cells.files_cell import FilesRun
from experiments.cells.peer_setup import setup_of
from experiments.cells.run_directory import write_json, write_text
from experiments.design import carousel
from experiments.design.shaping import Setting
from protocols.adapter import Setup

JOIN_S: Final = 1.0  # until receivers that tune in before the first symbol have reported
TURN_POLL_S: Final = 0.02  # between looks at which receivers have ended
SETTLE_S: Final = 1.0  # beyond the longest round trip: frames in transit


class CarouselRun(FilesRun):
    """The cell on a running network."""

    @property
    def needs_disk(self) -> bool:
        """Return whether the receivers' disk is slowed down (memory never is)."""
        return self.cell.carousel.disk_iops > 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the cell, in order."""
        return self.steps_with(
            ("making the file", self.make_file), ("comparing the files", self.list_products)
        )

    @property
    def setup(self) -> Setup:
        """Return the programs' options."""
        return setup_of(self.job, self.network, self.emulation, self.queues)

    # -- set-up -------------------------------------------------------------------------------
    def make_file(self) -> None:
        """Make the file at the sender and an empty directory at each receiver."""
        for host in (self.publisher, *self.subscribers):
            self._directory(host).mkdir(parents=True)
        size = self.cell.carousel.file_bytes
        with self._file(self.publisher).open("wb") as file:
            file.writelines(carousel.content(self.cell.seed, size))
        self.tune_in_at = carousel.tune_ins(self.cell.carousel, self.subscribers, self.cell.seed)
        self.tuned_in: dict[str, float] = {}  # host -> when it tuned in, epoch seconds
        self.throttle = self._slow_down()

    def _slow_down(self) -> Throttle | None:
        """Limit the writes of the receivers' disk; None: no limit."""
        asked = self.cell.carousel.disk_iops
        if not asked:
            return None
        try:
            throttle = disk_throttle.find(self.queues, f"downpour-{self.job.run_id}-{os.getpid()}")
            throttle.limit(asked)
        except DiskError as error:
            raise CellError(str(error)) from None
        self.settings.append(Setting("disk writes per second", asked, throttle.found()))
        return throttle

    def _directory(self, host: str) -> Path:
        return self.queues / host

    def _file(self, host: str) -> Path:
        return self._directory(host) / carousel.NAME

    # -- the carousel ---------------------------------------------------------------------------
    def _insert_and_wait(self) -> None:
        early = [host for host, at_s in self.tune_in_at.items() if at_s == 0]
        for host in early:
            self._tune_in(host)
        if early:
            time.sleep(JOIN_S)
        begin = time.time()
        self.times["insertion_started"] = self.times["insertion_ended"] = begin
        self._start_sender()
        self._turn(begin, [host for host in self.subscribers if host not in early])
        tuned = {
            host: {"at_s": round(at - begin, 6), "waited_s": round(max(0.0, begin - at), 6)}
            for host, at in self.tuned_in.items()
        }
        write_json(self.out / "tune-ins.json", tuned)
        self.times["drained"] = time.time()
        self.end_daemons()
        time.sleep(SETTLE_S + self.max_rtt_ms / 1000)

    def _turn(self, begin: float, waiting: list[str]) -> None:
        """Let later receivers tune in, until all have the file or time is up."""
        most_s = self.cell.duration_s + self.cell.drain_timeout_s
        told = 0.0
        while (now_s := time.time() - begin) <= most_s:
            while waiting and now_s >= self.tune_in_at[waiting[0]]:
                self._tune_in(waiting.pop(0))
            done = [h for h in self.subscribers if self._has_ended(h)]
            self.drained = len(done) == self.cell.m
            if self.drained:
                return
            if now_s - told >= PROGRESS_S:
                told = now_s
                progress(
                    now_s,
                    products=self.cell.m,
                    inserted=self.cell.m - len(waiting),
                    delivered=len(done),
                    draining=not waiting,
                )
                self.check_daemons()
            wait_s = TURN_POLL_S
            if waiting:
                wait_s = min(wait_s, max(0.0, self.tune_in_at[waiting[0]] - now_s))
            time.sleep(wait_s)

    def _has_ended(self, host: str) -> bool:
        return host in self.daemons and self.daemons[host].poll() is not None

    def send_argv(self, file: Path) -> list[str]:
        """Return the sender's command line."""
        return carousel.send_argv(
            self.cell.carousel,
            self.setup,
            rate_bps=self.cell.r_mc_bps,
            file=file,
            source=file.parent,
        )

    def receive_argv(self, receiver: int, directory: Path) -> list[str]:
        """Return a receiver's command line."""
        return carousel.receive_argv(self.cell.carousel, self.setup, receiver, directory)

    def log_name(self, host: str) -> str:
        """Return the name of a host's program's log, without `.log`."""
        kind = self.cell.protocol
        return f"{kind}-send" if host == self.publisher else f"{host}.{kind}-recv"

    def _start_sender(self) -> None:
        self._start(self.publisher, self.send_argv(self._file(self.publisher)))

    def _tune_in(self, host: str) -> None:
        argv = self.receive_argv(self.subscribers.index(host), self._directory(host))
        self.tuned_in[host] = time.time()
        self._start(host, argv)
        if self.throttle is not None:
            self.throttle.take(self.daemons[host].pid)

    def _start(self, host: str, argv: list[str]) -> None:
        with (self.logs / f"{self.log_name(host)}.log").open("ab") as text:
            self.daemons[host] = self.emulation.popen(host, argv, stdout=text, stderr=text)

    def check_daemons(self) -> None:
        """Check that the network and the sender still run, and that no receiver failed."""
        if problems := self.emulation.health():
            raise CellError("; ".join(problems))
        for host, process in self.daemons.items():
            code = process.poll()
            if code is None or (code == 0 and host != self.publisher):
                continue
            name = self.log_name(host)
            raise CellError(f"{name} ended with {code}:\n{tail(self.logs / f'{name}.log')}")

    def end_daemons(self) -> None:
        """End the sender first: it tells the receivers that are still listening."""
        running: dict[str, subprocess.Popen[bytes]] = dict(self.daemons)
        if (sender := running.pop(self.publisher, None)) is not None:
            self.end(sender, signal.SIGTERM)
        for process in running.values():
            self.end(process, signal.SIGTERM)
        if self.throttle is not None:
            self.throttle.remove()
            self.throttle = None

    # -- results ------------------------------------------------------------------------------
    def list_products(self) -> None:
        """Write digest, size and name of the file, recomputed from the bytes at every host."""
        for host in (self.publisher, *self.subscribers):
            file = self._file(host)
            line = ""
            if file.is_file():
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "md5").hexdigest()
                line = f"{digest} {file.stat().st_size} {carousel.NAME}\n"
            write_text(self.product_list(host), line)
