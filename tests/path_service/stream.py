# SPDX-License-Identifier: Apache-2.0
"""Run a counting multicast stream: a host sends numbered datagrams at a given rate, others print
which arrived and when (`selftest-udp`, with the kernel's time of each arrival)."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from topologies.emulate.emulation import Emulation, NetworkError
from topologies.watch import counters
from virtual.selftest.pair import UDP
from virtual.selftest.parse import Arrival, arrivals

FIRST_PORT: Final = 7777  # of lane 1
IDLE_MS: Final = 60_000  # longer than any test: `stop` ends the receivers
START_S: Final = 30.0
END_S: Final = 30.0
SETTLE_S: Final = 0.3
PATIENCE_S: Final = 3.0
ENDLESS: Final = 100_000_000
# A datagram's headers: Ethernet, IPv4 and UDP. A meter counts these, without VLAN tag and FCS; a
# queue also counts a tag in the frame.
OVERHEAD_BYTES: Final = 14 + 20 + 8


@dataclass(frozen=True)
class Account:
    """What happened to the datagrams `first` to `last` on the way to a receiver."""

    sent: int
    received: int  # without copies
    lost: int
    doubled: int
    reordered: int  # arrived after one with a higher number
    gap_ms: float  # longest time without an arrival
    late_ms: float  # longest time on the way less the shortest

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.lost} lost, {self.doubled} doubled, "
            f"{self.reordered} reordered, gap {self.gap_ms:.1f} ms"
        )


def account(found: Sequence[Arrival], first: int, last: int) -> Account:
    """Return the account of datagrams `first` to `last`, inclusive. `found` is ordered by time."""
    seen: set[int] = set()
    doubled = reordered = 0
    highest = -1
    mine = [a for a in found if first <= a.sequence <= last]
    for arrival in mine:
        if arrival.sequence in seen:
            doubled += 1
            continue
        seen.add(arrival.sequence)
        reordered += arrival.sequence < highest
        highest = max(highest, arrival.sequence)
    times = [a.arrived_ns for a in mine]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    ways = [a.arrived_ns - a.sent_ns for a in mine]
    sent = last - first + 1
    return Account(
        sent,
        len(seen),
        sent - len(seen),
        doubled,
        reordered,
        max(gaps, default=0) / 1e6,
        (max(ways) - min(ways)) / 1e6 if ways else 0.0,
    )


def rate_bps(found: Sequence[Arrival], payload_bytes: int) -> float:
    """Return the link's bits per second, with headers, from the first arrival to the last."""
    if len(found) < 2:
        return 0.0
    seconds = (found[-1].arrived_ns - found[0].arrived_ns) / 1e9
    return (len(found) - 1) * (payload_bytes + OVERHEAD_BYTES) * 8 / seconds


@dataclass(frozen=True)
class Result:
    sent: int
    arrivals: Mapping[str, Sequence[Arrival]]  # by receiver

    def at(self, host: str, first: int = 0) -> Account:
        """Return the account of all datagrams from `first` on."""
        return account(self.arrivals[host], first, self.sent - 1)


class Stream:
    """A stream. The constructor starts it; `stop` ends it. `lane` chooses NIC and group."""

    _running: ClassVar[list[Stream]] = []

    def __init__(
        self,
        emulation: Emulation,
        directory: Path,
        receivers: Sequence[str],
        *,
        lane: int = 1,
        payload_bytes: int = 200,
        interval_us: float = 1000.0,
    ) -> None:
        self.lane = lane
        self.payload_bytes = payload_bytes
        self._emulation = emulation
        self._directory = Path(tempfile.mkdtemp(prefix=f"stream-{lane}-", dir=directory))
        self._group = emulation.network.group_of(lane)
        self._port = FIRST_PORT + lane - 1
        self._receivers: dict[str, subprocess.Popen[bytes]] = {}
        for host in receivers:
            self._listen(host)
        for host in receivers:
            self._wait_ready(host)
        self._before = {host: self._arrived(host) for host in receivers}
        words = [self._group, self._port, ENDLESS, payload_bytes, round(interval_us * 1000)]
        self._sender = self._start(emulation.network.publisher.name, "send", *words)
        Stream._running.append(self)

    @classmethod
    def abandon_all(cls) -> None:
        """End the streams that a failed test did not stop: the next one needs the port."""
        while cls._running:
            stream = cls._running.pop()
            for process in (stream._sender, *stream._receivers.values()):
                process.kill()
                process.wait()

    def _start(self, host: str, *words: object) -> subprocess.Popen[bytes]:
        path = self._directory / host
        with path.open("wb") as out:
            argv = [str(UDP), *(str(word) for word in words)]
            return self._emulation.popen(host, argv, stdout=out, stderr=subprocess.STDOUT)

    def _listen(self, host: str) -> None:
        address = self._emulation.network.host(host).path_nic(self.lane).ip
        words = ["receive", self._port, IDLE_MS, self._group, address]
        self._receivers[host] = self._start(host, *words)

    def _wait_ready(self, host: str) -> None:
        deadline = time.monotonic() + START_S
        while b"ready\n" not in (self._directory / host).read_bytes():
            if time.monotonic() > deadline or self._receivers[host].poll() is not None:
                raise NetworkError(f"the stream's receiver at {host} did not start")
            time.sleep(0.01)

    def stop(self) -> Result:
        """Stop the sender, then, once all could arrive, the receivers. Raises NetworkError."""
        Stream._running.remove(self)
        sent = int(self._end(self._emulation.network.publisher.name, self._sender))
        self._settle(sent)
        texts = {host: self._end(host, process) for host, process in self._receivers.items()}
        return Result(
            sent,
            {host: arrivals(text.removeprefix("ready\n")) for host, text in texts.items()},
        )

    def _settle(self, sent: int) -> None:
        """Wait for copies, and longer where less arrived than was sent: on a busy machine the
        last datagrams may still be on the way."""
        time.sleep(SETTLE_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and any(
            self._arrived(host) - before < sent for host, before in self._before.items()
        ):
            time.sleep(0.05)

    def _arrived(self, host: str) -> int:
        path = Path(f"/proc/{self._emulation.pids[host]}/net/snmp")
        return int(counters.udp(path.read_text(encoding="ascii"))["in_datagrams"])

    def _end(self, host: str, process: subprocess.Popen[bytes]) -> str:
        process.terminate()
        code = process.wait(timeout=END_S)
        text = (self._directory / host).read_text()
        if code != 0:
            raise NetworkError(f"the stream's program at {host}: exit code {code}: {text[-300:]}")
        return text
