# SPDX-License-Identifier: Apache-2.0
"""What a token bucket passes of its rate, by its burst, with TCP before it as LDM6's is (16 flows).

A bucket of B bytes that is woken L too late loses the tokens above B: it passes at most B/L,
whatever its rate. MPUP16's scripts have `burst 50kb`; at 960 Mbit/s these last 0.43 ms. Two hosts
are joined by a veth; on the machine's clock, or, in a guest, with exact timers.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.shell import NetworkError, check, die_with_parent, in_node
from virtual.cores import available_cores

RATES_MBPS: Final = (320, 480, 640, 960)  # m x r of MPUP16: 16 x 20, 8 x 60, 16 x 40, 16 x 60
BURSTS_KB: Final = (50, 100, 200)  # of 1024 bytes, as tc's kb
LIMIT_BYTES: Final = 21_600_000
SETTLE_S: Final = 0.4
NIC: Final = "eth0"
SPIN: Final = "while True: pass"
RECEIVE: Final = """
import selectors, socket
listener, buffer = socket.create_server(("10.77.0.2", 5201), backlog=64), bytearray(1 << 20)
found = selectors.DefaultSelector()
found.register(listener, selectors.EVENT_READ)
print(flush=True)
while True:
    for key, _ in found.select():
        if key.fileobj is listener:
            found.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        try:
            alive = key.fileobj.recv_into(buffer)
        except OSError:
            alive = 0
        if not alive:
            found.unregister(key.fileobj)
            key.fileobj.close()
"""
SEND: Final = """
import selectors, socket
found, data = selectors.DefaultSelector(), bytes(1 << 16)
for _ in range(16):
    flow = socket.create_connection(("10.77.0.2", 5201))
    flow.setblocking(False)
    found.register(flow, selectors.EVENT_WRITE)
while True:
    for key, _ in found.select():
        key.fileobj.send(data)
