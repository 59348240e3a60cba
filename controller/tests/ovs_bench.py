# SPDX-License-Identifier: Apache-2.0
"""The core of sample.py as Open vSwitch's bridges, controllers for it, and frames counted through
it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from controller.api.path_client import PathClient, PathClientError
from controller.paths.core import core_of
from controller.paths.entries import LLDP_METER
from controller.tests import process
from controller.tests.sample import MAC_1, network
from controller.tests.switches import (
    PLAIN_TYPE,
    Bridge,
    PatchPort,
    Switches,
    raw_mac,
    receive,
)

Test = TypeVar("Test", bound=Callable[..., None])
NEEDS_OPEN_VSWITCH = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace"),
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]


def needs_open_vswitch(test: Test) -> Test:
    """Mark one test in the way that NEEDS_OPEN_VSWITCH marks a module."""
    for mark in NEEDS_OPEN_VSWITCH:
        test = mark(test)
    return test


COOKIE = "cookie=0x444f574e"  # "DOWN", then the kind and the path's number
MULTICAST = "01:00:5e:01:01:01"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ARP = 0x0806
ACCESS = {"s1": 1, "s2": 9, "s3": 9, "s4": 9}
CORE = core_of(network(), "core")
RATE = 20_000_000
EVERYONE: list[tuple[str, int | None]] = [("s2", 102), ("s3", 103), ("s4", 104)]


class Bench(Switches):
    """Namespace, database, switch daemon, bridges; controllers start as often as wanted. They share
    a store; number 1 exists only if `controllers` is 2 (and `options` make it a standby).
    """

    def __init__(
        self, directory: Path, *, controllers: int = 1, tls: Path | None = None,
        options: tuple[str, ...] = (), apps: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        """`apps`: the controller runs as an app of the framework's launcher, beside these
        others."""
        super().__init__(directory, "ctltest")
        self.ports = [16653 + number for number in range(controllers)]
        self.tls = tls
        self.options = options
        self.apps = apps
        self.running: dict[int, subprocess.Popen[str]] = {}
        (directory / "network.json").write_text(network().to_json())

    @property
    def targets(self) -> list[str]:
        """Return the switches' controllers, as ovs-vsctl set-controller takes them."""
        scheme = "tcp" if self.tls is None else "ssl"
        return [f"{scheme}:127.0.0.1:{port}" for port in self.ports]

    def open(self) -> None:
        targets = tuple(self.targets)
        self.open_switches(
            (Bridge(name, dpid, ACCESS[name], targets) for name, dpid in CORE.dpids.items()),
            (
                self.patch_port(hop.source, hop.source_port, hop.target, hop.target_port)
                for hop in CORE.hops
            ),
            tls=self.tls,
        )

    def patch_port(self, switch: str, port: int, peer: str, peer_port: int) -> PatchPort:
        """Return half of a core link."""
        return PatchPort(switch, f"{switch}-p{port}", port, f"{peer}-p{peer_port}")

    def close(self) -> None:
        for controller in self.running.values():
            process.end(controller)
        self.close_switches()

    def flows(self, switch: str) -> list[str]:
        """Return the controller's flows, except those that hand link probes to it."""
        lines = (line for line in self.dump("flows", switch) if COOKIE in line)
        return [line for line in lines if "dl_type=0x88cc" not in line]

    def groups(self, switch: str) -> list[str]:
        return [line.strip() for line in self.dump("groups", switch) if "group_id=" in line]

    def meters(self, switch: str) -> list[str]:
        """Return header and band of each meter, except the one for link probes."""
        lines = [line.strip() for line in self.dump("meters", switch)[1:] if line.strip()]
        pairs = zip(lines[::2], lines[1::2], strict=True)
        return [" ".join(pair) for pair in pairs if f"meter={LLDP_METER} " not in pair[0]]

    def start_controller(self, number: int = 0) -> None:
        """Start a controller; return when it has all switches in order, or stands by."""
        tls: list[str] = []
        if self.tls is not None:
            tls += ["--of-tls-key", str(self.tls / "controller-key.pem")]
            tls += ["--of-tls-cert", str(self.tls / "controller-cert.pem")]
            tls += ["--of-tls-ca", str(self.tls / "ca.pem")]
        arguments = [
            *("--network", str(self.directory / "network.json"), "--domain", "core"),
            *("--of-listen", f"127.0.0.1:{self.ports[number]}"),
            *("--rest-socket", str(self.rest_socket(number))),
            *("--store", str(self.directory / "store.db")),
            *("--log", str(self.log(number))),
            *tls,
            *self.options,
        ]
        controller = self.running[number] = (
            process.start(arguments, self.inside)
            if self.apps is None
            else process.start_app(arguments, self.directory, self.inside, self.apps)
        )
        with self.client(number) as client:
            process.wait_until("all switches ready", lambda: self._ready(controller, client), 60)

    def _ready(self, controller: subprocess.Popen[str], client: PathClient) -> bool:
        assert controller.poll() is None, controller.communicate()
        try:
            health = client.health()
        except PathClientError:
            return False
        return health["role"] == "standby" or all(health["switches"].values())

    def rest_socket(self, number: int = 0) -> Path:
        return self.directory / f"rest{number}.sock"

    def log(self, number: int = 0) -> Path:
        return self.directory / f"controller{number}.log"

    def stop_controller(self, how: signal.Signals, number: int = 0) -> None:
        controller = self.running.pop(number)
        controller.send_signal(how)
        controller.communicate(timeout=30)

    def client(self, number: int = 0) -> PathClient:
        return PathClient(self.rest_socket(number))


