# SPDX-License-Identifier: Apache-2.0
"""Run ldmd in the hosts of a network, with nothing but its configuration, and read its log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from controller.api.path_client import PathAnswer, PathClient, PathClientError, endpoints_of
from topologies.emulate.emulation import Emulation

BUILD = Path(__file__).resolve().parents[2] / "build/ldm7"
LDM_PORT = 388
FEED = "NGRID"
PATIENCE_S = 120.0


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> float:
    """Wait until the condition holds; return how many seconds it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + timeout_s, f"no {what} within {timeout_s:g} s"
        time.sleep(0.02)
    return time.monotonic() - start


def time_of(line: str) -> float:
    """Return a log line's time in epoch seconds."""
    stamp = datetime.strptime(line.split(" ", 1)[0], "%Y%m%dT%H%M%S.%fZ")
    return stamp.replace(tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Join:
    """The milliseconds of a subscription. The publisher measures the first two; the others are from
    SUBSCRIBE's arrival at the publisher to an event in the subscriber's log."""

    confirmed_ms: float  # SUBSCRIBE's arrival to the path service's confirmation
    request_ms: float  # the part that the request to the path service takes
    receiving_ms: float  # to FMTP's connection
    first_product_ms: float

    def __str__(self) -> str:
        return (
            f"leaf confirmed {self.confirmed_ms:.1f} ms (request {self.request_ms:.1f} ms), FMTP "
            f"connected {self.receiving_ms:.1f} ms, first product {self.first_product_ms:.1f} ms"
        )


class Site:
    """The ldmds of a network whose publisher has one feed."""

    def __init__(self, emulation: Emulation, work: Path) -> None:
        self.emulation, self.work, self.network = emulation, work, emulation.network
        self.publisher = emulation.network.publisher.name
        self.root, self.leaves = endpoints_of(emulation.network)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    # -- the path service ---------------------------------------------------------------------
    def paths(self) -> list[PathAnswer]:
        with PathClient(self.emulation.controller_socket) as service:
            return service.paths()

    def leaf_keys(self) -> set[tuple[str, int, int]]:
        with PathClient(self.emulation.controller_socket) as service:
            try:
                found = service.get(FEED)["leaves"]
            except PathClientError:
                return set()
        return {(x["switch"], x["port"], x["vlan"]) for x in found}

    def key_of(self, host: str) -> tuple[str, int, int]:
        return self.leaves[self.network.segment_of(host).name].key

    # -- ldmd ---------------------------------------------------------------------------------
    def directory(self, host: str) -> Path:
        path = self.work / host
        path.mkdir(exist_ok=True)
        return path

    def queue(self, host: str) -> Path:
        return self.directory(host) / "ldm.pq"

    def log(self, host: str) -> str:
        path = self.directory(host) / "ldmd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, host: str, conf: str) -> None:
        directory = self.directory(host)
        if not self.queue(host).exists():
            make = [str(BUILD / "pqcreate"), "-s", "64m", "-S", "9000", "-q", str(self.queue(host))]
            subprocess.run(make, check=True)
        (directory / "ldmd.conf").write_text(conf)
        argv = [str(BUILD / "ldmd/ldmd"), "--user", "root", "-f", "-v"]
        argv += ["-q", str(self.queue(host))]
        argv += ["-P", str(LDM_PORT), "-I", self.network.host(host).nic2.ip]
        argv += ["-l", str(directory / "ldmd.log"), str(directory / "ldmd.conf")]
        self.running[host] = self.emulation.popen(host, argv)

    def start_publisher(
        self, *settings: str, fixed: bool = True, standby: Path | None = None
    ) -> None:
        """Start the publisher. `fixed`: also allow FMTP from the hosts' fixed addresses on the
        path. `standby`: a second controller's socket."""
        services = [self.emulation.controller_socket, *([standby] if standby else [])]
        network, hosts = self.network, self.network.subscribers
        nic = network.publisher.nic1
        addresses = [h.nic2.ip for h in hosts] + [h.nic1.ip for h in hosts if fixed]
        allowed = [f'ALLOW {FEED} "^{a.replace(".", "[.]")}$"' for a in addresses]
        multicast = (
            f"MULTICAST {FEED} {network.multicast_group}:38800 {nic.ip} {nic.prefix_len} "
            f"{self.root.vlan} {self.root.switch} {self.root.port}"
        )
        where = ",".join(f"unix:{socket}" for socket in services)
        common = ["SET fmtp.ttl 16", f"SET path.service {where}"]
        self.start(self.publisher, "\n".join([multicast, *allowed, *common, *settings]) + "\n")

    def start_subscriber(
        self, host: str, *settings: str, port: int | None = None, interface: str = ""
    ) -> None:
        """Start a subscriber. `port`: replaces its endpoint's port. `interface`: where to make the
        VLAN's interface."""
        switch, own_port, vlan = self.key_of(host)
        upstream = f"{self.network.publisher.nic2.ip}:{LDM_PORT}"
        nic1 = interface or self.network.host(host).nic1.ip
        receive = f"RECEIVE {FEED} {upstream} {nic1} {switch} {port or own_port} {vlan}"
        self.start(host, "\n".join([receive, *settings]) + "\n")

    def processes(self, host: str) -> Mapping[int, str]:
        """Return the process ids and names of the host's ldmd and its descendants."""
        found: dict[int, str] = {}
        todo = [self.running[host].pid]
        while todo:
            pid = todo.pop()
            try:
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            todo += [int(child) for child in children.split()]
        return found

    def kill(self, host: str, *names: str) -> float:
        """Kill these processes (all, without names) by SIGKILL; return the time."""
        now = time.monotonic()
        for pid, name in self.processes(host).items():
            if not names or name in names:
                os.kill(pid, signal.SIGKILL)
        if not names:
            self.running.pop(host).wait()
        return now

    def stop(self, host: str) -> None:
        process = self.running.pop(host)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()

    # -- products -----------------------------------------------------------------------------
    def feed(self, seconds: int, every_ms: int = 20) -> subprocess.Popen[bytes]:
        """Insert products of 1 to 3 kB into the publisher's queue, steadily, in the background."""
        trace = self.work / "trace.txt"
        times = [divmod(ms, 1000) for ms in range(0, seconds * 1000, every_ms)]
        lines = [
            f"{1000 + n * 7919 % 2000} 201506150000{s:02d}.{ms:03d}\n"
            if s < 60
            else f"{1000 + n * 7919 % 2000} 2015061500{s // 60:02d}{s % 60:02d}.{ms:03d}\n"
            for n, (s, ms) in enumerate(times)
        ]
        trace.write_text("".join(lines))
        argv = [str(BUILD / "pqinsert"), "-q", str(self.queue(self.publisher)), "-f", FEED]
        return self.emulation.popen(
            self.publisher, [*argv, "--trace", str(trace), "-l", str(self.work / "pqinsert.log")]
        )

    def insert(self, name: str) -> None:
        file = self.work / name
        file.write_bytes(os.urandom(5000))
        argv = [str(BUILD / "pqinsert"), "-q", str(self.queue(self.publisher)), "-f", FEED]
        subprocess.run([*argv, str(file)], check=True)

    def products(self, host: str) -> list[str]:
        argv = [str(BUILD / "pqcat"), "-q", str(self.queue(host)), "--list"]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return sorted(text.splitlines())

    def has_all(self, host: str) -> bool:
        return self.products(host) == self.products(self.publisher)

    # -- what the logs say --------------------------------------------------------------------
    def lines(self, host: str, text: str) -> list[str]:
        return [line for line in self.log(host).splitlines() if text in line]

    def join(self, host: str) -> Join:
        """Return a host's last subscription, once its first product has arrived."""
        address = self.network.host(host).nic2.ip
        asked = time_of(self.lines(self.publisher, f"request from {address} for")[-1])
        switch, port, vlan = self.key_of(host)
        added = f"leaf added: path={FEED}, endpoint={switch}:{port}:{vlan},"
        confirmed = self.lines(self.publisher, added)[-1]
        request_ms = re.search(r" ms=([\d.]+)", confirmed)
        assert request_ms is not None
        receiving = time_of(self.lines(host, " Receiving")[-1])
        first = [t for line in self.lines(host, "Received: {") if (t := time_of(line)) >= receiving]
        return Join(
            (time_of(confirmed) - asked) * 1e3,
            float(request_ms[1]),
            (receiving - asked) * 1e3,
            (first[0] - asked) * 1e3,
        )