"""


@dataclass(frozen=True)
class Setting:
    """A bucket, and whether packets reach it in segments of 64 kB (GSO)."""

    rate_mbps: int
    burst_kb: int
    gso: bool

    def __str__(self) -> str:
        return f"{self.rate_mbps} Mbit/s, {self.burst_kb} KB{', GSO' if self.gso else ''}"

    def commands(self) -> list[list[str]]:
        """Return what sets it up at the sender."""
        switch = "on" if self.gso else "off"
        bucket = ["rate", f"{self.rate_mbps}mbit", "burst", f"{self.burst_kb}kb"]
        return [
            ["ethtool", "-K", NIC, "gso", switch, "tso", switch],
            ["tc", "qdisc", "add", "dev", NIC, "root", "handle", "1:", "tbf", *bucket]
            + ["limit", str(LIMIT_BYTES)],
        ]


@dataclass(frozen=True)
class Passed:
    """What a bucket passed, in each round."""

    setting: Setting
    mbps: tuple[float, ...]

    @property
    def late_ms(self) -> float | None:
        """Return how late the bucket was woken on average; None if it passed its rate (to 2 %)."""
        passed = statistics.median(self.mbps)
        if passed >= 0.98 * self.setting.rate_mbps:
            return None
        return self.setting.burst_kb * 1024 * 8 / passed / 1e3


def settings() -> list[Setting]:
    """Return all settings, GSO changing fastest."""
    return list(itertools.starmap(Setting, itertools.product(RATES_MBPS, BURSTS_KB, (False, True))))


def parse_bytes(text: str) -> int:
    """Return the bytes that the bucket sent, from `tc -j -s qdisc show`. Raises ValueError."""
    for qdisc in json.loads(text):
        if qdisc.get("kind") == "tbf":
            return int(qdisc["bytes"])
    raise ValueError(f"found no tbf, but {text.strip()[:200]!r}; valid: tc's JSON of one")


def table(found: Sequence[Passed]) -> str:
    """Return a Markdown table: a line for each rate, a column for each burst."""
    by = {(p.setting.rate_mbps, p.setting.burst_kb, p.setting.gso): p for p in found}
    head = [f"{b} KB{', GSO' if g else ''}" for g in (False, True) for b in BURSTS_KB]
    lines = [f"| rate, Mbit/s | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for rate in RATES_MBPS:
        every = (by.get((rate, b, g)) for g in (False, True) for b in BURSTS_KB)
        cells = ["" if one is None else shown(one) for one in every]
        lines.append(f"| {rate} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shown(passed: Passed) -> str:
    """Return what a bucket passed, in words."""
    low, high = min(passed.mbps), max(passed.mbps)
    spread = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    late = passed.late_ms
    return spread if late is None else f"{spread} ({late:.2f} ms late)"


class Pair:
    """Two hosts joined by a veth, with TCP flows from 0 to 1. Everything ends with this process."""

    def __init__(self) -> None:
        self._running = [popen(["unshare", "-n", "sleep", "infinity"]) for _ in range(2)]
        ours = Path("/proc/self/ns/net").readlink()
        for one in self._running:
            while Path(f"/proc/{one.pid}/ns/net").readlink() == ours:
                if one.poll() is not None:
                    raise NetworkError("unshare -n: no network namespace; valid: as root")
                time.sleep(0.01)
        peer = ["peer", "name", NIC, "netns", str(self.pid(1))]
        self.run(0, ["ip", "link", "add", NIC, "type", "veth", *peer])
        for number in range(2):
            address = f"10.77.0.{number + 1}/24"
            for words in (["addr", "add", address, "dev", NIC], ["link", "set", NIC, "up"]):
                self.run(number, ["ip", *words])
        receiver = popen(in_node(self.pid(1), [sys.executable, "-c", RECEIVE]))
        self._running.append(receiver)
        if receiver.stdout is None or not receiver.stdout.readline():
            raise NetworkError(f"the receiver ended with {receiver.wait()} before it listened")

    def pid(self, host: int) -> int:
        """Return a process in a host's network namespace."""
        return self._running[host].pid

    def run(self, host: int, argv: list[str]) -> str:
        """Run a command in a host. Raises NetworkError."""
        return check(in_node(self.pid(host), argv))

    def sent(self) -> tuple[float, int]:
        """Return what the bucket has sent, after the time. Programs start late on a busy
        machine, so the time is the middle of the question."""
        before_s = time.monotonic()
        found = parse_bytes(self.run(0, ["tc", "-j", "-s", "qdisc", "show", "dev", NIC]))
        return (before_s + time.monotonic()) / 2, found

    def close(self) -> None:
        """End everything."""
        for one in reversed(self._running):
            one.kill()
            one.wait()


def popen(argv: list[str]) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process at the latest."""
    return subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=die_with_parent())


def measure(
    asked: Sequence[Setting], rounds: int, *, load: bool = False, seconds: float = 1.0
) -> Iterator[Passed]:
    """Measure the settings one after the other, `rounds` times. Yields a setting when its last
    round is done. Raises NetworkError."""
    found: dict[Setting, list[float]] = {one: [] for one in asked}
    with ExitStack() as stack:
        pair = Pair()
        stack.callback(pair.close)
        for _ in range(len(available_cores()) if load else 0):
            spinning = popen([sys.executable, "-c", SPIN])
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        for _ in range(rounds):
            for one in asked:
                found[one].append(_pass(pair, one, seconds))
                if len(found[one]) == rounds:
                    yield Passed(one, tuple(found[one]))


def _pass(pair: Pair, setting: Setting, seconds: float) -> float:
    """Return the Mbit/s that a bucket passes after its first moments."""
    for command in setting.commands():
        pair.run(0, command)
    sender = popen(in_node(pair.pid(0), [sys.executable, "-c", SEND]))
    try:
        time.sleep(SETTLE_S)
        begin_s, begin = pair.sent()
        time.sleep(seconds)
        end_s, end = pair.sent()
    finally:
        sender.kill()
        sender.wait()
        pair.run(0, ["tc", "qdisc", "del", "dev", NIC, "root"])
    if end == begin:
        raise NetworkError(f"{setting.rate_mbps} Mbit/s: nothing passed the bucket")
    return 8e-6 * (end - begin) / (end_s - begin_s)