@dataclass
class Heard:
    """What one leaf heard: how often each number came, and when the last one did."""

    counts: Counter[int] = field(default_factory=Counter)
    last_s: float = 0.0
    longest_gap_s: float = 0.0


class Stream:
    """Sends numbered multicast frames into s1 within a context; afterwards it knows what each leaf
    lost and what came twice."""

    def __init__(self, bench: Bench, rate_per_s: int = 500) -> None:
        self._bench = bench
        self._period_s = 1 / rate_per_s
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send)
        self._receiver = threading.Thread(target=self._receive)
        self._finished = threading.Event()
        self.sent = 0
        self.heard = {switch: Heard() for switch in ACCESS if switch != "s1"}

    def __enter__(self) -> Stream:
        self._receiver.start()
        self._sender.start()
        process.wait_until("frames of the stream", lambda: self.sent > 50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._sender.join()
        time.sleep(0.5)  # for frames in transit
        self._finished.set()
        self._receiver.join()

    def lost(self, switch: str) -> int:
        return self.sent - len(self.heard[switch].counts)

    def doubled(self, switch: str) -> int:
        return sum(count > 1 for count in self.heard[switch].counts.values())

    def _send(self) -> None:
        packet = self._bench.sockets["x-s1"]
        head = raw_mac(MULTICAST) + raw_mac(MAC_1) + struct.pack("!HHH", 0x8100, 101, PLAIN_TYPE)
        due_s = time.monotonic()
        while not self._stopping.is_set():
            packet.send(head + b"stream" + self.sent.to_bytes(4, "big") + bytes(60))
            self.sent += 1
            due_s += self._period_s
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _receive(self) -> None:
        while not self._finished.is_set():
            for switch, heard in self.heard.items():
                packet = self._bench.sockets[f"x-{switch}"]
                while (seen := receive(packet)) is not None:
                    if seen.payload.startswith(b"stream"):
                        now_s = time.monotonic()
                        heard.counts[int.from_bytes(seen.payload[6:10], "big")] += 1
                        if heard.last_s:
                            heard.longest_gap_s = max(heard.longest_gap_s, now_s - heard.last_s)
                        heard.last_s = now_s
            time.sleep(0.001)


@contextlib.contextmanager
def open_bench(
    *,
    controllers: int = 1,
    tls: Path | None = None,
    options: tuple[str, ...] = (),
    apps: tuple[str, ...] | None = None,
) -> Iterator[Bench]:
    """Yield a bench whose controllers run."""
    # Not tmp_path: the management sockets' names must fit into 108 characters.
    with tempfile.TemporaryDirectory(prefix="ctltest-") as directory:
        bench = Bench(Path(directory), controllers=controllers, tls=tls, options=options, apps=apps)
        try:
            bench.open()
            for number in range(controllers):
                bench.start_controller(number)
            yield bench
        finally:
            bench.close()
