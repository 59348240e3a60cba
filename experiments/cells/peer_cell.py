# SPDX-License-Identifier: Apache-2.0
"""A cell whose products a protocol's own programs send as files (`protocols/`).

It has a replay's network, rates, losses and monitoring. The cell's process writes each product as a
file when the trace says so, and notes when a receiver has an identical copy.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from experiments.cells.cell_base import PROGRESS_S, CellError, Step, progress
from experiments.cells.files_cell import FilesRun
from experiments.cells.job import Job
from experiments.cells.peer_inboxes import Inboxes
from experiments.cells.peer_setup import setup_of
from experiments.cells.product_log import ProductLog
from experiments.cells.run_directory import write_json, write_text
from experiments.design.peer_products import PeerProduct, content, products_of
from experiments.verdict.cpu_load import Ended
from protocols import registry
from protocols.session import Session, SessionError
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network

AHEAD_BYTES: Final = 100_000_000  # of products that are written before they are due
TICK_S: Final = 0.2
BATCH_POLL_S: Final = 0.01  # has a batch ended?
SETTLE_S: Final = 1.0  # beyond the longest round trip: frames in transit
IDLE_S: Final = 30.0  # without an arrival, after the last product was sent: the rest is missing


class PeerRun(FilesRun):
    """The cell on a running network."""

    def __init__(self, job: Job, network: Network, emulation: Emulation, out: Path) -> None:
        super().__init__(job, network, emulation, out)
        self.adapter = registry.get(self.cell.protocol)
        self._hosts = (self.publisher, *self.subscribers)
        self._session: Session | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the cell, in order."""
        start = (f"starting {self.adapter.title}", self.start_programs)
        return self.steps_with(start, ("comparing the products", self.list_products))

    # -- set-up -------------------------------------------------------------------------------
    def start_programs(self) -> None:
        """Start the sender and the receivers, and wait until they are connected."""
        setup = setup_of(self.job, self.network, self.emulation, self.queues)
        self._products = products_of(self.job.trace.read_text(), self.feed.name)
        self._made: deque[PeerProduct] = deque()  # written, and not yet due
        self._next = 0  # the first that is not written
        self._session = Session(self.adapter, setup, self._launch, self.logs)
        self._inboxes = Inboxes(setup, self._products, keep_sources=self._session.is_batch)
        self._digests: dict[str, str] = {}
        self._created: dict[str, float] = {}
        self._sent = ProductLog(self.logs / "feed.log", "feed")
        self._arrived = [
            ProductLog(self.logs / f"{host}.inbox.log", "inbox") for host in self.subscribers
        ]
        try:
            self._session.get_ready()
        except SessionError as error:
            raise self._error(error) from None
        senders, receivers = self._session.senders, self._session.receivers
        self.daemons = {
            host: program.popen for host, program in zip(self.subscribers, receivers, strict=True)
        }
        if senders:
            self.daemons[self.publisher] = senders[0].popen

    def _launch(
        self,
        host: int,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes],
        stdout: IO[bytes],
        stderr: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        name = self._hosts[host]
        return self.emulation.popen(name, argv, stdin=stdin, stdout=stdout, stderr=stderr)

    # -- products -----------------------------------------------------------------------------
    def _insert_and_wait(self) -> None:
        assert self._session is not None
        self._write_ahead(all_at_once=True)
        begin = time.time()
        self.times["insertion_started"] = begin
        lateness_ms: list[float] = []
        told, last = 0.0, begin
        first_us = self._products[0].time_us
        total = len(self._products)
        while True:
            now = time.time()
            while self._made and begin + (self._made[0].time_us - first_us) / 1e6 <= now:
                product = self._made.popleft()
                due = begin + (product.time_us - first_us) / 1e6
                self._created[product.name] = now
                self._inboxes.sent.add(product.name)
                self._sent.inserted(product, self.feed.name, now, now)
                self._send(self._session.setup.source / product.name)
                lateness_ms.append(1000 * (now - due))
                last = now
            self._session.go_on()
            if len(lateness_ms) == total and "insertion_ended" not in self.times:
                self.times["insertion_ended"] = now
                size_bytes = sum(p.size_bytes for p in self._products)
                self._sent.replayed(total, size_bytes, now - begin, lateness_ms)
            if self._collect(self._wait_s(begin, first_us)):
                last = time.time()
            if now - told >= PROGRESS_S:
                told = now
                self._tell(now - begin, len(lateness_ms))
            if self._is_over(len(lateness_ms) == total, last):
                self.times["drained"] = time.time()
                break
        self._session.stop()
        time.sleep(SETTLE_S + self.max_rtt_ms / 1000)

    def _send(self, file: Path) -> None:
        assert self._session is not None
        try:
            self._session.send(file)
        except SessionError as error:
            raise self._error(error) from None

    def _error(self, what: object) -> CellError:
        return CellError(f"{self.adapter.title}: {what}")

    def _wait_s(self, begin: float, first_us: int) -> float:
        """Return how long to wait for an arrival; the rest of the time is for writing products."""
        assert self._session is not None
        self._write_ahead()
        wait_s = BATCH_POLL_S if self._session.is_sending else TICK_S
        if self._made:
            due = begin + (self._made[0].time_us - first_us) / 1e6
            wait_s = min(wait_s, max(0.0, due - time.time()))
        return wait_s

    def _write_ahead(self, *, all_at_once: bool = False) -> None:
        """Write the next product, or as many as may wait."""
        assert self._session is not None
        waiting = sum(p.size_bytes for p in self._made)
        while self._next < len(self._products) and (not self._made or waiting < AHEAD_BYTES):
            product = self._products[self._next]
            data = content(self.cell.seed, product)
            (self._session.setup.source / product.name).write_bytes(data)
            self._digests[product.name] = hashlib.md5(data, usedforsecurity=False).hexdigest()
            self._made.append(product)
            self._next += 1
            waiting += product.size_bytes
            if not all_at_once:
                return

    def _collect(self, wait_s: float) -> bool:
        """Note what has arrived within the time. Return whether something has."""
        found = self._inboxes.collect(wait_s)
        for i, product in found:
            created_s = self._created[product.name]
            self._arrived[i].inserted(product, self.feed.name, created_s, time.time())
        return bool(found)

    def _is_over(self, all_sent: bool, last: float) -> bool:
        """Return whether all products are everywhere, or no more can be expected."""
        assert self._session is not None
        self.drained = all_sent and not self._inboxes.missing
        if self.drained or not all_sent:
            return self.drained
        now = time.time()
        late = now - self.times["insertion_ended"] > self.cell.drain_timeout_s
        # One file arrives as a whole or not at all.
        is_idle = not self.cell.carousel.file_bytes and now - last > IDLE_S
        return late or (not self._session.is_sending and is_idle)

    def _tell(self, elapsed_s: float, sent: int) -> None:
        assert self._session is not None
        least = len(self._products) - max(self._inboxes.missing_by_receiver())
        products = len(self._products)
        progress(
            elapsed_s,
            products=products,
            inserted=sent,
            delivered=least,
            draining=sent == products,
        )
        if problems := self.emulation.health():
            raise CellError("; ".join(problems))
        if problem := self._session.failed():
            raise self._error(problem)

    def end_daemons(self) -> None:
        """End the programs."""
        if self._session is not None:
            self._session.stop()

    def ended_programs(self) -> list[Ended]:
        """Return the protocol's programs that have ended."""
        if self._session is None:
            return []
        hosts = [self.publisher] * len(self._session.senders) + list(self.subscribers)
        programs = (*self._session.senders, *self._session.receivers)
        return [
            Ended(host, program.name, program.pid, program.lifetime_s)
            for host, program in zip(hosts, programs, strict=True)
            if program.lifetime_s is not None
        ]

    def check_daemons(self) -> None:
        """Make `_tell` check the programs."""

    # -- results ------------------------------------------------------------------------------
    def list_products(self) -> None:
        """List what was sent and what every receiver got, with digests of the bytes."""
        inboxes = self._inboxes
        self._write_list(self.publisher, self._digests)
        for i, host in enumerate(self.subscribers):
            held = {n: d for n, d in self._digests.items() if (i, n) not in inboxes.missing}
            other = {n: digest for (j, n), digest in inboxes.other.items() if j == i}
            self._write_list(host, {**held, **other})
        assert self._session is not None
        again = {"delivered_again": float(inboxes.again)} if inboxes.again else {}
        write_json(
            self.out / "protocol.json",
            {
                "name": self.adapter.name,
                "title": self.adapter.title,
                "repairs": self.adapter.repairs,
                "settings": self.adapter.settings,
                "limits": list(self.adapter.limits),
                "counts": {**self._session.counts(), **again},
                "sessions": len(self._session.senders),
            },
        )

    def _write_list(self, host: str, digests: Mapping[str, str]) -> None:
        """Write a host's list of products. `digests`: MD5 by name."""
        lines = (
            f"{digests[p.name]} {p.size_bytes} {p.name}\n"
            for p in self._products
            if p.name in digests
        )
        write_text(self.product_list(host), "".join(lines))
